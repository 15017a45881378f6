"""TLS that is decrypted while it is captured, with a key log that grows.

The segments of a connection are held back from its ClientHello on until the key log has its keys: tshark looks for them
when the handshake passes, and not again.  Then they are fed to tshark, and each is passed on when tshark is done with
it, with what it completed.  So what comes out of one connection is what comes out of a file; other connections are not
held up.

A tshark grows with what it has seen.  After so much, new connections go to another one; the older ends with its last
connection, or gives those up that are left when it has grown too large.

It reads pcapng from its standard input and prints a line for each frame: its number, its protocols and the data that
was inside TLS, in hexadecimal.  Unlike exported PDUs these come at once, and they say of every frame that tshark is
done with it.  Neither side waits for the other: what the pipe does not take is kept here.
"""

from __future__ import annotations

import os
import select
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mqttscope import system
from mqttscope.capture.keylog import KeyLog
from mqttscope.capture.tls import ARGUMENTS, SERVER_PORT, frames
from mqttscope.capture.tshark import TsharkProcess, decrypting, find_tshark
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame, Plaintext
from mqttscope.net.segment import ACK, FIN, MASK, RST, SYN, Segment, distance, reverse_key

T = TypeVar("T")
Passed = Segment | CaptureNotice | Plaintext

KEY_SECONDS = 2.0
"""How long a connection waits for its keys: clients write them during the handshake."""
LAST_KEY_SECONDS = 0.5
"""The same at the end of the capture."""
END_SECONDS = 10.0
"""How long is waited at the end for what tshark has to read."""
LINGER_SECONDS = 2.0
"""How long a connection is kept that was closed: segments may come late."""
IDLE_SECONDS = 7_200.0
"""A connection in which nothing was said for so long is forgotten, as the dissector does."""
LOOK_SECONDS = 1.0
"""So often the key log is read while no connection waits, and connections are looked through."""
MAX_WAITING_BYTES = 4 << 20
"""Payload that a connection holds while it waits for keys."""
MAX_HELD_BYTES = 64 << 20
"""The same of all connections."""
MAX_UNANSWERED_BYTES = 32 << 20
"""Payload that one tshark is given before it has answered."""
GENERATION_BYTES = 128 << 20
"""A tshark that has grown by so much gets no new connections."""
LARGEST_BYTES = 512 << 20
"""One that has grown by so much gives its connections up."""
MAX_TSHARKS = 3
MAX_FAILURES = 3
"""After so many of them have failed no other is started."""
FRAME_COST = 1_000
"""Bytes by which tshark grows with each frame, beside its payload (measured: 700 to 800)."""
STALL_SECONDS = 30.0
"""A tshark that says nothing for so long, though it has frames to read, is given up."""
FIELDS = ("-l", "-T", "fields", "-e", "frame.number", "-e", "frame.protocols", "-e", "data.data")
"""What tshark prints of a frame, a line at once."""

_AWAY_SECONDS = 1.0
"""Whoever did not look for so long was stopped or had to wait himself."""
_HELLO = b"\x16\x03"
_RANDOM = slice(11, 43)
"""In a ClientHello, after the headers of record and message and the version."""


def begins(segment: Segment) -> bool:
    """Whether a segment looks like the beginning of a ClientHello."""
    return segment.payload[:2] == _HELLO and segment.payload[5:6] == b"\x01"


def start_of(segment: Segment) -> int:
    """Sequence number of the first byte of a segment: a SYN takes one of its own."""
    return (segment.sequence + bool(segment.flags & SYN)) & MASK


