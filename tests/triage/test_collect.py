"""What is gathered of a capture, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lint.examples import Step, client, closes, lost, on, opened, server
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.triage import collect
from mqttscope.triage.collect import FaultKind, Rank, Triage
from tests.dissect.scenes import HELLO
from tests.dissect.secure import write as write_tape
from tests.dissect.talk import Talk
from tests.triage.running import gathered, of_capture

WILDCARD = client(Publish(topic_name="a/+", payload=b"x"))
END = (client(Disconnect()), closes("client"))


def refused(number: int, name: str, code: int = 0x87) -> tuple[Step, ...]:
    connect, _ = opened(client_identifier=name)
    return on(number, connect, server(Connack(reason_code=code)), closes("server"))


def test_a_good_conversation_has_no_faults_and_is_judged() -> None:
    triage = gathered(*opened(), client(Pingreq()), server(Pingresp()), *END)

    assert (triage.faults, triage.is_judged, triage.limits()) == ([], True, [])
    assert triage.packets == 5


def test_nothing_is_judged_where_there_is_no_packet() -> None:
    assert not gathered().is_judged
    assert not of_capture("tls-12").is_judged


def test_an_end_that_shows_its_cause_without_packets_is_judged() -> None:
    triage = of_capture("tls-unknown-ca")

    assert triage.packets == 0
    assert triage.is_judged
    assert [(fault.kind, fault.rank, fault.certainty) for fault in triage.faults] == [
        (FaultKind.END, Rank.NAMED_END, "certain")
    ]


def test_ends_of_one_cause_are_one_fault_about_the_first() -> None:
    triage = gathered(*refused(0, "a"), *refused(1, "b"), *refused(2, "b"), *refused(3, "c", 0x8A))
    first, second = triage.faults

    assert (first.title, first.count, first.who, first.client) == ("not authorized", 3, "2 clients", None)
    assert (second.title, second.count, second.who, second.client) == ("banned", 1, "c", "c")
    assert first.frame < second.frame


def test_a_named_client_is_told_where_all_ends_are_of_it() -> None:
    (fault,) = gathered(*refused(0, "a"), *refused(1, "a")).faults

    assert (fault.count, fault.who, fault.client) == (2, "a", "a")


def test_certainty_is_that_of_the_explanation() -> None:
    (fault,) = of_capture("keep-alive").faults

    assert (fault.kind, fault.rank, fault.certainty, fault.frame) == (FaultKind.END, Rank.NAMED_END, "likely", 30)


def test_a_finding_that_explains_an_end_is_no_fault_of_its_own() -> None:
    triage = of_capture("keep-alive")

    assert [fault.kind for fault in triage.faults] == [FaultKind.END]
    # The linter did report it.
    assert triage._broken == {"KAL201": 1}


def test_the_same_rule_elsewhere_is_a_fault() -> None:
    steps = (*opened(keep_alive=1), client(Pingreq(), after=5), server(Pingresp()), *END)
    triage = gathered(*on(1, *opened(client_identifier="c2", keep_alive=1), closes("server", after=4)), *steps)

    assert [fault.rule for fault in triage.faults if fault.kind is FaultKind.FINDING] == ["KAL201"]
    assert [fault.title for fault in triage.faults if fault.kind is FaultKind.END] == ["Keep Alive ran out"]


def test_findings_of_one_rule_are_one_fault() -> None:
    other = on(1, *opened(client_identifier="c2"), WILDCARD, *END)
    (fault,) = gathered(*opened(), WILDCARD, WILDCARD, *END, *other).faults

    assert (fault.rule, fault.rank, fault.certainty) == ("PUB103", Rank.CERTAIN_ERROR, "certain")
    assert (fault.count, fault.who, fault.client) == (3, "2 clients", None)


def test_the_broker_is_blamed_where_it_is_to_blame() -> None:
    steps = (*opened(), server(Publish(topic_name="a/+", payload=b"x")), *END)

    assert {fault.who for fault in gathered(*steps).faults if fault.rule == "PUB103"} == {"broker"}


def test_notes_are_counted_only() -> None:
    triage = gathered(*opened(client_identifier="with-hyphen"), *END)

    assert (triage.faults, triage.notes) == ([], 1)


def subscribed(topic: str, code: int = 1) -> tuple[Step, Step]:
    return (
        client(Subscribe(packet_identifier=1, subscriptions=[Subscription(topic, maximum_qos=1)])),
        server(Suback(packet_identifier=1, reason_codes=[code])),
    )


def published(topic: str, payload: bytes = b"x", code: int = 0) -> tuple[Step, Step]:
    return (
        client(Publish(topic_name=topic, qos=1, packet_identifier=9, payload=payload)),
        server(Puback(packet_identifier=9, reason_code=code)),
    )


def test_refusals_and_messages_that_did_not_come_are_losses_by_client_and_fate() -> None:
    writer = on(1, *opened(client_identifier="w"), *published("a", b"1"), *published("a", b"2"))
    denied = on(1, *published("b", code=0x87))
    triage = gathered(*opened(client_identifier="r"), *subscribed("a"), *writer, *denied, client(Pingreq(), after=2))
    losses = {fault.who: fault for fault in triage.faults if fault.kind is FaultKind.LOSS}

    assert {who: (fault.certainty, fault.count, fault.topic) for who, fault in losses.items()} == {
        "r": ("likely", 2, "a"),
        "w": ("certain", 1, "b"),
    }
    assert all(fault.rank is Rank.LOSS for fault in losses.values())


def test_a_loss_that_a_rule_reports_is_not_told_twice() -> None:
    triage = of_capture("misdelivered")
    reported = {fault.who for fault in triage.faults if fault.rule == "DLV410"}
    assert reported <= {"broker"}
    assert triage._missing

    losses = {(fault.client, fault.topic) for fault in triage.faults if fault.kind is FaultKind.LOSS}
    assert not losses & triage._missing


def test_gaps_are_one_fault_for_each_reason() -> None:
    triage = of_capture("snaplen-96")
    (fault,) = triage.faults

    assert (fault.kind, fault.rank, fault.who) == (FaultKind.GAP, Rank.GAP, "2 connections")
    assert fault.text.startswith("638 bytes ")


def test_a_gap_of_one_connection_names_its_client() -> None:
    triage = gathered(*opened(), lost(WILDCARD), client(Pingreq()), server(Pingresp()), *END)

    assert [fault.who for fault in triage.faults if fault.kind is FaultKind.GAP] == ["c1"]


def test_dropped_frames_are_a_fault_of_the_capture() -> None:
    triage = Triage()
    for dropped in (0, 30, 10):
        triage.feed(CaptureDrops("a.pcapng", 0, 100, dropped))
    triage.finish()

    (fault,) = triage.faults
    assert (fault.who, fault.text, fault.frame) == ("capture", "40 frames dropped while capturing", 0)


def test_errors_of_captures_are_kept() -> None:
    triage = Triage()
    triage.feed(CaptureError("a.pcapng", "is cut", 100, 3))
    triage.finish()

    assert [error.message for error in triage.errors] == ["is cut"]
    assert triage.limits() == ["1 capture not read to the end"]


def test_the_worst_come_first() -> None:
    steps = (
        *refused(0, "a"),  # named end
        *on(1, *opened(client_identifier="b"), WILDCARD, closes("client")),  # certain error, bare end
        *on(2, *opened(client_identifier="c"), *subscribed("x", 0x80), *END),  # loss
        *on(3, *opened(client_identifier="d"), client(Publish(topic_name="a\x01", payload=b"x")), *END),  # warning
        *on(4, *opened(client_identifier="e"), lost(client(Pingreq())), client(Pingreq()), *END),  # gap
    )
    ranks = [fault.rank for fault in gathered(*steps).faults]

    assert ranks == sorted(ranks)
    assert {
        Rank.NAMED_END, Rank.CERTAIN_ERROR, Rank.LOSS, Rank.BARE_END, Rank.GAP, Rank.WARNING,
    } <= set(ranks)  # fmt: skip


def test_of_one_rank_the_most_frequent_comes_first() -> None:
    triage = gathered(*refused(0, "a", 0x8A), *refused(1, "b"), *refused(2, "c"))

    assert [fault.title for fault in triage.faults] == ["not authorized", "banned"]


def test_brokers_with_their_transports() -> None:
    triage = of_capture("tls-13", "websocket-v5", "v5-qos")

    assert {name for broker in triage.brokers.values() for name in broker.transports} == {"tls", "websocket", "tcp"}
    assert sum(broker.encrypted for broker in triage.brokers.values()) == 1
    assert sum(broker.decryptable for broker in triage.brokers.values()) == 1


def test_what_no_server_answered_cannot_be_decrypted(tmp_path: Path) -> None:
    talk = Talk(port=8883).handshake()
    talk.client(HELLO)
    triage = of_capture(write_tape(talk.tape, tmp_path / "a.pcapng"))

    (broker,) = triage.brokers.values()
    assert (broker.encrypted, broker.decryptable) == (1, 0)


@pytest.mark.parametrize(
    ("topic", "payload", "product"),
    [
        ("$SYS/broker/version", b"mosquitto version 2.0.11", "mosquitto version 2.0.11"),
        ("$SYS/brokers/emqx@10.0.0.2/version", b"5.8.0", "5.8.0"),
        ("$SYS/broker/uptime", b"12 seconds", ""),
        ("broker/version", b"mosquitto", ""),
        ("$SYS/broker/version", b"", ""),
        ("$SYS/broker/version", b"x" * collect.MAX_PRODUCT_BYTES, "x" * collect.MAX_PRODUCT_BYTES),
        ("$SYS/broker/version", b"x" * (collect.MAX_PRODUCT_BYTES + 1), ""),
    ],
)
def test_a_broker_says_what_it_is(topic: str, payload: bytes, product: str) -> None:
    triage = gathered(*opened(), server(Publish(topic_name=topic, payload=payload, retain=True)), *END)

    (broker,) = triage.brokers.values()
    assert broker.product == product


def test_a_client_does_not_say_what_the_broker_is() -> None:
    triage = gathered(*opened(), client(Publish(topic_name="$SYS/broker/version", payload=b"mosquitto")), *END)

    assert [broker.product for broker in triage.brokers.values()] == [""]


def test_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_SERVERS", 2)
    triage = of_capture("tls-13", "websocket-v5")
    assert (len(triage.brokers), triage.other_brokers) == (2, 0)

    monkeypatch.setattr(collect, "MAX_SERVERS", 1)
    triage = of_capture("tls-13", "websocket-v5")
    assert len(triage.brokers) == 1
    assert triage.other_brokers == 1
    assert "no room for the brokers of 1 connection" in triage.limits()


def test_clients_of_a_cause_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (*refused(0, "a"), *refused(1, "b"), *refused(2, "c"))
    monkeypatch.setattr(collect, "MAX_CLIENTS", 3)
    assert [fault.who for fault in gathered(*steps).faults] == ["3 clients"]

    monkeypatch.setattr(collect, "MAX_CLIENTS", 2)
    assert [fault.who for fault in gathered(*steps).faults] == ["2 clients or more"]


def test_losses_beyond_the_limit_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step for n in range(3) for step in on(n, *opened(client_identifier=f"c{n}"), *subscribed("x", 0x80))]
    monkeypatch.setattr(collect, "MAX_LOSSES", 3)
    triage = gathered(*steps)
    assert [(fault.who, fault.count) for fault in triage.faults] == [("c0", 1), ("c1", 1), ("c2", 1)]
    assert triage.other_losses == 0

    monkeypatch.setattr(collect, "MAX_LOSSES", 2)
    triage = gathered(*steps)
    assert [(fault.who, fault.count) for fault in triage.faults] == [("c0", 1), ("c1", 1)]
    assert "no room for 1 losses of messages or subscriptions" in triage.limits()


def test_server_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_SERVER_NAMES", 0)
    triage = of_capture("tls-13")

    assert [broker.names for broker in triage.brokers.values()] == [{}]


def test_limits_name_what_the_verdict_depends_on() -> None:
    limits = of_capture("joined-v5").limits()

    assert limits[0] == "2 connections joined after the CONNECT"
    assert limits[-1] == "6 possible findings not shown, for lack of evidence"


def test_secrets_are_hidden_in_what_is_told() -> None:
    secret = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
    topic = f"token/{secret}/+"
    triage = gathered(*opened(), client(Publish(topic_name=topic, payload=b"x")), *END)

    assert [fault.rule for fault in triage.faults] == ["PUB103"]
    assert secret not in triage.faults[0].text


def test_events_are_fed_in_the_state_before_their_packets() -> None:
    # The topic of an alias is that of the moment: what is gathered of statistics proves it.
    triage = of_capture("alias-both-directions")

    assert {topic for topic in triage.statistics.topics if topic} >= {"client/topic", "server/topic", "client/other"}
