"""Runs ``browse``: opens captures, interfaces or a lake, builds the index, and shows the screens."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mqttscope.browse.app import browse
from mqttscope.browse.building import Builder, CaptureFiles, Item, PassFrames, SegmentSource, TemporarySpool
from mqttscope.browse.index import Index
from mqttscope.browse.originals import Originals, UnchangedSource
from mqttscope.browse.settings import BrowserSettings
from mqttscope.capture.files import find_captures
from mqttscope.capture.live import LiveCapture, NotPermittedError
from mqttscope.capture.write import Recorder
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.metrics import MetricsOptions
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.cli.output import warn
from mqttscope.cli.privileges import screen
from mqttscope.cli.reading import CommandReading
from mqttscope.cli.sniffing import SILENCE_NS, choose, live_capture, record
from mqttscope.dissect import Dissector, FastPath, segments
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.explain import Explainer
from mqttscope.explain.edge_nodes import NodeWatch
from mqttscope.lint.engine import Linter
from mqttscope.lint.gate import Gate
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.report.base import View
from mqttscope.report.escape import escape

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from mqttscope.analysis.local import LocalEngine
    from mqttscope.cli.linting_settings import LintSettings
    from mqttscope.lake.store import Place


SWITCH_SECONDS = 0.001
"""Interval between pauses of the reading thread for the screens; Python's default of 5 ms would be noticeable."""


YOUNG_OBJECTS = (10_000, 20, 500)
"""Thresholds of the garbage collector: frequent short collections, because all threads wait for each."""


LAKE_MEMORY = 256 << 20
"""Maximum memory of each of the two engines for rows of a lake, in bytes."""
TABLES_SHOWN = ("packets", "gaps", "connections", "findings", "ingest_errors")
"""Tables of a lake that the screens show."""


class CaptureSource:
    """Segments of captures."""

    def __init__(self, reading: CommandReading) -> None:
        self.reading = reading

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        """All segments without the ones that ``fast_path`` handles; ``frames`` passes on their frames."""
        return self.reading.segments(skipped, frames, fast_path)

    def stop(self) -> None:
        """Nothing to stop."""


class FrameExport:
    """Reads captures again, and writes the frames of some packets."""

    def __init__(self, captures: tuple[str, ...], files: FileOptions, protocol: ProtocolOptions) -> None:
        self.captures, self.files, self.protocol = captures, files, protocol

    def __call__(self, packets: Sequence[int], path: str) -> int:
        """Write the frames of the packets with these numbers to a pcapng file; returns the number of frames."""
        from mqttscope.cli.export import Export

        wanted = set(packets)
        export = Export(self.captures, path, deduplicate=self.files.deduplicate)
        reading = CommandReading(self.captures, self.files, export.stdin, export.fragments)
        dissector = reading.dissector(self.protocol.dissection())
        for event in export.events(reading.segments(Counter()), dissector):
            if isinstance(event, PacketEvent | MalformedEvent) and event.number in wanted:
                export.note(event)
        export.write()
        return export.frames


class LiveSource:
    """Segments of a live capture, which also records the frames."""

    def __init__(self, capture: LiveCapture, recorder: Recorder, dissector: Dissector, monitor: LiveMonitor) -> None:
        """``monitor``: gets the time, and the segments before the dissector."""
        self.monitor = monitor
        self.capture = capture
        self.recorder = recorder
        self.frames = 0
        self.dissector = dissector
        self.feed: Callable[[Event], None] = lambda event: None
        """Receives the events of silent periods."""
        capture.waiting = self._wait
        dissector.clock.machine = capture.clock.set_by_ns

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        """All segments; ``fast_path`` is not used, because it needs a file."""
        source = self.monitor.frames(self._recorded())
        return self.monitor.segments(self.dissector.clock.follow(segments(source, skipped)))

    def stop(self) -> None:
        self.capture.stop(settle=False)

    def _recorded(self) -> Iterator[Frame | CaptureNotice]:
        for item in self.capture.frames():
            if isinstance(item, Frame):
                self.frames += 1
                self.recorder.write(item)
            yield item

    def _wait(self) -> None:
        self.recorder.flush()
        if self.capture.silent:
            # Release the last frames, which the clock has held back.
            for item in self.monitor.segments(self.dissector.clock.release()):
                for event in self.dissector.take(item):
                    self.feed(event)
            for event in self.dissector.advance(self.capture.clock.now_ns() - SILENCE_NS):
                self.feed(event)
        self.monitor.pass_live_time(self.capture, self.frames)


@dataclass(slots=True)
class ViewingOptions:
    """Options for reading, linting and showing."""

    protocol: ProtocolOptions
    view: View
    settings: LintSettings | None
    """Settings of the linter, or ``None`` without linting."""
    wanted: str = ""
    """Initial filter."""
    connection: int | None = None
    overview: bool = False
    """Whether the overview is shown first."""
    seconds: float | None = None
    """Time until the browser ends; ``None`` without limit."""


