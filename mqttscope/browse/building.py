"""Fills an index from captures in a thread of its own, while the screens already show what is there.

`TemporarySpool` is the file without a name that takes what memory is not to hold; `CaptureFiles` reads captures at an
offset.  `Builder` reads, dissects and lints; it gives way whenever somebody has just pressed a key.
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
from typing import BinaryIO, Final, Protocol, cast

from mqttscope.browse.index import Index
from mqttscope.capture.files import STDIN
from mqttscope.capture.read import may_be_compressed
from mqttscope.dissect import Dissector, FastPath, dissect_segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.gate import Gate
from mqttscope.net.frame import CaptureError, Decrypted, SegmentItem

WINDOW_BYTES: Final = 1 << 16
"""How much of a capture is read at once where the next row is looked at as well."""
MAX_OPEN_FILES: Final = 32
WRITE_BYTES: Final = 1 << 18
"""How much is put aside before the spool writes it."""
GIVE_WAY_SECONDS: Final = 0.06
"""So long after a key the builder leaves the processor to the screens."""
LOOK_EVENTS: Final = 32
"""Events between two looks at the keys."""

Item = SegmentItem | Decrypted


class TemporarySpool:
    """Bytes in a temporary file without a name, which goes when it is closed.  One thread writes, any may read."""

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
        """Bytes from an offset on."""
        with self._lock:
            if offset >= self._written:
                start = offset - self._written
                return bytes(self._tail[start : start + size])
            if offset + size > self._written:
                self._flush()
            return _read_at(self._file, offset, size)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Change bytes that were written."""
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
    """Captures that can be read at an offset, as they were when they were opened first."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, BinaryIO | None] = OrderedDict()
        self._window: tuple[str, int, bytes] = ("", 0, b"")
        """The bytes that were read last: of which capture, from which offset on."""
        self._lock = threading.Lock()

    def can_read(self, capture: str) -> bool:
        """Whether an offset into a capture is one into its file: it is regular, and not compressed."""
        with self._lock:
            return self._open(capture) is not None

    def read(self, capture: str, offset: int, size: int) -> bytes:
        """Bytes of a capture; fewer where it does not have them any more."""
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


class Source(Protocol):
    """Where the segments come from."""

    def segments(self, skipped: Counter[str], fast_path: FastPath | None) -> Iterator[Item]:
        """All segments, but those that ``fast_path`` takes."""

    def stop(self) -> None:
        """Give no more."""


class Stopped(BaseException):
    """The browser has ended."""


class Filling(ABC):
    """Fills an index in a thread of its own, while the screens show it."""

    index: Index
    position: int
    """How much of `Opened.size` was read."""

    def __init__(self) -> None:
        self.errors = 0
        """What went wrong with captures."""
        self.failure = ""
        """Why reading ended early, where it did."""
        self.error: Exception | None = None
        """What the failure is of, where it is foreseen."""
        self.done = False
        """Whether nothing more comes."""
        self._stopping = False
        self._key_at = 0.0
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)

    @abstractmethod
    def fill(self) -> None:
        """Read everything, in the thread; `look` between any two pieces of it."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End early, and wait until nothing more is fed."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    def wait(self, seconds: float) -> bool:
        """Wait until everything is read, at most so long; returns whether it is."""
        self._thread.join(seconds)
        return self.done

    def give_way(self) -> None:
        """Somebody has pressed a key: leave the processor to the screens for a moment."""
        self._key_at = time.monotonic()

    def look(self) -> None:
        """End, or wait, where that is asked for."""
        while (left := self._key_at + GIVE_WAY_SECONDS - time.monotonic()) > 0 and not self._stopping:
            time.sleep(min(left, GIVE_WAY_SECONDS))
        if self._stopping:
            raise Stopped

    def _run(self) -> None:
        try:
            self.fill()
        except Stopped:
            pass
        except (MqttscopeError, OSError) as error:
            self.failure, self.error = str(error), error
        except Exception as error:
            self.failure = f"internal error: {type(error).__name__}: {error}"
        finally:
            self.done = True


class Builder(Filling):
    """Reads, dissects and lints in a thread, and feeds an index."""

    def __init__(
        self,
        index: Index,
        files: CaptureFiles,
        source: Source,
        dissector: Dissector,
        *,
        linter: Linter | None = None,
        gate: Gate | None = None,
        acknowledgments: Acknowledgments | None = None,
    ) -> None:
        """``gate``: findings that it hides or suppresses are left out.

        ``acknowledgments``: reads the captures again when the index is complete, so that packets show what TCP did.
        """
        super().__init__()
        self.index = index
        self._acknowledgments = index.acknowledgments = acknowledgments
        if acknowledgments is not None:
            acknowledgments.reads_ahead = False
        self.dissector = dissector
        self.skipped: Counter[str] = Counter()
        self.frame = 0
        """The frame that was read last."""
        self._files = files
        self._source = source
        self._linter = linter
        self._gate = gate
        self._events = 0
        self._readable: tuple[str, bool] = ("", False)
        self._passed = 0
        """Bytes of the captures before the one that is read."""
        self._last_base = 0
        self._fast_path = FastPath(dissector, self.feed, placing=True)

    @property
    def position(self) -> int:  # type: ignore[override]
        """How many bytes of captures were read, uncompressed; 0 where that is not known."""
        return self._passed + self._fast_path.base

    def stop(self) -> None:
        self._stopping = True
        self._source.stop()
        super().stop()

    def fill(self) -> None:
        """Read, dissect and lint to the end."""
        items = self._items(self._source.segments(self.skipped, self._fast_path))
        for event in dissect_segments(items, dissector=self.dissector):
            self.feed(event)
        for finding, verdict in () if self._gate is None else self._gate.summed_up():
            if verdict.shown and verdict.suppression is None:
                row = None if finding.packet is None else self.index.rows.of_packet(finding.packet)
                self.index.note(row, finding)

    def _run(self) -> None:
        super()._run()
        acknowledgments = self._acknowledgments
        with suppress(Stopped, OSError):
            while acknowledgments is not None and not acknowledgments.is_done:
                self.look()
                acknowledgments.read(LOOK_EVENTS)

    def _items(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self._stopping:
                raise Stopped
            yield item

    def feed(self, event: Event) -> None:
        """Take one event; for the thread that reads alone."""
        self._events += 1
        if not self._events % LOOK_EVENTS:
            self.look()
        frame = getattr(event, "frame", 0)
        if frame:
            self.frame = frame
        linter, index = self._linter, self.index
        findings = [] if linter is None else linter.feed(event)
        row = index.feed(event, self._locating(event) if type(event) is PacketEvent else None)
        if type(event) is CaptureError:
            self.errors += 1
        for finding in findings:
            if self._gate is not None:
                verdict = self._gate.judge(finding)
                if not verdict.shown or verdict.suppression is not None:
                    continue
            index.note(row, finding)

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
