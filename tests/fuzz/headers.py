"""No matter what a frame holds, of whatever link type, it gives a segment, a fragment or the reason why it does not.

What comes after (fragments, flows, dissection, JSON) takes whatever came out of the frames.  The input: frames, each
a byte for the link type, a byte for time and length on the wire, two bytes of length, the captured bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.net.flows import FlowTable
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import UNREAD, Fragment, NotSegment, Segment, endpoints, ports, reverse_key
from tests.fuzz.laws import check_dissection, check_flows
from tests.fuzz.material import frames, names
from tests.fuzz.target import Input
from tests.fuzz.wrapping import LINK_TYPES, fragments, wrapped

MAX_LENGTH = 6_000
STEPS_NS = (1_000, 1_000_000, 300_000_000, 90_000_000_000)
BEYOND = (0, 0, 0, 1, 40, 1_500, 600_000, -20)
"""What the wire had more than the capture."""


def check(data: bytes) -> None:
    """The law for some frames."""
    table = FragmentTable(max_datagrams=3, max_bytes=4_000)
    segments: list[Segment] = []
    for frame in _frames(data):
        each: Segment | Fragment | NotSegment | None = segment(frame)
        if isinstance(each, Fragment):
            assert each.missing >= 0
            each = table.feed(each)
            assert len(table.datagrams) <= table.max_datagrams
            assert 0 <= table.held <= table.max_bytes
            assert table.held == sum(part.cost for part in table.datagrams.values())
            assert not isinstance(each, Fragment)
        if isinstance(each, Segment):
            _check_segment(each, frame)
            segments.append(each)
        elif each is not None:
            assert each.detail
            assert each.reason in {"unsupported_link_type", "not_ip", "not_tcp", "truncated", "malformed", *UNREAD}
    check_flows(segments, FlowTable())
    check_dissection(segments)


def _check_segment(actual_segment: Segment, frame: Frame) -> None:
    assert actual_segment.missing >= 0
    assert reverse_key(reverse_key(actual_segment.key)) == actual_segment.key
    assert ports(reverse_key(actual_segment.key)) == ports(actual_segment.key)[::-1]
    assert len(endpoints(actual_segment.key)) == 2
    assert (actual_segment.frame, actual_segment.timestamp_ns, actual_segment.capture) == (
        frame.number,
        frame.timestamp_ns,
        frame.capture,
    )


def _frames(data: bytes) -> Iterator[Frame]:
    source = Input(data)
    now = 1_767_225_600_000_000_000
    number = 0
    while source.left():
        link, how, size = LINK_TYPES[source.number() % len(LINK_TYPES)], source.number(), source.number(2)
        captured = source.take(size)
        number += 1
        now += STEPS_NS[how & 3]
        yield Frame(number, now, link, captured, max(0, len(captured) + BEYOND[how >> 2 & 7]), "fuzz")


def written(link_type: int, data: bytes, how: int = 1) -> bytes:
    """A frame in the form of the input."""
    return bytes((LINK_TYPES.index(link_type), how)) + len(data).to_bytes(2, "big") + data


def seeds() -> Iterator[bytes]:
    """Frames of the captures: as they are, after every link type, fragmented."""
    for name in names():
        captured = [frame.data for frame in frames(name)]
        for start in range(0, min(len(captured), 48), 16):
            yield b"".join(written(1, raw) for raw in captured[start : start + 16])
    for name in ("v5-qos", "ipv6"):
        datagrams = [frame.data[14:] for frame in frames(name)[:6]]
        for frame in zip(*(wrapped(datagram) for datagram in datagrams), strict=True):
            yield b"".join(written(link, data) for link, data in frame)
    pieces = [piece for frame in frames("v5-qos")[:12] for piece in fragments(frame.data[14:])]
    yield b"".join(written(101, raw) for raw in pieces)
    yield b"".join(written(101, raw) for raw in reversed(pieces))
