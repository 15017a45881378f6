from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from mqttscope.transport.wire import MAX_SEGMENT_BYTES, WINDOW, Endpoint, FramedSegment, SyntheticConnection
from tests.transport.wires import CLIENT, SERVER, START_NS, V4, V6, complaints, streams, tshark, wire

both_versions = pytest.mark.parametrize("ends", [V4, V6], ids=["ipv4", "ipv6"])


def flags(segments: list[FramedSegment]) -> list[int]:
    return [framed_segment.segment.flags for framed_segment in segments]


def opened() -> SyntheticConnection:
    """A wire of a connection that is open."""
    it = wire()
    it.open(0)
    return it


@both_versions
def test_a_connection_opens_speaks_and_closes(ends: tuple[Endpoint, Endpoint]) -> None:
    it = wire(ends)
    segments = it.open(10)
    segments += it.data(CLIENT, b"hello", 20)
    segments += it.data(SERVER, b"yes", 30, 5)
    segments += it.close(CLIENT, 40, 3)
    segments += it.close(SERVER, 50, 6)
    segments += it.settle(60)

    assert flags(segments) == [SYN, SYN | ACK, ACK, PSH | ACK, PSH | ACK, FIN | ACK, FIN | ACK, ACK]
    assert [(framed.segment.sequence, framed.segment.acknowledgment) for framed in segments] == [
        (1000, 0), (5000, 1001), (1001, 5001), (1001, 5001), (5001, 1006), (1006, 5004), (5004, 1007), (1007, 5005)
    ]  # fmt: skip
    assert [framed_segment.frame.timestamp_ns for framed_segment in segments] == [10, 10, 10, 20, 30, 40, 50, 60]
    assert [framed_segment.frame.number for framed_segment in segments] == list(range(1, 9))
    assert it.ended
    assert streams(segments) == (b"hello", b"yes", ["FlowOpened", "client fin", "server fin", "closed fin"])


def test_a_side_acknowledges_what_it_is_known_to_have_and_no_more() -> None:
    it = opened()
    it.data(CLIENT, b"12345", 1)
    (before,) = it.data(SERVER, b"a", 2)
    (after,) = it.data(SERVER, b"b", 3, 3)
    (beyond,) = it.data(SERVER, b"c", 4, 900)
    (back,) = it.data(SERVER, b"d", 5, 1)

    assert [framed_segment.segment.acknowledgment - 1001 for framed_segment in (before, after, beyond, back)] == [
        0,
        3,
        5,
        5,
    ]
    assert it.acknowledge(SERVER, 5, 6) == []
    (plain,) = it.acknowledge(CLIENT, 4, 7)
    assert (plain.segment.flags, plain.segment.payload) == (ACK, b"")
    assert (it.acknowledged(CLIENT), it.acknowledged(SERVER), it.sent(CLIENT), it.sent(SERVER)) == (4, 5, 5, 4)


def test_long_data_is_cut_into_segments_with_a_push_at_the_end() -> None:
    it = wire()
    segments = it.open(0)
    data = Random(1).randbytes(3 * MAX_SEGMENT_BYTES + 1)
    parts = it.data(SERVER, data, 1)

    assert [len(part.segment.payload) for part in parts] == [MAX_SEGMENT_BYTES] * 3 + [1]
    assert flags(parts) == [ACK, ACK, ACK, PSH | ACK]
    assert streams(segments + parts)[1] == data


def test_nothing_is_sent_behind_a_fin_or_a_reset() -> None:
    it = opened()
    it.close(CLIENT, 1)

    assert it.data(CLIENT, b"late", 2) == it.close(CLIENT, 2) == []
    assert len(it.data(SERVER, b"still", 3)) == 1
    assert flags(it.abort(SERVER, 4)) == [RST | ACK]
    assert it.ended
    for nothing in (it.data(SERVER, b"x", 5), it.close(SERVER, 5), it.abort(CLIENT, 5), it.settle(5)):
        assert nothing == []


def test_a_connection_that_is_over_cannot_be_reset() -> None:
    it = opened()
    it.close(SERVER, 1)
    it.close(CLIENT, 2)

    assert it.abort(CLIENT, 3) == []
    assert flags(it.settle(3)) == [ACK, ACK]
    assert it.settle(4) == []


def test_sides_of_different_families_are_an_error() -> None:
    with pytest.raises(ValueError, match="different address families"):
        SyntheticConnection(V4[0], V6[1], "", itertools.count(1).__next__)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (("10.0.0.4", 1883), "10.0.0.4:1883"),
        (("::ffff:10.0.0.4", 1883, 0, 0), "10.0.0.4:1883"),
        (("fe80::1%eth0", 1883, 0, 2), "[fe80::1]:1883"),
        (("::1", 1883, 0, 0), "[::1]:1883"),
    ],
)
def test_endpoints_are_made_of_what_sockets_say(name: tuple[str, int], shown: str) -> None:
    assert str(Endpoint.of(name)) == shown


WHAT = st.one_of(
    st.tuples(st.just("data"), st.booleans(), st.binary(max_size=40), st.integers(0, 200)),
    st.tuples(st.just("long"), st.booleans(), st.integers(MAX_SEGMENT_BYTES - 2, MAX_SEGMENT_BYTES + 2)),
    st.tuples(st.just("acknowledge"), st.booleans(), st.integers(0, 200)),
    st.tuples(st.just("close"), st.booleans()),
    st.tuples(st.just("abort"), st.booleans()),
)
SEQUENCES = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 100, 2**32 - 1))