@dataclass(slots=True, eq=False)
class Held:
    """A segment that is held back."""

    segment: Segment
    flow: TlsFlow
    left: int = 0
    """Frames that tshark has not answered."""
    waiting: bool = False
    """Whether it is to be fed once there are keys."""
    records: list[bytes] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class TlsFlow:
    """A TCP connection in which a ClientHello was seen."""

    key: bytes
    """Direction key of the client."""
    number: int = -1
    """Of the TLS session in it, for tshark."""
    first: int = 0
    """Sequence number of the ClientHello."""
    since: float = 0.0
    last: float = 0.0
    hello: bytearray = field(default_factory=bytearray)
    """Its first bytes, in order."""
    worker: Tshark[Held] | None = None
    """What decrypts it; while there is none and it does not wait, segments only pass in order."""
    waiting: bool = False
    waiting_bytes: int = 0
    ended: int = 0
    """Bit 1: the client has closed; bit 2: the server has."""
    held: deque[Held] = field(default_factory=deque)

    @property
    def random(self) -> bytes:
        """The client random; empty as long as it is not known."""
        return bytes(self.hello[_RANDOM]) if len(self.hello) >= _RANDOM.stop else b""

    def begin(self, segment: Segment, number: int) -> None:
        """A ClientHello: from here on there may be something to decrypt."""
        self.key, self.first, self.number, self.ended = segment.key, start_of(segment), number, 0
        self.hello, self.since, self.waiting = bytearray(), self.last, True

    def gather(self, segment: Segment) -> None:
        """Take what a segment of the client holds of the beginning of the ClientHello."""
        ahead = distance(self.first, start_of(segment))
        if 0 <= ahead <= len(self.hello) < _RANDOM.stop:
            del self.hello[ahead:]
            self.hello += segment.payload[: _RANDOM.stop]


