"""The numbers of the dashboard: counts, rates, and tables that keep their size."""

from __future__ import annotations

import pytest

from mqttscope.events import Event
from mqttscope.mqtt import Connect, Puback, Publish
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report import traffic as module
from mqttscope.report.traffic import Row, Traffic, busiest
from tests.report.make import START_NS, Talk

SECOND = 1_000_000_000


def publish(topic: str, qos: int = 0) -> Publish:
    return Publish(topic_name=topic, qos=qos, packet_identifier=1 if qos else None, payload=b"21.5")


def fed(*events: Event) -> Traffic:
    traffic = Traffic()
    for event in events:
        traffic.feed(event)
    return traffic


def test_what_is_counted() -> None:
    talk = Talk()
    traffic = fed(
        talk.opened(),
        talk.say(Connect(client_identifier="dev1")),
        talk.say(publish("a/b")),
        talk.say(publish("a/b", 1)),
        talk.answer(Puback(packet_identifier=1)),
        talk.say(b"\x36\x07\x00\x03a/b\x00\x01"),
        talk.gap(7),
        CaptureDrops("lo", 0, 10, 3),
        CaptureError("lo", "went down"),
    )

    assert (traffic.open, traffic.opened, traffic.malformed) == (1, 1, 1)
    assert traffic.total.packets == 5
    assert dict(traffic.qos) == {0: 1, 1: 1}
    assert traffic.topics["a/b"].packets == 2
    assert traffic.clients["dev1"].packets == 5
    assert traffic.lost_bytes == 7
    assert traffic.dropped == 3
    assert traffic.errors == ["went down"]
    traffic.feed(talk.closed())
    assert traffic.open == 0


def test_rates_follow_the_traffic_and_fall_when_it_ends() -> None:
    traffic, row = Traffic(), Row()
    traffic.clients["dev1"] = row
    traffic.pass_time(START_NS)
    for second in range(1, 21):
        for _ in range(10):
            row.add(50)
        traffic.pass_time(START_NS + second * SECOND)

    assert row.packet_rate == pytest.approx(10, rel=0.01)
    assert row.octet_rate == pytest.approx(500, rel=0.01)
    for second in range(21, 41):
        traffic.pass_time(START_NS + second * SECOND)
    assert row.packet_rate < 0.01


def test_a_part_of_a_second_changes_no_rate() -> None:
    traffic = Traffic()
    traffic.pass_time(START_NS)
    traffic.total.add(1)
    traffic.pass_time(START_NS + SECOND // 2)

    assert traffic.total.packet_rate == 0


def test_tables_keep_their_size_and_the_busy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 16)
    talk, traffic = Talk(), Traffic()
    for number in range(100):
        traffic.feed(talk.say(publish("busy")))
        traffic.feed(talk.say(publish(f"once/{number}")))

    assert len(traffic.topics) <= 16
    assert traffic.topics["busy"].packets == 100
    assert traffic.forgotten == 101 - len(traffic.topics)


def test_long_names_are_cut() -> None:
    traffic = fed(Talk().say(publish("t" * 60_000)))

    assert [len(name) for name in traffic.topics] == [module.MAX_NAME]


def test_the_busiest_come_first() -> None:
    table = {"idle": Row(packets=9), "busy": Row(packets=1, packet_rate=5.0), "b": Row(), "a": Row()}

    assert [name for name, _ in busiest(table, 3)] == ["busy", "idle", "a"]
