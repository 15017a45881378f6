"""The packet of a finding: its line and its bytes."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Publish, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.report.base import View
from mqttscope.report.findings.packet import PacketView
from tests.report.findings.samples import AT_THE_END, MADE, SECRET, real

V5 = ProtocolVersion.V5


def shown(finding: Finding, **view: int | bool) -> tuple[list[str], list[str]]:
    packets = PacketView(View(**{"width": 100, **view}))  # type: ignore[arg-type]
    event = packets.event(finding)
    assert event is not None
    return packets.lines(event), packets.dump(finding, event)


def publish(payload: bytes, field: str = "", offset: int = 0, length: int = 0, **changes: object) -> Finding:
    raw = encode(Publish(topic_name="a/b", payload=payload), V5)
    made = replace(MADE, version="5.0", raw=raw, packet_type="publish", field=field, offset=offset, length=length)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_line_is_that_of_inspect() -> None:
    (line,), _ = shown(publish(b"hi"))

    assert line == "  03:04:05.000000 #3 dev1   → PUBLISH    q0 a/b  hi"


def test_the_arrow_is_that_of_the_packet_and_not_of_the_blame() -> None:
    (line,), _ = shown(publish(b"hi", direction="client_to_server", sender="server_to_client"))

    assert "← PUBLISH" in line


def test_an_acknowledgement_says_nothing_of_what_it_answers() -> None:
    (line,), _ = shown(publish(b"", raw=bytes.fromhex("40 02 000a"), packet_type="puback"))

    assert line.endswith("PUBACK     id=10")


def test_a_malformed_packet_is_shown_as_such() -> None:
    packets = PacketView(View(width=0))
    event = packets.event(real("ENC101")[0])
    assert isinstance(event, MalformedEvent)

    assert "PUBLISH    MALFORMED utf8_ill_formed" in packets.lines(event)[0]


def test_a_payload_that_was_cut_is_no_fault_of_the_packet() -> None:
    whole = publish(b"0123456789")
    packets = PacketView(View(width=0))
    event = packets.event(replace(whole, raw=whole.raw[:-4], missing=4))
    assert isinstance(event, PacketEvent)

    assert "012345 (6 of 10 bytes captured)" in packets.lines(event)[0]


def test_carets_are_under_the_field() -> None:
    _, dump = shown(publish(b"hi", "topic_name", 2, 5))

    assert dump == [
        "  0000  30 08 00 03 61 2f 62 00 68 69                    0...a/b.hi",
        "              ^^^^^^^^^^^^^^ topic_name",
    ]


def test_a_finding_about_a_whole_packet_has_no_carets() -> None:
    assert not any("^" in line for line in shown(publish(b"hi", "", 0, 10))[1])


def test_a_place_behind_the_last_byte_has_a_caret() -> None:
    finding = publish(b"hi")
    _, dump = shown(replace(finding, field="payload", offset=len(finding.raw), length=0))

    assert dump[-1].strip() == "^^ payload"


def test_long_packets_are_shown_at_their_beginning_and_around_the_field() -> None:
    _, dump = shown(publish(bytes(5000), "payload", 4000, 2))
    rows = [line.split()[0] for line in dump if "^" not in line]

    assert rows == ["0000", "0010", "…", "0f90", "0fa0", "0fb0", "…"]
    assert dump[2].split() == ["…", "3952", "bytes"]
    assert sum(int(line.split()[1]) for line in dump if "…" in line) + 5 * 16 == len(publish(bytes(5000)).raw)


def test_a_long_field_is_cut() -> None:
    assert len(shown(publish(bytes(5000), "payload", 9, 5000))[1]) < 15


def test_a_password_is_hidden_even_where_the_connect_cannot_be_read() -> None:
    broken = replace(MADE, raw=MADE.raw[:8] + b"\xff" * 6 + MADE.raw[14:], client_identifier=None)
    lines, dump = shown(broken)

    assert SECRET[4:].hex(" ") not in "".join(dump)
    assert SECRET.decode()[4:] not in "".join([*lines, *dump])


def test_there_may_be_no_packet() -> None:
    assert PacketView(View()).event(AT_THE_END) is None
