"""Frames that several taps have captured: which pass, and what is counted of each tap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import dpkt

from mqttscope.net.duplicates import Deduplication, Tap, identity_of
from mqttscope.net.frame import CaptureDrops, Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, reverse_key
from tests.each import each

MS = 1_000_000
SECOND = 1000 * MS
HOST, ROUTER, FAR, SERVER = b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\x03", b"\x02\0\0\0\0\x04"
CLIENT_IP, SERVER_IP = b"\x0a\0\0\x01", b"\x0a\0\0\x02"
STAMP = b"\x01\x01\x08\x0a"


def frame(
    at_ns: int = 0,
    sequence: int = 1000,
    payload: bytes = b"data",
    *,
    identification: int = 7,
    ttl: int = 64,
    vlan: int = 0,
    link: bytes = HOST + ROUTER,
    stamp: int = -1,
    answers: bool = False,
    interface: int = 0,
    capture: str = "a.pcapng",
    flags: int = dpkt.tcp.TH_ACK,
    ipv6: bool = False,
) -> Frame:
    """A frame of one connection; ``answers``: in the other direction."""
    tcp = dpkt.tcp.TCP(sport=50_000, dport=1883, seq=sequence, ack=5, flags=flags, win=500, data=payload)
    if stamp >= 0:
        tcp.opts = STAMP + stamp.to_bytes(4, "big") + bytes(4)
        tcp.off = 8
    source, destination = CLIENT_IP, SERVER_IP
    if answers:
        tcp.sport, tcp.dport = tcp.dport, tcp.sport
        source, destination, link = destination, source, link[6:] + link[:6]
    ip: dpkt.ip.IP | dpkt.ip6.IP6
    if ipv6:
        wide = bytes(12)
        ip = dpkt.ip6.IP6(src=wide + source, dst=wide + destination, nxt=6, hlim=ttl, plen=len(tcp), data=tcp)
    else:
        ip = dpkt.ip.IP(src=source, dst=destination, p=6, ttl=ttl, id=identification, data=tcp)
        ip.len = len(ip)
    kind = b"\x86\xdd" if ipv6 else b"\x08\0"
    tag = b"\x81\0" + vlan.to_bytes(2, "big") if vlan else b""
    data = link[6:] + link[:6] + tag + kind + bytes(ip)
    return Frame(1, at_ns, 1, data, len(data), capture, interface)


def passed(frames: Iterable[Frame]) -> list[int]:
    """Which frames pass, by their places."""
    deduplication = Deduplication()
    return [at for at, frame in enumerate(frames) if deduplication.take(frame)]


def counted(frames: Iterable[Frame]) -> list[tuple[int, int, int, int]]:
    """Frames, copies, exclusive and missed frames of each tap."""
    deduplication = Deduplication()
    for single_frame in frames:
        deduplication.take(single_frame)
    return [(tap.frames, tap.copies, tap.only, tap.missed) for tap in deduplication.taps()]


@each(
    "copy",
    [
        frame(MS, capture="b.pcapng"),
        frame(MS, interface=1),
        frame(MS, ttl=63),
        frame(MS, vlan=10),
        frame(MS, link=FAR + SERVER),
        frame(MS, vlan=10, link=FAR + SERVER, ttl=63, capture="b.pcapng"),
        frame(900 * MS, interface=1),
        frame(100 * MS),
    ],
)
def test_a_segment_that_another_tap_shows_is_left_out(copy: Frame) -> None:
    assert passed([frame(), copy]) == [0]


@each(
    "again",
    [
        frame(MS, identification=8),
        frame(MS, interface=1, identification=8),
        frame(MS, payload=b"DATA", interface=1),
        frame(MS, sequence=1001, interface=1),
        frame(MS, answers=True, interface=1),
        frame(300 * MS),
        frame(1100 * MS, interface=1),
    ],
)
def test_what_was_sent_again_or_is_another_segment_passes(again: Frame) -> None:
    assert passed([frame(), again]) == [0, 1]


def test_without_identification_the_time_stamp_tells_repetitions_from_copies() -> None:
    other_frame = frame(identification=0, stamp=100)

    assert passed([other_frame, frame(MS, identification=0, stamp=100, interface=1)]) == [0]
    assert passed([other_frame, frame(MS, identification=0, stamp=101, interface=1)]) == [0, 1]


@each("ipv6", [False, True])
def test_what_nothing_tells_apart_passes_as_often_as_one_tap_shows_it(ipv6: bool) -> None:
    """Both taps show a segment and its repetition, which is equal to it: two pass."""

    def shown(at_ms: int, tap: int) -> Frame:
        return frame(at_ms * MS, identification=0, interface=tap, ipv6=ipv6)

    assert passed([shown(0, 0), shown(1, 1), shown(250, 0), shown(251, 1)]) == [0, 2]
    assert passed([shown(0, 0), shown(1, 1), shown(250, 1), shown(251, 0)]) == [0, 2]
    assert passed([shown(0, 0), shown(250, 0), shown(251, 1), shown(252, 1)]) == [0, 1]
    assert passed([shown(0, 0), shown(250, 1)]) == [0], "the other one was lost in each, or there was one"


def test_a_tap_that_captures_all_twice_shows_it_at_once() -> None:
    twice = [frame(at, identification=identification) for identification in (1, 2) for at in (0, 1000)]
    at_once = [frame(at, identification=0) for at in (0, 1000)]
    repeated = [frame(at, identification=0) for at in (0, 20 * MS)]

    assert passed(twice) == [0, 2]
    assert passed(at_once) == [0]
    assert passed(repeated) == [0, 1]
    deduplication = Deduplication()
    assert [deduplication.take(frame) for frame in twice] == [True, False, True, False]
    assert deduplication.taps() == [], "who has lost what is not known"
    assert (deduplication.frames, deduplication.copies) == (4, 2)


def test_an_identification_that_never_changes_says_nothing() -> None:
    frames = [frame(0, 1000), frame(MS, 1004), frame(150 * MS, 1000), frame(151 * MS, 1004, interface=1)]

    assert passed(frames) == [0, 1, 2]


def test_each_tap_is_charged_with_what_it_lost() -> None:
    def shown(number: int, tap: int) -> Frame:
        return frame(number * MS + tap, 1000 + number, identification=number, interface=tap)

    frames = [shown(number, tap) for number in range(1, 11) for tap in (0, 1) if (number, tap) not in LOST]

    assert counted(frames) == [(9, 0, 2, 1), (8, 7, 1, 2)]


LOST = {(3, 0), (5, 1), (6, 1)}


def test_what_came_before_a_tap_began_and_after_it_ended_was_not_lost() -> None:
    long = [frame(number * 2 * SECOND, 1000 + number, identification=number) for number in range(1, 11)]
    short = [replace(frame, timestamp_ns=frame.timestamp_ns + MS, interface=1) for frame in long[3:7]]
    frames = sorted([*long, *short], key=lambda frame: frame.timestamp_ns)

    assert counted(frames) == [(10, 0, 0, 0), (4, 4, 0, 0)]
    del frames[6]  # one that the second tap should have had
    assert [frame.interface for frame in frames].count(1) == 3
    assert counted(frames) == [(10, 0, 1, 0), (3, 3, 0, 1)]


def test_another_way_is_no_other_tap() -> None:
    """Frames of two routers that share the load have different addresses, and each comes once."""
    frames = [
        frame(number * MS, 1000 + number, identification=number, link=(HOST + (ROUTER, FAR)[number % 2]))
        for number in range(1, 11)
    ]

    assert passed(frames) == list(range(10))
    assert counted(frames) == []


def taps_of(frames: Sequence[Frame]) -> list[Tap]:
    deduplication = Deduplication()
    for single_frame in frames:
        deduplication.take(single_frame)
    return deduplication.taps()


def test_both_sides_of_a_router_are_two_taps_in_both_directions() -> None:
    def passing(at_ns: int, number: int, answers: bool) -> list[Frame]:
        near = frame(at_ns, number, identification=number, ttl=63 if answers else 64, answers=answers)
        far = frame(at_ns, number, identification=number, ttl=64 if answers else 63, answers=answers, link=FAR + SERVER)
        first, second = (far, near) if answers else (near, far)
        return [first, replace(second, timestamp_ns=at_ns + 100)]

    frames = [frame for at in range(1, 9) for frame in passing(at * MS, at, answers=at % 2 == 0)]
    del frames[4]  # the near side of the fifth

    near, far = taps_of(frames)
    assert (near.place, near.frames, near.only, near.missed) == (0, 7, 0, 1)
    assert (far.place, far.frames, far.only, far.missed) == (1, 8, 1, 0)


def test_where_only_hops_differ_the_first_place_is_on_the_side_of_the_client() -> None:
    frames = []
    for at in range(1, 9):
        answers = at % 2 == 0
        for hops in (0, 1):
            ip = frame(0, at, identification=at, ttl=64 - hops, answers=answers).data[14:]
            frames.append(Frame(1, at * MS + hops, 101, ip, len(ip), "a.pcapng"))
    del frames[1]  # after the client's first

    near, far = taps_of(frames)
    assert (near.frames, far.frames) == (8, 7)


def test_a_tap_is_named_by_its_tags_and_interface() -> None:
    plain = frame(identification=1)
    cooked = b"\x08\0\0\0\0\0\0\x09" + bytes(12) + plain.data[14:]
    frames = [plain, frame(1, identification=1, vlan=10), Frame(1, 2, 276, cooked, len(cooked), "b.pcapng")]

    assert [(tap.capture, tap.interface, tap.vlans) for tap in taps_of(frames)] == [
        ("a.pcapng", 0, []), ("a.pcapng", 0, [10]), ("b.pcapng", 9, []),
    ]  # fmt: skip


def test_flows_have_one_key_whichever_tap_shows_their_segments() -> None:
    deduplication = Deduplication()
    frames = [
        frame(0, 1000, identification=1),
        frame(1, 1000, identification=1, vlan=10),
        frame(MS, 1004, identification=2, vlan=10),
        frame(MS, 1004, identification=3, vlan=11),
        frame(MS, 1, identification=4, vlan=10, answers=True),
    ]
    segments = [segment(frame) for frame in deduplication.unique(frames) if isinstance(frame, Frame)]
    *_, filling, strange, answer = deduplication.unify_keys(segments)

    keys = [segment.key for segment in (segments[0], filling, strange, answer) if isinstance(segment, Segment)]
    assert keys[1] == keys[0]
    assert keys[2] != keys[0], "nothing shows that it is the same network"
    assert keys[3] == reverse_key(keys[0])


def test_fragments_are_compared_too() -> None:
    whole = dpkt.ip.IP(src=CLIENT_IP, dst=SERVER_IP, p=6, id=9, data=bytes(dpkt.tcp.TCP(data=bytes(64))))
    body = bytes(whole)[20:]
    parts = []
    for offset, more in ((0, True), (40, False)):
        piece = body[offset : offset + 40] if more else body[offset:]
        ip = dpkt.ip.IP(src=CLIENT_IP, dst=SERVER_IP, p=6, id=9, data=piece)
        data = bytes(ip)[:2] + (20 + len(piece)).to_bytes(2, "big") + bytes(ip)[4:6]
        data += (more << 13 | offset >> 3).to_bytes(2, "big") + bytes(ip)[8:]
        parts.append(Frame(1, offset, 101, data, len(data), "a.pcapng"))
    copies = [replace(part, timestamp_ns=part.timestamp_ns + MS, capture="b.pcapng") for part in parts]

    assert passed([*parts, *copies]) == [0, 1]
    assert counted([*parts, *copies]) == [(2, 0, 0, 0), (2, 2, 0, 0)]


def test_what_holds_no_tcp_passes_and_has_no_identity() -> None:
    arp = Frame(1, 0, 1, bytes(12) + b"\x08\x06" + bytes(28), 42, "a.pcapng")
    drops = CaptureDrops("a.pcapng", 0, None, 3)

    assert list(Deduplication().unique([arp, arp, drops])) == [arp, arp, drops]
    assert identity_of(arp) is None
    assert identity_of(frame()) == identity_of(frame(MS, ttl=3, vlan=9, link=FAR + SERVER, interface=4))


def test_times_that_go_back_keep_nothing_forever() -> None:
    frames = [frame(at * SECOND, 1000 + at, identification=1 + at) for at in (*range(50, 0, -1), 60)]
    deduplication = Deduplication()
    for other_frame in frames:
        assert deduplication.take(other_frame)

    assert len(deduplication._recent) == 1
