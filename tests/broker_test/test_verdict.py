"""Verdicts of what was seen on one connection."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.broker_test.fit import flow_of
from mqttscope.broker_test.verdict import (
    ANSWERS,
    NOTHING,
    Baseline,
    BrokerVerdict,
    Observation,
    Ruling,
    decide,
    excuse,
    expected_responses,
    judge,
    unconfirmed,
    unmutated,
)
from mqttscope.mqtt import Connack, Malformed, PacketType, Suback, decode
from mqttscope.mutate import Demand
from mqttscope.mutate.catalogue import catalogue
from tests.broker_test.flows import HASH, V3_1, V3_1_1, V5, make_case, script
from tests.each import each
from tests.replay.talk import read, said_bytes

RULINGS = {
    "T": Ruling(BrokerVerdict.TOLERATED, "it continues", ("5.0 MQTT-4.13.1-1",)),
    "N": Ruling(BrokerVerdict.NO_ANSWER, "nothing"),
    "H": Ruling(BrokerVerdict.HUNG, "nobody is served"),
    "O": Ruling(BrokerVerdict.COLLATERAL, "others suffer"),
    "X": Ruling(BrokerVerdict.CRASHED, "its process is gone"),
    "C": Ruling(BrokerVerdict.CONFORMING, "closed"),
    "-": None,
}


def rulings(playings: str) -> list[Ruling | None]:
    return [RULINGS[playing] for playing in playings]


@pytest.mark.parametrize(
    ("playings", "place", "verdict"),
    [
        ("C", 0, BrokerVerdict.CONFORMING),
        ("X", 0, BrokerVerdict.CRASHED),
        ("TT", 1, BrokerVerdict.TOLERATED),
        ("TC", 1, BrokerVerdict.CONFORMING),
        ("TN", 1, BrokerVerdict.CONFORMING),
        ("T-", 1, BrokerVerdict.CONFORMING),
        # Worse the second time.
        ("TX", 1, BrokerVerdict.CRASHED),
        ("HX", 1, BrokerVerdict.CRASHED),
        ("THH", 2, BrokerVerdict.HUNG),
        # What comes only after another playing.
        ("THTH", 3, BrokerVerdict.HUNG),
        ("TOTO", 3, BrokerVerdict.COLLATERAL),
        ("HH", 1, BrokerVerdict.HUNG),
        ("HTTT", 3, BrokerVerdict.TOLERATED),
        ("HTCT", 3, BrokerVerdict.TOLERATED),
        ("HTTC", 2, BrokerVerdict.TOLERATED),
        ("HCCC", 3, BrokerVerdict.CONFORMING),
        ("HOTN", 3, BrokerVerdict.CONFORMING),
        ("HC--", 3, BrokerVerdict.CONFORMING),
    ],
)
def test_what_they_come_to(playings: str, place: int, verdict: BrokerVerdict) -> None:
    for count in range(1, len(playings)):
        assert decide(rulings(playings[:count])) is None
    result = decide(rulings(playings))

    assert result is not None
    assert (result[0], result[1].verdict) == (place, verdict)
    assert result[1] is RULINGS[playings[place]] or result[1].why.startswith("not repeated: ")


def test_a_case_that_was_not_played_is_played_again() -> None:
    assert decide(rulings("-")) is None


def test_harm_that_was_seen_once_is_not_lost() -> None:
    assert unconfirmed(rulings("HTTT"), Ruling(BrokerVerdict.TOLERATED, "")) == [RULINGS["H"]]
    assert unconfirmed(rulings("HTTX"), Ruling(BrokerVerdict.CRASHED, "")) == [RULINGS["H"]]
    assert unconfirmed(rulings("THH"), Ruling(BrokerVerdict.HUNG, "")) == []


def test_everything_is_as_recorded_and_looked_at() -> None:
    own = script(V5)
    case = unmutated(flow_of(own, HASH, 0))

    assert case.flow.sent == b"".join(script_entry.raw for script_entry in own.entries if script_entry.from_client)
    assert (case.flow.at, case.reaction.demand, case.statements) == (0, Demand.ACCEPT, ())
    assert NOTHING.name not in {mutation.name for mutation in catalogue()}


def test_what_is_told() -> None:
    baseline = Baseline(frozenset({PacketType.PUBREC, PacketType.SUBACK}), frozenset({0x87}), ended=True)

    assert baseline.summary() == "sends no PUBREC, SUBACK and refuses with 0x87 and ends the connection"
    assert Baseline().summary() == ""


@each(
    "words, answers",
    [
        ("connect", {PacketType.CONNACK}),
        ("publish a", set()),
        ("publish a qos=1 id=1", {PacketType.PUBACK}),
        ("publish a qos=2 id=1", {PacketType.PUBREC, PacketType.PUBCOMP}),
        ("pubrel 1", {PacketType.PUBCOMP}),
        ("pingreq", {PacketType.PINGRESP}),
        ("puback 1 properties", set()),
    ],
)
def test_what_is_owed(words: str, answers: set[PacketType]) -> None:
    assert expected_responses(read(words)) == answers
    assert answers <= ANSWERS


def test_to_what_is_malformed_nothing_is_owed() -> None:
    malformed = decode(b"\x36\x00", V5)

    assert isinstance(malformed, Malformed)
    assert expected_responses(malformed) == set()


CLOSE = "publish:qos-3"
LEGAL = "publish.topic_name:spaces"
ALIAS_ZERO = "publish.properties.topic_alias:zero"
REFUSE = "subscribe.subscriptions.topic_filter:hash-not-last"


@each(
    "name, seen, verdict",
    [
        (CLOSE, {"ended": "fin"}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ended": "reset"}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ended": "fin", "answers": "disconnect code=0x81"}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ended": "fin", "answers": "disconnect code=0x9B"}, BrokerVerdict.WRONG_REASON),
        # Codes that only clients may send: the good-bye, with and without a Will.
        (CLOSE, {"ended": "fin", "answers": "disconnect"}, BrokerVerdict.WRONG_REASON),
        (CLOSE, {"ended": "fin", "answers": "disconnect code=0x04"}, BrokerVerdict.WRONG_REASON),
        # Codes of no table; but return codes of 3.1.1 may be for whom the broker took for an earlier client.
        (CLOSE, {"ended": "fin", "answers": "raw e0 01 84"}, BrokerVerdict.WRONG_REASON),
        (CLOSE, {"ended": "fin", "answers": "raw 20 03 00 70 00"}, BrokerVerdict.WRONG_REASON),
        (CLOSE, {"ended": "fin", "answers": "raw 20 02 00 01"}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ended": "fin", "answers": "raw 20 03 00 01 00"}, BrokerVerdict.CONFORMING),
        # Reasons of its own: it is shutting down, it is busy.
        (CLOSE, {"ended": "fin", "answers": "disconnect code=0x8B"}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ping_answered": True}, BrokerVerdict.TOLERATED),
        (CLOSE, {"ping_answered": False}, BrokerVerdict.NO_ANSWER),
        (CLOSE, {"client_left": True}, BrokerVerdict.CONFORMING),
        (CLOSE, {"ping_answered": False, "answers": "disconnect code=0x81"}, BrokerVerdict.TOLERATED),
        (CLOSE, {"answers": "connack", "accepted": True}, BrokerVerdict.TOLERATED),
        (REFUSE, {"ping_answered": True, "answers": "suback 1 0x8F"}, BrokerVerdict.CONFORMING),
        (REFUSE, {"ping_answered": True, "answers": "suback 1 1"}, BrokerVerdict.TOLERATED),
        (LEGAL, {"ping_answered": True}, BrokerVerdict.CONFORMING),
        (LEGAL, {"ping_answered": True, "missing": [PacketType.PUBACK]}, BrokerVerdict.NO_ANSWER),
        (LEGAL, {"ping_answered": False}, BrokerVerdict.NO_ANSWER),
        (LEGAL, {"ended": "fin"}, BrokerVerdict.REFUSED_LEGAL),
        (LEGAL, {"ended": "fin", "client_left": True}, BrokerVerdict.CONFORMING),
        (LEGAL, {"ended": "fin", "answers": "disconnect code=0x82"}, BrokerVerdict.REFUSED_LEGAL),
        # Who may publish where is the broker's own affair.
        (LEGAL, {"ping_answered": True, "answers": "puback 1 code=0x87"}, BrokerVerdict.CONFORMING),
        (LEGAL, {"ping_answered": True, "answers": "puback 1 code=0x10"}, BrokerVerdict.CONFORMING),
        # Correctly formed, and not accepted by this server: 3.4.2.1, 3.9.3.
        (LEGAL, {"ping_answered": True, "answers": "puback 1 code=0x90"}, BrokerVerdict.CONFORMING),
        (LEGAL, {"ping_answered": True, "answers": "suback 1 0x8F"}, BrokerVerdict.CONFORMING),
        # The general codes fit whatever is wrong.
        (ALIAS_ZERO, {"ended": "fin", "answers": "disconnect code=0x81"}, BrokerVerdict.CONFORMING),
        (ALIAS_ZERO, {"ended": "fin", "answers": "disconnect code=0x9B"}, BrokerVerdict.WRONG_REASON),
        (LEGAL, {"ping_answered": True, "answers": "suback 1 0x80"}, BrokerVerdict.REFUSED_LEGAL),
        (
            LEGAL,
            {"ping_answered": True, "answers": "suback 1 0x80", "recorded_codes": frozenset({0x80})},
            BrokerVerdict.CONFORMING,
        ),
        # Where we log in, others may not be let in.
        (LEGAL, {"ended": "fin", "uses_login": True}, BrokerVerdict.CONFORMING),
        (LEGAL, {"ended": "fin", "uses_login": True, "accepted": True}, BrokerVerdict.REFUSED_LEGAL),
        ("random:bits", {"ended": "fin"}, BrokerVerdict.CONFORMING),
        ("random:bits", {"ping_answered": False}, BrokerVerdict.CONFORMING),
    ],
)
def test_in_5_0(name: str, seen: dict[str, Any], verdict: BrokerVerdict) -> None:
    """What is seen has answers in words, or their bytes behind ``raw``."""
    answers = []
    if words := seen.get("answers", ""):
        raw = bytes.fromhex(words[4:]) if words.startswith("raw") else said_bytes("", words)
        answers = [decode(raw, V5)]
    seen = seen | {"answers": answers}

    assert judge(make_case(name, script()), Observation(**seen)).verdict is verdict


def test_before_5_0_a_malformed_connect_gets_no_answer() -> None:
    case = make_case("connect:reserved-connect-flag", script(V3_1_1))
    answered = judge(case, Observation(ended="fin", answers=[Connack(reason_code=2)]))

    assert answered.verdict is BrokerVerdict.WRONG_REASON
    assert answered.statements == ("3.1.1 MQTT-3.1.4-1",)
    assert not judge(case, Observation(ended="fin")).deviates


def test_3_1_demands_no_close() -> None:
    assert not judge(make_case(CLOSE, script(V3_1)), Observation(ping_answered=True)).deviates


def test_who_may_connect_is_the_brokers_affair() -> None:
    case = make_case("connect.keep_alive:maximum", script(V3_1_1))

    assert not judge(case, Observation(ended="fin", answers=[Connack(reason_code=5)])).deviates


def test_an_excuse_keeps_the_reason_and_takes_the_blame() -> None:
    ruling = judge(make_case(CLOSE, script()), Observation(ping_answered=True))
    new_ruling = excuse(ruling, "it was not on the wire")

    assert not new_ruling.deviates
    assert new_ruling.statements == ()
    assert new_ruling.why.startswith("it was not on the wire (")
    assert ruling.statements == ("5.0 MQTT-4.13.1-1",)


def test_what_is_missing_without_the_mutation_too_is_no_answer_to_it() -> None:
    case = make_case(LEGAL, script(V3_1_1))
    seen = Observation(ping_answered=True, missing=[PacketType.PUBREC], waited_s=1.0)
    alone = judge(case, seen)

    assert (alone.verdict, alone.statements) == (BrokerVerdict.NO_ANSWER, ("3.1.1 MQTT-4.3.3-2",))
    assert not judge(case, seen, Baseline(frozenset({PacketType.PUBREC}))).deviates
    assert judge(case, seen, Baseline(frozenset({PacketType.SUBACK}))).deviates
    assert not judge(case, Observation(ended="fin"), Baseline(ended=True)).deviates
    refused = Observation(ping_answered=True, answers=[Suback(reason_codes=[0x80])])
    assert not judge(make_case(LEGAL, script()), refused, Baseline(codes=frozenset({0x80}))).deviates
