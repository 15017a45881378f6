"""Packets with a wrong Remaining Length."""

from __future__ import annotations

from mqttscope.mqtt import ProtocolVersion
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.repair import intruder, misreading, repairs
from tests.each import each
from tests.packets import packet

V3 = ProtocolVersion.V3_1_1
CONNECT, PUBLISH, PING = (
    encode(packet(text, V3), V3)
    for text in (f"connect 3.1.1 client={'c' * 200}", f"publish a/b {'D' * 300}", "pingreq")
)


def told(data: bytes, version: ProtocolVersion = V3) -> list[tuple[int, str]]:
    return [(repair.end, repair.what.split(":")[0]) for repair in repairs(data, version) if repair.is_proven]


def with_length(raw: bytes, written: str) -> bytes:
    """A packet with another encoding of its two-byte Remaining Length."""
    return raw[:1] + bytes.fromhex(written) + raw[3:]


@each(
    "expected, written, what",
    [
        (CONNECT, "d4", "it is written as a plain number"),  # 212
        (CONNECT, "01d4", "its bytes are swapped"),
        (CONNECT, "00d4", "it is written as a plain number"),
        (CONNECT, "d301", "it is D3 01 (211), and the fields need D4 01 (212)"),
        (PUBLISH, "0131", "it is written as a plain number"),  # 305
        (PUBLISH, "02b1", "its bytes are swapped"),
        (PUBLISH, "b1", "its last byte is missing"),
    ],
)
def test_the_length_that_fits(expected: bytes, written: str, what: str) -> None:
    wrong = with_length(expected, written)

    assert (len(wrong), what) in told(wrong)
    assert (len(wrong), what) in told(wrong + PING)


@each("expected", [CONNECT, PUBLISH, PING])
def test_a_right_length_needs_no_other(expected: bytes) -> None:
    assert told(expected) == told(expected + PING) == []


@each("data", [b"", b"\x10", b"\x10\xd4", with_length(CONNECT, "d4")[:-1], with_length(CONNECT, "d4") + b"\xff\xff"])
def test_what_does_not_fit_to_its_end_proves_nothing(data: bytes) -> None:
    assert told(data) == []


HEAD = encode(packet(f"publish a/b {'D' * 60}", V3), V3)


@each("rest", [b"", PING, HEAD[:9]])
@each("at", [8, 20, 60])
def test_a_packet_that_a_short_one_swallows(at: int, rest: bytes) -> None:
    sent = HEAD[:at] + HEAD + rest
    actual_intruder = intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3)

    assert actual_intruder is not None
    assert (actual_intruder.at, actual_intruder.raw, actual_intruder.is_inserted) == (at, HEAD, False)


@each("short", [bytes.fromhex(shown) for shown in ("40020003", "50020003", "62020003", "70020003", "c000")])
@each("at", [3, 20, 60])
def test_a_packet_in_the_middle_of_another(short: bytes, at: int) -> None:
    sent = HEAD[:at] + short + HEAD[at:] + HEAD
    actual_intruder = intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3)

    assert actual_intruder is not None
    assert (actual_intruder.at, actual_intruder.raw, actual_intruder.is_inserted) == (at, short, True)


@each("sent", [HEAD + HEAD[:30] + HEAD[40:], HEAD[:20] + HEAD[:30], HEAD[:20] + HEAD + b"\xff\xff", PING + HEAD[3:]])
def test_bytes_that_no_packet_fills_prove_no_intruder(sent: bytes) -> None:
    assert intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3) is None


def test_a_packet_in_a_payload_is_none_if_whole_packets_follow() -> None:
    holds = encode(packet(f"publish a/b {'D' * 200}", V3), V3)
    holds = holds[:20] + HEAD + holds[20 + len(HEAD) :]

    assert intruder(holds, b"", V3) is intruder(holds, PING, V3) is None


@each("left_out", [1, 2, 40])
@each("rest", [PING + PING, HEAD, PING + HEAD])
def test_a_length_that_leaves_bytes_out(left_out: int, rest: bytes) -> None:
    short = HEAD[:1] + bytes((HEAD[1] - left_out,)) + HEAD[2:]
    cut = len(HEAD) - left_out
    actual_misreading = misreading(short[cut:] + rest, short[:cut], V3)

    assert actual_misreading is not None
    assert actual_misreading.is_before
    assert actual_misreading.repair is not None
    assert (actual_misreading.repair.left_out, actual_misreading.repair.end) == (left_out, len(HEAD))


@each("bad", [b"\x62\x00", b"\x36\x07\x00\x03a/bxx", b"\xc1\x00"])
def test_a_malformed_packet_before_whole_ones_is_no_part_of_the_one_before(bad: bytes) -> None:
    assert misreading(bad + HEAD, HEAD, V3) is None
    assert misreading(bad + HEAD + HEAD[:9], HEAD, V3) is None


WORDS = "Grüße_aus_Köln"  # 14 characters, 17 bytes


@each("qos, version", [("", V3), (":1 id=0x8081", V3), ("", ProtocolVersion.V5)])
@each("rest, left_out", [("end", 3), ("again", 3), ("", 0), ("?!", 0)])
def test_a_length_that_counts_characters(qos: str, version: ProtocolVersion, rest: str, left_out: int) -> None:
    """Three bytes too few, and the next packet has the same fault; other numbers of bytes prove nothing."""
    raw = encode(packet(f"publish a/b {WORDS}", version), version)
    if qos:
        raw = bytes((raw[0] | 2, raw[1] + 2)) + raw[2:7] + b"\x80\x81" + raw[7:]
    own, after = raw[:1] + bytes((raw[1] - 3,)) + raw[2:-3], raw[-3:]
    sent = after + own + after if rest == "again" else after if rest == "end" else rest.encode()

    reading = misreading(sent, own, version)

    count = 0 if reading is None or reading.repair is None else reading.repair.left_out
    assert count == left_out
    if left_out:
        assert reading is not None
        assert reading.repair is not None
        assert reading.is_before
        assert reading.repair.what.startswith("it counts the characters of a text")
