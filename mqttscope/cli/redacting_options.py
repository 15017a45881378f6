"""What the command line says to ``redact``: which values are replaced, how, and what is looked for afterwards."""

from __future__ import annotations

import click

from mqttscope.cli.command import CHECKING, OUTPUT, VALUES, group, option, options
from mqttscope.cli.options import ProtocolOptions, captures_argument, comma_words

KINDS = (
    "passwords", "authentication", "user-names", "client-identifiers", "topics", "payloads", "correlation-data",
    "user-properties", "content-types", "reason-strings", "host-names", "http-headers", "tls", "addresses", "macs",
)  # fmt: skip
"""`redact.kinds.Value`, which is not loaded for ``--help``."""


def _kinds(name: str, text: str) -> tuple[str, ...]:
    made: tuple[str, ...] = option(
        VALUES,
        name,
        multiple=True,
        callback=comma_words,
        listed=KINDS,
        metavar="KINDS",
        help=text,
    )
    return made


@options
class RedactOptions:
    """The options of ``redact``."""

    captures: tuple[str, ...] = captures_argument()
    protocol: ProtocolOptions = group(ProtocolOptions)
    keep: tuple[str, ...] = _kinds("--keep", f"Leave these kinds of values as they are: {', '.join(KINDS)}.")
    blank: tuple[str, ...] = _kinds(
        "--blank", "Write filler over these kinds of values. [default: equal values become equal values]"
    )
    key_file: str | None = option(
        VALUES, "--key-file", metavar="FILE",
        help="File with the key of the replacements: the same key gives the same ones in another run. [default: "
        "$MQTTSCOPE_REDACT_KEY, or a random key]",
    )  # fmt: skip
    checked: tuple[str, ...] = option(
        CHECKING, "--check", multiple=True, metavar="SECRET",
        help="Fail if this text is still in what is written, in any encoding; may be repeated.",
    )  # fmt: skip
    check_files: tuple[str, ...] = option(
        CHECKING, "--check-file", multiple=True, metavar="FILE",
        help="File with one such text a line; may be repeated.",
    )  # fmt: skip
    output: str | None = option(OUTPUT, "--output", "-o", metavar="FILE", help="Write the capture to this pcapng file.")
    form: str | None = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")),
        help="Report in this format what was replaced and left out. [default: no report]",
    )  # fmt: skip

    def __post_init__(self) -> None:
        from mqttscope.cli.output import CAPTURE, refuse_inputs, refuse_name

        both = set(self.keep) & set(self.blank)
        if both:
            raise click.UsageError(f"--keep and --blank both name {', '.join(sorted(both))}")
        if ("-" in self.captures) + [*self.check_files, self.key_file].count("-") > 1:
            raise click.UsageError("standard input (-) is one thing: a capture, the texts of --check-file, or the key")
        if self.output is None:
            if not self.checked and not self.check_files:
                raise click.UsageError(
                    "name a file for the new capture with --output FILE, or texts to look for in these captures with"
                    " --check TEXT or --check-file FILE"
                )
            of_writing = {
                "--format": self.form, "--keep": self.keep, "--blank": self.blank, "--key-file": self.key_file
            }  # fmt: skip
            for name, given in of_writing.items():
                if given:
                    raise click.UsageError(f"{name} is about what is replaced, and needs --output FILE")
            return
        refuse_name(self.output, "--output", CAPTURE)
        refuse_inputs(
            self.output,
            self.captures,
            {"the file of --key-file": self.key_file},
        )
        for one in self.check_files:
            refuse_inputs(self.output, (), {"the file of --check-file": one})
