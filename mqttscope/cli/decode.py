"""``mqttscope decode``: decode hexadecimal bytes from a log or a bug report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, READING, argument, make_command, option, options
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.options import Version, colour_option
from mqttscope.cli.pasted import PastedSequence, lines_of, sequences

if TYPE_CHECKING:
    from mqttscope.mqtt.constants import ProtocolVersion


@options
class DecodeOptions:
    """The options of ``decode``."""

    hexadecimal: tuple[str, ...] = argument("[HEX... | -]", nargs=-1)
    mqtt_version: ProtocolVersion | None = option(
        READING, "--mqtt-version", type=Version(), metavar="auto|3.1|3.1.1|5.0",
        help="MQTT version of packets that follow no CONNECT. [default: auto]",
    )  # fmt: skip
    sender: str | None = option(
        READING, "--from", type=click.Choice(("client", "server")),
        help="Sender of the bytes. [default: inferred from the packets]",
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
            raise click.UsageError("- reads standard input and cannot be combined with other bytes.")
        if not "".join(self.hexadecimal).strip():
            raise click.UsageError("The input has no bytes to decode.")

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
def command(args: DecodeOptions) -> int:
    r"""Decode hexadecimal bytes, such as from a log or a bug report.

    HEX is one sequence of bytes, in one or more arguments; with - each line of standard input is a sequence.  A
    sequence may contain several packets.  White space, colons, commas, 0x and \x are ignored.  Hexdumps with offsets,
    Python's b'\x10...', and strings and arrays of C work too.  Exit code 1 when a packet is malformed or incomplete,
    3 when a line contains no bytes.
    """
    from mqttscope.api.decoding import Sequence
    from mqttscope.cli.output import Output, awaited, make_view, warn

    hexadecimal, from_input = args.hexadecimal, args.from_input
    sink = Output(immediate=awaited(hexadecimal))
    view = make_view(colour=args.colour, time_format="none", show_secrets=args.show_secrets)
    code = EXIT_CLEAN
    unreadable = False
    try:
        for pasted in sequences(lines_of(sys.stdin)) if from_input else _pasted(hexadecimal):
            line, raw, problem = pasted.line, pasted.raw, pasted.problem
            if problem is not None:
                if not from_input:
                    raise click.UsageError(problem)
                unreadable = True
                warn(f"line {line}: {problem}")
                if args.form == "jsonl":
                    sink.write(_json_error(line, problem))
                continue
            if pasted.note is not None:
                warn(f"line {line}: {pasted.note}" if from_input else pasted.note)
            decoder = Sequence(args.mqtt_version, args.sender, line if from_input else None)
            if args.form == "jsonl":
                for shown in decoder.json(raw, view.payload_limit, show_secrets=args.show_secrets):
                    sink.write(shown)
            else:
                from mqttscope.report.tree import Tree

                if from_input:
                    sink.write(f"line {line}\n".encode())
                tree = Tree(sink, view)
                for event in decoder.events(raw, show_secrets=args.show_secrets):
                    tree.feed(event)
                tree.close()
            if decoder.malformed:
                code = EXIT_FINDINGS
    finally:
        sink.flush()
    return EXIT_UNREADABLE if unreadable else code


def _pasted(words: tuple[str, ...]) -> Iterator[PastedSequence]:
    """Sequence in the arguments: a hexdump in one of them, or bytes in all of them."""
    text = " ".join(words)
    if "\n" in text:
        rows = list(sequences(enumerate(text.splitlines(keepends=True), 1)))
        if len(rows) == 1:
            yield rows[0]
            return
    yield next(sequences([(1, text.replace("\n", " ") if "{" not in text else text)]), PastedSequence(1))


def _json_error(line: int, problem: str) -> bytes:
    from mqttscope.report.jsonl import SCHEMA, dumps

    return dumps({"schema": SCHEMA, "event": "capture_error", "line": line, "message": problem}) + b"\n"
