"""Records traffic: writes frames to a file at once, and makes events for a listener soon after.

A frame is handed to the operating system before its bytes are forwarded, so that it survives the end of this process.
`LinkRecorder` records the links that one of our endpoints makes or accepts.

Dissecting and judging run in a separate thread with a bounded queue, and forwarding never waits for them: one packet
can keep a rule busy for seconds, and one client may send only such packets.  Segments that do not fit into the queue
are left out as if the capture had lost them: the dissector reports a gap, which lowers the linter's confidence.  The
number of bytes left out is reported at the end.
"""

from __future__ import annotations

import io
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.dissect import Dissector
from mqttscope.events import Event
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops
from mqttscope.net.segment import FIN, RST, SYN, Segment
from mqttscope.transport.sockets import AcknowledgmentPoller, DeliveryTracker
from mqttscope.transport.wire import Endpoint, FramedSegment, SyntheticConnection

MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Maximum size of the segments of all connections that wait to be judged; further segments are left out."""
MAX_STREAM_BYTES = 4 * 1024 * 1024
"""Maximum size of the waiting segments of one direction of a connection, so that one client leaves room for others."""
MAX_CROWDED_BYTES = 256 * 1024
"""Maximum size per direction while half of `MAX_WAITING_BYTES` is in use."""
SEGMENT_COST = 500
"""Size counted for each segment in addition to its bytes."""
BEHIND_NS = 1_000_000_000
"""Lag of judging that is reported for the first time; it is reported again each time it has doubled."""
REST_S = 10.0
"""Maximum time that the end of a run waits for judging."""
HURRY_S = 0.6
"""Maximum time that a run ended by a signal waits for judging."""
GRACE_S = 0.3
"""Further time for the packet that is being judged then."""
SWITCH_S = 0.000_2
"""Python's thread switch interval while judging runs.  Forwarding one packet takes the interpreter lock about six
times, so next to a busy judging thread a message is late by one millisecond, not by thirty."""

Listener = Callable[[Event], object]
"""Receives each event while its connection is still in the state before it, as `dissect` yields them."""
T = TypeVar("T")


class Recording:
    """The record of one run.

    ``capture``: name of the capture in events.  ``path``: file for the frames, created at once; raises
    :class:`OSError` if it cannot be written.  ``listener``: gets the events, after `start` in a separate thread,
    before that at once.  ``note``: gets sentences for people.  ``activity``: name of the activity that continues
    without a record, for these sentences.  ``watch``: gets each segment before its events.
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
        watch: Callable[[Segment], object] = lambda _: None,
    ) -> None:
        self.capture = capture
        self.path = path
        self.dissector = dissector or Dissector()
        self.listener = listener
        self.note = note
        self.activity = activity
        self.watch = watch
        self.frames = 0
        self.judging: JudgingThread | None = None
        """Makes events while the traffic continues."""
        self.write_error: OSError | None = None
        self.judge_error: Exception | None = None
        self.sealed = False
        """Whether later traffic is left out of the record."""
        self.closed = False
        self._file = None if path is None else UnbufferedFile(open_alone(path))
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

    def start(self) -> None:
        """From now on make events in a separate thread: the caller's traffic must not wait for them."""
        if self.judging is None and self.listener is not None and not self.closed:
            self.judging = JudgingThread(
                self.dissector, self.listener, self.note, self._cannot_judge, capture=self.capture, now=self.now,
                watch=self.watch,
            )  # fmt: skip

    @property
    def busy(self) -> bool:
        return self.judging is not None and self.judging.busy

    @property
    def failed(self) -> bool:
        return self.write_error is not None or self.judge_error is not None

    @property
    def unjudged_bytes(self) -> int:
        """Bytes that passed without being judged."""
        return 0 if self.judging is None or self.judge_error is not None else self.judging.unjudged_bytes

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Answer a question after everything recorded before it has been judged."""
        if self.judging is not None and not self.closed:
            return self.judging.ask(question)
        future: Future[T] = Future()
        future.set_result(question())
        return future

    def closing_remarks(self) -> list[str]:
        """Sentences about the judging, for the end of the run."""
        return [] if self.judging is None or self.judge_error is not None else self.judging.closing_remarks()

    def now(self) -> int:
        """Monotonic time in nanoseconds since 1970."""
        return self._epoch_ns + time.monotonic_ns()

    def wire(self, client: Endpoint, server: Endpoint) -> SyntheticConnection:
        return SyntheticConnection(
            client, server, self.capture, self._numbers, self._sequences(32), self._sequences(32)
        )

    def write(self, framed: Iterable[FramedSegment]) -> None:
        """Write frames, and queue their segments for judging."""
        if self.sealed or self.closed:
            return
        for frame, segment in framed:
            self.frames += 1
            if self._writer is not None:
                try:
                    self._writer.write(frame)
                except OSError as error:
                    self._cannot_write(error)
            if self.judging is not None:
                self.judging.put(segment)
            elif self.listener is not None:
                self._feed(segment, self.listener)

    def _feed(self, segment: Segment, listener: Listener) -> None:
        try:
            self.watch(segment)
            for event in self.dissector.feed(segment):
                listener(event)
        except Exception as error:
            self._cannot_judge(error)

    def close(self, within_s: float = REST_S) -> None:
        """End the capture: pass on the events of open connections, and close the file.

        Judging has ``within_s`` seconds to catch up; `closing_remarks` reports what was left out.
        """
        if self.closed:
            return
        self.closed = True
        if self.judging is not None:
            self.judging.close(within_s)
        elif self.listener is not None:
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
        self.note(f"cannot write {self.path}: {error.strerror or error}; {self.activity} continues without a record")

    def _cannot_judge(self, error: Exception) -> None:
        self.judge_error, self.listener = error, None
        problem = f"internal error: {type(error).__name__}: {error}"
        self.note(f"{problem}; {self.activity} and recording continue without the linter")


class LinkRecorder:
    """Records the links of one event loop.

    Frames contain the bytes inside TLS: MQTT, or the handshake and frames of a WebSocket.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rounds = AcknowledgmentPoller()
        recording.start()

    def tap(self, local: Endpoint, remote: Endpoint, delivery: DeliveryTracker, *, is_client: bool) -> LinkRecord:
        """Start the record of a new link; ``is_client``: whether we made the connection."""
        return LinkRecord(self, local, remote, delivery, is_client=is_client)

    def close(self) -> None:
        """Finish the record; later traffic is left out."""
        self.rounds.close()
        self.recording.close()


