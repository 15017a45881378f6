"""Finding packets again, and finding out the version of a connection that was joined in the middle."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import (
    ControlPacket,
    Malformed,
    MalformedReason,
    PacketStream,
    ProtocolVersion,
    Publish,
    Unparsed,
    decode,
    encode,
    resync,
)
from mqttscope.mqtt.stream import MAX_SEARCH_BYTES, StreamItem
from tests.mqtt.case import ALL, V3_1_1, V5, parse
from tests.mqtt.checks import STREAM, facts, items_of, run
from tests.mqtt.conversation import CLEAN, conversation
from tests.tables import cases_of

R = MalformedReason


@pytest.mark.parametrize("version", ALL)
def test_joining_in_the_middle_finds_the_first_whole_packet_and_all_behind_it(version: ProtocolVersion) -> None:
    packets = conversation(version)
    whole = b"".join(packets)
    starts = [sum(map(len, packets[:n])) for n in range(len(packets))]
    for at in range(len(whole)):
        stream = PacketStream(version)
        stream.lose_framing()
        items = run([whole[at:]], stream)
        first = next((n for n, start in enumerate(starts) if start >= at), len(packets))
        assert [packet.raw for packet in items if isinstance(packet, ControlPacket)] == packets[first:], at
        if first < len(packets) and starts[first] > at:
            assert items[0] == Unparsed("resynchronised", starts[first] - at, whole[at : starts[first]])


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_joining_in_the_middle_without_knowing_the_version_finds_nothing_that_is_not_there(
    version: ProtocolVersion,
) -> None:
    packets = conversation(version)[1:]
    whole = b"".join(packets)
    starts = [sum(map(len, packets[:n])) for n in range(len(packets))]
    for at in range(0, len(whole), 3):
        stream = PacketStream(version_source="")
        stream.lose_framing()
        chunks = [packet.raw for packet in run([whole[at:]], stream) if isinstance(packet, ControlPacket)]
        assert set(chunks) <= set(packets), at
        assert len(chunks) >= len([start for start in starts if start >= at]) - 1, at


BROKEN_LENGTHS = """
a length one too small costs the byte that it left over
    5.0 | 320b0000000a032300016461 7461 clean0 clean1 clean2 |
    publish - 646174 with id 10; fixed_header_flags: 61; clean0; clean1; clean2
a length two too large costs the next packet only
    5.0 | 300e0005612f622f630074657374 clean0 clean1 clean2 |
    publish a/b/c 74657374300a; packet_type_reserved: 0003612f30; packet_type_reserved: 0074657874; clean1; clean2
a header that breaks its table is not trusted with a long length
    3.1.1 | 40a08d060001 clean0 clean1 clean2 |
    remaining_length_wrong: 40a08d06; resynchronised 2: 0001; clean0; clean1; clean2
a byte left over that reads as a PUBLISH whose topic does not fit
    5.0 | 300d00017400736f6d65206461746130 clean0 clean1 clean2 |
    publish t 736f6d652064617461; remaining_length_wrong: 30; clean0; clean1; clean2
wrong flags alone do not make the end of a packet another packet
    5.0 | 41040001c000 | fixed_header_flags: 41040001c000 with id 1
a short packet with a wrong length keeps its bytes
    3.1.1 | 4003000100c000 | remaining_length_wrong: 4003000100 with id 1; pingreq: c000
packets inside of one with an impossible length are found
    3.1.1 | 401a0001 clean0 clean1 c000 | remaining_length_wrong: 401a0001 with id 1; clean0; clean1; pingreq: c000
a payload that holds packets is left in peace
    3.1.1 | 302c0006627269646765 clean0 clean1 clean2 |
    publish bridge 300a0003612f300074657874300a0003612f310074657874300a0003612f320074657874
