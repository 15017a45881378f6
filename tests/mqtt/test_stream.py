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
from tests.mqtt.checks import STREAM, facts, items_of, run
from tests.mqtt.conversation import CLEAN, JSON, following
from tests.mqtt.octets import framed, string, varint
from tests.tables import cases_of

R = MalformedReason


def _is_one_packet(row: Case) -> bool:
    body, end = packet_end(row.raw, 0, len(row.raw))
    return body > 0 and end == len(row.raw)


WHOLE = [row for row in SHORT if _is_one_packet(row)]
BROKEN_OFF = [row for row in SHORT if not _is_one_packet(row) and row.raw]


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
        before, packet, behind, last = run(chunks, PacketStream(row.version))
        assert before == Pingreq()
        assert facts([packet]) == facts([decode(row.raw, row.version)])
        assert isinstance(behind, ControlPacket)
        assert behind.raw == b"\xd0\x00"
        assert isinstance(last, Malformed)
        assert (last.reason, last.raw) == (R.TRUNCATED, b"\xe0")


@each("row", BROKEN_OFF, ids=ids(BROKEN_OFF))
def test_a_row_that_is_no_whole_packet_is_told_once_however_it_is_cut(row: Case) -> None:
    expected = facts(run([row.raw], PacketStream(row.version)))
    first = PacketStream(row.version)
    packet = [*first.feed(row.raw), *first.close()][0]

    assert isinstance(packet, Malformed) or row.reason is R.TRAILING_BYTES
    if isinstance(packet, Malformed):
        assert packet.reason is row.reason
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
    expected = [decode(raw, row.version) for raw in behind]
    if isinstance(row.packet, ControlPacket) and row.packet.packet_type == 1:
        row = Case(row.id, row.packet.version, row.raw, row.packet)  # type: ignore[attr-defined]
        behind = following(row.version)
        expected = [decode(raw, row.version) for raw in behind]
    for at in range(len(row.raw) + 1):
        rest = len(row.raw) - at
        for lost in {1, rest // 2, rest, rest + 3} - {0}:
            after = (row.raw + b"".join(behind))[at + lost :]
            items = run([row.raw[:at], lost, after], PacketStream(row.version))
            packets = [packet for packet in items if isinstance(packet, ControlPacket)]
            left = expected if lost <= rest else expected[1:]
            assert packets[-len(left) :] == left, (at, lost)
            if known <= at and lost <= rest:
                # The gap is inside a packet of known length: framing was never in doubt.
                assert len(items) == 1 + len(expected)
                assert not any(isinstance(packet, Malformed) for packet in items)


HOLES_AND_ENDS = """
a PUBLISH that lost payload is a packet all the same
    3.1.1 | 320e0001740007706179; gap 4; 2039c000 | publish t 706179 with id 7 and 6 missing; pingreq: c000
a PUBLISH cut by a gap that runs over its end
    3.1.1 | 300e0001747061796c; gap 30; next0 next1 next2 next3 |
    publish t 7061796c and 7 missing; gap 23:  and 23 missing; next0; next1; next2; next3
a packet that cannot do without what was lost
    3.1.1 | 82060001; gap 2; 6100c000 | gap 8 in subscribe: 82060001 and 2 missing; pingreq: c000
a gap in the topic of a PUBLISH
    3.1.1 | 300a00056162; gap 2; 65706179 | gap 12 in publish: 300a00056162 and 2 missing
two gaps inside one packet
    3.1.1 | 900a0001; gap 2; 00; gap 3; 0000c000 | gap 12 in suback: 900a0001 and 5 missing; pingreq: c000
two gaps inside the payload of a PUBLISH
    3.1.1 | 3017000174 78*3; gap 2; 78*2; gap 5; 78*8 c000 | publish t 787878 and 17 missing; pingreq: c000
a second gap that runs over the end of a packet that lost bytes
    3.1.1 | 900a0001; gap 2; 00; gap 9; next0 next1 next2 next3 |
    gap 12 in suback: 900a0001 and 7 missing; gap 4:  and 4 missing; next0; next1; next2; next3
a gap inside a fixed header loses framing
    3.1.1 | 30; gap 5; 78797a next0 next1 next2 next3 |
    gap 1 in publish: 30; resynchronised 8: 78797a and 5 missing; next0; next1; next2; next3
a gap ends a search with what it has
    3.1.1 | gap 10; 78797a next0; gap 10; next1 next1 |
    resynchronised 13: 78797a and 10 missing; next0; gap 10:  and 10 missing; next1; next1
a gap behind garbage is told after it
    3.1.1 | gap 1; ffffff; gap 2; fe | resynchronised 4: ffffff and 1 missing; resynchronised 3: fe and 2 missing
the rest of a packet of 256 mebibytes may be lost
    3.1.1 | 30ffffff7f000174 78*100; gap 268435352; c000 | publish t 78*100 and 268435352 missing; pingreq: c000
at an end between packets there is nothing to say
    3.1.1 | c000 | pingreq: c000
a packet that is passed over is told with what came
    3.1.1 limit 10 | 3064 00*48 | too_large 50 in publish: 3064 00*48
a search ends with one packet when that is all there is
    3.1.1 lost | ff next0 | resynchronised 1: ff; next0
a search that finds nothing tells all that it passed
    3.1.1 lost | 474554202f204854; 54502f312e310d0a | resynchronised 16: 474554202f20485454502f312e310d0a
packets behind a header that cannot be are found at the end
    3.1.1 | 407f0001 next0 next1 30 | remaining_length_wrong: 407f0001 with id 1; next0; next1; truncated: 30
a gap inside a packet above the limit
    3.1.1 limit 100 | 30c801 00*17; gap 100; 00*83 c000 |
    too_large 203 in publish: 30c801 00*17 and 100 missing; pingreq: c000
nothing came
    3.1.1 | nothing | nothing
"""


@pytest.mark.parametrize(("setting", "chunks", "expected"), cases_of(HOLES_AND_ENDS, *STREAM))
def test_holes_and_ends_of_streams(setting: str, chunks: list[str], expected: list[str]) -> None:
    assert items_of(setting, chunks) == expected


class TestGaps:
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

    def test_a_gap_of_nothing_is_no_gap(self) -> None:
        stream = PacketStream(V3_1_1)

        assert stream.gap(0) == []
        assert not stream.searching


class TestClose:
    def test_an_incomplete_packet_is_truncated_and_tells_what_came(self) -> None:
        (packet,) = run([parse("30 0e 00 05 61 2f 62 2f 63 00 74 65 73 74")], PacketStream(V5))

        assert isinstance(packet, Malformed)
        assert (packet.reason, packet.missing) == (R.TRUNCATED, 2)
        assert packet.detail == "announces 14 bytes, 12 of them arrived"
        assert isinstance(packet.packet, Publish)
        assert packet.packet.payload == b"test"

    def test_a_publish_that_lost_bytes_was_told_already(self) -> None:
        raw = framed(0x30, string("t"), b"payload")
        stream = PacketStream(V3_1_1)
        stream.feed(raw[:6])
        (packet,) = stream.gap(2)

        assert (packet.raw, packet.missing) == (raw[:6], 6)
        assert stream.feed(raw[8:9]) == []
        assert stream.close() == []


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
    assert [type(packet) for packet in stream.feed(long + encode(Puback(8), V5))] == [Puback, Puback]
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


def test_the_beginning_of_an_auth_is_not_of_a_reserved_type_if_the_version_is_unknown() -> None:
    stream = PacketStream(V3_1_1, version_source="")
    assert not stream.feed(b"\xf0")

    assert [item.reason for item in stream.close() if isinstance(item, Malformed)] == [MalformedReason.TRUNCATED]