class LinkRecord:
    """The record of one link.  Call each method except `acknowledge` before the recorded action takes effect."""

    def __init__(
        self, recorder: LinkRecorder, local: Endpoint, remote: Endpoint, delivery: DeliveryTracker, *, is_client: bool
    ) -> None:
        ends = (local, remote) if is_client else (remote, local)
        self.wire = recorder.recording.wire(*ends)
        self._recording = recorder.recording
        self._rounds = recorder.rounds
        self._delivery = delivery
        self._is_client = is_client
        self._received = 0
        """Bytes of the remote's stream that we have received, its FIN counted as one byte."""
        self._gone = False
        self._recording.write(self.wire.open(self._recording.now()))

    def sent(self, data: bytes) -> None:
        """Record bytes that we send."""
        recording = self._recording
        recording.write(self.wire.data(self._is_client, data, recording.now(), self._received))
        self._delivery.writing(len(data))
        self._rounds.note(self)

    def received(self, data: bytes) -> None:
        """Record bytes that the remote sent."""
        recording = self._recording
        recording.write(self.wire.data(not self._is_client, data, recording.now(), self._delivery.read()))
        self._received += len(data)
        self._rounds.note(self)

    def finished(self, *, local: bool) -> None:
        """Record the FIN of one side."""
        recording = self._recording
        delivered = self._received if local else self._delivery.delivered()
        recording.write(self.wire.close(self._is_client is local, recording.now(), delivered))
        if not local:
            self._received = self.wire.sent(not self._is_client) + 1
            self._rounds.note(self)

    def aborted(self, *, local: bool) -> None:
        self._recording.write(self.wire.abort(self._is_client is local, self._recording.now()))

    def gone(self) -> None:
        """The socket is closed."""
        self._gone = True
        self._rounds.forget(self)
        if self.wire.ended:
            self._recording.write(self.wire.settle(self._recording.now()))

    def acknowledge(self) -> bool:
        """Record new acknowledgments; returns whether bytes are still in flight."""
        if self._gone:
            return False
        wire, now = self.wire, self._recording.now()
        self._recording.write(wire.acknowledge(self._is_client, self._received, now))
        self._recording.write(wire.acknowledge(not self._is_client, self._delivery.delivered(), now))
        return wire.acknowledged(not self._is_client) < wire.sent(self._is_client)


