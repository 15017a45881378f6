"""Fills an index from captures in a separate thread, while the screens already show it.

`TemporarySpool` is an unnamed file for data that should not stay in memory; `CaptureFiles` reads captures at an offset.
`Builder` reads, dissects and lints; it pauses briefly after each key.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Final, Protocol, TypeVar, cast

from mqttscope.browse.index import Index
from mqttscope.capture.files import STDIN
from mqttscope.capture.read import may_be_compressed
from mqttscope.dissect import Dissector, FastPath, dissect_segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, PacketEvent
from mqttscope.explain import Explainer, Explanation
from mqttscope.explain.edge_nodes import NodeWatch
from mqttscope.explain.usual_segments import UsualSegments
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Gate
from mqttscope.metrics.facts import LiveFacts
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.net.frame import CaptureError, Decrypted, SegmentItem
from mqttscope.secrets.findings import HidingOptions

WINDOW_BYTES: Final = 1 << 16
"""Bytes of a capture to read at once, because the next rows are usually needed too."""
MAX_OPEN_FILES: Final = 32
WRITE_BYTES: Final = 1 << 18
"""Bytes to buffer before the spool writes them."""
GIVE_WAY_SECONDS: Final = 0.06
"""Pause of the builder after a key, to give the processor to the screens."""
LOOK_EVENTS: Final = 32
"""Number of events between two checks for keys."""

T = TypeVar("T")
Item = SegmentItem | Decrypted
PassFrames = Callable[[Iterator[Any]], Iterator[Any]]
"""Passes frames and notices of captures on."""


class TemporarySpool:
    """Bytes in an unnamed temporary file, deleted on close.  One thread writes, all threads may read."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.TemporaryFile(prefix="mqttscope-", buffering=0))  # noqa: SIM115
        self._tail = bytearray()
        self._written = 0
        self._lock = threading.Lock()

    def write(self, data: bytes) -> int:
        """Append bytes; returns their offset."""
        with self._lock:
            offset = self._written + len(self._tail)
            self._tail += data
            if len(self._tail) >= WRITE_BYTES:
                self._flush()
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes from an offset."""
        with self._lock:
            if offset >= self._written:
                start = offset - self._written
                return bytes(self._tail[start : start + size])
            if offset + size > self._written:
                self._flush()
            return _read_at(self._file, offset, size)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes in place."""
        with self._lock:
            if offset + len(data) > self._written:
                self._flush()
            self._file.seek(offset)
            self._file.write(data)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _flush(self) -> None:
        self._file.seek(self._written)
        left = memoryview(bytes(self._tail))
        while left:
            left = left[self._file.write(left) :]
        self._written += len(self._tail)
        self._tail.clear()


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    data = b""
    file.seek(offset)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


