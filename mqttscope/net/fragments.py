"""Reassembles IP fragments into segments (RFC 791 section 3.2, RFC 8200 section 4.5)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from mqttscope.net.frame import Frame
from mqttscope.net.headers import transport
from mqttscope.net.segment import Fragment, NotSegment, Segment

MAX_DATAGRAMS: Final = 4096
"""Default maximum number of incomplete datagrams in a table."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Default maximum of bytes in a table, with ``FRAGMENT_OVERHEAD`` for each datagram, range and piece."""
TIMEOUT_NS: Final = 60_000_000_000
"""Default timeout of a datagram after its first captured fragment (RFC 8200 section 4.5)."""
FRAGMENT_OVERHEAD: Final = 128
"""Bytes counted for each datagram, range and piece in addition to its content; so empty fragments are not free."""
MAX_NESTED: Final = 4
"""Maximum number of datagrams that one fragment completes, each a fragment of the next."""
MAX_LENGTH: Final = 65535
"""Maximum payload of a fragmented datagram, in bytes."""

_TCP: Final = 6

TOO_LONG: Final = NotSegment("malformed", f"the IP fragment ends beyond byte {MAX_LENGTH} of its datagram")
TOO_MANY_NESTED: Final = NotSegment("malformed", f"more than {MAX_NESTED} nested fragmented datagrams")


@dataclass(slots=True)
class Datagram:
    """The captured fragments of one datagram."""

    started_ns: int
    """Time of the fragment that arrived first."""
    capture: str = ""
    """Capture of the fragment that arrived first."""
    protocol: int = -1
    """Protocol of the fragment at offset 0, or -1 before it arrives."""
    total: int = -1
    """Length of the payload, or -1 before the last fragment arrives."""
    fragments: int = 0
    cost: int = FRAGMENT_OVERHEAD
    """Share of the table's ``max_bytes``."""
    covered: list[tuple[int, int]] = field(default_factory=list)
    """Sorted, disjoint, not adjacent ranges of the payload that fragments cover."""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and captured bytes; they do not overlap."""


@dataclass(slots=True)
class FragmentTable:
    """Incomplete IP datagrams, bounded in number, bytes and time.

    Of overlapping fragments, the first one counts.  A step of the capture's clock back by more than the time-out ends a
    datagram too, because its identification may belong to another datagram then.
    """

    max_datagrams: int = field(default_factory=lambda: MAX_DATAGRAMS)
    max_bytes: int = field(default_factory=lambda: MAX_BYTES)
    timeout_ns: int = field(default_factory=lambda: TIMEOUT_NS)
    datagrams: dict[bytes, Datagram] = field(default_factory=dict)
    """Incomplete datagrams by their key, the oldest first."""
    held: int = 0
    """Bytes held, with their overhead."""
    evicted: int = 0
    """Incomplete datagrams dropped at a limit of this table, the oldest first."""
    lost: Counter[str] = field(default_factory=Counter)
    """Fragments of TCP segments that were dropped with their incomplete datagrams, by capture."""

    def feed(self, fragment: Fragment) -> Segment | NotSegment | None:
        """Add a fragment.  Returns the segment it completes, or why the complete datagram contains no segment.

        ``None``: fragments are missing.  The segment has the frame number and the time of this fragment.  If the snap
        length cut fragments, its payload ends before the first missing byte and ``missing`` counts the rest.
        """
        while self.datagrams and self._too_old(next(iter(self.datagrams.values())), fragment.timestamp_ns):
            self._give_up(next(iter(self.datagrams)))
        for _ in range(MAX_NESTED):
            if fragment.offset + len(fragment.data) + fragment.missing > MAX_LENGTH:
                return TOO_LONG
            datagram = self.datagrams.get(fragment.key)
            if datagram is not None and self._too_old(datagram, fragment.timestamp_ns):
                self._give_up(fragment.key)
                datagram = None
            if datagram is None:
                datagram = self.datagrams[fragment.key] = Datagram(fragment.timestamp_ns, fragment.capture)
                self.held += datagram.cost
            datagram.fragments += 1
            before = datagram.cost
            _add(datagram, fragment)
            self.held += datagram.cost - before
            # Ranges are merged, so a complete datagram is covered by the first one alone.
            if datagram.total < 0 or datagram.protocol < 0 or datagram.covered[0][1] < datagram.total:
                while len(self.datagrams) > self.max_datagrams or self.held > self.max_bytes:
                    self._give_up(next(iter(self.datagrams)))
                    self.evicted += 1
                return None
            self.held -= self.datagrams.pop(fragment.key).cost
            result = _complete(datagram, fragment)
            if not isinstance(result, Fragment):
                return result
            fragment = result
        return TOO_MANY_NESTED

    def _too_old(self, datagram: Datagram, now_ns: int) -> bool:
        return abs(now_ns - datagram.started_ns) > self.timeout_ns

    def incomplete_by_capture(self) -> Counter[str]:
        """Fragments of TCP segments of incomplete datagrams, by the capture of the first fragment."""
        fragments = self.lost.copy()
        for datagram in self.datagrams.values():
            if datagram.protocol == _TCP:
                fragments[datagram.capture] += datagram.fragments
        return fragments

    def _give_up(self, key: bytes) -> None:
        datagram = self.datagrams.pop(key)
        self.held -= datagram.cost
        if datagram.protocol == _TCP:
            self.lost[datagram.capture] += datagram.fragments


def _add(datagram: Datagram, fragment: Fragment) -> None:
    """Store the new bytes of a fragment; merging ranges keeps the total work linear in the number of fragments."""
    start = fragment.offset
    data = fragment.data
    end = start + len(data) + fragment.missing
    if start == 0 and datagram.protocol < 0:
        # RFC 8200 section 4.5: the other fragments of IPv6 may have another value.
        datagram.protocol = fragment.protocol
    if not fragment.more and datagram.total < 0:
        datagram.total = end
    covered = datagram.covered
    first = bisect_left(covered, start, key=itemgetter(1))
    touched = covered[first : bisect_right(covered, end, lo=first, key=itemgetter(0))]
    if touched and touched[0][0] <= start and end <= touched[0][1]:
        return
    datagram.cost += FRAGMENT_OVERHEAD
    at = start
    for low, high in [*touched, (end, end)]:
        piece = data[at - start : max(low - start, 0)]
        if piece:
            datagram.pieces.append((at, piece))
            datagram.cost += len(piece) + FRAGMENT_OVERHEAD
        at = max(at, high)
    low, high = touched[0][0] if touched else start, touched[-1][1] if touched else end
    covered[first : first + len(touched)] = [(min(start, low), max(end, high))]


def _complete(datagram: Datagram, fragment: Fragment) -> Segment | Fragment | NotSegment:
    """The content of a complete datagram; ``fragment`` completed it."""
    datagram.pieces.sort()
    pieces: list[bytes] = []
    at = 0
    for offset, piece in datagram.pieces:
        if offset != at:  # the snap length cut the bytes between
            break
        pieces.append(piece)
        at += len(piece)
    data, total = b"".join(pieces)[: datagram.total], datagram.total
    frame = Frame(fragment.frame, fragment.timestamp_ns, 0, data, total, fragment.capture)
    addresses = fragment.source + fragment.destination
    return transport(frame, datagram.protocol, 0, len(data), total, addresses, fragment.encapsulation)
