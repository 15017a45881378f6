"""Findings in full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.lint.finding import Confidence, Finding, Related, Severity
from mqttscope.mqtt import Publish, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.report.base import View
from mqttscope.report.findings import full
from mqttscope.report.findings.concise import ConciseFindings
from mqttscope.report.findings.full import FullFindings, PacketView, RankedFindings
from mqttscope.report.findings.shown import FindingEntrance, ShownFinding, make_reporter
from mqttscope.secrets.findings import HidingOptions
from tests.each import each
from tests.report.findings import samples
from tests.report.make import Lines

NOTE = replace(samples.MADE, severity=Severity.INFO, rule="OPS212", slug="ping-without-idle", message="pings early")
OTHER = replace(NOTE, rule="ACK206", slug="resend", message="sends again", frame=5)
WARNING = replace(samples.MADE, severity=Severity.WARNING, message="a warning")
HINT = "notes are one line for each rule; --verbose shows each with its packet"


def shown_ranked(*findings: Finding, **options: Any) -> list[str]:
    return samples.written("full", findings, ranked=True, every=True, **options).splitlines()


def test_the_worst_comes_first_whatever_the_order_of_the_capture() -> None:
    lines = shown_ranked(NOTE, WARNING, replace(NOTE, message="again"), OTHER, samples.MADE, NOTE)

    heads = [line.split("]")[0] for line in lines if line[:1] in "ewi" and "[" in line.split(":")[0]]
    assert heads == ["error[CON212", "warning[CON212", "info[ACK206", "info[OPS212"]
    place = "capture.pcap: frame {}, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"
    assert lines[-6:] == [
        "",
        f"info[ACK206]: sends again  (resend)  {place.format(5)}",
        f"info[OPS212]: pings early, and 2 more notes  (ping-without-idle)  {place.format(118)}",
        HINT,
        "",
        "no findings by 3 rules",
    ]


def test_errors_are_written_as_they_are_found() -> None:
    sink = Lines()
    reporter = make_reporter("full", sink, View(width=0), ranked=True, live=True)
    for finding in (WARNING, samples.MADE, WARNING, replace(samples.MADE, frame=200)):
        reporter.feed(finding)

    assert sink.data.count(b"error[CON212]") == 1
    assert b"warning[CON212]" not in sink.data
    reporter.close(samples.clean())
    end = sink.data.decode().split("\n\n", 1)[1]
    times = "2 times from 2026-01-02T03:04:05.000Z to 2026-01-02T03:04:05.000Z, last in frame"
    assert end.splitlines()[0].startswith("error[CON212] again: Password without User Name")
    assert end.splitlines()[0].endswith(f"{times} 200")
    assert end.count("warning[CON212]") == 1
    assert f"  {times} 118\n" in end


def test_verbose_shows_every_note_with_its_packet() -> None:
    lines = shown_ranked(NOTE, samples.MADE, OTHER, NOTE, verbose=True)

    heads = [line.split("]")[0] for line in lines if line.startswith("info[")]
    assert heads == ["info[OPS212", "info[ACK206", "info[OPS212"]
    assert HINT not in lines
    assert len([line for line in lines if "CONNECT    3.1.1" in line]) == 4


def test_what_there_is_no_room_for_is_folded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full, "MAX_HELD", 2)
    lines = shown_ranked(*[WARNING] * 5, *[samples.MADE] * 3)

    assert len([line for line in lines if line.startswith("error[")]) == 3, "errors never wait"
    assert len([line for line in lines if line.startswith("warning[")]) == 3
    assert any("warning[CON212]: a warning, and 2 more warnings" in line for line in lines)
    assert any(line.startswith("limit: ") and "--format concise or jsonl shows all" in line for line in lines)


def test_the_registry_ranks_where_it_is_asked_to() -> None:
    def kind(name: str, *, ranked: bool = False) -> type:
        entrance = make_reporter(name, Lines(), View(width=0), ranked=ranked)
        assert isinstance(entrance, FindingEntrance)
        return type(entrance.format)

    assert kind("full", ranked=True) is RankedFindings
    assert kind("full") is FullFindings
    assert kind("concise", ranked=True) is ConciseFindings


V5 = ProtocolVersion.V5


def shown(finding: Finding, **view: int | bool) -> tuple[list[str], list[str]]:
    new_view = View(**{"width": 100, **view})  # type: ignore[arg-type]
    packets, shown_finding = PacketView(new_view), ShownFinding(finding, new_view.hiding())
    assert shown_finding.event is not None
    return packets.lines(shown_finding.event), packets.dump(shown_finding)


def publish(payload: bytes, field: str = "", offset: int = 0, length: int = 0, **changes: object) -> Finding:
    raw = encode(Publish(topic_name="a/b", payload=payload), V5)
    document = {"raw": raw, "packet_type": "publish", "field": field, "offset": offset, "length": length, **changes}
    return replace(samples.MADE, version="5.0", **document)  # type: ignore[arg-type]


@each(
    "finding, expected",
    [
        (publish(b"hi"), "  03:04:05.000000 #3 dev1   → PUBLISH    q0 a/b  hi"),
        # The arrow is that of the packet and not of the blame.
        (publish(b"hi", direction="client_to_server", sender="server_to_client"), "← PUBLISH    q0 a/b  hi"),
        # An acknowledgment says nothing of what it answers.
        (publish(b"", raw=bytes.fromhex("40 02 000a"), packet_type="puback"), "PUBACK     id=10"),
    ],
)
def test_the_line_is_that_of_inspect(finding: Finding, expected: str) -> None:
    (line,), _ = shown(finding)

    assert line.endswith(expected)


def event_line(finding: Finding, kind: type[Event]) -> str:
    event = ShownFinding(finding, HidingOptions()).event
    assert isinstance(event, kind)
    return PacketView(View(width=0)).lines(event)[0]


def test_malformed_packets_and_payloads_that_were_cut_are_shown_as_such() -> None:
    assert "PUBLISH    MALFORMED utf8_ill_formed" in event_line(samples.real("ENC101")[0], MalformedEvent)
    whole = publish(b"0123456789")
    cut = replace(whole, raw=whole.raw[:-4], missing=4)
    assert "012345 (6 of 10 bytes captured)" in event_line(cut, PacketEvent)


def test_carets_are_under_the_field() -> None:
    _, dump = shown(publish(b"hi", "topic_name", 2, 5))

    assert dump == [
        "  0000  30 08 00 03 61 2f 62 00 68 69                    0...a/b.hi",
        "              ^^^^^^^^^^^^^^ topic_name",
    ]


def test_a_whole_packet_has_no_carets_and_a_place_behind_its_last_byte_has_one() -> None:
    finding = publish(b"hi")
    behind = replace(finding, field="payload", offset=len(finding.raw), length=0)

    assert not any("^" in line for line in shown(publish(b"hi", "", 0, 10))[1])
    assert shown(behind)[1][-1].strip() == "^^ payload"


def test_long_packets_are_shown_at_their_beginning_and_around_the_field() -> None:
    _, dump = shown(publish(bytes(5000), "payload", 4000, 2))
    rows = [line.split()[0] for line in dump if "^" not in line]

    assert rows == ["0000", "0010", "…", "0f90", "0fa0", "0fb0", "…"]
    assert dump[2].split() == ["…", "3952", "bytes"]
    assert sum(int(line.split()[1]) for line in dump if "…" in line) + 5 * 16 == len(publish(bytes(5000)).raw)


def test_a_long_field_is_cut() -> None:
    assert len(shown(publish(bytes(5000), "payload", 9, 5000))[1]) < 15


def test_a_password_is_hidden_even_where_the_connect_cannot_be_read() -> None:
    broken = replace(
        samples.MADE, raw=samples.MADE.raw[:8] + b"\xff" * 6 + samples.MADE.raw[14:], client_identifier=None
    )
    lines, dump = shown(broken)

    assert samples.SECRET[4:].hex(" ") not in "".join(dump)
    assert samples.SECRET.decode()[4:] not in "".join([*lines, *dump])


def test_a_finding_in_full() -> None:
    related = (Related("the first CONNECT", 2, 30, samples.MADE.timestamp_ns - 20_000_000),)
    text = samples.written("full", [replace(samples.MADE, related=related, confidence=Confidence.LIKELY)], width=100)

    assert text.splitlines() == [
        "error[CON212]: Password without User Name  (second-connect)",
        "  capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)",
        "  03:04:05.000000 #3 dev1   → CONNECT    3.1.1, clean session, keep alive 60 s, password (14 bytes)",
        "  0000  10 20 00 04 4d 51 54 54 04 42 00 3c 00 04 64 65  . ..MQTT.B.<..de",
        "  0010  76 31 00 0e ** ** ** ** ** ** ** ** ** ** ** **  v1..************",
        "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ password",
        "  0020  ** **                                            **",
        "        ^^^^^",
        "  see the first CONNECT: frame 30, packet 2, 20.0 ms before",
        "  breaks 3.1.1 MQTT-3.1.2-22 (section 3.1.2.9): User Name Flag 0: Password Flag is 0 too.",
        "  likely: it holds unless something happened that the capture does not show",
        "  Instead, open a new TCP connection for another CONNECT.",
        "",
        "no findings by 3 rules",
    ]


def test_advice_is_given_once_per_rule_and_the_reason_code_of_5_0_is_named() -> None:
    text = samples.written("full", [samples.MADE, samples.MADE, *samples.real("PUB209")])

    assert text.count("  Instead, ") == 2
    assert "  reason code 0x9B QoS not supported\n" in text


def test_a_finding_about_the_end_of_a_connection_has_no_bytes() -> None:
    lines = samples.written("full", [samples.AT_THE_END]).splitlines()

    assert ShownFinding(samples.AT_THE_END, HidingOptions()).event is None
    assert lines[0].startswith("error[CON212]: no answer came")
    assert lines[2].startswith("  breaks ")


def test_passwords_are_hidden_unless_asked_for() -> None:
    assert samples.SECRET.decode() not in samples.written("full", [samples.MADE]).replace("\n", "")
    assert "hunter2" in samples.written("full", [samples.MADE], show_secrets=True)


def test_a_hostile_finding_ends_in_a_few_lines() -> None:
    assert len(samples.written("full", [samples.HOSTILE], width=80).splitlines()) < 60
