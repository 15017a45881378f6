"""Looking into TLS with the keys of its sessions: tshark decrypts, our decoder reads.

tshark decrypts records, and nothing else is left to it.  A table of flows puts the segments of all connections in
order and decides which connection each belongs to; the dissector gets the same segments and comes to the same
decisions.  The bytes that a TLS session delivers go to tshark as rebuilt frames, in order, each byte once.  What tshark
decrypts is passed on before the segment that delivered it, with its flow, direction and stream offset, which tell the
dissector where it belongs.

A segment is held back until tshark has answered for it.  In files all segments are held in one lane, so that the order
of events is that of the capture.  In a live capture each pair of endpoints with TLS has a lane of its own, so that
other connections are not held up; and a session waits there for its keys, since tshark looks for them when the
handshake passes, and not again.

A tshark grows with what it has seen.  After so much, new sessions go to another one; the older ends with its last
session.  In a live capture it gives up those that are left when it has grown too large.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from mqttscope.capture.keylog import KeyLog, Keys
from mqttscope.capture.tls_tshark import SERVER_PORT, Tshark, frames
from mqttscope.capture.tshark import decrypting, find_tshark
from mqttscope.net.flow import Flow, FlowClosed, FlowEvent, FlowOpened, StreamData, StreamGap
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import (
    CaptureError,
    CaptureSecrets,
    Decrypted,
    Plaintext,
    SegmentItem,
    Undecrypted,
)
from mqttscope.net.segment import Segment, reverse_key
from mqttscope.net.tls_hello import APPLICATION_DATA, CLIENT_HELLO, HANDSHAKE, SERVER_HELLO, TlsObserver, TlsSide

Passed = SegmentItem | Decrypted

TLS_KEY_LOG = 0x544C534B
"""Secrets type of key log lines in a Decryption Secrets Block (pcapng, section 4.7)."""
MAX_AHEAD = 2_048
"""Maximum number of segments of files that wait for tshark."""
MAX_AHEAD_BYTES = 8 << 20
"""Maximum payload among them that tshark has not answered."""
KEY_SECONDS = 2.0
"""Time that a session waits for its keys: clients write them during the handshake."""
LAST_KEY_SECONDS = 0.5
"""The same at the end of the capture."""
END_SECONDS = 10.0
"""Maximum wait at the end of a live capture for what tshark has to read."""
LOOK_SECONDS = 1.0
"""Interval at which the key log is read while no session waits."""
MAX_EARLY_BYTES = 64 * 1024
"""Payload of one session that waits for the hello of the other side."""
MAX_WAITING_BYTES = 4 << 20
"""Payload of one session that waits for keys."""
MAX_HELD_BYTES = 64 << 20
"""The same of all sessions."""
MAX_UNANSWERED_BYTES = 32 << 20
"""Payload that a tshark of a live capture is given before it has answered."""
GENERATION_BYTES = 128 << 20
"""A tshark that has grown by so much gets no new sessions."""
LARGEST_BYTES = 512 << 20
"""A tshark of a live capture that has grown by so much gives its sessions up."""
MAX_TSHARKS = 3
"""The most that run in a live capture."""
MAX_FAILURES = 3
"""After so many of them have failed no other is started."""

_PUSHED_SEGMENTS = 64
"""Segments of files between two looks at tshark."""
_HELLO = b"\x16\x03"
_HEAD_BYTES = 6
"""Bytes that show the beginning of a hello."""


@dataclass(slots=True, eq=False)
class Held:
    """A segment or notice that is held back, or the place of something that no segment brought."""

    item: SegmentItem | None
    left: int = 0
    """Frames that tshark has not answered, and pieces that wait for keys."""
    content: list[Decrypted] = field(default_factory=list)
    """What comes before it."""
    over: list[TlsSession] = field(default_factory=list)
    """Sessions that it ends."""


@dataclass(slots=True, eq=False)
class Lane:
    """Segments that are passed on in their order."""

    held: deque[Held] = field(default_factory=deque)
    sessions: int = 0
    """Sessions in it that are not over."""


@dataclass(slots=True, eq=False)
class TlsSession:
    """A TLS session, which begins with a ClientHello."""

    flow: Flow
    client_initiates: bool
    number: int
    """For tshark."""
    lane: Lane
    since: float
    """When it began, by the clock of this process."""
    tls: TlsObserver = field(default_factory=TlsObserver)
    worker: Tshark[_Owner] | None = None
    """What decrypts it."""
    latest: Tshark[_Owner] | None = None
    """What decrypted it last."""
    is_decided: bool = False
    """Whether nothing waits for keys any more."""
    has_keys: bool = False
    early: list[StreamData] = field(default_factory=list)
    """What came before the hello of the other side, as frames of two queues do."""
    waiting: list[tuple[StreamData, Held | None]] = field(default_factory=list)
    """What waits for keys, and what is held back because of that."""
    waiting_bytes: int = 0
    """Payload of both."""
    limit: str = ""
    """The limit that was hit, as the reason why the rest is not decrypted."""
    starts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """What was sent by each side before its flow began."""
    ends: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Offsets up to which tshark has what the client (true) and the server have sent."""
    gaps: set[bool] = field(default_factory=set)
    """Directions in which bytes are missing: true for the client."""
    unread: set[bool] = field(default_factory=set)
    """Directions in which more came after that."""
    readable: set[bool] = field(default_factory=set)
    """Directions in which tshark could decrypt something."""

    def in_turn(self, from_client: bool) -> bool:
        """Whether tshark may read what one side sends next: it has to see the hello of the other side first."""
        tls = self.tls
        if from_client:
            return not tls.client_hello or tls.server_hello or tls.retried or tls.early_data
        return tls.client_hello

    def next_early(self) -> StreamData | None:
        """Take out the first of what came early that tshark may read now."""
        for index, piece in enumerate(self.early):
            if self.in_turn(piece.from_initiator is self.client_initiates):
                return self.early.pop(index)
        return None

    def reason(self, keys: Keys) -> str:
        """Why the session, or a part of it, was not decrypted; empty where it was, or nobody can know."""
        tls = self.tls
        if self.limit:
            return self.limit
        if self.is_decided and tls.client_hello and not self.has_keys and not self.readable:
            if keys.lines(tls.random):
                return "the key log had no keys for this session when they were needed"
            of_hello = " under the random of its ClientHello, which may stand for an encrypted one"
            return f"the key log has no keys for this session{of_hello if tls.encrypted_client_hello else ''}"
        if self.unread and self.readable:
            return f"what {_named(self.unread)} sent after a gap"
        if self.gaps and not self.readable:
            return f"bytes of {_named(self.gaps)} are missing in the capture"
        if not (self.has_keys and tls.client_hello and tls.server_hello):
            return ""
        sides = {side for side, seen in ((True, tls.client), (False, tls.server)) if _has_data(seen)}
        silent = sides - self.readable - self.gaps
        if not silent:
            return ""
        nothing = "nothing" if silent == sides else f"nothing that {_named(silent)} sent"
        return f"tshark could decrypt {nothing} with the keys that the key log has for this session"


