"""What is made of the bytes that pass: frames in a file at once, and events for a listener soon after.

A frame is in the file (in the system's hands, so that the end of this process cannot take it back) before its bytes are
forwarded.  A `Recorder` has the record of the links that an endpoint of ours makes or takes.

Dissecting and judging happens in a thread of its own with a bounded queue, for which forwarding never waits: one packet
may take a rule seconds, and one client may send nothing but such packets.  What the queue has no room for is left out
as if the capture had lost it, which the dissector reports as a gap and which lowers the linter's confidence; the number
of bytes is said at the end.
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
from mqttscope.transport.sockets import Delivery, Rounds
from mqttscope.transport.wire import Endpoint, Made, Wire

MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Of segments of all connections that wait to be judged; further ones are left out."""
MAX_STREAM_BYTES = 4 * 1024 * 1024
"""Of segments of one direction of a connection that wait, so that one client does not use up the room of the others."""
MAX_CROWDED_BYTES = 256 * 1024
"""The same once half of `MAX_WAITING_BYTES` is in use."""
SEGMENT_COST = 500
"""What each segment counts beside its bytes."""
BEHIND_NS = 1_000_000_000
"""Judging that is so far behind the traffic is reported, and again each time it is twice as far behind."""
REST_S = 10.0
"""How long the end of a run waits for judging,"""
HURRY_S = 0.6
"""and where a signal has ended it."""
GRACE_S = 0.3
"""How long it then waits for the packet that is being judged."""
SWITCH_S = 0.000_2
"""How long the judging thread may keep Python from the thread that forwards.  Forwarding one packet takes Python's lock
about six times, so that a message beside a client that keeps judging busy is late by a millisecond, not by thirty."""

Listener = Callable[[Event], None]
"""Gets each event while its connection is in the state before it, as `dissect` yields them."""
T = TypeVar("T")


class Recording:
    """The record of one run.

    ``capture``: name of the capture in events.  ``path``: file for the frames, created at once, so that
    :class:`OSError` says that it cannot be written.  ``listener``: gets the events, once `start` was called in a thread
    of its own, before that at once.  ``note``: gets sentences for people.  ``activity``: what continues without a
    record when it cannot be written, in these sentences.
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
        self.judging: Judging | None = None
        """What makes events beside the traffic."""
        self.write_error: OSError | None = None
        self.judge_error: Exception | None = None
        self.sealed = False
        """What happens from now on is no part of the record."""
        self.closed = False
        self._file = None if path is None else WholeBlocks(open_alone(path))
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
        """Make events in a thread of its own from now on: the caller has traffic that must not wait for them."""
        if self.judging is None and self.listener is not None and not self.closed:
            self.judging = Judging(
                self.dissector, self.listener, self.note, self._cannot_judge, capture=self.capture, now=self.now
            )

    @property
    def busy(self) -> bool:
        return self.judging is not None and self.judging.busy

    @property
    def failed(self) -> bool:
        return self.write_error is not None or self.judge_error is not None

    @property
    def unjudged_bytes(self) -> int:
        """Bytes that passed and were not judged."""
        return 0 if self.judging is None or self.judge_error is not None else self.judging.unjudged_bytes

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Answer a question once all that has passed is judged."""
        if self.judging is not None and not self.closed:
            return self.judging.ask(question)
        future: Future[T] = Future()
        future.set_result(question())
        return future

    def told(self) -> list[str]:
        """What is to be said of the judging at the end of the run."""
        return [] if self.judging is None or self.judge_error is not None else self.judging.told()

    def now(self) -> int:
        """Nanoseconds since 1970, which never go back."""
        return self._epoch_ns + time.monotonic_ns()

    def wire(self, client: Endpoint, server: Endpoint) -> Wire:
        return Wire(client, server, self.capture, self._numbers, self._sequences(32), self._sequences(32))

    def take(self, made: Iterable[Made]) -> None:
        """Write frames, and have their segments judged."""
        if self.sealed or self.closed:
            return
        for frame, segment in made:
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
            for event in self.dissector.feed(segment):
                listener(event)
        except Exception as error:
            self._cannot_judge(error)

    def close(self, within_s: float = REST_S) -> None:
        """The end of the capture: events of what is still open, and the end of the file.

        Judging that lags has so long to catch up; what it leaves is said by `told`.
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
        what = f"internal error: {type(error).__name__}: {error}"
        self.note(f"{what}; {self.activity} and recording continue without the linter")


class Recorder:
    """Records the links of one event loop.

    Frames hold the bytes as they are inside TLS: MQTT, or the handshake and the frames of a WebSocket.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rounds = Rounds()
        recording.start()

    def tap(self, local: Endpoint, remote: Endpoint, delivery: Delivery, *, is_client: bool) -> Tap:
        """A link that was just made; ``is_client``: by us."""
        return Tap(self, local, remote, delivery, is_client=is_client)

    def close(self) -> None:
        """Finish the record; what happens to links from now on is no part of it."""
        self.rounds.close()
        self.recording.close()