class CaptureFiles:
    """Captures that can be read at an offset, through files that stay open."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, BinaryIO | None] = OrderedDict()
        self._window: tuple[str, int, bytes] = ("", 0, b"")
        """Last bytes read: capture, offset, bytes."""
        self._lock = threading.Lock()

    def can_read(self, capture: str) -> bool:
        """Whether offsets into a capture are offsets into its file: a regular, uncompressed file."""
        with self._lock:
            return self._open(capture) is not None

    def read(self, capture: str, offset: int, size: int) -> bytes:
        """Read bytes of a capture; fewer if it has shrunk."""
        with self._lock:
            name, start, data = self._window
            at = offset - start
            if name != capture or at < 0 or at + size > len(data):
                file = self._open(capture)
                if file is None:
                    return b""
                try:
                    data = _read_at(file, offset, max(size, WINDOW_BYTES))
                except OSError:
                    return b""
                self._window, at = (capture, offset, data), 0
            return data[at : at + size]

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for file in self._files.values():
                if file is not None:
                    file.close()
            self._files.clear()

    def _open(self, capture: str) -> BinaryIO | None:
        if capture in self._files:
            self._files.move_to_end(capture)
            return self._files[capture]
        file: BinaryIO | None = None
        if capture != STDIN:
            try:
                file = open(capture, "rb", buffering=0)  # noqa: SIM115 - open as long as the browser runs
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or may_be_compressed(file.read(4)):
                    file.close()
                    file = None
            except (OSError, ValueError):
                file = None
        self._files[capture] = file
        if len(self._files) > MAX_OPEN_FILES:
            _, oldest = self._files.popitem(last=False)
            if oldest is not None:
                oldest.close()
        return file


class SegmentSource(Protocol):
    """Source of segments."""

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        """All segments except the ones that ``fast_path`` handles; ``frames`` passes on their frames."""

    def stop(self) -> None:
        """Stop yielding segments."""


class BuilderStopped(BaseException):
    """Ends the thread of a builder because the browser has ended."""


class IndexFiller(ABC):
    """Fills an index in a separate thread, while the screens show it."""

    index: Index
    position: int
    """Part of `BrowserSettings.size` that was read."""

    def __init__(self) -> None:
        self.errors = 0
        """Number of capture errors."""
        self.failure = ""
        """Reason for ending early, or empty."""
        self.error: Exception | None = None
        """Exception of an expected failure."""
        self.done = False
        """Whether filling is finished."""
        self._stopping = False
        self._key_at = 0.0
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)

    def read_facts(self, reader: Callable[[LiveFacts], T]) -> T | None:
        """The result of a function that reads the facts of the overview; ``None`` without facts."""
        return None

    @abstractmethod
    def fill(self) -> None:
        """Read everything in the thread, and call `look` regularly."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    def wait(self, seconds: float) -> bool:
        """Wait at most some seconds until everything is read; returns whether it is."""
        self._thread.join(seconds)
        return self.done

    def give_way(self) -> None:
        """Give the processor to the screens for a moment, after a key."""
        self._key_at = time.monotonic()

    def look(self) -> None:
        """Pause after a key, or end if requested."""
        while (left := self._key_at + GIVE_WAY_SECONDS - time.monotonic()) > 0 and not self._stopping:
            time.sleep(min(left, GIVE_WAY_SECONDS))
        if self._stopping:
            raise BuilderStopped

    def _run(self) -> None:
        try:
            self.fill()
        except BuilderStopped:
            pass
        except (MqttscopeError, OSError) as error:
            self.failure, self.error = str(error), error
        except Exception as error:
            self.failure = f"internal error: {type(error).__name__}: {error}"
        finally:
            self.done = True