@given(st.lists(WHAT, max_size=12), st.sampled_from([V4, V6]), SEQUENCES, SEQUENCES)
def test_whatever_happens_is_read_back_as_it_was(
    story: list[tuple[object, ...]], ends: tuple[Endpoint, Endpoint], client_start: int, server_start: int
) -> None:
    it = wire(ends, sequences=(client_start, server_start))
    segments = it.open(START_NS)
    buffers = {CLIENT: bytearray(), SERVER: bytearray()}
    done: set[bool] = set()
    reset = False
    for now, (what, side, *rest) in enumerate(story, START_NS):
        assert isinstance(side, bool)
        if what in ("data", "long"):
            data = rest[0] if isinstance(rest[0], bytes) else bytes(int(str(rest[0])))
            segments += it.data(side, data, now, int(str(rest[1])) if len(rest) > 1 else 0)
            if side not in done and not reset:
                buffers[side] += data
        elif what == "acknowledge":
            segments += it.acknowledge(side, int(str(rest[0])), now)
        elif what == "close":
            segments += it.close(side, now)
            done.add(side)
        else:
            reset = reset or len(done) < 2
            segments += it.abort(side, now)
    segments += it.settle(START_NS + len(story))

    client, server, texts = streams(segments)
    assert (client, server) == (bytes(buffers[CLIENT]), bytes(buffers[SERVER]))
    ends_as = "reset" if reset else "fin" if len(done) == 2 else "capture_end"
    assert texts[0] == "FlowOpened"
    assert texts[-1] == f"closed {ends_as}"
    assert not {"StreamGap", "StreamOverlap"} & set(texts)
    for frame, shown in segments:
        assert segment(frame) == shown
        assert_sums(frame)


def assert_sums(frame: Frame) -> None:
    """dpkt works out the same checksums, bit for bit."""
    assert len(frame.data) == frame.original_length
    if frame.data[0] >> 4 == 4:
        ip = dpkt.ip.IP(frame.data)
        assert ip.len == len(frame.data)
        written = ip.sum
        ip.sum = 0
        assert dpkt.ip.IP(bytes(ip)).sum == written
    else:
        ip = dpkt.ip6.IP6(frame.data)
        assert ip.plen == len(frame.data) - 40
    at = len(frame.data) - len(bytes(ip.data))
    tcp = frame.data[at:]
    half = len(ip.src)
    pseudo = ip.src + ip.dst + (b"\0\6" + len(tcp).to_bytes(2, "big") if half == 4 else len(tcp).to_bytes(4, "big"))
    pseudo += b"" if half == 4 else b"\0\0\0\6"
    assert dpkt.in_cksum_done(dpkt.in_cksum_add(0, pseudo + tcp)) == 0
    assert ip.data.win == WINDOW


def test_the_checksum_of_a_sum_without_remainder_is_zero() -> None:
    """One's complement has two zeros, and RFC 1071 takes this one."""
    it = opened()
    (plain,) = it.data(CLIENT, b"\0\0", 1)
    rest = int.from_bytes(plain.frame.data[36:38], "big")
    it = opened()
    (framed_segment,) = it.data(CLIENT, rest.to_bytes(2, "big"), 1)

    assert framed_segment.frame.data[36:38] == b"\0\0"
    assert_sums(framed_segment.frame)


def story(random: Random, it: SyntheticConnection, now: int) -> list[FramedSegment]:
    """A random connection to its end, as a proxy tells it."""
    segments = it.open(now)
    for _ in range(random.randrange(1, 12)):
        now += random.randrange(0, 50_000_000)
        side = random.random() < 0.5
        size = random.choice((1, 2, 100, 1460, 70_000))
        segments += it.data(side, random.randbytes(size), now, random.randrange(0, 1 + it.sent(not side)))
        if random.random() < 0.3:
            segments += it.acknowledge(not side, it.sent(side), now)
    last = random.choice(("close", "half", "abort", "open"))
    first = random.random() < 0.5
    if last in ("close", "half"):
        segments += it.close(first, now, it.sent(not first))
        if last == "half":
            segments += it.data(not first, b"more", now + 5, it.sent(first))
        segments += it.close(not first, now + 10)
        segments += it.settle(now + 20)
    elif last == "abort":
        segments += it.abort(first, now)
    return segments


@pytest.mark.tshark
def test_tshark_finds_nothing_wrong(tmp_path: Path) -> None:
    random = Random(11)
    path = tmp_path / "wires.pcapng"
    numbers = itertools.count(1)
    with PcapngWriter(path) as writer:
        for count in range(60):
            client, server = random.choice((V4, V6))
            # Not a port of MQTT: what is sent here is none.
            ends = (client._replace(port=40_000 + count), server._replace(port=18_830))
            sequences = random.choice(((random.getrandbits(32), random.getrandbits(32)), (2**32 - 50, 2**32 - 2)))
            it = SyntheticConnection(*ends, "", numbers.__next__, *sequences)
            for frame, _ in story(random, it, START_NS + count * 10**9):
                writer.write(frame)

    assert complaints(path) == []
    assert len(tshark(path, "-T", "fields", "-e", "tcp.stream")) == next(numbers) - 1
    assert sum(isinstance(frame, Frame) for frame in open_capture([path])) == next(numbers) - 2
