"""Dissecting and judging beside the traffic: a thread of its own, a bounded queue, and a word where it falls behind.

Whoever forwards bytes hands segments over and never waits: one packet may take a rule seconds, and one client may send
nothing but such packets.  What the queue has no room for is left out as if the capture had lost it, which the dissector
reports as a gap and which lowers the linter's confidence; the number of bytes is said at the end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from mqttscope.dissect import Dissector
from mqttscope.events import Event
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops
from mqttscope.net.segment import FIN, RST, SYN, Segment

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
        """Whether something waits or is being judged."""
        return self._given != self._done

    @property
    def unjudged_bytes(self) -> int:
        """Payload that was not judged (yet)."""
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