@dataclass(slots=True)
class _StreamBacklog:
    """Size of the segments of one direction of a connection that wait to be judged."""

    accepted: int = 0
    """Size of all segments queued; written by the forwarding thread."""
    finished: int = 0
    """Size of all segments taken from the queue; written by the judging thread."""
    left_out: bool = False
    """Whether segments are left out until there is room again."""


class JudgingThread:
    """Makes events of segments for a listener, in a separate thread.

    ``note`` gets sentences for people; ``failed`` gets the exception that ended the judging.
    All methods are called by the forwarding thread.
    """

    def __init__(
        self,
        dissector: Dissector,
        listener: Listener,
        note: Callable[[str], None],
        failed: Callable[[Exception], None],
        *,
        capture: str = "",
        now: Callable[[], int] = time.time_ns,
        watch: Callable[[Segment], object] = lambda _: None,
    ) -> None:
        self.dissector = dissector
        self.watch = watch
        self.listener: Listener | None = listener
        self.note = note
        self.failed = failed
        self.capture = capture
        self.offered_bytes = 0
        """Payload bytes of the segments offered."""
        self.judged_bytes = 0
        """Payload bytes of the segments judged."""
        self.streams_left_out = 0
        """Number of times that segments of one direction began to be left out."""
        self.most_behind_ns = 0
        """Maximum lag of judging."""
        self._now = now
        self._accepted = self._finished = 0
        self._queue: queue.SimpleQueue[tuple[_StreamBacklog, int, Segment] | Callable[[], None] | CaptureDrops | None]
        self._queue = queue.SimpleQueue()
        self._waiting: dict[bytes, _StreamBacklog] = {}
        self._sweep_at = 1_000
        self._at_ns = 0
        """Timestamp of the segment that is being judged."""
        self._report_at_ns = BEHIND_NS
        self._report_lock = threading.Lock()
        self._drops_wait = False
        """Whether a `CaptureDrops` is queued for the linter."""
        self._hurried = False
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._accepted != self._finished

    @property
    def unjudged_bytes(self) -> int:
        return self.offered_bytes - self.judged_bytes

    def put(self, segment: Segment) -> None:
        """Queue a segment for judging, or leave it out if too much waits."""
        length = len(segment.payload)
        self.offered_bytes += length
        cost = SEGMENT_COST + length
        waiting = self._waiting.get(segment.key)
        if waiting is None:
            waiting = self._stream(segment.key)
        all_waiting = self._accepted - self._finished
        if not all_waiting:
            self._at_ns = max(self._at_ns, segment.timestamp_ns)
        elif segment.timestamp_ns - self._at_ns > self._report_at_ns:
            self._report_lag(segment.timestamp_ns - self._at_ns)
        limit = MAX_STREAM_BYTES if all_waiting < MAX_WAITING_BYTES // 2 else MAX_CROWDED_BYTES
        if waiting.left_out:
            # Leave out one long gap, not a segment here and there.
            limit //= 2
        ends = segment.flags & (SYN | FIN | RST)
        if all_waiting + cost > MAX_WAITING_BYTES or (waiting.accepted - waiting.finished + cost > limit and not ends):
            if not waiting.left_out:
                waiting.left_out = True
                self._leave_out()
            return
        waiting.left_out = False
        waiting.accepted += cost
        self._accepted += cost
        self._queue.put((waiting, cost, segment))

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Answer a question in the judging thread, after everything queued before it."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(question())
            except Exception as error:
                future.set_exception(error)

        self._queue.put(answer)
        return future

    def close(self, within_s: float = REST_S) -> bool:
        """End the capture: pass on the events of open connections.

        Returns whether the thread has ended.  If it has not, one packet takes longer than `GRACE_S`, and the
        listener is not called again.
        """
        self._queue.put(None)
        # After Ctrl-C the findings made until then are reported; a second Ctrl-C does not get here.
        with suppress(KeyboardInterrupt):
            self._thread.join(within_s)
        if self._thread.is_alive():
            self._hurried = True
            self.most_behind_ns = max(self.most_behind_ns, self._now() - self._at_ns)
            self._thread.join(GRACE_S)
        self._abandoned = True
        return not self._thread.is_alive()

    def closing_remarks(self) -> list[str]:
        """Sentences about the judging, for the end of the run."""
        sentences = []
        if self.most_behind_ns > BEHIND_NS:
            sentences.append(f"findings came up to {self.most_behind_ns / 1e9:,.1f} s late")
        if self.unjudged_bytes and self.listener is not None:
            times = ""
            if self.streams_left_out:
                times = f"; {counted(self.streams_left_out, 'time')} a stream had more bytes waiting than are kept"
            sentences.append(f"{self.unjudged_bytes:,} bytes forwarded but not judged{times}")
        return sentences

    def _stream(self, key: bytes) -> _StreamBacklog:
        if len(self._waiting) >= self._sweep_at:
            self._waiting = {stream: rest for stream, rest in self._waiting.items() if rest.accepted != rest.finished}
            self._sweep_at = 2 * len(self._waiting) + 1_000
        backlog = self._waiting[key] = _StreamBacklog()
        return backlog

    def _leave_out(self) -> None:
        self.streams_left_out += 1
        if self.streams_left_out == 1:
            self.note(
                f"judging is too slow: more than {MAX_STREAM_BYTES:,} bytes of one stream wait, or"
                f" {MAX_WAITING_BYTES:,} bytes of all streams; further bytes are forwarded but not judged"
            )
        if not self._drops_wait:
            # Rules must not report as missing what was only not judged.
            self._drops_wait = True
            self._queue.put(CaptureDrops(self.capture, 0, None, 1))

    def _report_lag(self, behind_ns: int) -> None:
        with self._report_lock:
            self.most_behind_ns = max(self.most_behind_ns, behind_ns)
            if behind_ns <= self._report_at_ns:
                return
            while self._report_at_ns < behind_ns:
                self._report_at_ns *= 2
        self.note(f"findings come {behind_ns / 1e9:,.1f} s late; the traffic does not wait for them")

    # Called in the judging thread

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if type(item) is tuple:
                waiting, cost, segment = item
                if not self._hurried and self.listener is not None:
                    self._at_ns = segment.timestamp_ns
                    self._judge(segment)
                waiting.finished += cost
                self._finished += cost
            elif isinstance(item, CaptureDrops):
                self._drops_wait = False
                self._pass_on(item)
            elif callable(item):
                item()
        self._end()

    def _judge(self, segment: Segment) -> None:
        listener = self.listener
        assert listener is not None
        try:
            self.watch(segment)
            for event in self.dissector.feed(segment):
                if self._hurried:
                    return
                listener(event)
        except Exception as error:
            self._fail(error)
            return
        self.judged_bytes += len(segment.payload)
        lag = self._now() - segment.timestamp_ns
        if lag > self.most_behind_ns and lag > BEHIND_NS:
            self._report_lag(lag)

    def _pass_on(self, event: Event) -> None:
        if self.listener is not None and not self._abandoned:
            try:
                self.listener(event)
            except Exception as error:
                self._fail(error)

    def _end(self) -> None:
        try:
            for event in self.dissector.close():
                if self._abandoned:
                    return
                self._pass_on(event)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.listener = None
        self.failed(error)


class UnbufferedFile(io.RawIOBase):
    """A file written without a buffer; a write that fails in the middle is removed again."""

    def __init__(self, descriptor: int) -> None:
        # Python also closes a partly constructed object, so the caller does what may fail.
        super().__init__()
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 (closed by close)
        self._good = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write all bytes or raise :class:`OSError`."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            # A pipe cannot be truncated, and need not be: its reader sees the end.
            with suppress(OSError):
                self._file.truncate(self._good)
            raise
        self._good += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
