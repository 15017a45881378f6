"""What is gathered of a capture, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lint.examples import Step, client, closes, lost, on, opened, server
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.triage import collect
from mqttscope.triage.collect import FaultKind, Rank, Triage
from tests.dissect.scenes import HELLO
from tests.dissect.secure import write as write_tape
from tests.dissect.talk import Talk
from tests.each import each
from tests.triage.running import END, TOKEN, WILDCARD, gathered, of_capture, refused, triaged

SILENT = (*opened(keep_alive=1), client(Pingreq(), after=5), server(Pingresp()), *END)
FAULTS: dict[str, tuple[tuple[str | Step, ...], list[tuple[object, ...]]]] = {
    "ends of one cause are one fault about the first, and the most frequent comes first": (
        (*refused(3, "c", 0x8A), *refused(0, "a"), *refused(1, "b"), *refused(2, "b")),
        [
            (FaultKind.END, "not authorized", 3, "2 clients", None, "certain"),
            (FaultKind.END, "banned", 1, "c", "c", "certain"),
        ],
    ),
    "a client is named where all ends are of it": (
        (*refused(0, "a"), *refused(1, "a")),
        [(FaultKind.END, "not authorized", 2, "a", "a", "certain")],
    ),
    "certainty is that of the explanation, and the finding that explains an end is no fault of its own": (
        ("keep-alive",),
        [(FaultKind.END, "Keep Alive ran out", 1, "asleep", "asleep", "likely")],
    ),
    "an end shows its cause without packets": (
        ("tls-unknown-ca",),
        [(FaultKind.END, "TLS failed", 1, "192.0.2.10:50000", None, "certain")],
    ),
    "the same rule elsewhere is a fault": (
        (*on(1, *opened(client_identifier="c2", keep_alive=1), closes("server", after=4)), *SILENT),
        [
            (FaultKind.END, "Keep Alive ran out", 1, "c2", "c2", "likely"),
            (FaultKind.FINDING, "KAL201", 2, "2 clients", None, "certain"),
        ],
    ),
    "findings of one rule are one fault": (
        (*opened(), WILDCARD, WILDCARD, *END, *on(1, *opened(client_identifier="c2"), WILDCARD, *END)),
        [(FaultKind.FINDING, "PUB103", 3, "2 clients", None, "certain")],
    ),
    "the broker is blamed where it is to blame": (
        (*opened(), server(Publish(topic_name="a/+", payload=b"x")), *END),
        [
            (FaultKind.FINDING, "PUB103", 1, "broker", "c1", "certain"),
            (FaultKind.FINDING, "DLV201", 1, "broker", "c1", "likely"),
        ],
    ),
    "gaps are one fault for each reason": (
        ("snaplen-96",),
        [(FaultKind.GAP, "", 1, "2 connections", None, "certain")],
    ),
    "a gap of one connection names its client": (
        (*opened(), lost(WILDCARD), client(Pingreq()), server(Pingresp()), *END),
        [(FaultKind.GAP, "", 1, "c1", None, "certain")],
    ),
}


@each("of, told", FAULTS.values(), ids=FAULTS)
def test_faults(of: tuple[str | Step, ...], told: list[tuple[object, ...]]) -> None:
    triage = triaged(of)

    assert triage.is_judged
    assert [
        (one.kind, one.rule or one.title, one.count, one.who, one.client, one.certainty) for one in triage.faults
    ] == told


def test_faults_say_where_they_are_and_how_bad() -> None:
    (fault,) = of_capture("snaplen-96").faults
    assert (fault.rank, fault.text[:10]) == (Rank.GAP, "638 bytes ")

    triage = of_capture("keep-alive")
    assert [(fault.rank, fault.frame) for fault in triage.faults] == [(Rank.NAMED_END, 30)]
    # The linter did report it.
    assert triage._broken == {"KAL201": 1}

    triage = of_capture("tls-unknown-ca")
    assert (triage.packets, triage.faults[0].rank) == (0, Rank.NAMED_END)
    assert gathered(*opened(), WILDCARD, *END).faults[0].rank is Rank.CERTAIN_ERROR
    first, second = gathered(*refused(0, "a"), *refused(1, "b", 0x8A)).faults
    assert first.frame < second.frame


def test_a_good_conversation_has_no_faults_and_is_judged() -> None:
    triage = gathered(*opened(), client(Pingreq()), server(Pingresp()), *END)

    assert (triage.faults, triage.is_judged, triage.limits()) == ([], True, [])
    assert triage.packets == 5


def test_nothing_is_judged_where_there_is_no_packet() -> None:
    assert not gathered().is_judged
    assert not of_capture("tls-12").is_judged


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

    told = {who: (fault.certainty, fault.count, fault.topic) for who, fault in losses.items()}
    assert told == {"r": ("likely", 2, "a"), "w": ("certain", 1, "b")}
    assert all(fault.rank is Rank.LOSS for fault in losses.values())


def test_a_loss_that_a_rule_reports_is_not_told_twice() -> None:
    triage = of_capture("misdelivered")
    reported = {fault.who for fault in triage.faults if fault.rule == "DLV410"}
    assert reported <= {"broker"}
    assert triage._missing

    losses = {(fault.client, fault.topic) for fault in triage.faults if fault.kind is FaultKind.LOSS}
    assert not losses & triage._missing


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
    assert {*ranks} >= {*Rank} - {Rank.LIKELY_ERROR, Rank.HEURISTIC_ERROR}


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
    # A client does not say it.
    triage = gathered(*opened(), client(Publish(topic_name=topic, payload=payload, retain=True)), *END)
    assert [broker.product for broker in triage.brokers.values()] == [""]


def test_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, others in ((2, 0), (1, 1)):
        monkeypatch.setattr(collect, "MAX_SERVERS", most)
        triage = of_capture("tls-13", "websocket-v5")
        assert (len(triage.brokers), triage.other_brokers) == (most, others)
    assert "no room for the brokers of 1 connection" in triage.limits()
    monkeypatch.setattr(collect, "MAX_SERVER_NAMES", 0)
    assert [broker.names for broker in of_capture("tls-13").brokers.values()] == [{}]


def test_clients_of_a_cause_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (*refused(0, "a"), *refused(1, "b"), *refused(2, "c"))
    for most, who in ((3, "3 clients"), (2, "2 clients or more")):
        monkeypatch.setattr(collect, "MAX_CLIENTS", most)
        assert [fault.who for fault in gathered(*steps).faults] == [who]


def test_losses_beyond_the_limit_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step for n in range(3) for step in on(n, *opened(client_identifier=f"c{n}"), *subscribed("x", 0x80))]
    for most in (3, 2):
        monkeypatch.setattr(collect, "MAX_LOSSES", most)
        triage = gathered(*steps)
        assert [(fault.who, fault.count) for fault in triage.faults] == [(f"c{n}", 1) for n in range(most)]
        assert triage.other_losses == 3 - most
    assert "no room for 1 losses of messages or subscriptions" in triage.limits()


def test_limits_name_what_the_verdict_depends_on() -> None:
    limits = of_capture("joined-v5").limits()

    assert limits[0] == "2 connections joined after the CONNECT"
    assert limits[-1] == "6 possible findings not shown, for lack of evidence"


def test_secrets_are_hidden_in_what_is_told() -> None:
    triage = gathered(*opened(), client(Publish(topic_name=f"token/{TOKEN}/+", payload=b"x")), *END)

    assert [fault.rule for fault in triage.faults] == ["PUB103"]
    assert TOKEN not in triage.faults[0].text


def test_events_are_fed_in_the_state_before_their_packets() -> None:
    # The topic of an alias is that of the moment: what is gathered of statistics proves it.
    triage = of_capture("alias-both-directions")

    assert {topic for topic in triage.statistics.topics if topic} >= {"client/topic", "server/topic", "client/other"}
