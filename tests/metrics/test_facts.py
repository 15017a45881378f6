"""Facts about live traffic: what is counted, what is kept, and the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.events import Event
from mqttscope.explain import Candidate, Cause, Certainty, Explanation
from mqttscope.lint.finding import Severity
from mqttscope.metrics import facts as module
from mqttscope.metrics.facts import Interval, LiveFacts, LiveHistory, RateRow, busiest
from mqttscope.mqtt import Connack, Connect, Puback, Publish
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.secrets.findings import HidingOptions
from tests.report.findings.samples import MADE
from tests.report.make import START_NS, V3_1_1, V5, Talk

SECOND = 1_000_000_000


def publish(topic: str, qos: int = 0) -> Publish:
    return Publish(topic_name=topic, qos=qos, packet_identifier=qos or None, payload=b"21.5")


def fed(*events: Event) -> LiveFacts:
    traffic = LiveFacts()
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
    traffic, row = LiveFacts(), RateRow()
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
    traffic = fed(Talk().say(publish("a")))
    traffic.pass_time(START_NS)
    traffic.pass_time(START_NS + SECOND // 2)

    assert (traffic.total.packets, traffic.total.packet_rate) == (1, 0)


def test_tables_keep_their_size_and_the_busy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 16)
    talk, traffic = Talk(), LiveFacts()
    for number in range(100):
        traffic.feed(talk.say(publish("busy")))
        traffic.feed(talk.say(publish(f"once/{number}")))

    assert len(traffic.topics) <= 16
    assert traffic.topics["busy"].packets == 100
    assert traffic.forgotten == 101 - len(traffic.topics)


def test_the_busiest_come_first() -> None:
    table = {"idle": RateRow(packets=9), "busy": RateRow(packets=1, packet_rate=5.0), "b": RateRow(), "a": RateRow()}

    assert [name for name, _ in busiest(table, 3)] == ["busy", "idle", "a"]


def ended(client: str = "dev1", cause: Cause = Cause.KEEP_ALIVE, connection: int = 0, at_ns: int = 1) -> Explanation:
    """An explained end."""
    candidate = Candidate(cause, Certainty.LIKELY, "The Keep Alive ran out.", advice=("Send PINGREQ.",))
    return Explanation(
        connection, "lo", "10.0.0.4:1", "10.0.0.2:1883", client, "5.0", True, "tcp", 0, 1, at_ns, 9, "lo",
        "server", "fin", (candidate,), (),
    )  # fmt: skip


def test_packets_have_a_type_and_a_direction() -> None:
    talk = Talk()
    facts = fed(talk.say(publish("a")), talk.answer(publish("a")), talk.answer(publish("b")), talk.say(b"\x36\0"))

    counts = {module.PACKET_LABELS[at // 2]: facts.packets[at : at + 2] for at in range(0, 32, 2)}
    assert {label: row for label, row in counts.items() if any(row)} == {"publish": [1, 2], "malformed": [1, 0]}


def test_refusals_are_counted_by_the_name_of_their_reason_in_each_version() -> None:
    facts = fed(
        *(Talk(version).answer(Connack(reason_code=code)) for version, code in ((V3_1_1, 5), (V5, 0x87), (V5, 0)))
    )

    assert facts.refusals == {"not_authorized": 2}


def test_a_client_that_comes_back_is_a_reconnect_but_none_without_identifier() -> None:
    facts = fed(
        *(Talk(number=at).say(Connect(client_identifier=name)) for at, name in enumerate(["a", "", "b", "", "a"]))
    )

    assert facts.reconnects.packets == 1


def test_latencies_are_counted_up_to_each_bound() -> None:
    talk, facts = Talk(), LiveFacts()
    for after_ns in (500_000, 500_001, 99_000_000_000):
        facts.feed(talk.say(publish("a", 1)))
        facts.feed(talk.answer(Puback(packet_identifier=1), after=after_ns))

    assert [facts.latency_counts[at] for at in (0, 1, -1)] == [1, 1, 1]
    assert facts.latency.count == facts.history.last.latency.count == 3
    assert facts.history.last.latency_p99_ns == 99_000_000_000


def test_a_cause_that_changes_moves_and_counts_once() -> None:
    facts = LiveFacts()
    facts.end(ended(cause=Cause.CLIENT_CLOSED), is_decided=False)
    (early,) = facts.troubles.values()
    assert (early.cause, early.count, early.undecided) == (Cause.CLIENT_CLOSED, 1, 1)
    assert not facts.ends
    facts.end(ended(cause=Cause.IDLE_TIMEOUT))

    (late,) = facts.troubles.values()
    assert (late.cause, late.count, late.undecided) == (Cause.IDLE_TIMEOUT, 1, 0)
    assert facts.ends == {Cause.IDLE_TIMEOUT: 1}


def test_ordinary_ends_are_no_trouble_and_the_end_of_the_capture_is_none() -> None:
    facts = LiveFacts()
    facts.end(ended(cause=Cause.NORMAL))
    facts.end(ended(cause=Cause.STILL_OPEN))

    assert (facts.ends, facts.troubles) == ({Cause.NORMAL: 1}, {})


def test_ends_of_one_client_and_cause_are_one_trouble_with_the_latest_first_to_stay() -> None:
    facts = LiveFacts()
    for number, client in enumerate(["a", "b", "a"]):
        facts.end(ended(client, connection=number, at_ns=number + 1))

    assert [(row.client, row.count, row.last_ns) for row in facts.troubles.values()] == [("b", 1, 2), ("a", 2, 3)]


def test_findings_are_counted_by_rule_and_severity_with_one_text_a_second() -> None:
    facts = LiveFacts()
    for at_ns, text in ((1, "first"), (SECOND // 2, "in between"), (SECOND + 1, "last")):
        facts.pass_time(at_ns)
        facts.finding(replace(MADE, message=text), HidingOptions())
        facts.finding(replace(MADE, severity=Severity.INFO), HidingOptions())
        assert facts.findings[MADE.rule, MADE.severity].message == ("first" if at_ns < SECOND else "last")

    assert [row.count for row in facts.findings.values()] == [3, 3]
    assert sum(interval.findings for interval in facts.history.intervals) == 3


def test_the_history_covers_the_whole_run_with_a_fixed_number_of_intervals() -> None:
    history = LiveHistory()
    for second in range(3_000):
        history.advance(START_NS + second * SECOND)
        history.last.packets += 2
        history.last.open = second

    assert history.start_ns == START_NS
    assert history.interval_ns == 16 * SECOND
    assert len(history.intervals) == 188
    assert sum(interval.packets for interval in history.intervals) == 6_000
    assert [interval.packets for interval in history.intervals[:-1]] == [32] * 187
    assert [interval.open for interval in history.intervals[:2]] == [15, 31]


def test_a_clock_that_leaps_or_goes_back_keeps_the_history() -> None:
    history = LiveHistory()
    history.advance(START_NS)
    history.last.packets += 1
    history.advance(START_NS + 10 * 365 * 86_400 * SECOND)
    history.last.packets += 1
    history.advance(START_NS)
    history.last.packets += 1

    assert len(history.intervals) <= module.MAX_INTERVALS
    assert [history.intervals[0].packets, history.last.packets] == [1, 2]


def test_an_interval_without_traffic_keeps_the_open_connections() -> None:
    history = LiveHistory()
    history.advance(START_NS)
    history.last.open = 3
    history.advance(START_NS + 2 * SECOND)

    assert history.intervals == [Interval(open=3)] * 3


def test_a_long_name_is_cut_after_its_secrets_are_hidden() -> None:
    secret = "hunter2" * 60
    (name,) = fed(Talk(identifier=f"dev password={secret}" + "x" * 300).say(publish("a"))).clients

    assert "hunter2" not in name
    assert len(name) <= module.MAX_NAME + 1