class Tap:
    """The record of one link.  Every method but `acknowledge` is to be called before what it tells of continues."""

    def __init__(
        self, recorder: Recorder, local: Endpoint, remote: Endpoint, delivery: Delivery, *, is_client: bool
    ) -> None:
        ends = (local, remote) if is_client else (remote, local)
        self.wire = recorder.recording.wire(*ends)
        self._recording = recorder.recording
        self._rounds = recorder.rounds
        self._delivery = delivery
        self._is_client = is_client
        self._received = 0
        """How far we have the remote's stream, its FIN counted as one byte."""
        self._gone = False
        self._recording.take(self.wire.open(self._recording.now()))

    def sent(self, data: bytes) -> None:
        """We send something."""
        recording = self._recording
        recording.take(self.wire.data(self._is_client, data, recording.now(), self._received))
        self._delivery.writing(len(data))
        self._rounds.note(self)

    def received(self, data: bytes) -> None:
        """The remote sent something."""
        recording = self._recording
        recording.take(self.wire.data(not self._is_client, data, recording.now(), self._delivery.read()))
        self._received += len(data)
        self._rounds.note(self)

    def finished(self, *, local: bool) -> None:
        """One side has nothing more to say: FIN."""
        recording = self._recording
        known = self._received if local else self._delivery.known()
        recording.take(self.wire.close(self._is_client is local, recording.now(), known))
        if not local:
            self._received = self.wire.sent(not self._is_client) + 1
            self._rounds.note(self)

    def aborted(self, *, local: bool) -> None:
        self._recording.take(self.wire.abort(self._is_client is local, self._recording.now()))

    def gone(self) -> None:
        """The socket is closed."""
        self._gone = True
        self._rounds.forget(self)
        if self.wire.ended:
            self._recording.take(self.wire.settle(self._recording.now()))

    def acknowledge(self) -> bool:
        """Record what has arrived meanwhile; returns whether something is still under way."""
        if self._gone:
            return False
        wire, now = self.wire, self._recording.now()
        self._recording.take(wire.acknowledge(self._is_client, self._received, now))
        self._recording.take(wire.acknowledge(not self._is_client, self._delivery.known(), now))
        return wire.acknowledged(not self._is_client) < wire.sent(self._is_client)


@dataclass(slots=True)
class _Waiting:
    """What waits of one direction of a connection."""

    given: int = 0
    """Written by who hands over,"""
    done: int = 0
    """and by the thread."""
    left_out: bool = False
    """Its segments are left out until there is room again."""