_Owner = tuple[TlsSession, StreamData, Held]


def _has_data(side: TlsSide) -> bool:
    """Whether there is a whole record of application data; in TLS 1.3 all that is encrypted looks like that."""
    count = side.records.get(APPLICATION_DATA, 0)
    return count > bool(side.remaining and side.content_type == APPLICATION_DATA)


def _named(sides: set[bool]) -> str:
    return " and ".join("the client" if side else "the server" for side in sorted(sides, reverse=True))


class Decryption:
    """Decrypts the TLS in segments that pass.  ``keys``: those of a live capture are a `KeyLog`, which is followed.

    ``later``: gives the key log lines that come later in the captures, where these can be read again.
    `MissingToolError` where there is no tshark.
    """

    def __init__(self, keys: Keys, later: Callable[[], bytes] | None = None, *, verify_checksums: bool = True) -> None:
        self.keys = keys
        self.records = 0
        """Records that were decrypted so far."""
        self.sessions = 0
        """ClientHellos that were seen."""
        self.failures = 0
        """How often tshark failed."""
        self._keylog = keys if isinstance(keys, KeyLog) else None
        self._later = later
        self._command = decrypting(find_tshark(), "-", "{keys}", (SERVER_PORT,))
        self._flows = FlowTable(verify_checksums=verify_checksums)
        self._lane = Lane() if self._keylog is None else None
        """The lane of all segments of files."""
        self._lanes: dict[bytes, Lane] = {}
        """Those of a live capture, by the direction keys of both sides."""
        self._decrypted: dict[TlsSession, None] = {}
        """Sessions that a tshark decrypts."""
        self._waiting: dict[TlsSession, None] = {}
        """Sessions that wait for keys, the oldest first."""
        self._waiting_bytes = 0
        self._workers: list[Tshark[_Owner]] = []
        self._current: Tshark[_Owner] | None = None
        self._ready: deque[Passed] = deque()
        self._look_at = 0.0
        self._new_keys = False

    def join(self, items: Iterable[SegmentItem]) -> Iterator[Passed]:
        """Pass the segments on, each after what it completed inside TLS.

        What becomes ready in a live capture while no segment comes is for `arrived` to give.
        """
        ready, lane, feed = self._ready, self._lane, self._flows.feed
        count = 0
        try:
            for item in items:
                if type(item) is Segment:
                    self._follow(feed(item), item)
                    count += 1
                    if lane is not None and lane.held and not count % _PUSHED_SEGMENTS:
                        self._keep_up(lane)
                else:
                    if isinstance(item, CaptureSecrets) and item.secrets_type == TLS_KEY_LOG:
                        self.keys.add(item.data.rstrip(b"\0"))
                    if lane is not None and lane.held:
                        lane.held.append(Held(item))
                    else:
                        ready.append(item)
                while ready:
                    yield ready.popleft()
            self._follow(self._flows.close())
            yield from self._last()
        finally:
            self.close()

    def arrived(self) -> Iterator[Passed]:
        """What can be passed on by now in a live capture; never waits."""
        self._poll(KEY_SECONDS)
        while self._ready:
            yield self._ready.popleft()

    def advance(self, timestamp_ns: int) -> None:
        """Let capture time pass without a segment."""
        self._follow(self._flows.advance(timestamp_ns))

    def watched(self) -> list[int]:
        """Descriptors on which something comes when `arrived` has something to do."""
        return [descriptor for worker in self._workers for descriptor in worker.watched()]

    def close(self) -> None:
        """End all tsharks and forget the keys that they had."""
        for worker in self._workers:
            worker.close()
        self._workers, self._current = [], None
        if self._keylog is not None:
            self._keylog.close()

    def _keep_up(self, lane: Lane) -> None:
        """Hear what tshark has answered; wait for it where too much is held back."""
        self._poll(0)
        while lane.held and (
            len(lane.held) > MAX_AHEAD or sum(worker.unanswered for worker in self._workers) > MAX_AHEAD_BYTES
        ):
            self._wait(1.0)

    def _wait(self, seconds: float) -> None:
        """Wait until a tshark says something or takes something, and hear it."""
        writable = [descriptor for worker in self._workers for descriptor in worker.writable()]
        select.select(self.watched(), writable, [], seconds)
        self._poll(LAST_KEY_SECONDS)

    def _last(self) -> Iterator[Passed]:
        """What is held back at the end; in a live capture not for long."""
        deadline = None if self._keylog is None else time.monotonic() + END_SECONDS
        while (lanes := self._held()) and (deadline is None or time.monotonic() < deadline):
            self._wait(1.0 if deadline is None else 0.01)
            while self._ready:
                yield self._ready.popleft()
        for lane in lanes:
            for held in lane.held:
                held.left = 0
                for session in held.over:
                    session.limit = session.limit or "tshark was too slow at the end"
            self._release(lane)
        while self._ready:
            yield self._ready.popleft()

    def _held(self) -> list[Lane]:
        lanes = dict.fromkeys(self._lanes.values()) if self._lane is None else (self._lane,)
        return [lane for lane in lanes if lane.held]

    def _follow(self, events: Iterable[FlowEvent], segment: Segment | None = None) -> None:
        """Give tshark what happened to TLS sessions, and hold back the segment that did it."""
        carriers: dict[Lane, Held] = {}
        for event in events:
            flow = event.flow
            if type(event) is StreamData:
                session = flow.context
                pieces: Iterable[StreamData] = (event,)
                if type(session) is not TlsSession:
                    if session is None and event.data[0] != HANDSHAKE:
                        continue
                    session, pieces = self._begin(event)
                    if session is None:
                        continue
                held = carriers.setdefault(session.lane, Held(None))
                for piece in pieces:
                    self._read(session, piece, held)
            elif isinstance(event, StreamGap):
                if isinstance(flow.context, TlsSession):
                    from_client = event.from_initiator is flow.context.client_initiates
                    flow.context.gaps.add(from_client)
                else:
                    flow.context = None
            elif isinstance(event, FlowOpened):
                flow.context = self._continued(flow)
            elif isinstance(event, FlowClosed) and isinstance(flow.context, TlsSession):
                carriers.setdefault(flow.context.lane, Held(None)).over.append(flow.context)
        if segment is not None:
            lane = self._lane or (self._lane_of(segment) if self._lanes else None)
            if lane and (lane in carriers or lane.held):
                carriers.setdefault(lane, Held(None)).item = segment
            else:
                self._ready.append(segment)
        for lane, held in carriers.items():
            lane.held.append(held)
            self._release(lane)

    def _continued(self, flow: Flow) -> TlsSession | None:
        """The session of a connection that continues, as a flow of its own, after a reset that both sides ignore."""
        before = flow.context
        if not isinstance(before, TlsSession) or before.limit or before.latest not in self._workers:
            return None
        session = replace(before, flow=flow, starts=dict(before.ends), gaps=set(before.gaps), unread=set())
        if session.lane is not self._lane:
            self._lanes[flow.key] = self._lanes[reverse_key(flow.key)] = session.lane
        session.lane.sessions += 1
        self._decrypt(session, before.latest)
        return session

    def _decrypt(self, session: TlsSession, worker: Tshark[_Owner]) -> None:
        session.worker = session.latest = worker
        worker.users += 1
        self._decrypted[session] = None

    def _lane_of(self, segment: Segment) -> Lane | None:
        """The lane of a segment's endpoints."""
        entry = self._flows.entry(segment.key)
        return self._lanes.get(segment.key if entry is None else entry[0].key)

    def _begin(self, event: StreamData) -> tuple[TlsSession | None, list[StreamData]]:
        """The session that begins with these bytes, if one does, and all its bytes so far."""
        flow = event.flow
        heads: dict[bool, list[StreamData]] = flow.context if isinstance(flow.context, dict) else {}
        pieces = [*heads.pop(event.from_initiator, ()), event]
        head = b"".join(piece.data[:_HEAD_BYTES] for piece in pieces)[:_HEAD_BYTES]
        is_short = len(head) < _HEAD_BYTES and _HELLO.startswith(head[:2])
        if is_short:
            heads[event.from_initiator] = pieces
        flow.context = heads or None
        hellos = (CLIENT_HELLO,) if pieces[0].offset else (CLIENT_HELLO, SERVER_HELLO)
        if is_short or not head.startswith(_HELLO) or head[5] not in hellos or self.failures >= MAX_FAILURES:
            return None, []
        lane = self._lane or self._lanes.get(flow.key)
        if lane is None:
            lane = self._lanes[flow.key] = self._lanes[reverse_key(flow.key)] = Lane()
        lane.sessions += 1
        by_client = head[5] == CLIENT_HELLO
        session = TlsSession(flow, event.from_initiator is by_client, self.sessions, lane, time.monotonic())
        flow.context = session
        self.sessions += 1
        if self._keylog is not None:
            self._waiting[session] = None
            self._new_keys |= self._keylog.poll()
        return session, [*(piece for others in heads.values() for piece in others), *pieces]

    def _read(self, session: TlsSession, piece: StreamData, held: Held) -> None:
        from_client = piece.from_initiator is session.client_initiates
        if from_client in session.gaps:
            session.unread.add(from_client)
        elif not session.early and session.in_turn(from_client):
            self._take(session, piece, held, from_client=from_client)
        else:
            session.early.append(piece)
            while (early := session.next_early()) is not None:
                self._take(session, early, held, from_client=early.from_initiator is session.client_initiates)
            if sum(len(early.data) for early in session.early) > MAX_EARLY_BYTES:
                limit = f"{MAX_EARLY_BYTES >> 10} KiB"
                self._give_up(session, f"more than {limit} arrived before the hello of the other side")

    def _take(self, session: TlsSession, piece: StreamData, held: Held, *, from_client: bool) -> None:
        """Take bytes that tshark may read next, as soon as it is known with which keys."""
        session.tls.feed(from_client, piece.data)
        if session.is_decided:
            self._feed(session, piece, held)
            return
        size = len(piece.data)
        session.waiting_bytes += size
        self._waiting_bytes += size
        if self._keylog is not None:
            held.left += 1
        session.waiting.append((piece, None if self._keylog is None else held))
        if session.tls.client_hello:
            self._decide(session, held, last=self._keylog is None)
        if not session.is_decided and session.waiting_bytes > MAX_WAITING_BYTES:
            self._decide(session, held, last=True)
        while self._waiting and self._waiting_bytes > MAX_HELD_BYTES:
            self._decide(next(iter(self._waiting)), held, last=True)

    def _decide(self, session: TlsSession, held: Held | None, *, last: bool) -> None:
        """Feed what waits if its keys are there; the ``last`` time without all of them, or not at all.

        ``held``: what is held back because of bytes that did not hold back anything while they waited.
        """
        random, keys = session.tls.random, self.keys
        if not last and not (random and keys.complete(random)):
            return
        if last and self._keylog is not None:
            self._keylog.settle()
        lines = keys.lines(random) if random else b""
        if random and not lines and self._later is not None:
            later, self._later = self._later, None
            keys.add(later())
            lines = keys.lines(random)
        self._wait_no_more(session)
        session.has_keys = bool(lines)
        # Below TLS 1.3 the keys of an earlier session may serve, which tshark has seen.
        worker = self._worker() if random and (lines or session.tls.resumption_offered) else None
        waiting, session.waiting = session.waiting, []
        if worker is not None:
            worker.keys(lines)
            self._decrypt(session, worker)
        for piece, owner in waiting:
            carrier = owner or held
            if carrier is not None:
                self._feed(session, piece, carrier)
            if owner is not None:
                owner.left -= 1
        if self._keylog is not None:
            self._release(session.lane)

    def _feed(self, session: TlsSession, piece: StreamData, held: Held) -> None:
        """Give tshark bytes, if their session is still to be decrypted."""
        worker = session.worker
        if worker is not None and self._keylog is not None and worker.unanswered > MAX_UNANSWERED_BYTES:
            self._hear(worker)
            if worker.unanswered > MAX_UNANSWERED_BYTES:
                self._give_up(session, "tshark could not keep up")
                worker = None
        if worker is None:
            return
        from_client = piece.from_initiator is session.client_initiates
        start = session.starts[from_client] + piece.offset
        session.ends[from_client] = start + len(piece.data)
        for frame in frames(piece, start, session.number, session.ends[not from_client], from_client=from_client):
            held.left += 1
            worker.feed(frame, (session, piece, held))
        if self._keylog is not None and worker.cost > LARGEST_BYTES:
            self._retire(worker, f"tshark had grown by {LARGEST_BYTES >> 20} MiB")

    def _release(self, lane: Lane) -> None:
        """Pass on what is at the head of a lane and done, each segment after what it completed."""
        held, ready = lane.held, self._ready
        while held and not held[0].left:
            first = held.popleft()
            ready.extend(first.content)
            for session in first.over:
                self._finish(session)
            if first.item is not None:
                ready.append(first.item)

    def _finish(self, session: TlsSession) -> None:
        """Say what of a session that is over was not decrypted."""
        reason = session.reason(self.keys)
        if reason:
            self._ready.append(Undecrypted(session.flow.identity, reason, session.has_keys))
        self._leave(session)
        lane, flow = session.lane, session.flow
        lane.sessions -= 1
        if not lane.sessions and not lane.held and lane is not self._lane:
            for key in (flow.key, reverse_key(flow.key)):
                self._lanes.pop(key, None)

    def _worker(self) -> Tshark[_Owner] | None:
        """The tshark for new sessions."""
        if self._current is not None and self._current.cost > GENERATION_BYTES:
            self._current = None
        if self._current is None and self.failures < MAX_FAILURES:
            used = [worker for worker in self._workers if worker.users]
            if len(used) >= MAX_TSHARKS and self._keylog is not None:
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
        """Hear the tsharks, and look for keys that sessions have waited for; none waits longer than ``patience``."""
        now = time.monotonic()
        if self._keylog is not None and (self._waiting or now >= self._look_at):
            self._look_at = now + LOOK_SECONDS
            self._new_keys |= self._keylog.poll()
        if self._new_keys:
            self._new_keys = False
            for session in list(self._waiting):
                self._decide(session, None, last=False)
        while self._waiting and now - (first := next(iter(self._waiting))).since > patience:
            self._decide(first, None, last=True)
        for worker in list(self._workers):
            self._hear(worker)
            if worker.fault is not None:
                self._bury(worker)
            elif not worker.users and not worker.waiting and worker is not self._current:
                worker.close()
                self._workers.remove(worker)

    def _hear(self, worker: Tshark[_Owner]) -> None:
        """Take the answers of a tshark, and pass on what was waiting for them."""
        lanes: dict[Lane, None] = {}
        for (session, piece, held), records, readable in worker.answers():
            held.left -= 1
            if readable:
                session.readable.add(piece.from_initiator is session.client_initiates)
            identity = session.flow.identity
            for record in records:
                held.content.append(
                    Plaintext(
                        identity,
                        piece.from_initiator,
                        record,
                        piece.offset,
                        piece.frame,
                        piece.timestamp_ns,
                        piece.capture,
                    )
                )
            self.records += len(records)
            lanes[session.lane] = None
        for lane in lanes:
            self._release(lane)

    def _bury(self, worker: Tshark[_Owner]) -> None:
        """A tshark has failed: its sessions continue without being decrypted."""
        self._fail(worker.fault or "failed")
        for session in [session for session in self._decrypted if session.worker is worker]:
            self._give_up(session, "tshark failed")
        lanes = {session.lane: None for session, _, _ in worker.waiting}
        for _, _, held in worker.waiting:
            held.left -= 1
        worker.waiting.clear()
        for lane in lanes:
            self._release(lane)
        worker.close()
        self._workers.remove(worker)
        self._current = None if self._current is worker else self._current

    def _fail(self, why: str) -> None:
        self.failures += 1
        last = "; no other is started" if self.failures == MAX_FAILURES else ""
        self._ready.append(CaptureError("tshark", f"{why}{last}"))

    def _retire(self, worker: Tshark[_Owner], why: str) -> None:
        """Decrypt no more with a tshark than what it was given."""
        self._current = None if self._current is worker else self._current
        for session in [session for session in self._decrypted if session.worker is worker]:
            self._give_up(session, why)

    def _give_up(self, session: TlsSession, why: str) -> None:
        session.limit = session.limit or why
        self._leave(session)

    def _leave(self, session: TlsSession) -> None:
        """Decrypt nothing more of a session; what is under way still comes."""
        self._wait_no_more(session)
        session.early.clear()
        for _, owner in session.waiting:
            if owner is not None:
                owner.left -= 1
        session.waiting.clear()
        if session.worker is not None:
            session.worker.users -= 1
            session.worker = None
            self._decrypted.pop(session, None)

    def _wait_no_more(self, session: TlsSession) -> None:
        session.is_decided = True
        self._waiting.pop(session, None)
        self._waiting_bytes -= session.waiting_bytes
        session.waiting_bytes = 0
