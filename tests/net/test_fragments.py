from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net import fragments, headers
from mqttscope.net.fragments import FRAGMENT_OVERHEAD, FragmentTable
from mqttscope.net.headers import segment
from mqttscope.net.segment import Fragment, NotSegment, Segment
from tests.conftest import THOROUGH
from tests.net.octets import (
    A4,
    A6,
    B4,
    B6,
    IP4,
    VXLAN,
    ethernet,
    extension,
    fragment_header,
    frame,
    ip4,
    ip6,
    one,
    tcp,
    udp,
    vlan,
)

KEY = A4 + B4 + b"\0\x07\x06"
SECOND = 1_000_000_000


def piece(
    data: bytes,
    offset: int = 0,
    more: bool = True,
    *,
    missing: int = 0,
    identification: int = 7,
    time: int = 0,
    protocol: int = 6,
    number: int = 1,
) -> Fragment:
    key = KEY[:8] + identification.to_bytes(2, "big") + KEY[10:]
    return Fragment(key, offset, more, protocol, data, missing, A4, B4, b"", number, time, "x.pcap")


def pieces(payload: bytes, size: int, **options: int) -> list[Fragment]:
    starts = range(0, len(payload), size)
    return [piece(payload[at : at + size], at, at + size < len(payload), **options) for at in starts]


def feed(table: FragmentTable, parts: list[Fragment]) -> list[Segment | NotSegment]:
    return [result for part in parts if (result := table.feed(part)) is not None]


def whole(payload: bytes) -> Segment:
    return one(segment(frame(ip4(payload), 228)))


def key_and_stream(actual_segment: Segment) -> tuple[bytes, int, bytes, int]:
    return actual_segment.key, actual_segment.sequence, actual_segment.payload, actual_segment.missing


@settings(max_examples=200 if THOROUGH else 100, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 12), st.randoms(use_true_random=False))
def test_fragments_in_any_order_with_duplicates_give_the_segment(
    payload: bytes, words: int, shuffler: random.Random
) -> None:
    parts = pieces(tcp(payload), words * 8)
    order = parts + shuffler.choices(parts, k=len(parts) // 2)
    shuffler.shuffle(order)
    results = feed(FragmentTable(), order)
    assert results
    for result in results:  # a second one when all parts came twice
        assert key_and_stream(one(result)) == key_and_stream(whole(tcp(payload)))


@settings(max_examples=300 if THOROUGH else 150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=40), st.integers(0, 30)), max_size=12),
    st.binary(max_size=60),
)
def test_of_overlapping_fragments_the_first_stands(parts: list[tuple[int, bytes, int]], payload: bytes) -> None:
    base = tcp(payload)
    total = len(base)
    model: dict[int, int | None] = {}
    table = FragmentTable()
    given_parts = [(word * 8, data, missing) for word, data, missing in parts]
    # The fixed header comes first, so that the segment can be compared; the rest fills what is left.
    for at, data, missing in [(0, base[:24], 0), *given_parts]:
        for position in range(at, at + len(data) + missing):
            inside = position - at
            model.setdefault(position, data[inside] if inside < len(data) else None)
        assert table.feed(piece(data, at, missing=missing)) is None
    for position in range(total):
        model.setdefault(position, base[position])
    result = one(table.feed(piece(base, 0, more=False)))
    expected = bytearray()
    for position in range(20, total):
        value = model[position]
        if value is None:
            break
        expected.append(value)
    assert result.payload == bytes(expected)
    assert len(result.payload) + result.missing == len(payload)
    assert not table.datagrams
    assert table.held == 0


def test_the_segment_has_number_time_and_capture_of_the_completing_fragment() -> None:
    first, last = pieces(tcp(b"x" * 20), 24)
    last.frame, last.timestamp_ns = 9, 5 * SECOND
    result = one(_completed(first, last))
    assert (result.frame, result.timestamp_ns, result.capture) == (9, 5 * SECOND, "x.pcap")


def _completed(*parts: Fragment) -> Segment | NotSegment | None:
    table = FragmentTable()
    return [table.feed(part) for part in parts][-1]


def test_fragments_that_the_snap_length_cut_give_a_prefix_and_what_is_missing() -> None:
    payload = tcp(b"a" * 60)
    parts = pieces(payload, 40)
    for part in parts:
        part.missing, part.data = len(part.data) - 30, part.data[:30]
    result = one(_completed(*parts))
    assert (result.payload, result.missing) == (b"a" * 10, 50)
    parts[1].missing, parts[1].data = 40, b""
    assert one(_completed(*reversed(parts))).missing == 50


