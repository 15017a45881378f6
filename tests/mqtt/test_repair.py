"""Packets whose Remaining Length is wrong."""

from __future__ import annotations

from mqttscope.mqtt import ProtocolVersion
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.repair import intruder, repairs
from tests.each import each
from tests.packets import packet

V3 = ProtocolVersion.V3_1_1
CONNECT, PUBLISH, PING = (
    encode(packet(text, V3), V3)
    for text in (f"connect 3.1.1 client={'c' * 200}", f"publish a/b {'D' * 300}", "pingreq")
)


def told(data: bytes, version: ProtocolVersion = V3) -> list[tuple[int, str]]:
    return [(one.end, one.what.split(":")[0]) for one in repairs(data, version) if one.is_proven]


def with_length(made: bytes, written: str) -> bytes:
    """A packet of which the Remaining Length, in two bytes, is written otherwise."""
    return made[:1] + bytes.fromhex(written) + made[3:]


@each(
    "made, written, what",
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
def test_the_length_that_fits(made: bytes, written: str, what: str) -> None:
    wrong = with_length(made, written)

    assert (len(wrong), what) in told(wrong)
    assert (len(wrong), what) in told(wrong + PING)


@each("made", [CONNECT, PUBLISH, PING])
def test_a_right_length_needs_no_other(made: bytes) -> None:
    assert told(made) == told(made + PING) == []


@each("data", [b"", b"\x10", b"\x10\xd4", with_length(CONNECT, "d4")[:-1], with_length(CONNECT, "d4") + b"\xff\xff"])
def test_what_does_not_fit_to_its_end_proves_nothing(data: bytes) -> None:
    assert told(data) == []


HEAD = encode(packet(f"publish a/b {'D' * 60}", V3), V3)


@each("rest", [b"", PING, HEAD[:9]])
@each("at", [8, 20, 60])
def test_a_packet_that_a_short_one_swallows(at: int, rest: bytes) -> None:
    sent = HEAD[:at] + HEAD + rest
    found = intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3)

    assert found is not None
    assert (found.at, found.raw, found.is_inserted) == (at, HEAD, False)


@each("short", [bytes.fromhex(shown) for shown in ("40020003", "50020003", "62020003", "70020003", "c000")])
@each("at", [3, 20, 60])
def test_a_packet_in_the_middle_of_another(short: bytes, at: int) -> None:
    sent = HEAD[:at] + short + HEAD[at:] + HEAD
    found = intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3)

    assert found is not None
    assert (found.at, found.raw, found.is_inserted) == (at, short, True)


@each("sent", [HEAD + HEAD[:30] + HEAD[40:], HEAD[:20] + HEAD[:30], HEAD[:20] + HEAD + b"\xff\xff", PING + HEAD[3:]])
def test_bytes_that_no_packet_fills_prove_no_intruder(sent: bytes) -> None:
    assert intruder(sent[: len(HEAD)], sent[len(HEAD) :], V3) is None


def test_a_packet_in_a_payload_is_none_if_whole_packets_follow() -> None:
    holds = encode(packet(f"publish a/b {'D' * 200}", V3), V3)
    holds = holds[:20] + HEAD + holds[20 + len(HEAD) :]

    assert intruder(holds, b"", V3) is intruder(holds, PING, V3) is None
