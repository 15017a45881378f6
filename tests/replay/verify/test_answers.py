"""Answers and ends of connections: what differs is found by its name; and which answers came once more, and why."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import ProtocolVersion
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.answers import repeated
from mqttscope.replay.verify.difference import DifferenceKind
from tests.each import each
from tests.replay import talk

SENT = "dev > publish a x qos=1 id=1"
ACKNOWLEDGED = (SENT, "dev < puback 1")
EXACTLY_ONCE = ("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1")
SUBSCRIBED = ("dev > subscribe 1 a:0", "dev < suback 1 0")
TWO_FILTERS = "dev > subscribe 1 a:0 b:1"
UNSUBSCRIBED = ("dev > unsubscribe 1 a", "dev < unsuback 1 0")
PINGED = ("dev > pingreq", "dev < pingresp")
GOT = ("dev < publish a x qos=2 id=7", "dev > pubrec 7", "dev < pubrel 7")
DELIVERED = ("dev > subscribe 1 a:2", "dev < suback 1 2", *GOT, "dev > pubcomp 7")
OPEN = "dev > connect\ndev < connack\n"
REASON_CODE = ("reason-code", "reason_code", 0)
MISSING = ("missing-answer", "", 0)
UNEXPECTED = ("unexpected-answer", "", 0)
CLOSE = ("close", "ending.by", 0)
AUTHENTICATED = "dev > connect\ndev < auth code=0x18\ndev > auth code=0x18\ndev < connack"
DISMISSED = OPEN + "dev < disconnect code=0x8b\ndev < fin"
REFUSED = (EXACTLY_ONCE[0], "dev < pubrec 1 code=0x97")
CONNACKS = {
    "the client is not refused": ("code=0x87", "", REASON_CODE),
    "another limit": ("receive_maximum=20", "receive_maximum=10", ("property", "properties.receive_maximum", 0)),
    "a limit that was not there": ("", "maximum_qos=1", ("property", "properties.maximum_qos", 0)),
    "another server": (
        "code=0x9d server_reference=a",
        "code=0x9d server_reference=b",
        ("property", "properties.server_reference", 0),
    ),
}
"""Words of the recorded and of the live CONNACK, and what is found."""
ASKED: dict[str, tuple[tuple[str, ...], tuple[str, ...], talk.Found]] = {
    "another outcome of a message": (ACKNOWLEDGED, (SENT, "dev < puback 1 code=0x10"), REASON_CODE),
    "user properties of an answer in another order": (
        (SENT, "dev < puback 1 user_property=a:1 user_property=b:2"),
        (SENT, "dev < puback 1 user_property=b:2 user_property=a:1"),
        ("property", "properties.user_property", 0),
    ),
    "no acknowledgement": (ACKNOWLEDGED, (SENT,), MISSING),
    "no PUBREC and thus no PUBCOMP": (EXACTLY_ONCE, EXACTLY_ONCE[:1], ("missing-answer", "", 1)),
    "no PUBCOMP": (EXACTLY_ONCE, EXACTLY_ONCE[:3], MISSING),
    "a refused QoS 2 message": (EXACTLY_ONCE, REFUSED, ("reason-code", "reason_code", 1)),
    "a QoS 2 message that was refused before": (REFUSED, EXACTLY_ONCE, REASON_CODE),
    "another answer": (ACKNOWLEDGED, (SENT, "dev < pubrec 1"), ("unexpected-answer", "type", 0)),
    "an answer that did not come before": ((SENT, *PINGED), (*ACKNOWLEDGED, *PINGED), UNEXPECTED),
    "an answer to nothing": ((), ("dev < puback 9",), UNEXPECTED),
    "PUBACK twice": (ACKNOWLEDGED, (*ACKNOWLEDGED, "dev < puback 1"), UNEXPECTED),
    "PUBREC twice": (EXACTLY_ONCE, (*EXACTLY_ONCE[:2], "dev < pubrec 1", *EXACTLY_ONCE[2:]), UNEXPECTED),
    "PUBREC, PUBREL and PUBCOMP twice": (
        EXACTLY_ONCE,
        tuple(line for line in EXACTLY_ONCE for _ in range(1 if "publish" in line else 2)),
        UNEXPECTED,
    ),
    "PUBCOMP twice": (EXACTLY_ONCE, (*EXACTLY_ONCE, "dev < pubcomp 1"), UNEXPECTED),
    "PUBREL twice": (DELIVERED, (*DELIVERED, "dev < pubrel 7"), UNEXPECTED),
    "SUBACK twice": (SUBSCRIBED, (*SUBSCRIBED, "dev < suback 1 0"), UNEXPECTED),
    "UNSUBACK twice": (UNSUBSCRIBED, (*UNSUBSCRIBED, "dev < unsuback 1 0"), UNEXPECTED),
    "PINGRESP twice": (PINGED, (*PINGED, "dev < pingresp"), UNEXPECTED),
    "an answer three times": (
        ACKNOWLEDGED,
        (*ACKNOWLEDGED, "dev < puback 1", "dev < puback 1"),
        ("unexpected-answer", "", 1),
    ),
    "no PINGRESP": (PINGED, PINGED[:1], MISSING),
    "the second of two subscriptions": (
        (TWO_FILTERS, "dev < suback 1 0 1"),
        (TWO_FILTERS, "dev < suback 1 0 0"),
        ("granted-qos", "reason_codes[1]", 0),
    ),
    "too few codes": (
        (TWO_FILTERS, "dev < suback 1 0 1"),
        (TWO_FILTERS, "dev < suback 1 0"),
        ("reason-code", "reason_codes", 0),
    ),
    "a subscription that did not exist": (
        UNSUBSCRIBED,
        (UNSUBSCRIBED[0], "dev < unsuback 1 0x11"),
        ("reason-code", "reason_codes[0]", 0),
    ),
}
"""What is said between CONNACK and DISCONNECT, in the recording and live, and what is found."""
WHOLE = {
    "no assigned client identifier": (
        "dev > connect client=\ndev < connack assigned_client_identifier=a",
        "dev > connect client=\ndev < connack",
        ("property", "properties.assigned_client_identifier", 0),
    ),
    "CONNACK twice": (OPEN, OPEN + "dev < connack", UNEXPECTED),
    "a DISCONNECT that was not sent": (
        talk.asked("dev > publish a x", *PINGED),
        OPEN + "dev > publish a x\ndev < disconnect code=0x81\ndev < fin",
        ("close", "ending.by", 1),
    ),
    "another reason to disconnect": (DISMISSED, OPEN + "dev < disconnect code=0x8e\ndev < fin", REASON_CODE),
    "no DISCONNECT": (DISMISSED, OPEN + "dev < fin", CLOSE),
    "no end at all": (OPEN + "dev > publish a x\ndev < fin", OPEN + "dev > publish a x\ndev > fin", CLOSE),
    "a DISCONNECT is not sent": (DISMISSED, OPEN + "dev > fin", ("close", "", 0)),
    "an earlier end": (OPEN + "\n".join((*ACKNOWLEDGED, "dev < fin")), OPEN + "dev < fin", ("close", "ending.by", 1)),
    "a broken packet": (OPEN, OPEN + "dev < raw 36070003612f620001", ("malformed", "", 0)),
    "less authentication": (AUTHENTICATED, OPEN, MISSING),
    "more authentication": (OPEN, AUTHENTICATED, UNEXPECTED),
}
DIFFERENT: talk.Different = {
    **{name: (talk.connack(a), talk.connack(b), [row]) for name, (a, b, row) in CONNACKS.items()},
    **{name: (talk.asked(*a), talk.asked(*b), [row]) for name, (a, b, row) in ASKED.items()},
    **{name: (a, b, [row]) for name, (a, b, row) in WHOLE.items()},
}

TWICE = talk.asked(*ACKNOWLEDGED, "dev < puback 1")
SAME_IDENTIFIER = talk.asked(
    *ACKNOWLEDGED, "dev > publish a y qos=1 id=1", "dev < puback 1", *SUBSCRIBED, *UNSUBSCRIBED
)
PUBREL_FIRST = "dev > connect resume\ndev < connack present\ndev > pubrel 7\ndev < pubcomp 7"
RELEASED_LATER = "\nsub > reset\nsub > connect resume\nsub < connack present\nsub < pubrel 7\nsub > pubcomp 7"
RECEIVED = talk.OPENED + "\nsub < publish t/a x qos=2 id=7\nsub > pubrec 7"
EQUAL: talk.Equal = {
    "a reason that is left out": (talk.asked(SENT, "dev < puback 1 code=0"), talk.asked(*ACKNOWLEDGED)),
    "what is left out has its default": (
        talk.connack("receive_maximum=65535 maximum_qos=2 retain_available=1 topic_alias_maximum=0"),
        talk.connack(""),
    ),
    "what the client asked for is said again": (
        "dev > connect keep_alive=60 session_expiry_interval=9\ndev < connack",
        "dev > connect keep_alive=60 session_expiry_interval=9\ndev < connack server_keep_alive=60",
    ),
    "texts for people, and names that brokers make up": (
        talk.connack("reason_string=a assigned_client_identifier=a response_information=a authentication_data=a"),
        talk.connack("reason_string=b assigned_client_identifier=b response_information=b authentication_data=b"),
    ),
    "the recording ended before the answer": (
        OPEN + f"{SENT}\ndev > reset",
        OPEN + f"{SENT}\ndev < puback 1\ndev > reset",
    ),
    "who closes after DISCONNECT": (talk.asked(), talk.asked().replace("dev > fin", "dev < fin")),
    "who closes after a refusal": (
        talk.connack("code=0x87") + "\ndev < fin",
        talk.connack("code=0x87") + "\ndev > fin",
    ),
    "answers to what was sent again": (
        talk.asked(*EXACTLY_ONCE),
        talk.asked(
            *EXACTLY_ONCE[:2],
            "dev > publish a x dup qos=2 id=1",
            "dev < pubrec 1",
            *("dev > pubrel 1", "dev > pubrel 1", "dev < pubcomp 1", "dev < pubcomp 1"),
        ),
    ),
    "an answer that came twice before": (TWICE, TWICE),
    "the same identifier for the next message": (SAME_IDENTIFIER, SAME_IDENTIFIER),
    "deliveries that are sent again on the next connection": (
        RECEIVED + RELEASED_LATER,
        RECEIVED + "\nsub < pubrel 7" + RELEASED_LATER,
    ),
    "a PUBREL on the next connection": (PUBREL_FIRST, PUBREL_FIRST),
}


@each("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    talk.check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    talk.check(*EQUAL[name], [])


def test_a_connection_that_is_never_made_is_one_difference() -> None:
    recorded = talk.record(talk.OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x")
    verification = verify(talk.replay(recorded, talk.OPENED.split("pub >")[0]))

    assert talk.told(verification.differences) == [("not-connected", "", 3)]
    assert [tally.script.name for tally in verification.tallies] == ["sub", "pub"]
    assert [(tally.compared, tally.equals, tally.differing, tally.following) for tally in verification.tallies] == [
        (2, 2, 0, 1),
        (1, 0, 1, 2),
    ]


@pytest.mark.parametrize("how", ["refused", "failed"])
def test_a_connection_that_fails_at_once_is_one_difference(how: str) -> None:
    pairs = talk.pairs(talk.connack(""), "dev > connect")
    live = pairs[0][1]
    assert live is not None
    live.ending.how, live.ending.detail = how, "Connection refused"

    (difference,) = talk.compare(pairs)
    assert (difference.kind, difference.follows) == (DifferenceKind.NOT_CONNECTED, 1)
    assert difference.message == "There was no connection to the live broker: Connection refused"


def test_a_connection_that_was_left_out_is_not_judged() -> None:
    recorded = talk.record(talk.connack(""))
    assert recorded[0].connect is not None
    verification = verify([(recorded[0], None)], skipped=[recorded[0].connect])

    assert (verification.differences, verification.tallies[0].unjudged) == ([], 1)


def test_a_recording_that_begins_in_the_middle_does_not_miss_its_connack() -> None:
    recorded = "dev > pingreq\ndev < pingresp\ndev < publish a x\ndev < puback 3"
    live = "dev > connect\ndev < connack\ndev > pingreq\ndev < pingresp"
    verification = verify(talk.pairs(recorded, live))

    assert (verification.differences, verification.tallies[0].equals) == ([], 1)
    assert verify([(talk.record(recorded)[0], None)]).differences == []


def test_the_answer_to_a_connect_that_cannot_be_read_is_compared() -> None:
    connect = "dev > raw 100b00044d5154540702003c00"

    (difference,) = talk.compare(
        talk.pairs(connect + "\ndev < connack code=0x84", connect + "\ndev < connack code=0x80")
    )
    assert difference.field == "reason_code"


@pytest.mark.parametrize("version", [ProtocolVersion.V3_1_1, ProtocolVersion.V3_1])
def test_older_versions_have_return_codes(version: ProtocolVersion) -> None:
    recorded = "dev > connect\ndev < connack\ndev > unsubscribe 1 a\ndev < unsuback 1"

    assert talk.told(talk.compare(talk.pairs(recorded, recorded, version))) == []
    (difference,) = talk.compare(talk.pairs(recorded, talk.connack("code=5"), version))
    assert (difference.field, difference.actual, difference.follows) == ("reason_code", 5, 1)
    assert "0x05 Connection Refused, not authorized" in difference.message


@pytest.mark.parametrize(
    ("live", "unjudged"),
    [
        pytest.param(EXACTLY_ONCE[:2], 1, id="an answer that the replay did not ask for"),
        pytest.param(ACKNOWLEDGED, 2, id="a message sent with another QoS has another answer"),
    ],
)
def test_what_is_not_judged(live: tuple[str, ...], unjudged: int) -> None:
    verification = verify(talk.pairs(talk.asked(*EXACTLY_ONCE), talk.asked(*live)))

    assert (verification.differences, verification.tallies[0].unjudged) == ([], unjudged)


def test_a_connection_that_breaks_says_why() -> None:
    both = talk.pairs(talk.asked(*PINGED), OPEN)
    live = both[0][1]
    assert live is not None
    live.ending.how, live.ending.detail = "failed", "broken pipe"
    (difference,) = talk.compare(both)

    assert (difference.kind, difference.follows) == (DifferenceKind.CLOSE, 1)
    assert difference.message == "The connection to the live broker broke: broken pipe"


def found(*lines: str, version: ProtocolVersion = talk.V5) -> list[tuple[str, str, bool]]:
    (script,) = talk.record(talk.asked(*lines), version)
    return [(answer.entry.type, answer.request.type, answer.asked) for answer in repeated(script)]


@pytest.mark.parametrize(
    ("lines", "again"),
    [
        (ACKNOWLEDGED, []),
        ((*ACKNOWLEDGED, *ACKNOWLEDGED), []),
        ((*ACKNOWLEDGED, "dev < puback 1"), [("puback", "publish", False)]),
        ((*ACKNOWLEDGED, "dev > publish a x dup qos=1 id=1", "dev < puback 1"), [("puback", "publish", True)]),
        (("dev < connack",), [("connack", "connect", False)]),
        (("dev > pingreq", "dev > pingreq", "dev < pingresp", "dev < pingresp"), []),
        (("dev > pingreq", "dev < pingresp", "dev < pingresp"), [("pingresp", "pingreq", False)]),
        ((*DELIVERED, *GOT, "dev > pubcomp 7"), []),
        ((*DELIVERED[:-1], "dev < pubrel 7"), [("pubrel", "pubrec", False)]),
        (("dev < pubrel 7", "dev > pubcomp 7"), []),
        (("dev < pubrel 7", "dev > pubcomp 7", "dev < pubrel 7"), [("pubrel", "pubrel", False)]),
        (("dev < puback 1", "dev < puback 1"), []),
    ],
)
def test_answers_are_counted_by_what_asks_for_them(lines: tuple[str, ...], again: list[tuple[str, str, bool]]) -> None:
    assert found(*lines) == again


def test_in_3_1_a_pubrel_says_that_it_is_sent_again() -> None:
    for raw, again in (("6a020007", True), ("62020007", False)):
        lines = (*DELIVERED[:-1], f"dev < raw {raw}")
        assert found(*lines, version=ProtocolVersion.V3_1) == [("pubrel", "pubrec", again)]
