"""What is made of the bytes that pass: frames in a file at once, and events for a listener soon after.

A frame is in the file (in the system's hands, so that the end of this process cannot take it back) before its bytes are
forwarded.  Dissecting and judging waits until they are forwarded, in slices, so that it costs the traffic next to no
time.
"""

from __future__ import annotations

import io
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from mqttscope.capture.own_file import open_alone
from mqttscope.capture.write import PcapngWriter
from mqttscope.dissect import Dissector
from mqttscope.events import Event
from mqttscope.net.segment import Segment
from mqttscope.transport.wire import Endpoint, Made, Wire

SLICE_NS = 1_000_000
"""The longest that events are made in one go while bytes may wait."""
MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Of segments that wait to be dissected; beyond, forwarding waits for as much as it adds."""
SEGMENT_COST = 500
"""What each of them counts beside its bytes."""

Listener = Callable[[Event], None]
"""Gets each event while its connection is in the state before it, as `dissect` yields them."""


class WholeBlocks(io.RawIOBase):
    """A file that is written without a buffer, and that ends with a whole write when one fails in the middle."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = open(open_alone(path), "wb", buffering=0)  # noqa: SIM115 (closed by close)
        self._good = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write all of it or raise :class:`OSError`."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:
            # A pipe cannot go back, and needs not: its reader sees the end.
            with suppress(OSError):
                self._file.truncate(self._good)
            raise
        self._good += len(data)
        return len(data)

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._file.close()
        super().close()


class Recording:
    """The record of one run.

    ``capture``: name of the capture in events.  ``path``: file for the frames, created at once, so that
    :class:`OSError` tells that it cannot be written.  ``listener``: gets the events.  ``note``: gets sentences for
    people.  ``activity``: what goes on without a record when it cannot be written, in these sentences.
    """

    def __init__(
        self,
        capture: str,
        *,
        path: str | None = None,
        dissector: Dissector | None = None,
        listener: Listener | None = None,
        note: Callable[[str], None] = lambda _: None,
        activity: str = "forwarding",
    ) -> None:
        self.capture = capture
        self.path = path
        self.dissector = dissector or Dissector()
        self.listener = listener
        self.note = note
        self.activity = activity
        self.frames = 0
        self.later: Callable[[Callable[[], None]], object] | None = None
        """Arranges a call for when bytes have been forwarded; without, events are made at once."""
        self.write_error: OSError | None = None
        self.judge_error: Exception | None = None
        self.closed = False
        self._file = None if path is None else WholeBlocks(path)
        try:
            self._writer = None if self._file is None else PcapngWriter(self._file)  # type: ignore[arg-type]
        except OSError:
            assert self._file is not None
            self._file.close()
            raise
        self._numbers = itertools.count(1).__next__
        self._sequences = random.Random(0).getrandbits
        # Steps of the wall clock would make frames go back in time.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._queue: deque[Segment] = deque()
        self._queued = 0
        self._arranged = False
        self._busy = False

    def now(self) -> int:
        """Nanoseconds since 1970, which never go back."""
        return self._epoch_ns + time.monotonic_ns()

    def wire(self, client: Endpoint, server: Endpoint) -> Wire:
        """A new connection."""
        return Wire(client, server, self.capture, self._numbers, self._sequences(32), self._sequences(32))

    def take(self, made: Iterable[Made]) -> None:
        """Write frames, and keep their segments for the dissector."""
        if self.closed:
            return
        for frame, segment in made:
            self.frames += 1
            if self._writer is not None:
                try:
                    self._writer.write(frame)
                except OSError as error:
                    self._cannot_write(error)
            if self.listener is not None:
                self._queue.append(segment)
                self._queued += SEGMENT_COST + len(segment.payload)
        if self._queue and not self._arranged:
            self._arrange()
        if self._queued > MAX_QUEUED_BYTES:
            self.work(down_to=MAX_QUEUED_BYTES)

    def _arrange(self) -> None:
        if self.later is None:
            self.work()
        else:
            self._arranged = True
            self.later(self._slice)

    def _slice(self) -> None:
        self._arranged = False
        self.work(SLICE_NS)
        if self._queue and not self._arranged:
            self._arrange()

    def work(self, budget_ns: int | None = None, down_to: int = -1) -> None:
        """Make events of what is queued: for so long, or until no more than so many bytes are left."""
        if self._busy or self.listener is None:
            return
        self._busy = True
        until = None if budget_ns is None else time.monotonic_ns() + budget_ns
        queue, feed, listener = self._queue, self.dissector.feed, self.listener
        try:
            while queue and self._queued > down_to:
                segment = queue.popleft()
                self._queued -= SEGMENT_COST + len(segment.payload)
                for event in feed(segment):
                    listener(event)
                if until is not None and time.monotonic_ns() >= until:
                    break
        except Exception as error:
            self._cannot_judge(error)
        finally:
            self._busy = False

    def close(self) -> None:
        """The end of the capture: events of what is still open, and the end of the file."""
        if self.closed:
            return
        self.work()
        self.closed = True
        if self.listener is not None:
            try:
                for event in self.dissector.close():
                    self.listener(event)
            except Exception as error:
                self._cannot_judge(error)
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._cannot_write(error)

    def _cannot_write(self, error: OSError) -> None:
        self.write_error, self._writer = error, None
        self.note(f"cannot write {self.path}: {error.strerror or error}; {self.activity} goes on without a record")

    def _cannot_judge(self, error: Exception) -> None:
        self.judge_error, self.listener = error, None
        self._queue.clear()
        self._queued = 0
        what = f"internal error: {type(error).__name__}: {error}"
        self.note(f"{what}; {self.activity} and recording go on without the linter")