"""


@pytest.mark.parametrize(("setting", "chunks", "expected"), cases_of(BROKEN_LENGTHS, *STREAM))
def test_packets_behind_a_broken_length_are_found(setting: str, chunks: list[str], expected: list[str]) -> None:
    assert items_of(setting, chunks) == expected


class TestBrokenLengths:
    def test_a_fifth_length_byte_is_told_at_once_and_framing_is_found_again(self) -> None:
        stream = PacketStream(V5)
        (broken,) = stream.feed(parse("30 ff ff ff ff"))

        assert isinstance(broken, Malformed)
        assert (broken.reason, broken.offset, broken.raw) == (R.REMAINING_LENGTH_TOO_LONG, 4, parse("30 ff ff ff ff"))
        assert stream.feed(b"\x7f") == []
        passed, *rest = stream.feed(b"".join(CLEAN))
        assert passed == Unparsed("resynchronised", 1, b"\x7f")
        assert [packet.raw for packet in rest] == CLEAN

    @pytest.mark.parametrize("version", [V3_1_1, V5])
    @pytest.mark.parametrize("last", [b"a", b"0", b"1", b"t", b"}", b"\0", b"\xff", b"\x03"])
    def test_whatever_byte_a_short_length_leaves_over(self, version: ProtocolVersion, last: bytes) -> None:
        clean = [encode(Publish(topic_name=f"a/{n}", payload=b"text"), version) for n in range(40)]
        whole = bytearray(encode(Publish(topic_name="t", payload=b"some data" + last), version))
        whole[1] -= 1
        items = run([bytes(whole) + b"".join(clean)], PacketStream(version))

        assert [packet.raw for packet in items[-20:]] == clean[-20:]

    def test_losing_framing_over_and_over_in_one_chunk_is_no_recursion(self) -> None:
        raw = CLEAN[0] * 2 + parse("30 ff ff ff ff")
        items = run([raw * 3000], PacketStream(V5))

        assert len(items) == 9000


class TestSearch:
    def test_it_waits_for_a_second_packet_and_no_longer(self) -> None:
        stream = PacketStream(V5)
        stream.lose_framing()

        assert stream.feed(CLEAN[0]) == []
        assert stream.feed(CLEAN[1][:-5]) == [decode(CLEAN[0], V5)]
        assert stream.feed(CLEAN[1][-5:]) == [decode(CLEAN[1], V5)]

    def test_what_it_passes_is_counted_and_kept_only_to_a_limit(self) -> None:
        stream = PacketStream(V5)
        stream.lose_framing()
        for _ in range(300):
            assert stream.feed(b"\xff" * 1000) == []
            assert stream.held <= 1
            assert sum(map(len, stream.passed_chunks)) <= MAX_SEARCH_BYTES
        passed, *rest = stream.feed(b"".join(CLEAN))

        assert passed == Unparsed("resynchronised", 300_000, b"\xff" * MAX_SEARCH_BYTES)
        assert len(rest) == 3

    @pytest.mark.parametrize(
        "bait",
        [
            b"\x30\xff\xff\x03\x00\x01t",
            b"\x30\xff\xff\x7f\x00\x01t",
            b"\x82\xff\x7f",
            b"\x82\xff\x1f",
            b"\x10\xff\x7f\x00\x04MQTT",
            b"\x10\xff\x7f\x00\x04HTTP",
            b"\xe0\xff\xff\xff",
        ],
        ids=["PUBLISH", "PUBLISH far too long", "SUBSCRIBE", "SUBSCRIBE believed", "CONNECT", "other", "DISCONNECT"],
    )
    def test_what_looks_like_a_long_packet_cannot_hold_up_more_than_its_limit(self, bait: bytes) -> None:
        stream = PacketStream(V5)
        stream.lose_framing()
        items: list[StreamItem] = stream.feed(bait)
        fed, most = len(bait), 0
        while not items:
            items = stream.feed(CLEAN[0])
            fed += len(CLEAN[0])
            most = max(most, stream.held)
            assert fed < 3 * MAX_SEARCH_BYTES
        assert most <= MAX_SEARCH_BYTES + 100
        assert items[-1].raw == CLEAN[0]

    def test_positions_are_left_for_good_only_when_no_byte_could_save_them(self) -> None:
        whole = b"".join(CLEAN)
        previous = 0
        for size in range(len(whole) + 1):
            position, needed = resync.find_packets(whole[:size], 0, (V5,))
            assert position == previous == 0 or not needed
            assert not needed or needed > size
        assert resync.find_packets(whole, 1, (V5,)) == (len(CLEAN[0]), 0)

    @pytest.mark.parametrize(
        ("data", "alone", "expected"),
        [
            (CLEAN[0], True, True),
            (CLEAN[0], False, False),
            (CLEAN[0] + CLEAN[1], False, True),
            (CLEAN[0] + CLEAN[1][:8], False, True),
            (CLEAN[0] + CLEAN[1][:5], True, False),
            (CLEAN[0] + b"\x30", True, False),
            (CLEAN[0] + b"\xff", True, False),
            (CLEAN[0][:-1], True, False),
            (parse("30 03 00 09 61 c0 00"), True, False),
            (b"\x82\x7f\x00", True, False),
            (b"\xc0", True, False),
        ],
    )
    def test_the_end_of_the_data(self, data: bytes, alone: bool, expected: bool) -> None:
        position, needed = resync.find_packets(data, 0, (V5,), final=True, alone=alone)

        assert (position == 0 and needed == 0) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "30 05 00 03 61 2f 2b",
            "30 05 00 03 61 2f 23",
            "30 05 00 03 61 01 62",
            "30 05 00 03 61 ff 62",
            "32 05 00 01 61 00 00",
            "40 02 00 00",
            "30 02 00 00",
            "82 02 00 01",
            "36 05 00 01 61 00 01",
            "20 03 00 00 00",
            "10 0c 00 04 48 54 54 50 04 02 00 00 00 00",
            "f0 00",
            "c1 00",
        ],
    )
    def test_packets_that_decode_but_say_nothing_sensible_are_no_place_to_begin(self, text: str) -> None:
        raw = parse(text)

        assert resync.find_packets(raw + raw + raw, 0, (V3_1_1,), final=True)[1]

    def test_an_alias_makes_an_empty_topic_sensible(self) -> None:
        raw = parse("30 09 00 00 03 23 00 01 64 61 74") * 2

        assert resync.find_packets(raw, 0, (V5,)) == (0, 0)
        assert resync.find_packets(parse("30 06 00 00 00 64 61 74") * 2, 0, (V5,))[1]


@pytest.mark.parametrize(
    ("raw", "version", "plausible"),
    [
        ("00 00", V5, False),
        ("f0 00", V3_1_1, False),
        ("f0 00", V5, True),
        ("36 05", V5, False),
        ("62 02", V5, True),
        ("60 02", V5, False),
        ("40 03", V3_1_1, False),
        ("40 03", V5, True),
        ("30 02", V5, False),
        ("30 05 00 04", V5, False),
        ("30 05 00 03", V5, True),
        ("30", V5, True),
        ("30 ff ff ff ff", V5, False),
    ],
)
def test_plausible_headers(raw: str, version: ProtocolVersion, plausible: bool) -> None:
    data = parse(raw)

    assert resync.plausible_header(data, 0, len(data), version) is plausible


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"\xff", 0),
        (b"".join(CLEAN), 3),
        (b"".join(CLEAN)[:-1], 2),
        (b"".join(CLEAN) + b"\x30", 3),
        (b"".join(CLEAN) + parse("40 02 00 00"), 0),
        (b"".join(CLEAN) + b"\xff", 3),
        (b"GET / HTTP/1.1\r\n", 0),
    ],
)
def test_counting_packets_at_the_beginning(data: bytes, count: int) -> None:
    assert resync.count_packets(data, (V3_1_1, V5)) == count


def test_the_same_bytes_give_the_same_items_while_searching() -> None:
    whole = b"\x30\x50\x00\x03abc" + b"".join(CLEAN) * 8 + parse("61 32") + b"".join(CLEAN) * 4
    expected = None
    for size in (1, 2, 5, 16, 33, 1000):
        stream = PacketStream(V5)
        stream.lose_framing()
        rows = facts(run([whole[at : at + size] for at in range(0, len(whole), size)], stream))
        expected = expected or rows
        assert rows == expected
