"""Runs ``browse``: opens captures or interfaces, builds the index, and shows the screens."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mqttscope.browse.app import Opened, browse
from mqttscope.browse.building import Builder, CaptureFiles, Item, TemporarySpool
from mqttscope.browse.index import Index
from mqttscope.capture.files import find_captures
from mqttscope.cli.output import warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, FastPath
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.gate import Gate
from mqttscope.mqtt.view import utf8

if TYPE_CHECKING:
    from mqttscope.cli.browse import BrowseOptions
    from mqttscope.cli.linting_settings import Settings


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

    def __init__(self, given: BrowseOptions) -> None:
        self.given = given

    def __call__(self, packets: Sequence[int], path: str) -> int:
        """Write the frames of the packets with these numbers to a pcapng file; returns how many these are."""
        from mqttscope.cli.export import Export

        given, wanted = self.given, set(packets)
        export = Export(given.captures, path)
        reading = Reading(given.captures, given.files, export.stdin, export.fragments)
        dissector = Dissector(given.protocol.dissection(decrypting=reading.decrypting))
        for event in export.events(reading.segments(Counter()), dissector):
            if isinstance(event, PacketEvent | MalformedEvent) and event.number in wanted:
                export.note(event)
        export.write()
        return export.frames


def run(given: BrowseOptions, settings: Settings | None) -> int:
    """Show the screens until they are left; returns how many captures could not be read to their end."""
    view = given.view.view(colour=given.colour)
    if not view.colour:
        os.environ["NO_COLOR"] = "1"
    spool, files = TemporarySpool(), CaptureFiles()
    linter = gate = None
    if settings is not None:
        linter, gate = Linter(settings.rules, complete=settings.complete), Gate(settings.policy(), rules=settings.rules)
        view.secret_length = settings.secret_length
    reading = Reading(given.captures, given.files)
    options = settings.options if settings is not None else given.protocol.dissection()
    options.decrypting = reading.decrypting
    index = Index(spool, files)
    builder = Builder(index, files, CaptureSource(reading), Dissector(options), linter=linter, gate=gate)
    found = find_captures(given.captures)
    paths = [one for one in found if isinstance(one, str)]
    named = [utf8(os.path.basename(path)) for path in (paths or given.captures)]
    opened = Opened(
        f"{named[0]} and {len(named) - 1} more" if len(named) > 1 else named[0],
        builder,
        view,
        FrameExport(given),
        wanted=given.selection.expression or "",
        connection=given.selection.connection[0] if given.selection.connection else None,
        size=lambda total=sum(map(_size, paths)): total,  # type: ignore[misc]
    )
    switching = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    try:
        browse(opened)
    finally:
        sys.setswitchinterval(switching)
        builder.stop()
        spool.close()
        files.close()
    if builder.failure:
        warn(builder.failure)
    return builder.errors + bool(builder.failure)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