def run_captures(captures: tuple[str, ...], files: FileOptions, looking: ViewingOptions) -> int:
    """Show captures until the user quits; returns the number of incomplete captures."""
    reading = CommandReading(captures, files)
    paths = [path for path in find_captures(captures) if isinstance(path, str)]
    named = [escape(utf8(os.path.basename(path) or path)) for path in (paths or captures)]
    title = f"{named[0]} and {len(named) - 1} more" if len(named) > 1 else named[0]
    export = FrameExport(captures, files, looking.protocol)
    return _show(
        looking, title, lambda dissector: CaptureSource(reading), export, reading=reading,
        together=reading.deduplicate, size=sum(map(_size, paths)),
    )  # fmt: skip


@dataclass(slots=True)
class FrameFiles:
    """Where captured frames are written."""

    target: str | None = None
    """``None`` for a temporary file."""
    ring_bytes: int | None = None
    ring_files: int | None = None


def run_live(
    interfaces: tuple[str, ...], bpf: str, recording: FrameFiles, looking: ViewingOptions, metrics: MetricsOptions
) -> int:
    """Show interfaces until the user quits, then print what was captured; returns the number of errors."""
    capture = live_capture(choose(interfaces), bpf, [port for port, _ in looking.protocol.ports])
    with ExitStack() as left:
        target = recording.target
        if target is None:
            folder = left.enter_context(tempfile.TemporaryDirectory(prefix="mqttscope-"))
            target = os.path.join(folder, "live.pcapng")
        recorder = record(target, recording.ring_bytes, recording.ring_files)
        assert recorder is not None
        left.callback(recorder.close)
        linted = () if looking.settings is None else {rule.code for rule in looking.settings.rules}
        monitor = LiveMonitor(capture.name, linted=linted, hiding=looking.view.hiding())
        left.enter_context(metrics.serving(monitor))
        has_ring = recording.ring_bytes is not None
        errors = _show(
            looking, escape(utf8(capture.name)), lambda dissector: LiveSource(capture, recorder, dissector, monitor),
            None if has_ring else FrameExport((target,), FileOptions(), looking.protocol),
            no_frames="the files of --write have the frames, but old files are removed" if has_ring else "",
            live=True, monitor=monitor,
        )  # fmt: skip
        if recording.target is not None and not errors:
            warn(recorder.summary())
        if capture.dropped:
            warn(f"{counted(capture.dropped, 'frame')} dropped")
        return errors


_CONNECTIONS = """
create temp table if not exists found_connections as
select connection_id, capture as in_capture, min(closed_capture) as closed_capture,
       row_number() over (order by min(found_ns), min(found_capture), min(found_frame), connection_id, capture) - 1
       as number, count(*) over (partition by connection_id) > 1 as alike
from connections group by connection_id, capture
"""
"""Connections by capture: equal names in two captures need not be parts of one connection."""
_NUMBERED = """
create temp table if not exists numbered as
select connection_id, number, case when alike then in_capture end as in_capture from found_connections
"""
_CONTINUED = """
insert into numbered
select held.connection_id, arg_min(found.number, (held.capture is distinct from found.closed_capture, -found.number)),
       held.capture
from (
  select connection_id, capture from packets union select connection_id, capture from gaps
  union select connection_id, capture from findings
) as held join found_connections as found using (connection_id)
where found.alike and not exists (
  select 1 from numbered where numbered.connection_id = held.connection_id and in_capture = held.capture
)
group by held.connection_id, held.capture
"""
"""Captures that continue connections with equal names: the capture that ended there, else the latest one."""


