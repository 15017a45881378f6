"""Frames that several taps have captured: each is read once, and the losses of each tap are counted.

A *tap* is a place where frames are captured: a capture, an interface, a VLAN; if these are equal, also a pair of
link-layer addresses and a TTL, as on both sides of a router.  Taps of one connection show equal segments.
`Deduplication.take` passes a segment as often as the tap that showed it most often.  So another tap fills the losses
of one tap, and a repeated segment passes twice.  Frames without TCP pass.

Equal segments have equal endpoints, numbers, flags, window, time stamp (RFC 7323), payload, and identification of
IP (RFC 791); the rest may change on the way.  A sender that repeats a segment mostly changes identification or time
stamp; otherwise the tap shows an equal segment again.  A tap that captures each frame twice, such as a mirror port of
both directions, does so sooner than any sender.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar

from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.links import LINKS
from mqttscope.net.segment import ACK, Fragment, NotSegment, Segment, direction_key, plain_key, ports, reverse_key
from mqttscope.net.tap_views import COPY_NS, TAP_NS
from mqttscope.net.tcp_clock import time_stamp

WINDOW_NS: Final = 1_000_000_000
"""Maximum time between copies: shorter than the first retransmission time-out of TCP (RFC 6298)."""
MAX_RECENT: Final = 500_000
"""Maximum number of segments remembered to recognise their copies."""
MAX_DIRECTIONS: Final = 200_000
"""Maximum number of directions with remembered taps."""
MAX_PLACES: Final = 16
"""Maximum number of capture points in one direction of a flow; frames of further points count for the last one."""

_ETHERNET: Final = 1
_COOKED: Final = 113
_COOKED_2: Final = 276
_TCP: Final = 6
_TAG: Final = 0x1000
"""Words of an encapsulation below this value are VLAN identifiers."""

T = TypeVar("T")
Identity = tuple[bytes, int, int, int, int, int, int, int, int]
"""The values that all copies of a segment share."""


class _TapName(NamedTuple):
    capture: str
    interface: int
    encapsulation: bytes


@dataclass(slots=True, eq=False)
class Tap:
    """Counters of a tap, over the connections that other taps have shown as well."""

    capture: str
    interface: int
    """Number of the interface: in its pcapng section, or on the host if the link layer contains it (SLL2)."""
    encapsulation: bytes
    """Tags and tunnels, as in direction keys (`net.segment.direction_key`)."""
    place: int
    """Number from 0 among otherwise equal taps, in the order of the path of the frames."""
    frames: int = 0
    """Captured frames with TCP."""
    copies: int = 0
    """Frames that were dropped, because this or another tap had shown them before."""
    only: int = 0
    """Frames that no other tap has shown."""
    missed: int = 0
    """Frames of other taps that this tap missed between its first and last frame of a direction."""

    @property
    def vlans(self) -> list[int]:
        """VLAN identifiers around the frames, the outer one first."""
        words = (int.from_bytes(self.encapsulation[at : at + 2], "big") for at in range(0, len(self.encapsulation), 2))
        return list(takewhile(lambda word: word < _TAG, words))  # then a tunnel identifier, which may look like a tag


@dataclass(slots=True, eq=False)
class _InterfaceTimes:
    """Times of the first and the last frame of an interface."""

    first_ns: int
    last_ns: int


@dataclass(slots=True, eq=False)
class _TapView:
    """One direction of a flow as one tap shows it."""

    name: _TapName
    span: _InterfaceTimes
    last_ns: int
    places: list[_CapturePoint] = field(default_factory=list)
    only: int = 0
    missed: int = 0
    shared: bool = False
    """Another view has shown a segment of this view."""
    later: dict[_TapView | None, int] = field(default_factory=dict)
    """Segments missing since the last frame, by the only view that showed them; missed if another frame follows."""


@dataclass(slots=True, eq=False)
class _CapturePoint:
    """Frames of one view with the same link-layer addresses and TTL; another tap if both show the same segment."""

    number: int
    addresses: bytes
    hops: int
    view: _TapView
    frames: int = 0
    copies: int = 0


@dataclass(slots=True, eq=False)
class _FlowDirection:
    """One direction of a flow."""

    key: bytes
    order: dict[bytes, int]
    """Pairs of link-layer addresses of both directions, numbered as they appeared."""
    views: list[_TapView] = field(default_factory=list)
    places: dict[tuple[_TapName, bytes, int], _CapturePoint] = field(default_factory=dict)
    identification: int = 0
    """Identification of the latest new segment."""
    same_identification: bool = False
    """Different segments had the same identification, so it proves nothing."""


@dataclass(slots=True, eq=False)
class _RecentSegment:
    """A segment that may be followed by copies."""

    identity: Identity
    direction: _FlowDirection
    timestamp_ns: int
    passed: int = 0
    """Number of times that it was read."""
    shown: dict[_TapView, int] = field(default_factory=dict)
    """Number of times that each view has shown it."""
    places: dict[_TapView, _CapturePoint] = field(default_factory=dict)


class Deduplication:
    """Recognises copies among the frames of a run, in the order of their times."""

    def __init__(self) -> None:
        self.frames = 0
        """Number of frames with TCP."""
        self.copies = 0
        """Number of dropped frames."""
        self.forgotten = 0
        """Segments and directions dropped early, at a limit."""
        self._recent: dict[Identity, _RecentSegment] = {}
        self._queue: deque[_RecentSegment] = deque()
        self._directions: dict[bytes, _FlowDirection] = {}
        self._spans: dict[tuple[str, int], _InterfaceTimes] = {}
        self._taps: dict[tuple[str, int, bytes, int], Tap] = {}
        self._same: dict[bytes, bytes] = {}
        """Encapsulations of equal segments, each with its replacement."""

    def unique(self, frames: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """The frames that are not copies, and all notices."""
        for frame in frames:
            if type(frame) is not Frame or self.take(frame):
                yield frame

    def unify_keys(self, items: Iterable[T]) -> Iterator[T]:
        """Pass items on; segments that several taps show with different tags get the tags and key of one tap."""
        same = self._same
        for item in items:
            if same and isinstance(item, Segment):
                plain = plain_key(item.key)
                shared_tags = same.get(item.key[len(plain) : -1])
                if shared_tags is not None:
                    item.key = direction_key(plain[:-4], plain[-4:], shared_tags)
            yield item

    def take(self, frame: Frame) -> bool:
        """Whether to read a frame: it is not a copy."""
        piece = segment_of(frame)
        if isinstance(piece, NotSegment):
            return True
        self.frames += 1
        now = frame.timestamp_ns
        while self._queue and (abs(now - self._queue[0].timestamp_ns) >= WINDOW_NS or len(self._queue) >= MAX_RECENT):
            self.forgotten += abs(now - self._queue[0].timestamp_ns) < WINDOW_NS
            self._settle(self._queue.popleft())
        identification, hops = _of_ip(frame, piece)
        identity = identify(piece, identification)
        direction = self._direction(identity[0] if isinstance(piece, Segment) else piece.source + piece.destination)
        place = self._place(direction, frame, piece, hops)
        place.frames += 1
        recent = self._recent.get(identity)
        if recent is not None and abs(now - recent.timestamp_ns) >= WINDOW_NS:
            self._settle(recent)
            recent = None
        if recent is None:
            if identification:
                direction.same_identification |= identification == direction.identification
                direction.identification = identification
            recent = self._recent[identity] = _RecentSegment(identity, direction, now)
            self._queue.append(recent)
        if recent.places.setdefault(place.view, place) is not place:
            _tell_apart(direction, recent, place)
        view = place.view
        view.last_ns = max(view.last_ns, now)
        shown = recent.shown.get(view, 0)
        sent_again = True
        if shown:
            proves = identification and not direction.same_identification
            sent_again = not 0 <= now - recent.timestamp_ns <= (COPY_NS if proves else TAP_NS)
        else:
            for other in recent.shown:
                view.shared = other.shared = True
                self._unite(other.name.encapsulation, view.name.encapsulation)
        if sent_again:
            recent.shown[view] = shown + 1
            if shown >= recent.passed:
                recent.passed += 1
                return True
        place.copies += 1
        self.copies += 1
        return False

    def taps(self) -> list[Tap]:
        """The taps of connections that several taps show, in the order of their first frames; call it at the end."""
        while self._queue:
            self._settle(self._queue.popleft())
        for direction in self._directions.values():
            self._sum_up(direction)
        self._directions.clear()
        began = {where: at for at, where in enumerate(self._spans)}
        return [self._taps[key] for key in sorted(self._taps, key=lambda key: (began[key[:2]], *key[2:]))]

    def _unite(self, encapsulation: bytes, other: bytes) -> None:
        """Note that two encapsulations carry equal segments."""
        first, second = self._same.get(encapsulation, encapsulation), self._same.get(other, other)
        if first != second:
            self._same.update({known: first for known, root in self._same.items() if root == second})
            self._same[second] = first

    def _direction(self, key: bytes) -> _FlowDirection:
        known = self._directions.get(key)
        if known is None:
            if len(self._directions) >= MAX_DIRECTIONS:
                self.forgotten += 1
                self._sum_up(self._directions.pop(next(iter(self._directions))))
            # The key of a fragmented datagram has no ports, and so no key of the other direction.
            other = self._directions.get(reverse_key(key)) if len(key) in (12, 36) else None
            known = self._directions[key] = _FlowDirection(key, {} if other is None else other.order)
        return known

    def _settle(self, recent: _RecentSegment) -> None:
        """Count the views that have not shown a segment, once no more copies are expected."""
        views = recent.direction.views
        if self._recent.get(recent.identity) is not recent:
            return  # counted before
        del self._recent[recent.identity]
        if len(views) < 2:
            return
        alone = next(iter(recent.shown)) if len(recent.shown) == 1 else None
        for view in views:
            lacks = recent.passed - recent.shown.get(view, 0)
            if lacks <= 0 or recent.timestamp_ns < view.span.first_ns:
                continue
            view.later[alone] = view.later.get(alone, 0) + lacks
            # A segment of one view alone counts once, however many other views lack it.
            alone = None
        for view in views:
            if view.later and recent.timestamp_ns <= min(view.last_ns + WINDOW_NS, view.span.last_ns):
                for only, lost in view.later.items():
                    view.missed += lost
                    if only is not None:
                        only.only += lost
                view.later.clear()

    def _place(self, direction: _FlowDirection, frame: Frame, piece: Segment | Fragment, hops: int) -> _CapturePoint:
        """The capture point of a frame of a direction."""
        data, interface = frame.data, frame.interface
        addresses = b""
        if frame.link_type == _ETHERNET:
            destination, source = data[:6], data[6:12]
            addresses = destination + source if destination < source else source + destination  # for both directions
        elif frame.link_type == _COOKED:
            addresses = data[:2] + data[6:14]
        elif frame.link_type == _COOKED_2:
            interface = int.from_bytes(data[4:8], "big")
        encapsulation = piece.encapsulation if isinstance(piece, Fragment) else piece.key[len(direction.key) : -1]
        span = self._spans.get((frame.capture, interface))
        if span is None:
            span = self._spans[frame.capture, interface] = _InterfaceTimes(frame.timestamp_ns, frame.timestamp_ns)
        span.last_ns = max(span.last_ns, frame.timestamp_ns)
        name = _TapName(frame.capture, interface, encapsulation)
        where = name, addresses, hops
        if where in direction.places:
            return direction.places[where]
        if len(direction.places) >= MAX_PLACES:
            self.forgotten += 1
            return next(reversed(direction.places.values()))
        direction.order.setdefault(addresses, len(direction.order))
        view = next((view for view in direction.views if view.name == name), None) or _new_view(direction, name, span)
        place = direction.places[where] = _CapturePoint(len(direction.places), addresses, hops, view)
        view.places.append(place)
        return place

    def _sum_up(self, direction: _FlowDirection) -> None:
        """Add the counts of the views of a direction to their taps."""
        # The side that opened a connection mostly has the higher port.
        source, destination = ports(direction.key) if len(direction.key) in (12, 36) else (0, 0)

        def distance(view: _TapView) -> tuple[int, int]:
            """Order of a view by its distance from the client; the TTL is higher nearer to the sender."""
            first = view.places[0]
            return direction.order[first.addresses], -first.hops if source >= destination else first.hops

        places: Counter[_TapName] = Counter()
        for view in sorted((view for view in direction.views if view.shared), key=distance):
            key = (*view.name, places[view.name])
            places[view.name] += 1
            tap = self._taps.setdefault(key, Tap(*key))
            tap.frames += sum(place.frames for place in view.places)
            tap.copies += sum(place.copies for place in view.places)
            tap.only += view.only
            tap.missed += view.missed


def _new_view(direction: _FlowDirection, name: _TapName, span: _InterfaceTimes) -> _TapView:
    view = _TapView(name, span, span.last_ns)
    direction.views.append(view)
    return view


def _tell_apart(direction: _FlowDirection, recent: _RecentSegment, place: _CapturePoint) -> None:
    """Split a view that has shown one segment at two capture points: the later point belongs to another tap."""
    view = place.view
    other = recent.places[view]
    later = place if place.number > other.number else other
    others = (own for own in direction.views if own.name == view.name and own not in recent.places)
    own = next(others, None) or _new_view(direction, view.name, view.span)
    view.places.remove(later)
    own.places.append(later)
    later.view = own
    recent.places[own] = later
    if later is other:
        recent.places[view] = place
        recent.shown[own] = recent.shown.pop(view)


def identify(piece: Segment | Fragment, identification: int) -> Identity:
    """The values that all copies of a segment or IP fragment share; ``identification``: of IP, 0 without one."""
    if isinstance(piece, Fragment):
        datagram, length = piece.key.removesuffix(piece.encapsulation), len(piece.data) + piece.missing
        return datagram, piece.offset, int(piece.more), piece.protocol, 0, length, hash(piece.data), 0, 0
    numbers = piece.sequence, piece.acknowledgment if piece.flags & ACK else 0, piece.flags, piece.window
    length, stamp = len(piece.payload) + piece.missing, time_stamp(piece.options)
    return plain_key(piece.key), *numbers, length, hash(piece.payload), stamp, identification


def identity_of(frame: Frame) -> Identity | None:
    """The values that all copies of a frame share; ``None`` for a frame without TCP."""
    piece = segment_of(frame)
    return None if isinstance(piece, NotSegment) else identify(piece, _of_ip(frame, piece)[0])


def _of_ip(frame: Frame, piece: Segment | Fragment) -> tuple[int, int]:
    """Identification and TTL (hop limit) of the outer IP header; in a tunnel the identification is 0."""
    data = frame.data
    link = LINKS.get(frame.link_type)
    located = None if link is None else link(data, 0, len(data), max(len(data), frame.original_length))
    if located is None or isinstance(located, NotSegment):
        return 0, 0
    version, at, _, _ = located
    if version == 6:
        return 0, data[at + 7]
    direct = data[at + 9] == _TCP and type(piece) is Segment
    return data[at + 4] << 8 | data[at + 5] if direct else 0, data[at + 8]
