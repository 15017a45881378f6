"""``mqttscope triage``, and ``mqttscope CAPTURE``: what a capture contains, what broke, and what to run next."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import escape, glob
from typing import TYPE_CHECKING

from mqttscope.cli.command import group, make_command, options
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions, captures_argument, colour_option

if TYPE_CHECKING:
    from mqttscope.triage.collect import TriageFault

MAX_TYPED_CHARACTERS = 200
"""Maximum length of capture names in a suggested command; longer lists become a pattern or a single capture."""


@options
class TriageOptions:
    """The options of ``triage``."""

    captures: tuple[str, ...] = captures_argument()
    protocol: ProtocolOptions = group(ProtocolOptions)
    files: FileOptions = group(FileOptions, shown={"keylog": "Key log for decrypting TLS. [default: $SSLKEYLOGFILE]"})
    colour: bool | None = colour_option()

    def repeated(self) -> Iterator[str]:
        """Options that make another command read the captures in the same way."""
        for port, spoken in self.protocol.ports:
            yield from ("--port", f"{port}:{spoken}")
        if self.protocol.mqtt_version is not None:
            yield from ("--mqtt-version", self.protocol.mqtt_version.text)
        if self.files.keylog is not None:
            yield from ("--keylog", self.files.keylog)
        if self.files.via is not None:
            yield from ("--via", self.files.via)
        if self.files.deduplicate:
            yield "--deduplicate"


@make_command(
    TriageOptions,
    epilog="""\b
Examples:
  mqttscope triage site.pcapng
  mqttscope triage day/*.pcap.zst --port 1884
  tcpdump -i eth0 -U -w - port 1883 | mqttscope triage -

Exit code 3 when a capture could not be read to its end, or contains no MQTT; problems do not change the exit code.
""",
)
def command(args: TriageOptions) -> int:
    """Show what a capture contains, what broke, and what to run next: the first look, on one screen.

    mqttscope CAPTURE is short for this. CAPTURE is a file, a glob, a directory, or - for standard input.
    """
    from mqttscope.cli import advice
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.configuration import warn_of_configuration
    from mqttscope.cli.output import Output, describe, describe_fault, is_terminal, make_view, warn
    from mqttscope.secrets.addresses import without_secrets
    from mqttscope.triage.collect import Triage
    from mqttscope.triage.screen import Screen

    warn_of_configuration()
    view = make_view(colour=args.colour, payload="none", payload_limit=0)
    run = CaptureRun(args.captures, args.files, args.protocol, shown=True)
    reading, watch, dissector = run.reading, run.watch, run.dissector
    triage = Triage(together=reading.deduplicate)
    segments = run.dissector.clock.follow(run.segments(triage.frames))
    with run.until_interrupted():
        for event in run.events(triage.explainer.watch.segments(segments)):
            triage.feed(event)
    triage.statistics.taps = reading.taps
    triage.finish()
    if run.read_nothing:
        if is_terminal():
            for fault in triage.errors:
                warn(describe(fault))
        if run.interrupt is not None:
            raise run.interrupt
        return EXIT_UNREADABLE
    screen = Screen(triage, view, typed_names(args.captures, triage.faults), [*args.repeated()])
    screen.errors = [(fault.capture, without_secrets(describe_fault(fault))) for fault in triage.errors]
    if run.interrupt is not None:
        screen.errors.append(("", "interrupted: the captures were not read to their end"))
    screen.is_read_once |= any(map(_is_fifo, args.captures))
    screen.other_tls, screen.decrypting = dissector.other_tls, args.files.keylog is not None or reading.decrypting
    if not dissector.connections and not triage.errors:
        # TLS has a separate row.
        screen.no_mqtt = advice.nothing_found(dissector).partition(";")[0]
    remarks = [
        advice.not_read(dissector, watch.skipped, via=reading.via), advice.snap_length(dissector, watch.skipped),
        # The limits of the verdict already mention single directions.
        *advice.of_connections(dissector, deduplicates=reading.deduplicate, one_sided=False), *reading.advice(),
    ]  # fmt: skip
    screen.remarks = [remark.removeprefix("not read: ") for remark in remarks if remark]
    Output().write_all(screen.rendered())
    if run.interrupt is not None:
        raise run.interrupt
    return EXIT_UNREADABLE if watch.errors or not triage.is_judged else EXIT_CLEAN


def _is_fifo(name: str) -> bool:
    """Whether a capture is a named pipe, such as a shell's ``<(...)``."""
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(os.stat(name).st_mode)
    return False


def typed_names(captures: Sequence[str], faults: Sequence[TriageFault] = ()) -> list[str]:
    """Capture names for a suggested command: all, a pattern that matches exactly these, or one capture with a fault."""
    names = [f"./{name}" if name.startswith("-") and name != "-" else name for name in captures]
    if len(names) == 1 or sum(map(len, names)) <= MAX_TYPED_CHARACTERS:
        return names
    first = _common_beginning(names)
    last = _common_beginning([name[len(first) :][::-1] for name in names])[::-1]
    pattern = f"{escape(first)}*{escape(last)}"
    if sorted(glob(pattern)) == sorted(set(names)):
        return [pattern]
    return [next((fault.capture for fault in faults if os.path.exists(fault.capture)), names[0])]


def _common_beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    length = next((place for place, pair in enumerate(zip(first, last, strict=False)) if len({*pair}) > 1), len(first))
    return first[:length]