class Judging:
    """Events of segments for a listener, made in a thread of its own.

    ``note`` gets sentences for people, ``failed`` the exception that ended the judging; both are called in that thread.
    All methods are for the thread that forwards.
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
    ) -> None:
        self.dissector = dissector
        self.listener: Listener | None = listener
        self.note = note
        self.failed = failed
        self.capture = capture
        self.offered_bytes = 0
        """Payload of segments that were handed over."""
        self.judged_bytes = 0
        """Payload of those that were judged."""
        self.streams_left_out = 0
        """Times that segments of one direction began to be left out."""
        self.most_behind_ns = 0
        """How far judging has lagged."""
        self._now = now
        self._given = self._done = 0
        self._queue: queue.SimpleQueue[tuple[_Waiting, int, Segment] | Callable[[], None] | CaptureDrops | None]
        self._queue = queue.SimpleQueue()
        self._waiting: dict[bytes, _Waiting] = {}
        self._sweep_at = 1_000
        self._at_ns = 0
        """Time of the segment that is being judged."""
        self._say_ns = BEHIND_NS
        self._saying = threading.Lock()
        self._drops_wait = False
        """The linter is about to hear that something was left out."""
        self._hurried = False
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._given != self._done

    @property
    def unjudged_bytes(self) -> int:
        return self.offered_bytes - self.judged_bytes

    def put(self, segment: Segment) -> None:
        """Have a segment judged, or leave it out where too much waits."""
        length = len(segment.payload)
        self.offered_bytes += length
        cost = SEGMENT_COST + length
        waiting = self._waiting.get(segment.key)
        if waiting is None:
            waiting = self._stream(segment.key)
        all_waiting = self._given - self._done
        if not all_waiting:
            self._at_ns = max(self._at_ns, segment.timestamp_ns)
        elif segment.timestamp_ns - self._at_ns > self._say_ns:
            self._behind(segment.timestamp_ns - self._at_ns)
        most = MAX_STREAM_BYTES if all_waiting < MAX_WAITING_BYTES // 2 else MAX_CROWDED_BYTES
        if waiting.left_out:
            # Not a segment here and there: a gap, and then the stream again.
            most //= 2
        ends = segment.flags & (SYN | FIN | RST)
        if all_waiting + cost > MAX_WAITING_BYTES or (waiting.given - waiting.done + cost > most and not ends):
            if not waiting.left_out:
                waiting.left_out = True
                self._leave_out()
            return
        waiting.left_out = False
        waiting.given += cost
        self._given += cost
        self._queue.put((waiting, cost, segment))

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Answer a question in the thread, after all that was handed over before."""
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
        """The end of the capture: events of what is still open.

        Returns whether the thread has ended.  Where it has not, one packet takes it longer than `GRACE_S`, and the
        listener is not called again.
        """
        self._queue.put(None)
        # With Ctrl-C what was judged so far is reported; a second one does not come here.
        with suppress(KeyboardInterrupt):
            self._thread.join(within_s)
        if self._thread.is_alive():
            self._hurried = True
            self.most_behind_ns = max(self.most_behind_ns, self._now() - self._at_ns)
            self._thread.join(GRACE_S)
        self._abandoned = True
        return not self._thread.is_alive()

    def told(self) -> list[str]:
        """What is to be said of the run."""
        sentences = []
        if self.most_behind_ns > BEHIND_NS:
            sentences.append(f"findings came up to {self.most_behind_ns / 1e9:,.1f} s late")
        if self.unjudged_bytes and self.listener is not None:
            times = ""
            if self.streams_left_out:
                times = f"; {counted(self.streams_left_out, 'time')} a stream had more bytes waiting than are kept"
            sentences.append(f"{self.unjudged_bytes:,} bytes forwarded but not judged{times}")
        return sentences

    def _stream(self, key: bytes) -> _Waiting:
        if len(self._waiting) >= self._sweep_at:
            self._waiting = {one: rest for one, rest in self._waiting.items() if rest.given != rest.done}
            self._sweep_at = 2 * len(self._waiting) + 1_000
        made = self._waiting[key] = _Waiting()
        return made

    def _leave_out(self) -> None:
        self.streams_left_out += 1
        if self.streams_left_out == 1:
            self.note(
                f"judging is too slow: more than {MAX_STREAM_BYTES:,} bytes of one stream wait, or"
                f" {MAX_WAITING_BYTES:,} bytes of all streams; further bytes are forwarded but not judged"
            )
        if not self._drops_wait:
            # Rules must not take for missing what was only not judged.
            self._drops_wait = True
            self._queue.put(CaptureDrops(self.capture, 0, None, 1))

    def _behind(self, behind_ns: int) -> None:
        with self._saying:
            self.most_behind_ns = max(self.most_behind_ns, behind_ns)
            if behind_ns <= self._say_ns:
                return
            while self._say_ns < behind_ns:
                self._say_ns *= 2
        self.note(f"findings come {behind_ns / 1e9:,.1f} s late; the traffic does not wait for them")

    # In the thread

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if type(item) is tuple:
                waiting, cost, segment = item
                if not self._hurried and self.listener is not None:
                    self._at_ns = segment.timestamp_ns
                    self._judge(segment)
                waiting.done += cost
                self._done += cost
            elif isinstance(item, CaptureDrops):
                self._drops_wait = False
                self._hear(item)
            elif callable(item):
                item()
        self._end()

    def _judge(self, segment: Segment) -> None:
        listener = self.listener
        assert listener is not None
        try:
            for event in self.dissector.feed(segment):
                if self._hurried:
                    return
                listener(event)
        except Exception as error:
            self._fail(error)
            return
        self.judged_bytes += len(segment.payload)
        behind = self._now() - segment.timestamp_ns
        if behind > self.most_behind_ns and behind > BEHIND_NS:
            self._behind(behind)

    def _hear(self, event: Event) -> None:
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
                self._hear(event)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.listener = None
        self.failed(error)


class WholeBlocks(io.RawIOBase):
    """A file that is written without a buffer, and that ends with a whole write when one fails in the middle."""

    def __init__(self, descriptor: int) -> None:
        # Python closes what was made in part as well, so that what may fail is done by the caller.
        super().__init__()
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 (closed by close)
        self._good = 0

    def writable(self) -> bool:
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
        self._file.close()
        super().close()
