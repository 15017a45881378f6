"""Answers and ends of connections: what differs is found by its name; and which answers came once more, and why."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import ProtocolVersion
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.answers import repeated
from mqttscope.replay.verify.difference import DifferenceKind
from tests.each import each
from tests.replay import talk

ACKNOWLEDGED = ("dev > publish a x qos=1 id=1", "dev < puback 1")
EXACTLY_ONCE = ("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1")
SUBSCRIBED = ("dev > subscribe 1 a:0", "dev < suback 1 0")
UNSUBSCRIBED = ("dev > unsubscribe 1 a", "dev < unsuback 1 0")
DELIVERED = (
    "dev > subscribe 1 a:2", "dev < suback 1 2", "dev < publish a x qos=2 id=7", "dev > pubrec 7", "dev < pubrel 7",
    "dev > pubcomp 7",
)  # fmt: skip

DIFFERENT: talk.Different = {
    "the client is not refused": (
        talk.connack("code=0x87"),
        talk.connack(""),
        [("reason-code", "reason_code", 0)],
    ),
    "another limit": (
        talk.connack("receive_maximum=20"),
        talk.connack("receive_maximum=10"),
        [("property", "properties.receive_maximum", 0)],
    ),
    "a limit that was not there": (
        talk.connack(""),
        talk.connack("maximum_qos=1"),
        [("property", "properties.maximum_qos", 0)],
    ),
    "no assigned client identifier": (
        "dev > connect client=\ndev < connack assigned_client_identifier=a",
        "dev > connect client=\ndev < connack",
        [("property", "properties.assigned_client_identifier", 0)],
    ),
    "another server": (
        talk.connack("code=0x9d server_reference=a"),
        talk.connack("code=0x9d server_reference=b"),
        [("property", "properties.server_reference", 0)],
    ),
    "another outcome of a message": (
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1"),
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1 code=0x10"),
        [("reason-code", "reason_code", 0)],
    ),
    "user properties of an answer in another order": (
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1 user_property=a:1 user_property=b:2"),
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1 user_property=b:2 user_property=a:1"),
        [("property", "properties.user_property", 0)],
    ),
    "no acknowledgement": (
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1"),
        talk.asked("dev > publish a x qos=1 id=1"),
        [("missing-answer", "", 0)],
    ),
    "no PUBREC and thus no PUBCOMP": (
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1"),
        talk.asked("dev > publish a x qos=2 id=1"),
        [("missing-answer", "", 1)],
    ),
    "no PUBCOMP": (
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1"),
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1"),
        [("missing-answer", "", 0)],
    ),
    "a refused QoS 2 message": (
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1"),
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1 code=0x97"),
        [("reason-code", "reason_code", 1)],
    ),
    "a QoS 2 message that was refused before": (
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1 code=0x97"),
        talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1"),
        [("reason-code", "reason_code", 0)],
    ),
    "another answer": (
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1"),
        talk.asked("dev > publish a x qos=1 id=1", "dev < pubrec 1"),
        [("unexpected-answer", "type", 0)],
    ),
    "an answer that did not come before": (
        talk.asked("dev > publish a x qos=1 id=1", "dev > pingreq", "dev < pingresp"),
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1", "dev > pingreq", "dev < pingresp"),
        [("unexpected-answer", "", 0)],
    ),
    "an answer to nothing": (
        talk.asked(),
        talk.asked("dev < puback 9"),
        [("unexpected-answer", "", 0)],
    ),
    **{
        f"{name} twice": (talk.asked(*said), talk.asked(*twice), [("unexpected-answer", "", 0)])
        for name, said, twice in (
            ("PUBACK", ACKNOWLEDGED, (*ACKNOWLEDGED, "dev < puback 1")),
            ("PUBREC", EXACTLY_ONCE, (*EXACTLY_ONCE[:2], "dev < pubrec 1", *EXACTLY_ONCE[2:])),
            (
                "PUBREC, so that PUBREL and PUBCOMP come twice",
                EXACTLY_ONCE,
                tuple(line for line in EXACTLY_ONCE for _ in range(1 if "publish" in line else 2)),
            ),
            ("PUBCOMP", EXACTLY_ONCE, (*EXACTLY_ONCE, "dev < pubcomp 1")),
            ("PUBREL", DELIVERED, (*DELIVERED, "dev < pubrel 7")),
            ("SUBACK", SUBSCRIBED, (*SUBSCRIBED, "dev < suback 1 0")),
            ("UNSUBACK", UNSUBSCRIBED, (*UNSUBSCRIBED, "dev < unsuback 1 0")),
            ("PINGRESP", ("dev > pingreq", "dev < pingresp"), ("dev > pingreq", "dev < pingresp", "dev < pingresp")),
        )
    },
    "CONNACK twice": (talk.connack(""), talk.connack("") + "\ndev < connack", [("unexpected-answer", "", 0)]),
    "an answer three times": (
        talk.asked(*ACKNOWLEDGED),
        talk.asked(*ACKNOWLEDGED, "dev < puback 1", "dev < puback 1"),
        [("unexpected-answer", "", 1)],
    ),
    "no PINGRESP": (
        talk.asked("dev > pingreq", "dev < pingresp"),
        talk.asked("dev > pingreq"),
        [("missing-answer", "", 0)],
    ),
    "the second of two subscriptions": (
        talk.asked("dev > subscribe 1 a:0 b:1", "dev < suback 1 0 1"),
        talk.asked("dev > subscribe 1 a:0 b:1", "dev < suback 1 0 0"),
        [("granted-qos", "reason_codes[1]", 0)],
    ),
    "too few codes": (
        talk.asked("dev > subscribe 1 a:0 b:1", "dev < suback 1 0 1"),
        talk.asked("dev > subscribe 1 a:0 b:1", "dev < suback 1 0"),
        [("reason-code", "reason_codes", 0)],
    ),
    "a subscription that did not exist": (
        talk.asked("dev > unsubscribe 1 a", "dev < unsuback 1 0"),
        talk.asked("dev > unsubscribe 1 a", "dev < unsuback 1 0x11"),
        [("reason-code", "reason_codes[0]", 0)],
    ),
    "a DISCONNECT that was not sent": (
        talk.asked("dev > publish a x", "dev > pingreq", "dev < pingresp"),
        "dev > connect\ndev < connack\ndev > publish a x\ndev < disconnect code=0x81\ndev < fin",
        [("close", "ending.by", 1)],
    ),
    "another reason to disconnect": (
        "dev > connect\ndev < connack\ndev < disconnect code=0x8b\ndev < fin",
        "dev > connect\ndev < connack\ndev < disconnect code=0x8e\ndev < fin",
        [("reason-code", "reason_code", 0)],
    ),
    "no DISCONNECT": (
        "dev > connect\ndev < connack\ndev < disconnect code=0x8b\ndev < fin",
        "dev > connect\ndev < connack\ndev < fin",
        [("close", "ending.by", 0)],
    ),
    "no end at all": (
        "dev > connect\ndev < connack\ndev > publish a x\ndev < fin",
        "dev > connect\ndev < connack\ndev > publish a x\ndev > fin",
        [("close", "ending.by", 0)],
    ),
    "a DISCONNECT is not sent": (
        "dev > connect\ndev < connack\ndev < disconnect code=0x8b\ndev < fin",
        "dev > connect\ndev < connack\ndev > fin",
        [("close", "", 0)],
    ),
    "an earlier end": (
        "dev > connect\ndev < connack\ndev > publish a x qos=1 id=1\ndev < puback 1\ndev < fin",
        "dev > connect\ndev < connack\ndev < fin",
        [("close", "ending.by", 1)],
    ),
    "a broken packet": (talk.connack(""), talk.connack("") + "\ndev < raw 36070003612f620001", [("malformed", "", 0)]),
    "less authentication": (
        "dev > connect\ndev < auth code=0x18\ndev > auth code=0x18\ndev < connack",
        "dev > connect\ndev < connack",
        [("missing-answer", "", 0)],
    ),
    "more authentication": (
        "dev > connect\ndev < connack",
        "dev > connect\ndev < auth code=0x18\ndev > auth code=0x18\ndev < connack",
        [("unexpected-answer", "", 0)],
    ),
}

EQUAL: talk.Equal = {
    "a reason that is left out": (
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1 code=0"),
        talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1"),
    ),
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
        "dev > connect\ndev < connack\ndev > publish a x qos=1 id=1\ndev > reset",
        "dev > connect\ndev < connack\ndev > publish a x qos=1 id=1\ndev < puback 1\ndev > reset",
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
            "dev > pubrel 1",
            "dev > pubrel 1",
            "dev < pubcomp 1",
            "dev < pubcomp 1",
        ),
    ),
    "an answer that came twice before": (
        talk.asked(*ACKNOWLEDGED, "dev < puback 1"),
        talk.asked(*ACKNOWLEDGED, "dev < puback 1"),
    ),
    "the same identifier for the next message": (
        talk.asked(*ACKNOWLEDGED, "dev > publish a y qos=1 id=1", "dev < puback 1", *SUBSCRIBED, *UNSUBSCRIBED),
        talk.asked(*ACKNOWLEDGED, "dev > publish a y qos=1 id=1", "dev < puback 1", *SUBSCRIBED, *UNSUBSCRIBED),
    ),
    "deliveries that are sent again on the next connection": (
        talk.OPENED + "\nsub < publish t/a x qos=2 id=7\nsub > pubrec 7\nsub > reset"
        "\nsub > connect resume\nsub < connack present\nsub < pubrel 7\nsub > pubcomp 7",
        talk.OPENED + "\nsub < publish t/a x qos=2 id=7\nsub > pubrec 7\nsub < pubrel 7\nsub > reset"
        "\nsub > connect resume\nsub < connack present\nsub < pubrel 7\nsub > pubcomp 7",
    ),
    "a PUBREL on the next connection": (
        "dev > connect resume\ndev < connack present\ndev > pubrel 7\ndev < pubcomp 7",
        "dev > connect resume\ndev < connack present\ndev > pubrel 7\ndev < pubcomp 7",
    ),
}


@each("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    talk.check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    talk.check(*EQUAL[name], [])


def test_a_connection_that_is_never_made_is_one_difference() -> None:
    recorded = talk.record(talk.OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x")
    found = verify(talk.replay(recorded, talk.OPENED.split("pub >")[0]))

    assert talk.told(found.differences) == [("not-connected", "", 3)]
    assert [one.script.name for one in found.tallies] == ["sub", "pub"]
    assert [(one.compared, one.equals, one.differing, one.following) for one in found.tallies] == [
        (2, 2, 0, 1),
        (1, 0, 1, 2),
    ]


@pytest.mark.parametrize("how", ["refused", "failed"])
def test_a_connection_that_fails_at_once_is_one_difference(how: str) -> None:
    found = talk.pairs(talk.connack(""), "dev > connect")
    live = found[0][1]
    assert live is not None
    live.ending.how, live.ending.detail = how, "Connection refused"

    (one,) = talk.compare(found)
    assert (one.kind, one.follows) == (DifferenceKind.NOT_CONNECTED, 1)
    assert one.message == "There was no connection to the live broker: Connection refused"


def test_a_connection_that_was_left_out_is_not_judged() -> None:
    recorded = talk.record(talk.connack(""))
    assert recorded[0].connect is not None
    found = verify([(recorded[0], None)], skipped=[recorded[0].connect])

    assert (found.differences, found.tallies[0].unjudged) == ([], 1)


def test_a_recording_that_begins_in_the_middle_does_not_miss_its_connack() -> None:
    recorded = "dev > pingreq\ndev < pingresp\ndev < publish a x\ndev < puback 3"
    live = "dev > connect\ndev < connack\ndev > pingreq\ndev < pingresp"
    found = verify(talk.pairs(recorded, live))

    assert (found.differences, found.tallies[0].equals) == ([], 1)
    assert verify([(talk.record(recorded)[0], None)]).differences == []


def test_the_answer_to_a_connect_that_cannot_be_read_is_compared() -> None:
    connect = "dev > raw 100b00044d5154540702003c00"

    (one,) = talk.compare(talk.pairs(connect + "\ndev < connack code=0x84", connect + "\ndev < connack code=0x80"))
    assert one.field == "reason_code"


@pytest.mark.parametrize("version", [ProtocolVersion.V3_1_1, ProtocolVersion.V3_1])
def test_older_versions_have_return_codes(version: ProtocolVersion) -> None:
    recorded = "dev > connect\ndev < connack\ndev > unsubscribe 1 a\ndev < unsuback 1"

    assert talk.told(talk.compare(talk.pairs(recorded, recorded, version))) == []
    (one,) = talk.compare(talk.pairs(recorded, talk.connack("code=5"), version))
    assert (one.field, one.found, one.follows) == ("reason_code", 5, 1)
    assert "0x05 Connection Refused, not authorized" in one.message


def test_an_answer_that_the_replay_did_not_ask_for_is_not_judged() -> None:
    recorded = talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1")
    found = verify(talk.pairs(recorded, talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1")))

    assert (found.differences, found.tallies[0].unjudged) == ([], 1)


def test_a_message_sent_with_another_qos_has_another_answer() -> None:
    recorded = talk.asked("dev > publish a x qos=2 id=1", "dev < pubrec 1", "dev > pubrel 1", "dev < pubcomp 1")
    found = verify(talk.pairs(recorded, talk.asked("dev > publish a x qos=1 id=1", "dev < puback 1")))

    assert (found.differences, found.tallies[0].unjudged) == ([], 2)


def test_a_connection_that_breaks_says_why() -> None:
    both = talk.pairs(talk.asked("dev > pingreq", "dev < pingresp"), "dev > connect\ndev < connack")
    live = both[0][1]
    assert live is not None
    live.ending.how, live.ending.detail = "failed", "broken pipe"
    (one,) = talk.compare(both)

    assert (one.kind, one.follows) == (DifferenceKind.CLOSE, 1)
    assert one.message == "The connection to the live broker broke: broken pipe"


V3_1 = ProtocolVersion.V3_1
SUBSCRIBED = "dev > subscribe 1 a:2", "dev < suback 1 2"
GOT = "dev < publish a x qos=2 id=7", "dev > pubrec 7", "dev < pubrel 7"
SENT = "dev > publish a x qos=1 id=1", "dev < puback 1"


def found(*lines: str, version: ProtocolVersion = talk.V5) -> list[tuple[str, str, bool]]:
    (script,) = talk.record(talk.asked(*lines), version)
    return [(one.entry.type, one.request.type, one.asked) for one in repeated(script)]


@pytest.mark.parametrize(
    ("lines", "again"),
    [
        (SENT, []),
        ((*SENT, *SENT), []),
        ((*SENT, "dev < puback 1"), [("puback", "publish", False)]),
        ((*SENT, "dev > publish a x dup qos=1 id=1", "dev < puback 1"), [("puback", "publish", True)]),
        (("dev < connack",), [("connack", "connect", False)]),
        (("dev > pingreq", "dev > pingreq", "dev < pingresp", "dev < pingresp"), []),
        (("dev > pingreq", "dev < pingresp", "dev < pingresp"), [("pingresp", "pingreq", False)]),
        ((*SUBSCRIBED, *GOT, "dev > pubcomp 7", *GOT, "dev > pubcomp 7"), []),
        ((*SUBSCRIBED, *GOT, "dev < pubrel 7"), [("pubrel", "pubrec", False)]),
        (("dev < pubrel 7", "dev > pubcomp 7"), []),
        (("dev < pubrel 7", "dev > pubcomp 7", "dev < pubrel 7"), [("pubrel", "pubrel", False)]),
        (("dev < puback 1", "dev < puback 1"), []),
    ],
)
def test_answers_are_counted_by_what_asks_for_them(lines: tuple[str, ...], again: list[tuple[str, str, bool]]) -> None:
    assert found(*lines) == again


def test_in_3_1_a_pubrel_says_that_it_is_sent_again() -> None:
    lines = (*SUBSCRIBED, *GOT)

    assert found(*lines, "dev < raw 6a020007", version=V3_1) == [("pubrel", "pubrec", True)]
    assert found(*lines, "dev < raw 62020007", version=V3_1) == [("pubrel", "pubrec", False)]
