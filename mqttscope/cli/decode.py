"""``mqttscope decode``: decode bytes given in hexadecimal, from a log or a bug report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, READING, argument, make_command, option, options
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.options import Version, colour_option
from mqttscope.cli.pasted import Found, lines_of, sequences

if TYPE_CHECKING:
    from mqttscope.mqtt.constants import ProtocolVersion


@options
class DecodeOptions:
    """The options of ``decode``."""

    hexadecimal: tuple[str, ...] = argument("[HEX... | -]", nargs=-1)
    mqtt_version: ProtocolVersion | None = option(
        READING, "--mqtt-version", type=Version(), metavar="auto|3.1|3.1.1|5.0",
        help="Version of packets without a CONNECT before them. [default: auto]",
    )  # fmt: skip
    sender: str | None = option(
        READING, "--from", type=click.Choice(("client", "server")),
        help="Who sent the bytes. [default: as the packets suggest]",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "jsonl")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords and tokens.")
    colour: bool | None = colour_option()

    def __post_init__(self) -> None:
        if not self.hexadecimal:
            raise click.UsageError("Give bytes in hexadecimal, or - to read lines of them from standard input.")
        if "-" in self.hexadecimal and not self.from_input:
            raise click.UsageError("- reads standard input and goes with no other bytes.")
        if not "".join(self.hexadecimal).strip():
            raise click.UsageError("There are no bytes to decode.")

    @property
    def from_input(self) -> bool:
        return self.hexadecimal == ("-",)


@make_command(
    DecodeOptions,
    epilog="""\b
Examples:
  mqttscope decode 32 07 00 03 61 2f 62 00 0a --from client
  tshark -r site.pcapng -x -Y mqtt.msgtype==1 | mqttscope decode -
  grep -o 'rx: .*' device.log | cut -c5- | mqttscope decode - --mqtt-version 5.0 --format jsonl
""",
)
def command(given: DecodeOptions) -> int:
    r"""Decode bytes that are written in hexadecimal, as in a log or a bug report.

    HEX is one sequence of bytes, in one or more arguments; with - each line of standard input is one.  A sequence may
    hold several packets.  White space, colons, commas, 0x and \x are ignored.  Hexdumps with offsets, Python's
    b'\x10...', and strings and arrays of C are read as well.  Exit code 1 when a packet is malformed or incomplete, 3
    when a line holds no bytes.
    """
    from mqttscope.api.decoding import Sequence
    from mqttscope.cli.output import Output, awaited, make_view, warn

    hexadecimal, from_input = given.hexadecimal, given.from_input
    sink = Output(immediate=awaited(hexadecimal))
    view = make_view(colour=given.colour, time_format="none", show_secrets=given.show_secrets)
    code = EXIT_CLEAN
    unreadable = False
    try:
        for found in sequences(lines_of(sys.stdin)) if from_input else _given(hexadecimal):
            line, raw, problem = found.line, found.raw, found.problem
            if problem is not None:
                if not from_input:
                    raise click.UsageError(problem)
                unreadable = True
                warn(f"line {line}: {problem}")
                if given.form == "jsonl":
                    sink.write(_json_error(line, problem))
                continue
            if found.note is not None:
                warn(f"line {line}: {found.note}" if from_input else found.note)
            decoder = Sequence(given.mqtt_version, given.sender, line if from_input else None)
            if given.form == "jsonl":
                for shown in decoder.json(raw, view.payload_limit, show_secrets=given.show_secrets):
                    sink.write(shown)
            else:
                from mqttscope.report.tree import Tree

                if from_input:
                    sink.write(f"line {line}\n".encode())
                tree = Tree(sink, view)
                for event in decoder.events(raw, show_secrets=given.show_secrets):
                    tree.feed(event)
                tree.close()
            if decoder.malformed:
                code = EXIT_FINDINGS
    finally:
        sink.flush()
    return EXIT_UNREADABLE if unreadable else code


def _given(words: tuple[str, ...]) -> Iterator[Found]:
    """What the arguments hold: a hexdump in one of them, or one sequence in all."""
    text = " ".join(words)
    if "\n" in text:
        rows = list(sequences(enumerate(text.splitlines(keepends=True), 1)))
        if len(rows) == 1:
            yield rows[0]
            return
    yield next(sequences([(1, text.replace("\n", " ") if "{" not in text else text)]), Found(1))


def _json_error(line: int, problem: str) -> bytes:
    from mqttscope.report.jsonl import SCHEMA, dumps

    return dumps({"schema": SCHEMA, "event": "capture_error", "line": line, "message": problem}) + b"\n"
