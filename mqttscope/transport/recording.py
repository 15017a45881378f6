"""What is made of the bytes that pass: frames in a file at once, and events for a listener soon after.

A frame is in the file (in the system's hands, so that the end of this process cannot take it back) before its bytes are
forwarded.  Dissecting and judging happens in a thread of its own, for which forwarding never waits.

The record of links: what an endpoint of ours sends and gets, told to a `Recording` as a capture would show it.
"""

from __future__ import annotations

import io
import itertools
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.dissect import Dissector
from mqttscope.net.segment import Segment
from mqttscope.transport.judging import REST_S, Judging, Listener
from mqttscope.transport.sockets import Delivery, Rounds
from mqttscope.transport.wire import Endpoint, Made, Wire

T = TypeVar("T")


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

    def start(self) -> None:
        """Make events in a thread of its own from now on: the caller has traffic that must not wait for them."""
        if self.judging is None and self.listener is not None and not self.closed:
            self.judging = Judging(
                self.dissector, self.listener, self.note, self._cannot_judge, capture=self.capture, now=self.now
            )

    @property
    def busy(self) -> bool:
        """Whether something waits to be judged."""
        return self.judging is not None and self.judging.busy

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
        """A new connection."""
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
        """One side has given the connection up: RST."""
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
