"""What is gathered of a capture, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.explanations.base import NODE_TITLES
from mqttscope.triage.collect import FaultKind, Rank, Triage
from tests.dissect.scenes import HELLO
from tests.dissect.secure import write as write_tape
from tests.dissect.talk import Talk
from tests.each import each
from tests.triage.running import END, LOOP, TOKEN, WILDCARD, gathered, of_capture, refused

FAULTS: dict[str, tuple[Callable[[], Triage], list[tuple[object, ...]]]] = {
    "ends of one cause are one fault about the first, and the most frequent comes first": (
        lambda: gathered(refused(3, "c", 0x8A), refused(0, "a"), refused(1, "b"), refused(2, "b")),
        [
            (FaultKind.END, "not authorized", 3, "2 clients", None, "certain"),
            (FaultKind.END, "banned", 1, "c", "c", "certain"),
        ],
    ),
    "a client is named where all ends are of it": (
        lambda: gathered(refused(0, "a"), refused(1, "a")),
        [(FaultKind.END, "not authorized", 2, "a", "a", "certain")],
    ),
    "certainty is that of the explanation, and the finding that explains an end is no fault of its own": (
        lambda: of_capture("keep-alive"),
        [(FaultKind.END, "Keep Alive ran out", 1, "asleep", "asleep", "likely")],
    ),
    "an end shows its cause without packets": (
        lambda: of_capture("tls-unknown-ca"),
        [(FaultKind.END, "TLS failed", 1, "192.0.2.10", None, "certain")],
    ),
    "the same rule elsewhere is a fault": (
        lambda: gathered(
            "@1 opened client=c2 keep_alive=1; +4 @1 < fin", f"opened keep_alive=1; +5 > pingreq; < pingresp; {END}"
        ),
        [
            (FaultKind.END, "Keep Alive ran out", 1, "c2", "c2", "likely"),
            (FaultKind.FINDING, "KAL201", 2, "2 clients", None, "certain"),
        ],
    ),
    "findings of one rule are one fault": (
        lambda: gathered(
            f"opened; {WILDCARD}; {WILDCARD}; {END}", f"@1 opened client=c2; @1 {WILDCARD}; @1 > disconnect; @1 > fin"
        ),
        [(FaultKind.FINDING, "PUB103", 3, "2 clients", None, "certain")],
    ),
    "messages that circulate are a fault, though lint has to be asked for them": (
        lambda: gathered(*LOOP),
        [(FaultKind.FINDING, "OPS230", 1, "broker", "c1", "heuristic")],
    ),
    "a client that leaves at once, again and again": (
        lambda: gathered(*(f"+5 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin" for n in range(4))),
        [(FaultKind.FINDING, "OPS331", 1, "c1", "c1", "heuristic")],
    ),
    "a program that looks whether the broker is there is none": (
        lambda: gathered(*(f"+30 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin" for n in range(4))),
        [],
    ),
    "the broker is blamed where it is to blame": (
        lambda: gathered(f"opened; < publish a/+ x; {END}"),
        [
            (FaultKind.FINDING, "PUB103", 1, "broker", "c1", "certain"),
            (FaultKind.FINDING, "DLV201", 1, "broker", "c1", "likely"),
        ],
    ),
    "gaps are one fault for each reason": (
        lambda: of_capture("snaplen-96"),
        [(FaultKind.GAP, "", 1, "2 connections", None, "certain")],
    ),
    "a gap of one connection names its client": (
        lambda: gathered(f"opened; lost {WILDCARD}; > pingreq; < pingresp; {END}"),
        [(FaultKind.GAP, "", 1, "c1", None, "certain")],
    ),
}


@each("make, expected", FAULTS.values(), ids=FAULTS)
def test_faults(make: Callable[[], Triage], expected: list[tuple[object, ...]]) -> None:
    triage = make()

    assert triage.is_judged
    assert [
        (fault.kind, fault.rule or fault.title, fault.count, fault.who, fault.client, fault.certainty)
        for fault in triage.faults
    ] == expected


def test_faults_say_where_they_are_and_how_bad() -> None:
    (fault,) = of_capture("snaplen-96").faults
    assert (fault.rank, fault.text[:10]) == (Rank.GAP, "638 bytes ")

    triage = of_capture("keep-alive")
    assert [(fault.rank, fault.frame) for fault in triage.faults] == [(Rank.NAMED_END, 30)]
    # The linter did report it.
    assert triage._broken == {"KAL201": 1}

    triage = of_capture("tls-unknown-ca")
    assert (triage.packets, triage.faults[0].rank) == (0, Rank.NAMED_END)
    assert gathered("opened", WILDCARD, END).faults[0].rank is Rank.CERTAIN_ERROR
    first, second = gathered(refused(0, "a"), refused(1, "b", 0x8A)).faults
    assert first.frame < second.frame


def test_a_good_conversation_has_no_faults_and_is_judged() -> None:
    triage = gathered("opened; > pingreq; < pingresp", END)

    assert (triage.faults, triage.is_judged, triage.limits(), triage.packets) == ([], True, [], 5)
    assert not gathered().is_judged
    assert not of_capture("tls-12").is_judged


def test_notes_are_counted_only() -> None:
    triage = gathered("opened client=with-hyphen", END)

    assert (triage.faults, triage.notes) == ([], 1)


def test_refusals_and_messages_that_did_not_come_are_losses_by_client_and_fate() -> None:
    writes = "for 1..2: @1 > publish a {n} qos=1 id=9; @1 < puback 9"
    denied = "@1 > publish b x qos=1 id=9; @1 < puback 9 code=0x87"
    reader = "opened client=r; > subscribe 1 a:1; < suback 1 1"
    triage = gathered(reader, "@1 opened client=w", writes, denied, "+2 > pingreq")
    losses = {fault.who: fault for fault in triage.faults if fault.kind is FaultKind.LOSS}

    rows = {who: (fault.certainty, fault.count, fault.topic) for who, fault in losses.items()}
    assert rows == {"r": ("likely", 2, "a"), "w": ("certain", 1, "b")}
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
    triage = gathered(
        refused(0, "a"),  # named end
        f"@1 opened client=b; @1 {WILDCARD}; @1 > fin",  # certain error, bare end
        "@2 opened client=c; @2 > subscribe 1 x:1; @2 < suback 1 0x80; @2 > disconnect; @2 > fin",  # loss
        r'@3 opened client=d; @3 > publish "a\u0001" x; @3 > disconnect; @3 > fin',  # warning
        "@4 opened client=e; @4 lost > pingreq; @4 > pingreq; @4 > disconnect; @4 > fin",  # gap
    )
    ranks = [fault.rank for fault in triage.faults]

    assert ranks == sorted(ranks)
    assert {*ranks} >= {*Rank} - {Rank.LIKELY_ERROR, Rank.NODE, Rank.HEURISTIC_ERROR}


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
        ("$SYS/broker/version", "mosquitto version 2.0.11", "mosquitto version 2.0.11"),
        ("$SYS/brokers/emqx@10.0.0.2/version", "5.8.0", "5.8.0"),
        ("$SYS/broker/uptime", "12 seconds", ""),
        ("broker/version", "mosquitto", ""),
        ("$SYS/broker/version", "", ""),
    ],
)
def test_a_broker_says_what_it_is_and_a_client_does_not(topic: str, payload: str, product: str) -> None:
    for arrow, text in (("<", product), (">", "")):
        triage = gathered(f'opened; {arrow} publish {topic} "{payload}" retain', END)
        assert [broker.product for broker in triage.brokers.values()] == [text]


def test_limits_name_what_the_verdict_depends_on() -> None:
    limits = of_capture("joined-v5").limits()

    assert limits[0] == "2 connections joined after the CONNECT"
    assert limits[-1] == "6 possible findings not shown, for lack of evidence"


def test_secrets_are_hidden_in_what_is_told() -> None:
    triage = gathered(f"opened; > publish token/{TOKEN}/+ x", END)

    assert [fault.rule for fault in triage.faults] == ["PUB103"]
    assert TOKEN not in triage.faults[0].text


def test_events_are_fed_in_the_state_before_their_packets() -> None:
    # The topic of an alias is that of the moment: what is gathered of statistics proves it.
    triage = of_capture("alias-both-directions")

    assert {topic for topic in triage.statistics.topics if topic} >= {"client/topic", "server/topic", "client/other"}


def test_answers_about_edge_nodes_are_faults_unless_they_are_usual() -> None:
    rows = [row for row in of_capture("sparkplug-python").faults if row.kind is FaultKind.NODE]

    assert [(row.who, row.rank, row.certainty, row.title, row.count, row.frame) for row in rows] == [
        ("edge node plant/oven", Rank.NODE, "likely", "gone, and online for hosts", 2, 22)
    ]
    questions = {row.title for row in of_capture("sparkplug-deviations").faults if row.kind is FaultKind.NODE}
    assert questions == set(NODE_TITLES.values())
    born = "opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1"
    born += "; > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0)"
    usual = gathered(f"{born}; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); {END}")
    assert not any(row.kind is FaultKind.NODE for row in usual.faults)