class LiveDecryption:
    """Decrypts the segments that pass.  ``keylog``: a key log that programs write to meanwhile.

    `MissingToolError` where there is no tshark, `BadKeysError` where ``keylog`` can be no key log.
    """

    def __init__(self, keylog: str) -> None:
        self.keylog = KeyLog(keylog)
        self.records = 0
        """Records that were decrypted so far."""
        self.sessions = 0
        """ClientHellos that were seen."""
        self.keyless = 0
        """Connections that were not decrypted, since their keys did not come in time."""
        self.failures = 0
        """How often tshark failed."""
        self.given_up: Counter[str] = Counter()
        """Connections that were no longer decrypted, by the limit that was hit."""
        self._command = decrypting(find_tshark(), "-", "{keys}", (SERVER_PORT,))
        self._flows: dict[bytes, TlsFlow] = {}
        self._waiting: dict[TlsFlow, None] = {}
        self._closed: dict[TlsFlow, float] = {}
        self._workers: list[Tshark[Held]] = []
        self._current: Tshark[Held] | None = None
        self._ready: deque[Passed] = deque()
        self._held_bytes = 0
        self._look_at = 0.0
        self._new_keys = False

    def join(self, segments: Iterable[Segment | CaptureNotice]) -> Iterator[Passed]:
        """The segments and what was inside them, each connection in order.

        What is under way while no segment comes is for `arrived` to give.
        """
        flows, ready = self._flows, self._ready
        try:
            for item in segments:
                if type(item) is not Segment:
                    yield item
                    continue
                flow = flows.get(item.key)
                if flow is None:
                    if not begins(item) or self.failures >= MAX_FAILURES:
                        yield item
                        continue
                    flow = flows[item.key] = flows[reverse_key(item.key)] = TlsFlow(item.key)
                self._take(flow, item)
                while ready:
                    yield ready.popleft()
            yield from self._last()
        finally:
            self.close()

    def arrived(self) -> Iterator[Passed]:
        """What can be passed on by now; never waits."""
        self._poll(KEY_SECONDS)
        while self._ready:
            yield self._ready.popleft()

    def watched(self) -> list[int]:
        """Descriptors on which something comes when `arrived` has something to do."""
        return [one for worker in self._workers for one in worker.watched()]

    def limits(self) -> list[str]:
        """The limits that were hit, a line each."""
        return [
            f"limit: {counted(count, 'TLS connection')} no longer decrypted: {why}"
            for why, count in self.given_up.items()
        ]

    def close(self) -> None:
        """End all tsharks and forget the keys that they had."""
        for worker in self._workers:
            worker.close()
        self._workers, self._current = [], None
        self.keylog.close()

    def _last(self) -> Iterator[Passed]:
        """At the end of the capture: what tshark has to read still, and what waits for keys, but not for long."""
        deadline = time.monotonic() + END_SECONDS
        while any(flow.held for flow in self._flows.values()) and time.monotonic() < deadline:
            self._poll(LAST_KEY_SECONDS)
            if not self._ready:
                select.select(self.watched(), [], [], 0.01)
            while self._ready:
                yield self._ready.popleft()
        for flow in list(self._flows.values()):
            if flow.held:
                self.given_up["tshark was too slow at the end"] += 1
            for one in flow.held:
                one.left, one.waiting = 0, False
            self._release(flow)
        while self._ready:
            yield self._ready.popleft()

    def _take(self, flow: TlsFlow, segment: Segment) -> None:
        """One more segment of a connection that is known."""
        flow.last = time.monotonic()
        from_client = segment.key == flow.key
        if segment.flags & (SYN | ACK) == SYN and (segment.sequence + 1) & MASK != flow.first:
            # The ports are used again: what follows belongs to another connection, but comes after this one.
            self._leave(flow)
        held = Held(segment, flow, waiting=True)
        flow.held.append(held)
        if flow.worker is None and not flow.waiting and begins(segment) and self.failures < MAX_FAILURES:
            self._begin(flow, segment)
            from_client = True
        if flow.waiting:
            flow.waiting_bytes += len(segment.payload)
            self._held_bytes += len(segment.payload)
            if from_client:
                flow.gather(segment)
            self._decide(flow, last=flow.waiting_bytes > MAX_WAITING_BYTES)
            while self._held_bytes > MAX_HELD_BYTES:
                self._decide(next(iter(self._waiting)), last=True)
        else:
            self._feed(flow, held)
        if segment.flags & (FIN | RST):
            flow.ended |= 3 if segment.flags & RST else 1 if from_client else 2
            if flow.ended == 3:
                self._closed.setdefault(flow, flow.last)
        self._release(flow)

    def _begin(self, flow: TlsFlow, segment: Segment) -> None:
        """A ClientHello: from here on there may be something to decrypt."""
        self._flows[segment.key] = self._flows[reverse_key(segment.key)] = flow
        flow.begin(segment, self.sessions)
        self._closed.pop(flow, None)
        self._waiting[flow] = None
        self.sessions += 1
        self._new_keys |= self.keylog.poll()

    def _decide(self, flow: TlsFlow, *, last: bool) -> None:
        """Feed what waits if its keys are there; the ``last`` time without all of them, or not at all."""
        random = flow.random
        if not last and not (random and self.keylog.complete(random)):
            return
        if last:
            self.keylog.settle()
        self._wait_no_more(flow)
        lines = self.keylog.lines(random)
        worker = self._worker() if random and lines else None
        self.keyless += not lines
        flow.worker = worker
        if worker is not None:
            worker.users += 1
            worker.keys(lines)
        for held in list(flow.held):
            if held.waiting:
                self._feed(flow, held)
        self._release(flow)

    def _feed(self, flow: TlsFlow, held: Held) -> None:
        """Give tshark a segment that waits, if it is still to be decrypted."""
        worker = flow.worker
        if worker is not None and worker.unanswered > MAX_UNANSWERED_BYTES:
            self._hear(worker)
            if worker.unanswered > MAX_UNANSWERED_BYTES:
                self._give_up(flow, "tshark could not keep up")
        worker = flow.worker
        held.waiting = False
        if worker is None:
            return
        for frame in frames(held.segment, flow.number, from_client=held.segment.key == flow.key):
            held.left += 1
            worker.feed(frame, held)
        if worker.cost > LARGEST_BYTES:
            self._retire(worker, f"tshark had grown by {LARGEST_BYTES >> 20} MiB")

    def _release(self, flow: TlsFlow) -> None:
        """Pass on what is at the head of a connection and done; what ends the connection comes after its plaintext."""
        held, ready = flow.held, self._ready
        while held and not held[0].left and not held[0].waiting:
            one = held.popleft()
            segment = one.segment
            ends = segment.flags & (FIN | RST)
            if not ends:
                ready.append(segment)
            for data in one.records:
                ready.append(Plaintext(segment.key, data, segment.frame, segment.timestamp_ns, segment.capture))
            self.records += len(one.records)
            if ends:
                ready.append(segment)
        if not held and flow.worker is None and not flow.waiting:
            self._forget(flow)

    def _worker(self) -> Tshark[Held] | None:
        """The tshark for new connections."""
        if self._current is not None and self._current.cost > GENERATION_BYTES:
            self._current = None
        if self._current is None:
            used = [one for one in self._workers if one.users]
            if len(used) >= MAX_TSHARKS:
                # It ends when it is done with what it was given.
                self._retire(used[0], f"more than {MAX_TSHARKS} of tshark would have been needed")
            try:
                self._current = Tshark(self._command)
            except OSError as error:
                self._fail(f"cannot be started: {error.strerror or error}")
                return None
            self._workers.append(self._current)
        return self._current

    def _poll(self, patience: float) -> None:
        now = time.monotonic()
        look = now >= self._look_at
        if self._waiting or look:
            self._new_keys |= self.keylog.poll()
        if self._new_keys:
            self._new_keys = False
            for flow in list(self._waiting):
                self._decide(flow, last=False)
        while self._waiting and now - (first := next(iter(self._waiting))).since > patience:
            self._decide(first, last=True)
        for worker in list(self._workers):
            self._hear(worker)
            if worker.fault is not None:
                self._bury(worker)
            elif not worker.users and not worker.waiting and worker is not self._current:
                worker.close()
                self._workers.remove(worker)
        if look:
            self._look_at = now + LOOK_SECONDS
            self._sweep(now)

    def _hear(self, worker: Tshark[Held]) -> None:
        """Take the answers of a tshark, and pass on what was waiting for them."""
        touched: dict[TlsFlow, None] = {}
        for held, records in worker.answers():
            held.left -= 1
            held.records += records
            touched[held.flow] = None
        for flow in touched:
            self._release(flow)

    def _sweep(self, now: float) -> None:
        """Forget connections that are over or idle."""
        while self._closed and now - self._closed[first := next(iter(self._closed))] > LINGER_SECONDS:
            self._leave(first)
        for flow in list(self._flows.values()):
            if now - flow.last > IDLE_SECONDS:
                self._leave(flow)

    def _bury(self, worker: Tshark[Held]) -> None:
        """A tshark has failed: its connections continue without being decrypted."""
        self._fail(worker.fault or "failed")
        lost = {held.flow for held in worker.waiting}
        for held in worker.waiting:
            held.left = 0
        worker.waiting.clear()
        lost.update(flow for flow in self._flows.values() if flow.worker is worker)
        for flow in lost:
            if flow.worker is worker:
                self._leave(flow)
            self._release(flow)
        worker.close()
        self._workers.remove(worker)
        self._current = None if self._current is worker else self._current

    def _fail(self, why: str) -> None:
        self.failures += 1
        self._ready.append(CaptureError("tshark", why))

    def _retire(self, worker: Tshark[Held], why: str) -> None:
        """Decrypt no more with a tshark than what it was given."""
        self._current = None if self._current is worker else self._current
        for flow in set(self._flows.values()):
            if flow.worker is worker:
                self._give_up(flow, why)

    def _give_up(self, flow: TlsFlow, why: str) -> None:
        if flow.ended != 3:
            self.given_up[why] += 1
        self._leave(flow)

    def _leave(self, flow: TlsFlow) -> None:
        """What follows in a connection is not decrypted, unless it begins again; what is under way still comes."""
        if flow.waiting:
            self._wait_no_more(flow)
            for held in flow.held:
                held.waiting = False
        if flow.worker is not None:
            flow.worker.users -= 1
            flow.worker = None
        self._closed.pop(flow, None)
        self._release(flow)

    def _wait_no_more(self, flow: TlsFlow) -> None:
        del self._waiting[flow]
        self._held_bytes -= flow.waiting_bytes
        flow.waiting, flow.waiting_bytes = False, 0

    def _forget(self, flow: TlsFlow) -> None:
        for key in (flow.key, reverse_key(flow.key)):
            if self._flows.get(key) is flow:
                del self._flows[key]


