"""Differences between two captures as text and as JSON."""

from __future__ import annotations

import io
import json
from typing import Any

from mqttscope.mqtt import Connect, Properties, Publish, Will, encode
from mqttscope.replay.verify.captures import A, B, CaptureComparison, ComparisonSettings
from mqttscope.report.base import View
from mqttscope.report.compare import CompareJson, CompareText
from tests.each import each
from tests.mqtt.case import V5
from tests.replay.recordings import Builder
from tests.replay.talk import START_NS, asked, speak

NAMES = ("before.pcap", "after.pcap")
Report = CompareText | CompareJson


class _Feeding:
    def __init__(self, comparison: CaptureComparison, side: int, report: Report) -> None:
        self.comparison, self.side, self.report = comparison, side, report

    def feed(self, event: Any) -> None:
        for difference in self.comparison.feed(self.side, event):
            self.report.feed(difference)

    def finish(self) -> list[Any]:
        return []


def reported(
    kind: type[Report], a: str, b: str, *, complete: bool = True, view: View | None = None, **more: Any
) -> str:
    sink, comparison = io.BytesIO(), CaptureComparison(ComparisonSettings())
    report = kind(sink, view or View(width=80), **more)
    for side, text in ((A, a), (B, b)):
        speak(Builder(START_NS, reader=_Feeding(comparison, side, report)), text)  # type: ignore[arg-type]
    for difference in comparison.finish():
        report.feed(difference)
    report.close(comparison, NAMES, complete=complete)
    return sink.getvalue().decode()


def as_text(a: str, b: str, **options: Any) -> str:
    return reported(CompareText, a, b, **options)


A_SAID = asked(
    *(f"dev > publish plant/line{number} v{number}" for number in range(9)),
    "dev > publish a/b one qos=1 id=1", "dev < puback 1",
    "dev > subscribe 2 x/#:1", "dev < suback 2 1",
).replace("connect", "connect keep_alive=60 password=hunter2", 1)  # fmt: skip
B_SAID = asked(
    "dev > publish a/b two qos=1 id=1", "dev < puback 1 code=0x97",
    "dev > subscribe 2 x/#:1", "dev < suback 2 0",
).replace("connect", "connect keep_alive=30", 1)  # fmt: skip


def test_a_page_in_80_columns() -> None:
    text = as_text(A_SAID, f"{B_SAID}\n{asked()}")

    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(
        "A  before.pcap: 1 connection, 16 packets, 236 bytes, 0 TCP segments\nB  after.pcap: 2 connections,"
    )
    assert "\ndev (1 connection in A, 2 in B)\n" in text
    assert "  ~ client CONNECT: keep_alive 60 in A, 30 in B (frame 1 / 1)\n" in text
    assert "  ~ client CONNECT: password present in A, absent in B" in text
    assert "  ~ client PUBLISH to a/b: payload one in A, two in B (frame 12 / 3)\n" in text
    flowing = " ".join(text.split())
    assert "broker PUBACK of a/b: reason_code 0x00 Success in A, 0x97 Quota exceeded in B" in flowing
    assert "broker SUBACK of x/#: reason_codes[0] 0x01 Granted QoS 1 in A, 0x00 Granted QoS 0 in B" in flowing
    assert "  - client PUBLISH to plant/line3: only in A (frame 6)\n" in text
    assert "  + 1 connection only in B, with 3 packets\n" in text
    assert "hunter2" not in text


def test_differences_of_a_topic_are_one_line() -> None:
    a = asked(*(f"dev > publish a/b {number}" for number in range(12)))

    text = as_text(a, asked())

    assert "  - client PUBLISH to a/b: 12 only in A (frames 3, 4, 5, ...)\n" in text
    assert text.endswith("\n12 differences in 1 of 1 client; 3 packets mean the same\n")


def test_nothing_differs() -> None:
    assert as_text(A_SAID, A_SAID).endswith("\n\nno differences: 16 packets of 1 client mean the same\n")
    assert "\nnot compared to the end: no differences" in as_text(A_SAID, A_SAID, complete=False)


def test_a_limit_counts_what_it_leaves_out() -> None:
    text = as_text(A_SAID, B_SAID, most=2)

    assert text.count("frame") == 2
    assert "more differences not shown (--limit)" in text


@each("secrets", [False, True])
def test_secrets(secrets: bool) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
    a = asked(f"dev > publish a/b {token}")
    view = View(width=200, show_secrets=secrets)

    for kind in (CompareText, CompareJson):
        assert (token[:40] in reported(kind, a, asked("dev > publish a/b none"), view=view)) is secrets


def test_nothing_of_a_capture_is_obeyed_by_a_terminal() -> None:
    text = as_text(asked("dev > publish a\x1b[31m/b on"), asked())

    assert "\x1b" not in text
    assert r"a\x1b[31m/b" in text


def test_lines_of_json() -> None:
    *differences, client, total = map(json.loads, reported(CompareJson, A_SAID, B_SAID).splitlines())

    assert {difference["event"] for difference in differences} == {"capture_difference"}
    first = differences[0]
    assert (first["kind"], first["field"], first["client_identifier"]) == ("field", "keep_alive", "dev")
    assert (first["a"]["value"], first["b"]["value"]) == (60, 30)
    assert first["a"]["packet"]["connect"]["password"] == {"length": 7, "redacted": True}
    assert first["direction"] == "client_to_server"
    alone = next(difference for difference in differences if difference["only"] == "a")
    assert (alone["topic"], alone["b"]["packet"]) == ("plant/line0", None)
    assert client["client_identifier"] == "dev"
    assert total["differences"] == client["differences"] == len(differences) == sum(total["kinds"].values())
    assert total["captures"] == {"a": "before.pcap", "b": "after.pcap"}
    assert (total["left_out"], total["complete"]) == (0, True)


@each("most, written", [(None, 15), (2, 2), (0, 0)])
def test_a_document(most: int | None, written: int) -> None:
    document = json.loads(reported(CompareJson, A_SAID, B_SAID, document=True, most=most))

    assert set(document) == {"schema", "differences", "clients", "comparison"}
    assert len(document["differences"]) == written
    assert document["comparison"]["left_out"] == 15 - written
    assert document["comparison"]["differences"] == 15


@each("kind", [CompareText, CompareJson])
def test_user_properties_with_secret_names_are_hidden(kind: type[Report]) -> None:
    def result(value: str) -> str:
        block = Properties(user_property=[("password", value)])
        will = Will("w", b"x", properties=block)
        packets = (
            Connect(protocol_level=5, client_identifier="dev", properties=block, will=will),
            Publish(topic_name="a", properties=block),
        )
        damaged = b"\x36\x10\0\1a\0\1password=" + value[:2].encode()
        return "\n".join(f"dev > raw {raw.hex()}" for raw in (*(encode(packet, V5) for packet in packets), damaged))

    text = reported(kind, result("hush!1"), result("tell!2"), view=View(width=400))
    assert text.count("user_property") >= 3
    for hidden in ("hush!1", "tell!2", b"=hu".hex(), b"=te".hex()):
        assert hidden not in text