class LakeTables:
    """The tables of a lake for one thread: `browse.lakes.Tables` by DuckDB."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        with self._asking():
            engine.make_views(TABLES_SHOWN)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries; `LakeError` if the lake cannot be read."""
        with self._asking():
            done = self._ask(query, values)
            names = [column[0] for column in done.description or ()]
            return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def tuples(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query as tuples."""
        with self._asking():
            return self._ask(query, values).fetchall()

    def number_connections(self) -> None:
        """Make the table ``numbered``: connections in order of recognition."""
        with self._asking():
            ask = self._engine.connection.execute
            ask(_CONNECTIONS)
            ask(_NUMBERED)
            if ask("select 1 from numbered where in_capture is not null limit 1").fetchone():
                ask(_CONTINUED)

    def _ask(self, query: str, values: Sequence[Any]) -> DuckDBPyConnection:
        return self._engine.connection.execute(query, list(values))

    def _asking(self) -> ErrorTranslation:
        import duckdb

        from mqttscope.analysis.query import sentence
        from mqttscope.lake.manifest import LakeError

        return ErrorTranslation(LakeError, duckdb.Error, before=f"{self._engine.lake} cannot be read: ", text=sentence)


class SourceCapture:
    """A source capture of a lake, read into a separate index."""

    def __init__(self, path: str, digests: Collection[str], files: FileOptions, protocol: ProtocolOptions) -> None:
        reading = CommandReading([path], files)
        dissector = reading.dissector(protocol.dissection())
        source = UnchangedSource(path, digests, CaptureSource(reading))
        self._spool, self._files = TemporarySpool(), CaptureFiles()
        self.size = _size(path)
        self.builder = Builder(Index(self._spool, self._files), self._files, source, dissector)

    def close(self) -> None:
        self.builder.stop()
        self._spool.close()
        self._files.close()


def run_lake(place: Place, files: FileOptions, looking: ViewingOptions) -> int:
    """Show a lake until the user quits; returns the number of errors."""
    from mqttscope.analysis.local import LocalEngine
    from mqttscope.browse.lakes import LakeBuilder, LakeIndex
    from mqttscope.lake.manifest import open_lake

    view = looking.view
    view.held = "kept"
    manifest = open_lake(place)
    packets = [*manifest.files.get("packets", ()), *manifest.open_files.get("packets", ())]
    size = sum(manifest.rows.get(name, 0) for name in packets)
    with ExitStack() as left:
        spool, captured = TemporarySpool(), CaptureFiles()
        left.callback(spool.close)
        left.callback(captured.close)
        originals = Originals(
            manifest.captures, lambda path, digests: SourceCapture(path, digests, files, looking.protocol)
        )
        left.callback(originals.stop)
        # One for the thread that reads the lake, one for the screens.
        engines = [left.enter_context(LocalEngine(place, manifest, memory=LAKE_MEMORY)) for _ in range(2)]
        index = LakeIndex(spool, captured, LakeTables(engines[0]), originals)
        builder = LakeBuilder(index, LakeTables(engines[1]), size)
        left.callback(builder.stop)
        name = str(place).rstrip("/").rpartition("/")[2] or str(place)
        opened = BrowserSettings(
            f"lake {escape(utf8(name))}", builder, view, None, wanted=looking.wanted, connection=looking.connection,
            size=size, no_frames="a lake has no frames: export them from the captures with inspect --write",
        )  # fmt: skip
        _screens(opened)
    if builder.failure:
        warn(builder.failure)
    return bool(builder.failure)


def _show(
    looking: ViewingOptions, title: str, source: Callable[[Dissector], SegmentSource], export: FrameExport | None, *,
    reading: CommandReading | None = None, together: bool = False, live: bool = False, size: int = 0,
    monitor: LiveMonitor | None = None, no_frames: str = "",
) -> int:  # fmt: skip
    view, settings = looking.view, looking.settings
    linter = gate = nodes = None
    options = looking.protocol.dissection()
    if settings is not None:
        nodes = None if monitor is not None else NodeWatch()
        rules = [*settings.rules, *(() if nodes is None else [nodes.observer])]
        linter = Linter(rules, complete=settings.complete, together=together)
        gate = Gate(settings.policy(), rules=settings.rules)
        view.secret_length = settings.secret_length
        options = settings.options
    dissector = Dissector(options) if reading is None else reading.dissector(options)
    spool, files = TemporarySpool(), CaptureFiles()
    segments_of = source(dissector)
    builder = Builder(
        Index(spool, files), files, segments_of, dissector, linter=linter, gate=gate,
        acknowledgments=None if reading is None else reading.acknowledgments(), monitor=monitor,
        explainer=None if nodes is None else Explainer(), nodes=nodes, hiding=view.hiding(),
    )  # fmt: skip
    if isinstance(segments_of, LiveSource):
        segments_of.feed = builder.feed
    opened = BrowserSettings(
        title, builder, view, export, no_frames, live=live, wanted=looking.wanted, connection=looking.connection,
        size=size, overview=looking.overview, seconds=looking.seconds,
    )  # fmt: skip
    try:
        _screens(opened)
    finally:
        builder.stop()
        spool.close()
        files.close()
    if isinstance(builder.error, NotPermittedError):
        click.echo(f"mqttscope: {screen(builder.error)}", err=True)
    elif builder.failure:
        warn(builder.failure)
    return builder.errors + bool(builder.failure)


def _screens(opened: BrowserSettings) -> None:
    if not opened.view.colour:
        os.environ["NO_COLOR"] = "1"
    switching = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*YOUNG_OBJECTS)
    try:
        if browse(opened):
            raise RuntimeError("the screen ended with the error above")
    finally:
        sys.setswitchinterval(switching)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
