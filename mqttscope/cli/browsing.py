"""Runs ``browse``: opens captures or interfaces, builds the index, and shows the screens."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mqttscope.browse.app import Opened, browse
from mqttscope.browse.building import Builder, CaptureFiles, Item, TemporarySpool
from mqttscope.browse.index import Index
from mqttscope.capture.files import find_captures
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.cli.output import warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, FastPath
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.gate import Gate
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import View

if TYPE_CHECKING:
    from mqttscope.cli.linting_settings import Settings


SWITCH_SECONDS = 0.001
"""So long the thread that reads keeps the screens waiting, where Python's own 5 ms would be felt."""


YOUNG_OBJECTS = (10_000, 20, 500)
"""So many objects before cycles are looked for: often, since each time all threads wait."""


class CaptureSource:
    """Segments of captures."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def segments(self, skipped: Counter[str], fast_path: FastPath | None) -> Iterator[Item]:
        """All segments, but those that ``fast_path`` takes."""
        return self.reading.segments(skipped, fast_path=fast_path)

    def stop(self) -> None:
        """Nothing waits for anything."""


class FrameExport:
    """Reads captures again, and writes the frames of some packets."""

    def __init__(self, captures: tuple[str, ...], files: FileOptions, protocol: ProtocolOptions) -> None:
        self.captures, self.files, self.protocol = captures, files, protocol

    def __call__(self, packets: Sequence[int], path: str) -> int:
        """Write the frames of the packets with these numbers to a pcapng file; returns how many these are."""
        from mqttscope.cli.export import Export

        wanted = set(packets)
        export = Export(self.captures, path)
        reading = Reading(self.captures, self.files, export.stdin, export.fragments)
        dissector = Dissector(self.protocol.dissection(decrypting=reading.decrypting))
        for event in export.events(reading.segments(Counter()), dissector):
            if isinstance(event, PacketEvent | MalformedEvent) and event.number in wanted:
                export.note(event)
        export.write()
        return export.frames


def run(
    captures: tuple[str, ...],
    files: FileOptions,
    protocol: ProtocolOptions,
    view: View,
    settings: Settings | None,
    *,
    wanted: str = "",
    connection: int | None = None,
) -> int:
    """Show the screens until they are left; returns how many captures could not be read to their end.

    ``settings``: how to lint, ``None`` for not at all.  ``wanted`` is a filter to begin with.
    """
    if not view.colour:
        os.environ["NO_COLOR"] = "1"
    spool, opened_files = TemporarySpool(), CaptureFiles()
    linter = gate = None
    options = protocol.dissection()
    if settings is not None:
        linter, gate = Linter(settings.rules, complete=settings.complete), Gate(settings.policy(), rules=settings.rules)
        view.secret_length = settings.secret_length
        options = settings.options
    reading = Reading(captures, files)
    options.decrypting = reading.decrypting
    index = Index(spool, opened_files)
    builder = Builder(index, opened_files, CaptureSource(reading), Dissector(options), linter=linter, gate=gate)
    paths = [one for one in find_captures(captures) if isinstance(one, str)]
    named = [utf8(os.path.basename(path) or path) for path in (paths or captures)]
    opened = Opened(
        f"{named[0]} and {len(named) - 1} more" if len(named) > 1 else named[0],
        builder,
        view,
        FrameExport(captures, files, protocol),
        wanted=wanted,
        connection=connection,
        size=sum(map(_size, paths)),
    )
    switching = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*YOUNG_OBJECTS)
    try:
        browse(opened)
    finally:
        sys.setswitchinterval(switching)
        builder.stop()
        spool.close()
        opened_files.close()
    if builder.failure:
        warn(builder.failure)
    return builder.errors + bool(builder.failure)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
