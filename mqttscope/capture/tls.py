"""Decrypts TLS sessions with their keys: tshark decrypts the records, our decoder reads the content.

tshark only decrypts records.  A flow table orders the segments of all connections and assigns each to its connection;
the dissector gets these segments, too, and decides identically.  The bytes of a TLS session are passed to tshark in
rebuilt frames, in order, each byte once.  The plaintext is passed on before the segment that completed it, with its
flow, direction and stream offset for the dissector.

A segment is delayed until tshark has answered for it.  All segments of files share one lane, so that events keep the
order of the capture.  In a live capture, each pair of endpoints with TLS has its own lane, so that other connections
are not delayed; a session waits in its lane for keys, because tshark reads them only during the handshake.

The memory of a tshark grows with its input.  Above a threshold, new sessions go to a new tshark, and the old one ends
with its last session.  In a live capture, a tshark that grows too large gives up its remaining sessions.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from mqttscope.capture.keylog import KeyLog, Keys
from mqttscope.capture.tls_tshark import AWAY_SECONDS, SERVER_PORT, Tshark, frames
from mqttscope.capture.tshark import decrypting, find_tshark
from mqttscope.net.flow import Flow, FlowClosed, FlowEvent, FlowOpened, StreamData, StreamGap
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import (
    CaptureError,
    CaptureSecrets,
    Decrypted,
    Plaintext,
    SegmentItem,
    UndecryptedSession,
)
from mqttscope.net.segment import Segment, reverse_key
from mqttscope.net.tls_hello import APPLICATION_DATA, CLIENT_HELLO, HANDSHAKE, SERVER_HELLO, TlsObserver, TlsSide

Passed = SegmentItem | Decrypted

TLS_KEY_LOG = 0x544C534B
"""Secrets type of key log lines in a Decryption Secrets Block (pcapng, section 4.7)."""
MAX_AHEAD = 2_048
"""Maximum number of segments of files that wait for tshark."""
MAX_AHEAD_BYTES = 8 << 20
"""Maximum payload of files that tshark has not answered."""
KEY_SECONDS = 2.0
"""Maximum time that a session waits for its keys: clients write them during the handshake."""
LAST_KEY_SECONDS = 0.5
"""Maximum time that a session waits for its keys at the end of the capture."""
END_SECONDS = 10.0
"""Maximum time at the end of a live capture to wait for tshark."""
WAIT_SECONDS = AWAY_SECONDS / 4
"""Maximum time between two looks at a tshark that is waited for: a longer one would count as a pause of our own."""
LOOK_SECONDS = 1.0
"""Interval between reads of the key log while no session waits."""
MAX_EARLY_BYTES = 64 * 1024
"""Maximum payload of one session that waits for the hello of the other side."""
MAX_WAITING_BYTES = 4 << 20
"""Maximum payload of one session that waits for keys."""
MAX_HELD_BYTES = 64 << 20
"""Maximum payload of all sessions that wait for keys."""
MAX_UNANSWERED_BYTES = 32 << 20
"""Maximum unanswered payload of a tshark in a live capture."""
GENERATION_BYTES = 128 << 20
"""Threshold for the growth of a tshark; above it, new sessions go to a new tshark."""
LARGEST_BYTES = 512 << 20
"""Maximum growth of a tshark in a live capture; above it, the tshark gives up its sessions."""
MAX_TSHARKS = 3
"""Maximum number of tsharks that run in a live capture."""
MAX_FAILURES = 3
"""Maximum number of failed tsharks; after that, no other is started."""

_PUSHED_SEGMENTS = 64
"""Number of segments of files between two checks of tshark."""
_HELLO = b"\x16\x03"
_HEAD_BYTES = 6
"""Number of bytes that suffice to recognise a hello."""


@dataclass(slots=True, eq=False)
class DelayedSegment:
    """A delayed segment or notice; without ``item``, a position in the order for decrypted content alone."""

    item: SegmentItem | None
    left: int = 0
    """Number of frames that tshark has not answered, and of pieces that wait for keys."""
    content: list[Decrypted] = field(default_factory=list)
    """Decrypted content to pass on before the segment."""
    over: list[TlsSession] = field(default_factory=list)
    """Sessions that end with the segment."""


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of segments that are passed on in order."""

    held: deque[DelayedSegment] = field(default_factory=deque)
    sessions: int = 0
    """Number of its open sessions."""