def test_a_first_fragment_cut_inside_the_tcp_header_is_truncated() -> None:
    payload = tcp(b"a" * 80)
    assert _completed(piece(payload[:10], 0, missing=30), piece(payload[40:], 40, False)) is headers.TCP_TRUNCATED


def test_fragments_cut_by_the_snap_length_in_frames_are_put_together() -> None:
    payload = tcp(b"b" * 100)
    first = ethernet(0x800, ip4(payload[:80], fragment=0x2000))
    last = ethernet(0x800, ip4(payload[80:], fragment=80 // 8))
    parts = [segment(frame(data[:64], original_length=len(data))) for data in (first, last)]
    result = one(_completed(*(part for part in parts if isinstance(part, Fragment))))
    assert (result.payload, result.missing) == (b"b" * 10, 90)


def test_ipv6_takes_the_protocol_of_the_fragment_at_offset_0() -> None:
    payload = tcp(b"c" * 28)
    parts = [
        segment(frame(ip6(fragment_header(58, 24, False) + payload[24:], 44), 229)),
        segment(frame(ip6(fragment_header(60, 0, True) + extension(6) + payload[:16], 44), 229)),
    ]
    result = one(_completed(*(part for part in parts if isinstance(part, Fragment))))
    assert result.key == A6 + B6 + payload[:4]
    assert result.payload == b"c" * 20  # the extension header took eight bytes of the 24 before the second part


def test_datagrams_are_told_apart_by_vlan_and_protocol_and_identification() -> None:
    first, last = pieces(tcp(b"x" * 20), 24)
    for other in (
        piece(last.data, 24, False, identification=8),
        segment(frame(ethernet(0x8100, vlan(5, 0x800, ip4(last.data, fragment=3))))),
        segment(frame(ethernet(0x800, ip4(last.data, 17, fragment=3)))),
    ):
        assert isinstance(other, Fragment)
        table = FragmentTable()
        assert feed(table, [first, other]) == []
        assert len(table.datagrams) == 2


@pytest.mark.parametrize(
    ("protocol", "payload", "expected"),
    [
        (17, udp(54, bytes(40)), headers.NOT_TCP),
        (6, tcp(b"x" * 30, data_offset=2), headers.TCP_DATA_OFFSET),
        (6, tcp()[:16], headers.TCP_SHORT),
    ],
    ids=["UDP", "TCP with a bad data offset", "16 bytes of TCP"],
)
def test_a_complete_datagram_without_a_segment_says_why(protocol: int, payload: bytes, expected: NotSegment) -> None:
    assert _completed(*pieces(payload, 8, protocol=protocol)) is expected


def test_a_fragmented_tunnel_gives_the_inner_segment() -> None:
    payload = udp(4789, VXLAN + ethernet(0x800, IP4))
    result = one(_completed(*pieces(payload, 16, protocol=17)))
    assert result.key == one(segment(frame(IP4, 228))).key + b"\xf1\x01\0\0\x01\x02\x04"


def test_fragments_inside_a_fragmented_tunnel_are_put_together() -> None:
    payload = tcp(b"d" * 44)
    inner = [ip4(payload[:32], fragment=0x2000), ip4(payload[32:], fragment=4)]
    outer = [part for n, datagram in enumerate(inner) for part in pieces(datagram, 24, protocol=4, identification=n)]
    (result,) = feed(FragmentTable(), outer)
    assert key_and_stream(one(result))[1:] == (1000, b"d" * 44, 0)


def test_a_fragment_beyond_65535_bytes_is_malformed() -> None:
    table = FragmentTable()
    assert table.feed(piece(b"x" * 8, 65528)) is fragments.TOO_LONG
    assert table.feed(piece(b"", 65528, missing=8)) is fragments.TOO_LONG
    assert table.feed(piece(b"x" * 7, 65528, more=False)) is None


# Limits; number, part and second of each fragment; segments; number and begin of what stays; lonely parts, evictions.
OLD = [
    pytest.param({"timeout_ns": 30 * SECOND}, [(7, 0, 0), (7, 1, 31)], 0, [(7, 31)], (1, 0), id="a datagram expires"),
    pytest.param({"timeout_ns": SECOND}, [(1, 0, 0), (2, 0, 2)], 0, [(2, 2)], (2, 0), id="by other traffic"),
    pytest.param({"timeout_ns": SECOND}, [(7, 0, 100), (7, 1, 99)], 1, [], (0, 0), id="a short step back"),
    pytest.param({"timeout_ns": SECOND}, [(7, 0, 100), (7, 1, 0)], 0, [(7, 0)], (1, 0), id="a long step back"),
    pytest.param(
        {"timeout_ns": 20 * SECOND},
        [(1, 0, 10), (7, 0, 0), (7, 1, 21)],
        0,
        [(1, 10), (7, 21)],
        (2, 0),
        id="behind one that is younger by its time",
    ),
    pytest.param(
        {"max_datagrams": 3}, [(n, 0, 0) for n in range(5)], 0, [(2, 0), (3, 0), (4, 0)], (5, 2), id="at the limit"
    ),
]


@pytest.mark.parametrize(("limits", "parts", "segments", "held", "counts"), OLD)
def test_old_datagrams_are_given_up_and_their_fragments_counted(
    limits: dict[str, Any],
    parts: list[tuple[int, int, int]],
    segments: int,
    held: list[tuple[int, int]],
    counts: tuple[int, int],
) -> None:
    table = FragmentTable(**limits)
    fed = [pieces(tcp(b"x" * 20), 24, identification=n, time=at * SECOND)[part] for n, part, at in parts]
    actual_segments = feed(table, fed)

    assert len([one(result) for result in actual_segments]) == segments
    assert [(int.from_bytes(key[8:10], "big"), d.started_ns // SECOND) for key, d in table.datagrams.items()] == held
    assert (table.incomplete_by_capture().total(), table.evicted) == counts


def test_bytes_are_bounded_and_counted_with_their_overhead() -> None:
    table = FragmentTable(max_bytes=10_000)
    for identification in range(100):
        table.feed(piece(b"x" * 1000, identification=identification))
        assert table.held <= 10_000
    assert table.held == sum(datagram.cost for datagram in table.datagrams.values())
    assert table.evicted == 100 - len(table.datagrams)
    assert len(table.datagrams) == 10_000 // (1000 + 3 * FRAGMENT_OVERHEAD)


def test_fragments_without_captured_bytes_are_not_free() -> None:
    table = FragmentTable(max_bytes=100 * FRAGMENT_OVERHEAD)
    for at in range(0, 65_000, 16):
        table.feed(piece(b"", at, missing=8))
        assert table.held <= table.max_bytes
    assert table.evicted > 0


def test_duplicates_cost_nothing() -> None:
    table = FragmentTable()
    table.feed(piece(b"x" * 1000))
    held = table.held
    for _ in range(100):
        table.feed(piece(b"x" * 1000))
    assert table.held == held


def test_thousands_of_holes_merge_into_one_range() -> None:
    table = FragmentTable()
    payload = tcp(bytes(65_000))
    for at in range(0, len(payload), 16):
        table.feed(piece(payload[at : at + 8], at))
    (datagram,) = table.datagrams.values()
    assert len(datagram.covered) > 4000
    result = one(table.feed(piece(payload, 0, more=False)))
    assert result.payload == bytes(65_000)


def test_fragments_of_tcp_that_stay_alone_are_counted() -> None:
    table = FragmentTable(max_datagrams=3, timeout_ns=SECOND)
    first, last = pieces(tcp(b"x" * 20), 24, identification=1)
    feed(table, [first, last])
    assert table.incomplete_by_capture().total() == 0
    feed(table, pieces(tcp(b"x" * 60), 24, identification=2)[:3])
    assert table.incomplete_by_capture().total() == 3
    table.feed(piece(udp(53, b"x" * 16), protocol=17, identification=3))  # no TCP
    table.feed(piece(b"x" * 8, 8, identification=4))  # which protocol it is, the first fragment would say
    assert table.incomplete_by_capture().total() == 3
    for identification in (5, 6, 7):
        table.feed(piece(tcp(b"x" * 4), identification=identification))
    assert (table.evicted, table.incomplete_by_capture().total()) == (3, 6)
    table.feed(piece(tcp(b"x" * 4), identification=8, time=5 * SECOND))
    assert (len(table.datagrams), table.incomplete_by_capture().total()) == (1, 7)


def test_fragments_that_stay_alone_are_counted_by_capture() -> None:
    table = FragmentTable(max_datagrams=1)
    for identification, capture in ((1, "a.pcap"), (2, "b.pcap"), (3, "b.pcap")):
        table.feed(replace(piece(tcp(b"x" * 4), identification=identification), capture=capture))

    assert table.incomplete_by_capture() == {"a.pcap": 1, "b.pcap": 2}
