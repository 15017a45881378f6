"""One mistake gives one finding: what follows from it, or cannot be told apart from it, is not reported beside it.

Good examples of rules show that conforming pairs are left alone.  Here one side does make a mistake: the other side,
which answers as it should, must not be blamed, nor must the mistake be reported under two names.
"""

from __future__ import annotations

import pytest

from mqttscope.lint.examples import Step, client, closes, hexadecimal, make_connect, opened, server
from mqttscope.lint.rule import PRACTICE, V3_1_1
from mqttscope.mqtt.packets import (
    Auth,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.lint.lint_help import linted

IGNORED = {"CON108"}
"""True of the examples' CONNECT: a note."""


def codes(*steps: Step) -> list[str]:
    """Rules of the standard that find something, once for each finding."""
    return [one.rule for one in linted(*steps) if one.rule not in IGNORED and one.rule[:3] not in PRACTICE]


Q1 = Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"1")
OTHER_Q1 = Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"2")
Q2 = Publish(qos=2, topic_name="b", packet_identifier=7)
ASKS = Subscribe(7, subscriptions=[Subscription("q"), Subscription("r")])
ASKS_MORE = Subscribe(7, subscriptions=[Subscription("s")])
LEAVES = Unsubscribe(7, topic_filters=["q"])
DONE = Suback(7, reason_codes=[0, 0])
LEFT = Unsuback(7, reason_codes=[0x11])
SHARED: list[tuple[str, list[Step]]] = [
    ("message, SUBSCRIBE", [client(Q1), client(ASKS), server(Puback(7)), server(DONE)]),
    ("answers the other way round", [client(Q1), client(ASKS), server(DONE), server(Puback(7))]),
    (
        "SUBSCRIBE, message of QoS 2",
        [client(ASKS), client(Q2), server(DONE), server(Pubrec(7)), client(Pubrel(7)), server(Pubcomp(7))],
    ),
    ("SUBSCRIBE, UNSUBSCRIBE", [client(ASKS), client(LEAVES), server(DONE), server(LEFT)]),
    ("two SUBSCRIBE", [client(ASKS), client(ASKS_MORE), server(Suback(7, reason_codes=[0])), server(DONE)]),
    (
        "messages of QoS 1 and 2",
        [client(Q1), client(Q2), server(Puback(7)), server(Pubrec(7)), client(Pubrel(7)), server(Pubcomp(7))],
    ),
    (
        "messages of QoS 2 and 1",
        [client(Q2), client(Q1), server(Pubrec(7)), server(Puback(7)), client(Pubrel(7)), server(Pubcomp(7))],
    ),
    ("two messages of QoS 1", [client(Q1), client(OTHER_Q1), server(Puback(7)), server(Puback(7))]),
    ("the second is refused", [client(Q1), client(OTHER_Q1), server(Puback(7)), server(Puback(7, reason_code=0x91))]),
    (
        "the second of QoS 2 is refused",
        [
            client(Publish(qos=2, topic_name="a", packet_identifier=7)),
            client(Q2),
            server(Pubrec(7)),
            server(Pubrec(7, reason_code=0x91)),
            client(Pubrel(7)),
            server(Pubcomp(7)),
        ],
    ),
    (
        "in the middle of QoS 2",
        [client(Q2), server(Pubrec(7)), client(ASKS), client(Pubrel(7)), server(DONE, Pubcomp(7))],
    ),
    ("the SUBSCRIBE is never answered", [client(ASKS), client(Q1), server(Puback(7)), client(Q1, after=50)]),
]


@pytest.mark.parametrize("steps", [pytest.param(steps, id=title) for title, steps in SHARED])
def test_answers_to_an_identifier_that_two_packets_have_are_not_blamed(steps: list[Step]) -> None:
    assert codes(*opened(), *steps) == ["ACK202"]


def test_a_server_that_uses_an_identifier_twice_is_to_blame_alone() -> None:
    first = Publish(qos=1, topic_name="q", packet_identifier=7)
    second = Publish(qos=2, topic_name="r", packet_identifier=7)
    asks = Subscribe(1, subscriptions=[Subscription("q", 2), Subscription("r", 2)])
    steps = [client(asks), server(Suback(1, reason_codes=[2, 2])), server(first), server(second)]

    assert codes(*opened(), *steps, client(Puback(7)), client(Pubrec(7)), server(Pubrel(7)), client(Pubcomp(7))) == [
        "ACK202"
    ]


