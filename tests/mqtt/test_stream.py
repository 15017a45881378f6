"""Streams: every row of the table whole, byte by byte, split at each index, with bytes after it, with gaps in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from mqttscope.budget import Budget
from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    MalformedReason,
    PacketStream,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Unparsed,
    Unsuback,
    decode,
    encode,
)
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.resync import evidence
from mqttscope.mqtt.stream import MAX_PACKET_BYTES, MAX_TOO_LARGE_BYTES
from tests.each import each
from tests.mqtt.case import ALL, V3_1, V3_1_1, V5, Case, parse
from tests.mqtt.cases import LONG, SHORT, ids
from tests.mqtt.checks import facts, run
from tests.mqtt.conversation import CLEAN, JSON
from tests.mqtt.octets import framed, string, varint

R = MalformedReason


def _is_one_packet(row: Case) -> bool:
    body, end = packet_end(row.raw, 0, len(row.raw))
    return body > 0 and end == len(row.raw)


WHOLE = [row for row in SHORT if _is_one_packet(row)]
BROKEN_OFF = [row for row in SHORT if not _is_one_packet(row) and row.raw]


def following(version: ProtocolVersion) -> list[bytes]:
    """Some clean packets of this version."""
    made = [Publish(topic_name=f"a/{n}", payload=b"some text %d" % n) for n in range(4)]
    return [encode(one, version) for one in made]


def splits(raw: bytes) -> Iterator[list[bytes | int]]:
    yield [raw]
    yield [raw[at : at + 1] for at in range(len(raw))]
    for at in range(1, len(raw)):
        yield [raw[:at], raw[at:]]


@each("row", WHOLE, ids=ids(WHOLE))
def test_a_row_gives_its_packet_however_it_is_cut(row: Case) -> None:
    expected = decode(row.raw, row.version)
    for chunks in splits(row.raw):
        assert facts(run(chunks, PacketStream(row.version))) == facts([expected])


@each("row", WHOLE, ids=ids(WHOLE))
def test_a_row_among_other_packets_gives_them_all(row: Case) -> None:
    raw = b"\xc0\x00" + row.raw + b"\xd0\x00\xe0"
    for chunks in splits(raw):
        before, found, behind, last = run(chunks, PacketStream(row.version))
        assert before == Pingreq()
        assert facts([found]) == facts([decode(row.raw, row.version)])
        assert isinstance(behind, ControlPacket)
        assert behind.raw == b"\xd0\x00"
        assert isinstance(last, Malformed)
        assert (last.reason, last.raw) == (R.TRUNCATED, b"\xe0")


@each("row", BROKEN_OFF, ids=ids(BROKEN_OFF))
def test_a_row_that_is_no_whole_packet_is_told_once_however_it_is_cut(row: Case) -> None:
    expected = facts(run([row.raw], PacketStream(row.version)))
    first = PacketStream(row.version)
    found = [*first.feed(row.raw), *first.close()][0]

    assert isinstance(found, Malformed) or row.reason is R.TRAILING_BYTES
    if isinstance(found, Malformed):
        assert found.reason is row.reason
    for chunks in splits(row.raw):
        assert facts(run(chunks, PacketStream(row.version))) == expected


@pytest.mark.parametrize("row", LONG, ids=ids(LONG))
def test_long_packets_in_pieces(row: Case) -> None:
    raw = row.raw + b"\xc0\x00"
    size = max(1, len(raw) // 7)
    items = run([raw[at : at + size] for at in range(0, len(raw), size)], PacketStream(row.version))

    assert items == [row.packet, Pingreq()]


@each("row", WHOLE, ids=ids(WHOLE))
def test_a_gap_at_any_index_costs_no_more_than_the_packets_it_touches(row: Case) -> None:
    behind = following(row.version)
    known, _ = packet_end(row.raw, 0, len(row.raw))
    expected = [decode(one, row.version) for one in behind]
    if isinstance(row.packet, ControlPacket) and row.packet.packet_type == 1:
        row = Case(row.id, row.packet.version, row.raw, row.packet)  # type: ignore[attr-defined]
        behind = following(row.version)
        expected = [decode(one, row.version) for one in behind]
    for at in range(len(row.raw) + 1):
        rest = len(row.raw) - at
        for lost in {1, rest // 2, rest, rest + 3} - {0}:
            after = (row.raw + b"".join(behind))[at + lost :]
            items = run([row.raw[:at], lost, after], PacketStream(row.version))
            packets = [one for one in items if isinstance(one, ControlPacket)]
            left = expected if lost <= rest else expected[1:]
            assert packets[-len(left) :] == left, (at, lost)
            if known <= at and lost <= rest:
                # The gap lies inside a packet of known length: framing never was in doubt.
                assert len(items) == 1 + len(expected)
                assert not any(isinstance(one, Malformed) for one in items)


class TestGaps:
    def test_a_publish_that_lost_payload_is_a_packet_all_the_same(self) -> None:
        raw = parse("32 0e 00 01 74 00 07") + b"payload 9"
        found, behind = run([raw[:10], 4, raw[14:] + b"\xc0\x00"], PacketStream(V3_1_1))

        assert isinstance(found, Publish)
        assert (found.topic_name, found.packet_identifier, found.payload) == ("t", 7, b"pay")
        assert (found.raw, found.missing) == (raw[:10], 6)
        assert behind == Pingreq()

    def test_a_publish_cut_by_a_gap_that_runs_over_its_end(self) -> None:
        raw = parse("30 0e 00 01 74") + b"payload 9 b"
        chunks: list[bytes | int] = [raw[:9], 30, b"".join(following(V3_1_1))]
        found, gap, *rest = run(chunks, PacketStream(V3_1_1))

        assert isinstance(found, Publish)
        assert (found.payload, found.missing) == (b"payl", 7)
        assert gap == Unparsed("gap", 23, b"", 23)
        assert [one.raw for one in rest] == following(V3_1_1)

    def test_a_packet_that_cannot_do_without_what_was_lost(self) -> None:
        subscribe = parse("82 06 00 01 00 01 61 00")

        assert run([subscribe[:4], 2, subscribe[6:], b"\xc0\x00"], PacketStream(V3_1_1)) == [
            Unparsed("gap", 8, subscribe[:4], 2, 8),
            Pingreq(),
        ]

    def test_a_gap_in_the_topic_of_a_publish(self) -> None:
        raw = parse("30 0a 00 05 61 62 63 64 65") + b"pay"

        assert run([raw[:6], 2, raw[8:]], PacketStream(V3_1_1)) == [Unparsed("gap", 12, raw[:6], 2, 3)]

    def test_two_gaps_inside_one_packet(self) -> None:
        raw = parse("90 0a 00 01 00 00 00 00 00 00 00 00")

        assert run([raw[:4], 2, raw[6:7], 3, raw[10:], b"\xc0\x00"], PacketStream(V3_1_1)) == [
            Unparsed("gap", 12, raw[:4], 5, 9),
            Pingreq(),
        ]

    def test_two_gaps_inside_the_payload_of_a_publish(self) -> None:
        raw = framed(0x30, string("t"), b"x" * 20)
        found, behind = run([raw[:8], 2, raw[10:12], 5, raw[17:], b"\xc0\x00"], PacketStream(V3_1_1))

        assert isinstance(found, Publish)
        assert (found.payload, found.missing, behind) == (b"xxx", 17, Pingreq())

    def test_a_second_gap_that_runs_over_the_end_of_a_packet_that_lost_bytes(self) -> None:
        raw = parse("90 0a 00 01 00 00 00 00 00 00 00 00")
        items = run([raw[:4], 2, raw[6:7], 9, b"".join(following(V3_1_1))], PacketStream(V3_1_1))

        assert items[:2] == [Unparsed("gap", 12, raw[:4], 7, 9), Unparsed("gap", 4, b"", 4)]
        assert [one.raw for one in items[2:]] == following(V3_1_1)

    def test_a_gap_between_packets_is_said_when_framing_is_back(self) -> None:
        stream = PacketStream(V3_1_1)

        assert stream.feed(b"\xc0\x00") == [Pingreq()]
        assert stream.gap(100) == []
        assert stream.searching
        assert stream.feed(following(V3_1_1)[0]) == []
        items = stream.feed(following(V3_1_1)[1])
        assert items[0] == Unparsed("gap", 100, b"", 100)
        assert len(items) == 3
        assert not stream.searching

    def test_a_gap_inside_a_fixed_header_loses_framing(self) -> None:
        items = run([b"\x30", 5, b"xyz" + b"".join(following(V3_1_1))], PacketStream(V3_1_1))

        assert items[:2] == [Unparsed("gap", 1, b"\x30", 0, 3), Unparsed("resynchronised", 8, b"xyz", 5)]
        assert len(items) == 6

    def test_a_gap_ends_a_search_with_what_it_has(self) -> None:
        first, second, *_ = following(V3_1_1)
        items = run([10, b"xyz" + first, 10, second + second], PacketStream(V3_1_1))

        assert items[0] == Unparsed("resynchronised", 13, b"xyz", 10)
        assert items[2] == Unparsed("gap", 10, b"", 10)
        assert [one.raw for one in items if isinstance(one, Publish)] == [first, second, second]

    def test_a_gap_behind_garbage_is_told_after_it(self) -> None:
        items = run([1, b"\xff\xff\xff", 2, b"\xfe"], PacketStream(V3_1_1))

        assert items == [Unparsed("resynchronised", 4, b"\xff\xff\xff", 1), Unparsed("resynchronised", 3, b"\xfe", 2)]

    def test_a_gap_of_nothing_is_no_gap(self) -> None:
        stream = PacketStream(V3_1_1)

        assert stream.gap(0) == []
        assert not stream.searching

    def test_the_rest_of_a_packet_of_256_mebibytes_may_be_lost(self) -> None:
        head = b"\x30" + varint(268_435_455) + string("t") + b"x" * 100
        found, behind = run([head, 268_435_455 - 103, b"\xc0\x00"], PacketStream(V3_1_1))

        assert isinstance(found, Publish)
        assert (len(found.payload), found.missing, behind) == (100, 268_435_352, Pingreq())


class TestClose:
    def test_a_stream_that_ends_between_packets_has_nothing_to_say(self) -> None:
        assert run([b"\xc0\x00"], PacketStream(V3_1_1)) == [Pingreq()]
        assert run([], PacketStream(V3_1_1)) == []

    def test_an_incomplete_packet_is_truncated_and_tells_what_came(self) -> None:
        (found,) = run([parse("30 0e 00 05 61 2f 62 2f 63 00 74 65 73 74")], PacketStream(V5))

        assert isinstance(found, Malformed)
        assert (found.reason, found.missing) == (R.TRUNCATED, 2)
        assert found.detail == "announces 14 bytes, 12 of them came"
        assert isinstance(found.packet, Publish)
        assert found.packet.payload == b"test"

    def test_a_packet_being_passed_over_is_told_with_what_came(self) -> None:
        stream = PacketStream(V3_1_1, max_packet_bytes=10)

        assert run([framed(0x30, bytes(100))[:50]], stream) == [
            Unparsed("too_large", 50, b"\x30\x64" + bytes(48), 0, 3)
        ]

    def test_a_publish_that_lost_bytes_was_told_already(self) -> None:
        raw = framed(0x30, string("t"), b"payload")
        stream = PacketStream(V3_1_1)
        stream.feed(raw[:6])
        (found,) = stream.gap(2)

        assert (found.raw, found.missing) == (raw[:6], 6)
        assert stream.feed(raw[8:9]) == []
        assert stream.close() == []

    def test_a_search_ends_with_one_packet_when_that_is_all_there_is(self) -> None:
        stream = PacketStream(V3_1_1)
        stream.lose_framing()

        assert run([b"\xff" + following(V3_1_1)[0]], stream)[1] == decode(following(V3_1_1)[0])

    def test_a_search_that_finds_nothing_tells_all_it_passed(self) -> None:
        stream = PacketStream(V3_1_1)
        stream.lose_framing()

        assert run([b"GET / HT", b"TP/1.1\r\n"], stream) == [Unparsed("resynchronised", 16, b"GET / HTTP/1.1\r\n")]

    def test_packets_behind_a_header_that_cannot_be_are_found_at_the_end(self) -> None:
        first, second, *_ = following(V3_1_1)
        broken, *rest = run([b"\x40\x7f\x00\x01" + first + second + b"\x30"], PacketStream(V3_1_1))

        assert isinstance(broken, Malformed)
        assert (broken.reason, broken.raw) == (R.REMAINING_LENGTH_WRONG, b"\x40\x7f\x00\x01")
        assert [one.raw for one in rest] == [first, second, b"\x30"]


class TestLimits:
    def test_a_packet_above_the_limit_is_passed_over_and_framing_stays(self) -> None:
        large = framed(0x30, string("t"), bytes(range(200)))
        whole = b"\xc0\x00" + large + b"\xc0\x00"
        expected = [Pingreq(), Unparsed("too_large", len(large), large[:MAX_TOO_LARGE_BYTES], 0, 3), Pingreq()]
        for size in (1, 7, 70, 500):
            chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
            assert run(chunks, PacketStream(V3_1_1, max_packet_bytes=100)) == expected

    @pytest.mark.parametrize(("limit", "is_read"), [(90, True), (89, False)])
    def test_a_packet_that_does_not_fit_into_the_budget_is_passed_over(self, limit: int, is_read: bool) -> None:
        """Another stream keeps 50 bytes of it, and this one comes to 40 before its packet is complete."""
        budget = Budget(limit)
        other, stream = PacketStream(V3_1_1, budget=budget), PacketStream(V3_1_1, budget=budget)
        other.feed(b"\x30\x64" + bytes(48))
        raw = framed(0x30, string("t"), bytes(45))
        items = run([raw[:20], raw[20:40], raw[40:] + b"\xc0\0"], stream)

        (publish, pingreq) = items
        assert isinstance(pingreq, Pingreq)
        assert isinstance(publish, Publish) is is_read
        assert is_read or publish == Unparsed("no_room", len(raw), raw[:40], 0, 3)
        assert (budget.used, other.held) == (50, 50)
        other.close()
        assert budget.used == 0

    def test_a_packet_at_the_limit_is_read(self) -> None:
        raw = framed(0x30, string("t"), bytes(95))

        assert len(raw) == 100
        assert len(run([raw], PacketStream(V3_1_1, max_packet_bytes=100))) == 1
        assert isinstance(run([raw], PacketStream(V3_1_1, max_packet_bytes=100))[0], Publish)
        assert isinstance(run([raw], PacketStream(V3_1_1, max_packet_bytes=99))[0], Unparsed)

    def test_a_gap_inside_a_packet_above_the_limit(self) -> None:
        large = framed(0x30, bytes(200))
        items = run([large[:20], 100, large[120:] + b"\xc0\x00"], PacketStream(V3_1_1, max_packet_bytes=100))

        assert items == [Unparsed("too_large", 203, large[:20], 100, 3), Pingreq()]

    def test_a_packet_of_256_mebibytes_takes_no_memory_before_it_comes(self) -> None:
        stream = PacketStream(V3_1_1)

        assert stream.feed(b"\x30" + varint(268_435_455) + string("t")) == []
        assert stream.feed(b"x" * 1000) == []
        assert stream.wanted == MAX_PACKET_BYTES
        assert stream.held == sum(map(len, stream.chunks)) == 1008

    def test_bytes_are_joined_once_and_not_at_each_feed(self) -> None:
        stream = PacketStream(V3_1_1)
        stream.feed(b"\x30" + varint(10_000))
        for _ in range(100):
            stream.feed(bytes(10))

        assert len(stream.chunks) == 101

    def test_the_state_is_plain_data_that_can_be_copied_in_the_middle(self) -> None:
        whole = b"\xff\xff\xff" + b"".join(following(V5)) + parse("30 ff ff ff ff") + b"".join(following(V5))
        for at in range(len(whole)):
            stream = PacketStream(V5)
            stream.feed(whole[:at])
            other = copy.deepcopy(stream)
            assert other == stream
            assert facts(stream.feed(whole[at:]) + stream.close()) == facts(other.feed(whole[at:]) + other.close())


@pytest.mark.parametrize("length", [65_535, 65_530])
def test_a_long_reason_string_is_no_loss_of_framing(length: int) -> None:
    long = encode(Puback(7, 0x80, Properties(reason_string="x" * length)), V5)
    stream = PacketStream(V5)

    assert len(long) > length
    assert [type(one) for one in stream.feed(long + encode(Puback(8), V5))] == [Puback, Puback]
    assert not stream.searching


class TestEvidence:
    @pytest.mark.parametrize(
        ("packet", "spoken", "version", "says"),
        [
            (
                Publish(topic_name="t", properties=Properties(topic_alias=1)),
                V5,
                V5,
                "a PUBLISH with well-formed properties",
            ),
            (Publish(topic_name="t"), V5, V5, "a PUBLISH with an empty property block"),
            (Publish(topic_name="t", payload=JSON), V3_1_1, V3_1_1, "a PUBLISH that is well formed in 3.1.1 only"),
            (Subscribe(1, None, [Subscription("a")]), V3_1_1, V3_1_1, "a SUBSCRIBE that is well formed in 3.1.1 only"),
            (Subscribe(1, None, [Subscription("a", 1)]), V5, V5, "a SUBSCRIBE that is well formed in 5.0 only"),
            (Unsuback(1), V3_1_1, V3_1_1, "an UNSUBACK that is well formed in 3.1.1 only"),
            (Connack(), V5, V5, "a CONNACK that is well formed in 5.0 only"),
            (Disconnect(0x8E), V5, V5, "a DISCONNECT that is well formed in 5.0 only"),
            (Auth(0x18), V5, V5, "an AUTH that is well formed in 5.0 only"),
        ],
    )
    def test_a_packet_that_says_which_version_it_is(
        self, packet: ControlPacket, spoken: ProtocolVersion, version: ProtocolVersion, says: str
    ) -> None:
        raw = encode(packet, spoken)
        stream = PacketStream(version_source="")

        assert evidence(raw) == (version, says)
        (item,) = run([raw], stream)
        assert isinstance(item, ControlPacket)
        assert (stream.version, stream.version_source) == (version, says)

    @pytest.mark.parametrize("raw", ["c0 00", "d0 00", "40 02 00 01", "e0 00", "00 00", "41 05 00"])
    def test_a_packet_that_says_nothing(self, raw: str) -> None:
        assert evidence(parse(raw)) is None

    def test_nothing_is_assumed_until_something_is_said(self) -> None:
        stream = PacketStream(version_source="")

        assert stream.feed(parse("d0 00 40 02 00 01")) == [Pingresp(), Puback(1)]
        assert stream.version_source == ""
        stream.feed(CLEAN[0])
        assert stream.version is V5

    def test_an_assumption_is_given_up_when_a_packet_contradicts_it(self) -> None:
        stream = PacketStream(version_source="")
        zero = framed(0x30, string("t"), b"\0data")
        subscribe = encode(Subscribe(1, None, [Subscription("a")]), V3_1_1)

        assert stream.feed(zero) == [Publish(topic_name="t", properties=Properties(), payload=b"data")]
        assert stream.version is V5
        assert stream.feed(subscribe + zero) == [
            Subscribe(1, None, [Subscription("a")]),
            Publish(topic_name="t", payload=b"\0data"),
        ]
        assert stream.version is V3_1_1

    def test_a_given_version_is_not_given_up(self) -> None:
        stream = PacketStream(V3_1_1)
        (item,) = stream.feed(encode(Disconnect(0x8E), V5))

        assert isinstance(item, Malformed)
        assert (stream.version, stream.version_source) == (V3_1_1, "given")

    @pytest.mark.parametrize("source", ["", "given", "a PUBLISH with an empty property block"])
    @pytest.mark.parametrize("version", ALL)
    def test_a_connect_brings_its_version(self, version: ProtocolVersion, source: str) -> None:
        name = "MQIsdp" if version == V3_1 else "MQTT"
        stream = PacketStream(version_source=source)
        stream.feed(encode(Connect(name, version), version))

        assert (stream.version, stream.version_source) == (version, "CONNECT")

    def test_a_malformed_connect_brings_its_version_too_when_it_names_one(self) -> None:
        stream = PacketStream(version_source="")
        stream.feed(parse("10 0d 00 04 4d 51 54 54 05 01 00 00 00 00 00"))
        assert stream.version is V5

        other = PacketStream(version_source="")
        other.feed(parse("10 06 00 04 4d 51 54 54"))
        assert other.version_source == ""