class Builder(IndexFiller):
    """Reads, dissects and lints in a thread, and feeds an index."""

    def __init__(
        self,
        index: Index,
        files: CaptureFiles,
        source: SegmentSource,
        dissector: Dissector,
        *,
        linter: Linter | None = None,
        gate: Gate | None = None,
        acknowledgments: Acknowledgments | None = None,
        explainer: Explainer | None = None,
        nodes: NodeWatch | None = None,
        monitor: LiveMonitor | None = None,
        hiding: HidingOptions | None = None,
    ) -> None:
        """``gate``: drops findings that it hides or suppresses.  ``explainer``: gives the causes of ends.

        ``nodes``: answers about edge nodes; its observer is in the linter.

        ``monitor``: gets the events and findings too, and gives the causes in place of an explainer.  ``hiding``: for
        the findings of the overview.

        ``acknowledgments``: reads the captures again after the index is complete, to show which packets TCP
        acknowledged.
        """
        super().__init__()
        self.index = index
        self._acknowledgments = index.acknowledgments = acknowledgments
        if acknowledgments is not None:
            acknowledgments.reads_ahead = False
        self.dissector = dissector
        self.skipped: Counter[str] = Counter()
        self.frame = 0
        """Number of the last frame read."""
        self._files = files
        self._source = source
        self._linter = linter
        self._gate = gate
        self._monitor = monitor
        if monitor is not None:
            monitor.explained = index.explanations.add
        self._facts, self._lock = LiveFacts(), threading.Lock()
        """Facts without a monitor."""
        self._hiding = hiding or HidingOptions()
        self._events = 0
        self._readable: tuple[str, bool] = ("", False)
        self._passed = 0
        """Bytes of the captures before the current one."""
        self._last_base = 0
        self._explainer, self._nodes = explainer, nodes
        located = None if explainer is None else UsualSegments(explainer.watch).take
        self._fast_path = FastPath(dissector, self.feed, placing=True, located=located)

    @property
    def position(self) -> int:  # type: ignore[override]
        """Number of uncompressed bytes read from captures; 0 if unknown."""
        return self._passed + self._fast_path.base

    def read_facts(self, reader: Callable[[LiveFacts], T]) -> T | None:
        """The result of a function that reads the facts while they do not change."""
        if self._monitor is not None:
            return self._monitor.read(reader)
        with self._lock:
            return reader(self._facts)

    def stop(self) -> None:
        self._stopping = True
        self._source.stop()
        super().stop()

    def fill(self) -> None:
        """Read, dissect and lint to the end."""
        explainer = self._explainer
        frames = None if explainer is None else explainer.watch.frames
        items = self._items(self._source.segments(self.skipped, self._fast_path, frames))
        if explainer is not None:
            items = explainer.watch.segments(self.dissector.clock.follow(items))
        for event in dissect_segments(items, dissector=self.dissector):
            self.feed(event)
        for explanation in () if explainer is None else explainer.close():
            self._end(explanation)
        if self._nodes is not None:
            self.index.explanations.nodes = tuple(self._nodes.answers())
        for finding, verdict in () if self._gate is None else self._gate.summed_up():
            if verdict.shown and verdict.suppression is None:
                row = None if finding.packet is None else self.index.rows.of_packet(finding.packet)
                self.index.note(row, finding)

    def _run(self) -> None:
        super()._run()
        acknowledgments = self._acknowledgments
        with suppress(BuilderStopped, OSError):
            while acknowledgments is not None and not acknowledgments.is_done:
                self.look()
                acknowledgments.read(LOOK_EVENTS)

    def _items(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self._stopping:
                raise BuilderStopped
            yield item

    def feed(self, event: Event) -> None:
        """Feed one event; only for the reading thread."""
        self._events += 1
        if not self._events % LOOK_EVENTS:
            self.look()
        frame = getattr(event, "frame", 0)
        if frame:
            self.frame = frame
        linter, index = self._linter, self.index
        findings = [] if linter is None else linter.feed(event)
        if self._monitor is not None:
            self._monitor.feed(event, findings)
        else:
            with self._lock:
                self._facts.feed(event)
                # Rates would be updated for each second of the capture.
                self._facts.pass_time(max(self._facts.now_ns, getattr(event, "timestamp_ns", 0)), rates=False)
        for explanation in () if self._explainer is None else self._explainer.feed(event, findings):
            self._end(explanation)
        row = index.feed(event, self._locating(event) if type(event) is PacketEvent else None)
        if type(event) is CaptureError:
            self.errors += 1
        for finding in findings:
            if self._gate is not None:
                verdict = self._gate.judge(finding)
                if verdict.is_occurrence:
                    self._find(finding)
                if not verdict.shown or verdict.suppression is not None:
                    continue
            index.note(row, finding)

    def _find(self, finding: Finding) -> None:
        """Count a finding."""
        if self._monitor is not None:
            self._monitor.finding(finding)
        else:
            with self._lock:
                self._facts.finding(finding, self._hiding)

    def _end(self, explanation: Explanation) -> None:
        """Keep and count the cause of an end."""
        self.index.explanations.add(explanation)
        if self._nodes is not None:
            self._nodes.note_end(explanation)
        with self._lock:
            self._facts.end(explanation)

    def _locating(self, event: PacketEvent) -> Callable[[bytes], int] | None:
        capture = event.capture
        name, readable = self._readable
        if capture != name:
            if name:
                self._passed += self._last_base
            readable = self._files.can_read(capture)
            self._readable = capture, readable
        self._last_base = self._fast_path.base
        if not readable:
            return None
        return lambda raw: self._fast_path.place_of(raw, event.frame, capture)