class Tshark(Generic[T]):
    """A running tshark.  ``command``: what it is called with, `{keys}` being the key log.

    What is fed with a frame comes back with its answer.  `OSError` where it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.cost = 0
        """About how many bytes it has grown by."""
        self.users = 0
        """Connections that it decrypts; for the owner to count."""
        self.fault: str | None = None
        """What it failed at."""
        self.waiting: deque[T] = deque()
        """What was fed and not answered, one for each frame."""
        self.unanswered = 0
        """Bytes of these frames."""
        self._sizes: deque[int] = deque()
        self._answered = 0
        self._given: set[bytes] = set()
        self._rest = b""
        self._looked_at = self._moved_at = time.monotonic()
        self._keys, path = _private()
        keep = () if os.path.basename(path).startswith(_KEYS) else (self._keys,)
        self._path = "" if keep else path
        words = [word.replace("{keys}", path) for word in (*command, *ARGUMENTS, *FIELDS)]
        try:
            self._process = TsharkProcess(words, keep)
        except BaseException:
            self._forget_keys()
            raise

    def keys(self, lines: bytes) -> None:
        """Add lines to the key log; before the frames that need them are fed."""
        for line in lines.splitlines(keepends=True):
            if line.startswith(b"RSA"):
                # They come with every connection.
                if line in self._given:
                    continue
                self._given.add(line)
            self.cost += len(line)
            with suppress(OSError):
                os.write(self._keys, line)

    def feed(self, frame: Frame, owner: T) -> None:
        """Give it a frame; ``owner`` comes back with the answer."""
        size = len(frame.data)
        self.cost += FRAME_COST + size
        self.unanswered += size
        self._sizes.append(size)
        self.waiting.append(owner)
        if self.fault is None:
            self._process.feed(frame)

    def answers(self) -> Iterator[tuple[T, list[bytes]]]:
        """Pass on what it can take, and yield what it is done with: the owner and what each record held."""
        if self.fault is None:
            self._process.push()
            moved = False
            for line in self._lines():
                moved = True
                number, protocols, data = (*line.split(b"\t"), b"", b"")[:3]
                if not self.waiting or number != b"%d" % (self._answered + 1):
                    self._fail(f"said {line[:40]!r}")
                    return
                self._answered += 1
                self.unanswered -= self._sizes.popleft()
                # Data right inside TCP is none that was decrypted.
                records = data.split(b",") if data and b"tcp:data" not in protocols else ()
                yield self.waiting.popleft(), [bytes.fromhex(one.decode()) for one in records if one]
            self._watch(moved=moved)

    def watched(self) -> list[int]:
        """Descriptors on which something comes when there is something to do."""
        if self.fault is not None:
            return []
        process = self._process
        return [process.output, process.errors] if process.complains else [process.output]

    def close(self) -> None:
        """End it now."""
        self._process.close()
        self._forget_keys()

    def _lines(self) -> Iterator[bytes]:
        while True:
            self._process.listen()
            data = self._process.read()
            if data is None:
                return
            if not data:
                self._fail("ended early")
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from lines
            if self.fault is not None:
                return
            self._process.push()

    def _watch(self, *, moved: bool) -> None:
        now = time.monotonic()
        if moved or not self.waiting or now - self._looked_at > _AWAY_SECONDS:
            self._moved_at = now
        elif now - self._moved_at > STALL_SECONDS and self.fault is None:
            self._fail(f"silent for {STALL_SECONDS:.0f} s")
        self._looked_at = now

    def _fail(self, what: str) -> None:
        if self.fault is None:
            how, last = self._process.give_up(0.2)
            self.fault = f"failed while it decrypted TLS ({what}{how}){last}; what it had not decrypted is missing"

    def _forget_keys(self) -> None:
        with suppress(OSError):
            os.close(self._keys)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = ""


_KEYS = "mqttscope-keys"


def _private() -> tuple[int, str]:
    """A file for keys that nobody else can read, and how tshark opens it.

    In memory where the system has that: then it cannot stay behind, however this program ends.
    """
    return system.memory_file(_KEYS) or tempfile.mkstemp(prefix=f"{_KEYS}-")