@dataclass(slots=True, eq=False)
class TlsSession:
    """A TLS session, which begins with a ClientHello."""

    flow: Flow
    client_initiates: bool
    number: int
    """Number of the session, for tshark."""
    lane: Lane
    since: float
    """Begin of the session, by the monotonic clock of this process."""
    tls: TlsObserver = field(default_factory=TlsObserver)
    worker: Tshark[_Owner] | None = None
    """The tshark that decrypts the session."""
    latest: Tshark[_Owner] | None = None
    """The last tshark that decrypted the session."""
    is_decided: bool = False
    """Whether the wait for keys is over."""
    has_keys: bool = False
    early: list[StreamData] = field(default_factory=list)
    """Data that arrived before the hello of the other side, as with frames of two capture queues."""
    waiting: list[tuple[StreamData, DelayedSegment | None]] = field(default_factory=list)
    """Data that waits for keys, with the segment that is delayed for it."""
    waiting_bytes: int = 0
    """Payload of ``waiting``."""
    limit: str = ""
    """The limit that was reached, as the reason why the rest is not decrypted."""
    starts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Bytes that each side sent before its flow began: true for the client."""
    ends: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """End offsets of the data passed to tshark: true for the client."""
    gaps: set[bool] = field(default_factory=set)
    """Directions with missing bytes: true for the client."""
    unread: set[bool] = field(default_factory=set)
    """Directions with data after missing bytes: true for the client."""
    readable: set[bool] = field(default_factory=set)
    """Directions with decrypted data: true for the client."""

    def in_turn(self, from_client: bool) -> bool:
        """Whether tshark may read the next data of one side; it needs the hello of the other side first."""
        tls = self.tls
        if from_client:
            return not tls.client_hello or tls.server_hello or tls.retried or tls.early_data
        return tls.client_hello

    def next_early(self) -> StreamData | None:
        """Remove the first early piece that tshark may read now."""
        for index, piece in enumerate(self.early):
            if self.in_turn(piece.from_initiator is self.client_initiates):
                return self.early.pop(index)
        return None

    def reason(self, keys: Keys) -> str:
        """Reason why the session, or a part of it, was not decrypted; empty if it was, or if the reason is unknown."""
        tls = self.tls
        if self.limit:
            return self.limit
        if self.is_decided and tls.client_hello and not self.has_keys and not self.readable:
            if keys.lines(tls.random):
                return "the key log had no keys for this session at the time of its handshake"
            note = " with the random of its ClientHello, which may conceal an encrypted one"
            return f"the key log has no keys for this session{note if tls.encrypted_client_hello else ''}"
        if self.unread and self.readable:
            return f"{_side_names(self.unread)} sent data after a gap"
        if self.gaps and not self.readable:
            return f"bytes of {_side_names(self.gaps)} are missing in the capture"
        if not (self.has_keys and tls.client_hello and tls.server_hello):
            return ""
        sides = {side for side, seen in ((True, tls.client), (False, tls.server)) if _has_data(seen)}
        silent = sides - self.readable - self.gaps
        if not silent:
            return ""
        nothing = "nothing" if silent == sides else f"no data of {_side_names(silent)}"
        return f"tshark could decrypt {nothing} with the keys that the key log has for this session"


_Owner = tuple[TlsSession, StreamData, DelayedSegment]


def _has_data(side: TlsSide) -> bool:
    """Whether there is a complete record of application data, the type of all encrypted records in TLS 1.3."""
    count = side.records.get(APPLICATION_DATA, 0)
    return count > bool(side.remaining and side.content_type == APPLICATION_DATA)


def _side_names(sides: set[bool]) -> str:
    return " and ".join("the client" if side else "the server" for side in sorted(sides, reverse=True))


class Decryption:
    """Decrypts TLS in a stream of segments.  ``keys``: for a live capture, a `KeyLog`, which is followed.

    ``later``: returns the key log lines from later parts of the captures, if these can be read twice.
    `MissingToolError` if tshark is not installed.
    """

    def __init__(self, keys: Keys, later: Callable[[], bytes] | None = None, *, verify_checksums: bool = True) -> None:
        self.keys = keys
        self.records = 0
        """Number of decrypted records."""
        self.sessions = 0
        """Number of sessions."""
        self.failures = 0
        """Number of failures of tshark."""
        self._keylog = keys if isinstance(keys, KeyLog) else None
        self._later = later
        self._command = decrypting(find_tshark(), "-", "{keys}", (SERVER_PORT,))
        self._flows = FlowTable(verify_checksums=verify_checksums)
        self._lane = Lane() if self._keylog is None else None
        """The single lane for files."""
        self._lanes: dict[bytes, Lane] = {}
        """The lanes of a live capture, by the direction keys of both sides."""
        self._decrypted: dict[TlsSession, None] = {}
        """Sessions that are being decrypted."""
        self._waiting: dict[TlsSession, None] = {}
        """Sessions that wait for keys, the oldest first."""
        self._waiting_bytes = 0
        self._workers: list[Tshark[_Owner]] = []
        self._current: Tshark[_Owner] | None = None
        self._ready: deque[Passed] = deque()
        self._next_key_read = 0.0
        self._new_keys = False

    def join(self, items: Iterable[SegmentItem]) -> Iterator[Passed]:
        """Pass the segments on, each after the plaintext that it completed.

        In a live capture, `arrived` returns the output that becomes ready while no segment arrives.
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
                        lane.held.append(DelayedSegment(item))
                    else:
                        ready.append(item)
                while ready:
                    yield ready.popleft()
            self._follow(self._flows.close())
            yield from self._last()
        finally:
            self.close()

    def arrived(self) -> Iterator[Passed]:
        """Output that is ready in a live capture; never waits."""
        self._poll(KEY_SECONDS)
        while self._ready:
            yield self._ready.popleft()

    def advance(self, timestamp_ns: int) -> None:
        """Advance the capture time without a segment."""
        self._follow(self._flows.advance(timestamp_ns))

    def watched(self) -> list[int]:
        """Descriptors that become readable when `arrived` has output."""
        return [descriptor for worker in self._workers for descriptor in worker.watched()]

    def close(self) -> None:
        """End all tsharks and remove their keys."""
        for worker in self._workers:
            worker.close()
        self._workers, self._current = [], None
        if self._keylog is not None:
            self._keylog.close()

    def _keep_up(self, lane: Lane) -> None:
        """Read answers of tshark; wait if too much is delayed."""
        self._poll(0)
        while lane.held and (
            len(lane.held) > MAX_AHEAD or sum(worker.unanswered for worker in self._workers) > MAX_AHEAD_BYTES
        ):
            self._wait(WAIT_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait until a tshark can be read or written, and process its answers."""
        writable = [descriptor for worker in self._workers for descriptor in worker.writable()]
        select.select(self.watched(), writable, [], seconds)
        self._poll(LAST_KEY_SECONDS)

    def _last(self) -> Iterator[Passed]:
        """Pass on all delayed segments at the end; in a live capture, wait only briefly."""
        deadline = None if self._keylog is None else time.monotonic() + END_SECONDS
        while (lanes := self._held()) and (deadline is None or time.monotonic() < deadline):
            self._wait(WAIT_SECONDS if deadline is None else 0.01)
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
        """Pass the data of TLS sessions to tshark, and delay the segment that delivered it."""
        carriers: dict[Lane, DelayedSegment] = {}
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
                held = carriers.setdefault(session.lane, DelayedSegment(None))
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
                carriers.setdefault(flow.context.lane, DelayedSegment(None)).over.append(flow.context)
        if segment is not None:
            lane = self._lane or (self._lane_of(segment) if self._lanes else None)
            if lane and (lane in carriers or lane.held):
                carriers.setdefault(lane, DelayedSegment(None)).item = segment
            else:
                self._ready.append(segment)
        for lane, held in carriers.items():
            lane.held.append(held)
            self._release(lane)

    def _continued(self, flow: Flow) -> TlsSession | None:
        """The session of a connection that continues as a new flow after a reset that both sides ignore."""
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
        """The session that begins with these bytes, or ``None``, and all of its bytes."""
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

    def _read(self, session: TlsSession, piece: StreamData, held: DelayedSegment) -> None:
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

    def _take(self, session: TlsSession, piece: StreamData, held: DelayedSegment, *, from_client: bool) -> None:
        """Pass on bytes that tshark may read next, as soon as the keys are decided."""
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

    def _decide(self, session: TlsSession, held: DelayedSegment | None, *, last: bool) -> None:
        """Feed the waiting data if its keys are complete; with ``last``, decide now, even with incomplete keys.

        ``held``: the segment to delay for waiting data that has not delayed a segment itself.
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
        self._end_wait(session)
        session.has_keys = bool(lines)
        # Before TLS 1.3, a resumed session may use the keys of an earlier session, which tshark has.
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

    def _feed(self, session: TlsSession, piece: StreamData, held: DelayedSegment) -> None:
        """Feed bytes to tshark, if their session is still being decrypted."""
        worker = session.worker
        if worker is not None and self._keylog is not None and worker.unanswered > MAX_UNANSWERED_BYTES:
            self._read_answers(worker)
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
        """Pass on finished segments from the head of a lane, each after the plaintext that it completed."""
        held, ready = lane.held, self._ready
        while held and not held[0].left:
            first = held.popleft()
            ready.extend(first.content)
            for session in first.over:
                self._finish(session)
            if first.item is not None:
                ready.append(first.item)

    def _finish(self, session: TlsSession) -> None:
        """Report why an ended session was not decrypted, and clean up."""
        reason = session.reason(self.keys)
        if reason:
            self._ready.append(UndecryptedSession(session.flow.identity, reason, session.has_keys))
        self._stop_decrypting(session)
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
                # It ends after its pending answers.
                self._retire(used[0], f"more than {MAX_TSHARKS} of tshark would have been needed")
            try:
                self._current = Tshark(self._command)
            except OSError as error:
                self._fail(f"cannot be started: {error.strerror or error}")
                return None
            self._workers.append(self._current)
        return self._current

    def _poll(self, patience: float) -> None:
        """Read answers, and read keys for waiting sessions; a session waits at most ``patience`` seconds."""
        now = time.monotonic()
        if self._keylog is not None and (self._waiting or now >= self._next_key_read):
            self._next_key_read = now + LOOK_SECONDS
            self._new_keys |= self._keylog.poll()
        if self._new_keys:
            self._new_keys = False
            for session in list(self._waiting):
                self._decide(session, None, last=False)
        while self._waiting and now - (first := next(iter(self._waiting))).since > patience:
            self._decide(first, None, last=True)
        for worker in list(self._workers):
            self._read_answers(worker)
            if worker.fault is not None:
                self._remove_failed(worker)
            elif not worker.users and not worker.waiting and worker is not self._current:
                worker.close()
                self._workers.remove(worker)

    def _read_answers(self, worker: Tshark[_Owner]) -> None:
        """Process the answers of a tshark, and pass on the segments that waited for them."""
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

    def _remove_failed(self, worker: Tshark[_Owner]) -> None:
        """Remove a failed tshark; its sessions continue undecrypted."""
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
        """Give up the sessions of a tshark, except for its pending answers."""
        self._current = None if self._current is worker else self._current
        for session in [session for session in self._decrypted if session.worker is worker]:
            self._give_up(session, why)

    def _give_up(self, session: TlsSession, why: str) -> None:
        session.limit = session.limit or why
        self._stop_decrypting(session)

    def _stop_decrypting(self, session: TlsSession) -> None:
        """Stop decrypting a session, except for pending answers."""
        self._end_wait(session)
        session.early.clear()
        for _, owner in session.waiting:
            if owner is not None:
                owner.left -= 1
        session.waiting.clear()
        if session.worker is not None:
            session.worker.users -= 1
            session.worker = None
            self._decrypted.pop(session, None)

    def _end_wait(self, session: TlsSession) -> None:
        session.is_decided = True
        self._waiting.pop(session, None)
        self._waiting_bytes -= session.waiting_bytes
        session.waiting_bytes = 0
