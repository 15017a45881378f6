"""Options of ``redact``: which values are replaced, how, and which texts must not remain."""

from __future__ import annotations

import click

from mqttscope.cli.command import CHECKING, OUTPUT, VALUES, group, option, options
from mqttscope.cli.options import ProtocolOptions, captures_argument, comma_words

KINDS = (
    "passwords", "authentication", "user-names", "client-identifiers", "topics", "payloads", "correlation-data",
    "user-properties", "content-types", "reason-strings", "host-names", "http-headers", "tls", "addresses", "macs",
)  # fmt: skip
"""Names of `redact.kinds.Value`, repeated here because ``--help`` does not import it."""


def _kinds(name: str, text: str) -> tuple[str, ...]:
    kinds: tuple[str, ...] = option(
        VALUES,
        name,
        multiple=True,
        callback=comma_words,
        listed=KINDS,
        metavar="KINDS",
        help=text,
    )
    return kinds


@options
class RedactOptions:
    """The options of ``redact``."""

    captures: tuple[str, ...] = captures_argument()
    protocol: ProtocolOptions = group(ProtocolOptions)
    keep: tuple[str, ...] = _kinds("--keep", f"Leave these kinds of values unchanged: {', '.join(KINDS)}.")
    blank: tuple[str, ...] = _kinds(
        "--blank", "Overwrite these kinds of values with filler. [default: equal values get equal replacements]"
    )
    key_file: str | None = option(
        VALUES, "--key-file", metavar="FILE",
        help="File with the key of the replacements: the same key gives the same replacements in every run. [default: "
        "$MQTTSCOPE_REDACT_KEY, or a random key]",
    )  # fmt: skip
    checked: tuple[str, ...] = option(
        CHECKING, "--check", multiple=True, metavar="SECRET",
        help="Fail if this text is still in the capture, in any encoding; may be repeated.",
    )  # fmt: skip
    check_files: tuple[str, ...] = option(
        CHECKING, "--check-file", multiple=True, metavar="FILE",
        help="File with one such text per line; may be repeated.",
    )  # fmt: skip
    output: str | None = option(OUTPUT, "--output", "-o", metavar="FILE", help="Write the capture to this pcapng file.")
    form: str | None = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")),
        help="Report replaced and omitted values in this format. [default: no report]",
    )  # fmt: skip

    def __post_init__(self) -> None:
        from mqttscope.cli.output import CAPTURE, refuse_inputs, refuse_name

        both = set(self.keep) & set(self.blank)
        if both:
            raise click.UsageError(f"--keep and --blank both name {', '.join(sorted(both))}")
        if ("-" in self.captures) + [*self.check_files, self.key_file].count("-") > 1:
            raise click.UsageError("standard input (-) can be used once: as a capture, --check-file, or the key")
        if self.output is None:
            if not self.checked and not self.check_files:
                raise click.UsageError(
                    "give --output FILE for the new capture, or search these captures for texts with"
                    " --check TEXT or --check-file FILE"
                )
            of_writing = {
                "--format": self.form, "--keep": self.keep, "--blank": self.blank, "--key-file": self.key_file
            }  # fmt: skip
            for name, value in of_writing.items():
                if value:
                    raise click.UsageError(f"{name} needs --output FILE: nothing is replaced without it")
            return
        refuse_name(self.output, "--output", CAPTURE)
        refuse_inputs(
            self.output,
            self.captures,
            {"the file of --key-file": self.key_file},
        )
        for path in self.check_files:
            refuse_inputs(self.output, (), {"the file of --check-file": path})
