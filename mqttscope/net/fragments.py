"""IP fragments back to the segments they were cut from (RFC 791 section 3.2, RFC 8200 section 4.5)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from mqttscope.net import headers
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Fragment, NotSegment, Segment

MAX_DATAGRAMS: Final = 4096
"""How many incomplete datagrams a table holds by default."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""How many bytes a table may hold by default, ``FRAGMENT_OVERHEAD`` for each datagram, range and piece included."""
TIMEOUT_NS: Final = 60_000_000_000
"""How long a datagram may take by default, from its first fragment in the capture (RFC 8200 section 4.5)."""
FRAGMENT_OVERHEAD: Final = 128
"""What a datagram, a range or a piece of it costs beside its bytes; without it, empty fragments would be free."""
MAX_NESTED: Final = 4
"""How many datagrams one fragment may complete, each being a fragment of the next."""
MAX_LENGTH: Final = 65535
"""Longest payload of a fragmented datagram, in bytes."""

_TCP: Final = 6

TOO_LONG: Final = NotSegment("malformed", f"the IP fragment ends beyond byte {MAX_LENGTH} of its datagram")
TOO_MANY_NESTED: Final = NotSegment("malformed", f"more than {MAX_NESTED} nested fragmented datagrams")


@dataclass(slots=True)
class Datagram:
    """The fragments of one datagram so far."""

    started_ns: int
    """Time of the fragment that arrived first."""
    protocol: int = -1
    """Protocol of the fragment at offset 0, or -1 before that one."""
    total: int = -1
    """Length of the payload, or -1 before the last fragment."""
    fragments: int = 0
    """How many came."""
    cost: int = 0
    """Share of the table's ``max_bytes``."""
    covered: list[tuple[int, int]] = field(default_factory=list)
    """Sorted, disjoint, not adjacent ranges of the payload that fragments announced."""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and captured bytes; they do not overlap."""
    capture: str = ""
    """The capture of the fragment that arrived first."""


class FragmentTable:
    """Incomplete IP datagrams, bounded in number, bytes and time.

    Where fragments overlap, the one that came first stands.  Time is the capture's; a step back in time by more than
    the time-out ends a datagram too, because its identification may mean another one then.
    """

    __slots__ = ("_lost", "datagrams", "evicted", "held", "max_bytes", "max_datagrams", "timeout_ns")

    def __init__(
        self, max_datagrams: int = MAX_DATAGRAMS, max_bytes: int = MAX_BYTES, timeout_ns: int = TIMEOUT_NS
    ) -> None:
        self.max_datagrams = max_datagrams
        self.max_bytes = max_bytes
        self.timeout_ns = timeout_ns
        self.datagrams: dict[bytes, Datagram] = {}
        """Incomplete datagrams by their key, the oldest first."""
        self.held = 0
        """Bytes held, reckoned as for ``max_bytes``."""
        self.evicted = 0
        """How many incomplete datagrams were dropped, the oldest first, at a limit of this table."""
        self._lost: dict[str, int] = {}
        """Fragments of TCP segments that were dropped with their incomplete datagrams, by capture."""

    def feed(self, fragment: Fragment) -> Segment | NotSegment | None:
        """Add a fragment.  Returns the segment it completes, or why the complete datagram holds none.

        ``None`` means that fragments are still missing.  The segment has the frame number and the time of this
        fragment.  When the snap length cut fragments, its payload ends before the first missing byte and ``missing``
        counts everything after.
        """
        self._expire(fragment.timestamp_ns)
        for _ in range(MAX_NESTED):
            if fragment.offset + len(fragment.data) + fragment.missing > MAX_LENGTH:
                return TOO_LONG
            datagram = self.datagrams.get(fragment.key)
            if datagram is not None and self._too_old(datagram, fragment.timestamp_ns):
                self._give_up(fragment.key)
                datagram = None
            if datagram is None:
                datagram = self.datagrams[fragment.key] = Datagram(
                    fragment.timestamp_ns, cost=FRAGMENT_OVERHEAD, capture=fragment.capture
                )
                self.held += FRAGMENT_OVERHEAD
            datagram.fragments += 1
            before = datagram.cost
            _add(datagram, fragment)
            self.held += datagram.cost - before
            # Ranges are merged, so a complete datagram is covered by the first one alone.
            if datagram.total < 0 or datagram.protocol < 0 or datagram.covered[0][1] < datagram.total:
                self._evict()
                return None
            self._drop(fragment.key)
            result = _complete(datagram, fragment)
            if not isinstance(result, Fragment):
                return result
            fragment = result
        return TOO_MANY_NESTED

    def _too_old(self, datagram: Datagram, now_ns: int) -> bool:
        return abs(now_ns - datagram.started_ns) > self.timeout_ns

    def _expire(self, now_ns: int) -> None:
        while self.datagrams and self._too_old(self.datagrams[key := next(iter(self.datagrams))], now_ns):
            self._give_up(key)

    def _evict(self) -> None:
        while self.datagrams and (len(self.datagrams) > self.max_datagrams or self.held > self.max_bytes):
            self._give_up(next(iter(self.datagrams)))
            self.evicted += 1

    def incomplete(self) -> int:
        """How many fragments of TCP segments came without the others: those given up, and those still waited for."""
        return sum(self.incomplete_by_capture().values())

    def incomplete_by_capture(self) -> dict[str, int]:
        """Fragments of TCP segments that came without the others, by the capture of the first one."""
        fragments = dict(self._lost)
        for datagram in self.datagrams.values():
            if datagram.protocol == _TCP:
                fragments[datagram.capture] = fragments.get(datagram.capture, 0) + datagram.fragments
        return fragments

    def _give_up(self, key: bytes) -> None:
        datagram = self.datagrams[key]
        if datagram.protocol == _TCP:
            self._lost[datagram.capture] = self._lost.get(datagram.capture, 0) + datagram.fragments
        self._drop(key)

    def _drop(self, key: bytes) -> None:
        self.held -= self.datagrams.pop(key).cost


def _add(datagram: Datagram, fragment: Fragment) -> None:
    """Store what of a fragment is new.

    Each call merges all ranges it touches into one, so the work over all fragments stays linear in their number.
    """
    start = fragment.offset
    data = fragment.data
    end = start + len(data) + fragment.missing
    if start == 0 and datagram.protocol < 0:
        # RFC 8200 section 4.5: the other fragments of IPv6 may say something else.
        datagram.protocol = fragment.protocol
    if not fragment.more and datagram.total < 0:
        datagram.total = end
    covered = datagram.covered
    first = last = bisect_left(covered, start, key=lambda interval: interval[1])
    if first < len(covered) and covered[first][0] <= start and end <= covered[first][1]:
        return
    datagram.cost += FRAGMENT_OVERHEAD
    at = start
    while last < len(covered) and covered[last][0] <= end:
        _store(datagram, at, data[at - start : max(covered[last][0] - start, 0)])
        at = max(at, covered[last][1])
        last += 1
    _store(datagram, at, data[at - start :])
    if last > first:
        start = min(start, covered[first][0])
        end = max(end, covered[last - 1][1])
    covered[first:last] = [(start, end)]


def _store(datagram: Datagram, offset: int, data: bytes) -> None:
    if data:
        datagram.pieces.append((offset, data))
        datagram.cost += len(data) + FRAGMENT_OVERHEAD


def _complete(datagram: Datagram, fragment: Fragment) -> Segment | Fragment | NotSegment:
    """What a complete datagram holds; ``fragment`` is the one that completed it."""
    datagram.pieces.sort()
    pieces: list[bytes] = []
    at = 0
    for offset, piece in datagram.pieces:
        if offset != at:  # the snap length cut what lies between
            break
        pieces.append(piece)
        at += len(piece)
    data = b"".join(pieces)[: datagram.total]
    return headers.transport(
        Frame(fragment.frame, fragment.timestamp_ns, 0, data, datagram.total, fragment.capture),
        data,
        datagram.protocol,
        0,
        len(data),
        datagram.total,
        fragment.source + fragment.destination,
        fragment.encapsulation,
        0,
    )