METHOD = Properties(authentication_method="m")
ALIASES = Properties(topic_alias_maximum=5)
WILDCARDS = Subscribe(1, subscriptions=[Subscription(f"{number}/#") for number in range(50)])
ONCE: list[tuple[str, str, list[Step]]] = [
    ("DIS202", "DISCONNECT instead of CONNACK", [client(make_connect()), server(Disconnect(0x8B))]),
    ("HDR103", "the same in 3.1.1", [client(make_connect(V3_1_1)), server(Disconnect())]),
    ("SUB212", "a second SUBACK", [*opened(), client(ASKS), server(DONE), server(DONE)]),
    ("AUT205", "0x19 from the server", [client(make_connect(properties=METHOD)), server(Auth(0x19, METHOD))]),
    (
        "PUB208",
        "DUP in a new session",
        [*opened(), client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7)), server(Puback(7))],
    ),
    ("ACK203", "PUBREL in a new session", [*opened(), client(Pubrel(7))]),
    (
        "SES201",
        "DUP in a session that is gone",
        [
            *opened(clean_start=False),
            client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7)),
            server(Puback(7)),
        ],
    ),
    ("SES201", "PUBREL in a session that is gone", [*opened(clean_start=False), client(Pubrel(7))]),
    ("SES201", "PUBACK in a session that is gone", [*opened(clean_start=False), client(Puback(7))]),
    ("ACK203", "the same in 3.1.1", [*opened(V3_1_1, clean_start=False), client(Puback(7))]),
    (
        "PRP106",
        "Subscription Identifier 0",
        [
            *opened(),
            client(Subscribe(1, Properties(subscription_identifier=3), [Subscription("a")])),
            server(Suback(1, reason_codes=[0])),
            server(Publish(topic_name="a", properties=Properties(subscription_identifier=[3, 0]))),
        ],
    ),
    (
        "PRP102",
        "an alias that a broken packet may have set",
        [
            *opened(connack=ALIASES),
            client(hexadecimal("30 08 00 01 61 7f 23 00 01 78")),
            client(Publish(properties=Properties(topic_alias=1))),
        ],
    ),
    ("HDR101", "AUTH in 3.1.1", [*opened(V3_1_1), client(hexadecimal("f0 00"))]),
    ("HDR104", "PUBACK of 5.0 in 3.1.1", [*opened(V3_1_1), client(Q1), server(hexadecimal("40 04 00 07 00 00"))]),
    (
        "SUB213",
        "fifty wildcards",
        [*opened(connack=Properties(wildcard_subscription_available=0)), client(WILDCARDS)],
    ),
]


@pytest.mark.parametrize(("code", "steps"), [pytest.param(code, steps, id=title) for code, title, steps in ONCE])
def test_one_mistake_is_reported_once(code: str, steps: list[Step]) -> None:
    assert codes(*steps) == [code]


def test_a_finding_about_many_filters_says_how_many() -> None:
    steps = [*opened(connack=Properties(wildcard_subscription_available=0)), client(WILDCARDS)]
    (found,) = linted(*steps, codes=("SUB213",))

    assert found.field == "subscriptions[0].topic_filter"
    assert "'0/#' and 49 more" in found.message


def pinging(*more: Step) -> str:
    """What is said of a client that pings every five seconds where sixty would do."""
    pings = [step for _ in range(4) for step in (client(Pingreq(), after=4.99), server(Pingresp()))]
    (found,) = linted(*opened(), *more, *pings, client(Disconnect()), closes("client"), codes=["OPS212"])
    return found.message


def test_pings_alone_are_told_by_their_interval() -> None:
    assert pinging() == "'c1' pings every 5 s with a Keep Alive of 60 s (4 PINGREQ and no other packet)"


def test_pings_beside_others_came_while_the_connection_was_busy() -> None:
    busy = "4 of 4 PINGREQ of 'c1' came while the connection was busy (Keep Alive 60 s)"
    assert pinging(client(Publish(topic_name="a"))) == busy
