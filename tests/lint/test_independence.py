"""One mistake gives one finding: what follows from it, or cannot be told apart from it, is not reported beside it.

Good examples of rules show that conforming pairs are left alone.  Here one side does make a mistake: the other side,
which answers as it should, must not be blamed, nor must the mistake be reported under two names.
"""

from __future__ import annotations

from mqttscope.lint.rule import PRACTICE
from tests.each import each
from tests.lint.lint_help import linted, steps_of

IGNORED = {"CON108"}
"""True of the examples' CONNECT: a note."""


def codes(text: str) -> list[str]:
    """Rules of the standard that find something, once for each finding."""
    return [
        finding.rule
        for finding in linted(*steps_of(text))
        if finding.rule not in IGNORED and finding.rule[:3] not in PRACTICE
    ]


Q1, Q2 = "> publish a 1 qos=1 id=7", "> publish b qos=2 id=7"
OTHER_Q1, OTHER_Q2 = "> publish a 2 qos=1 id=7", "> publish a qos=2 id=7"
ASKS, DONE = "> subscribe 7 q r", "< suback 7 0 0"
RELEASED = "> pubrel 7; < pubcomp 7"
SHARED = {
    "message, SUBSCRIBE": f"{Q1}; {ASKS}; < puback 7; {DONE}",
    "answers the other way round": f"{Q1}; {ASKS}; {DONE}; < puback 7",
    "SUBSCRIBE, message of QoS 2": f"{ASKS}; {Q2}; {DONE}; < pubrec 7; {RELEASED}",
    "SUBSCRIBE, UNSUBSCRIBE": f"{ASKS}; > unsubscribe 7 q; {DONE}; < unsuback 7 0x11",
    "two SUBSCRIBE": f"{ASKS}; > subscribe 7 s; < suback 7 0; {DONE}",
    "messages of QoS 1 and 2": f"{Q1}; {Q2}; < puback 7; < pubrec 7; {RELEASED}",
    "messages of QoS 2 and 1": f"{Q2}; {Q1}; < pubrec 7; < puback 7; {RELEASED}",
    "two messages of QoS 1": f"{Q1}; {OTHER_Q1}; < puback 7; < puback 7",
    "the second is refused": f"{Q1}; {OTHER_Q1}; < puback 7; < puback 7 code=0x91",
    "the second of QoS 2 is refused": f"{OTHER_Q2}; {Q2}; < pubrec 7; < pubrec 7 code=0x91; {RELEASED}",
    "in the middle of QoS 2": f"{Q2}; < pubrec 7; {ASKS}; > pubrel 7; {DONE} & pubcomp 7",
    "the SUBSCRIBE is never answered": f"{ASKS}; {Q1}; < puback 7; +50 {Q1}",
    "a server that uses it twice": (
        "> subscribe 1 q:2 r:2; < suback 1 2 2; < publish q qos=1 id=7; < publish r qos=2 id=7"
        "; > puback 7; > pubrec 7; < pubrel 7; > pubcomp 7"
    ),
}


@each("text", SHARED.values(), ids=SHARED)
def test_answers_to_an_identifier_that_two_packets_have_are_not_blamed(text: str) -> None:
    assert codes(f"opened; {text}") == ["ACK202"]


WILDCARDS = "opened < wildcard_subscription_available=0; > subscribe 1 " + " ".join(f"{n}/#" for n in range(50))
IDENTIFIER = "subscription_identifier"
ONCE = {
    "DISCONNECT instead of CONNACK": ("DIS202", "> connect; < disconnect code=0x8b"),
    "DISCONNECT instead of CONNACK, in 3.1.1": ("HDR103", "> connect 3.1.1; < disconnect"),
    "a second SUBACK": ("SUB212", f"opened; {ASKS}; {DONE}; {DONE}"),
    "0x19 from the server": (
        "AUT205",
        "> connect authentication_method=m; < auth code=0x19 authentication_method=m",
    ),
    "DUP in a new session": ("PUB208", "opened; > publish a dup qos=1 id=7; < puback 7"),
    "PUBREL in a new session": ("ACK203", "opened; > pubrel 7"),
    "DUP in a session that is gone": ("SES201", "opened resume; > publish a dup qos=1 id=7; < puback 7"),
    "PUBREL in a session that is gone": ("SES201", "opened resume; > pubrel 7"),
    "PUBACK in a session that is gone": ("SES201", "opened resume; > puback 7"),
    "PUBACK in a session that is gone, in 3.1.1": ("ACK203", "opened 3.1.1 resume; > puback 7"),
    "Subscription Identifier 0": (
        "PRP106",
        f"opened; {ASKS} {IDENTIFIER}=3; {DONE}; < publish q {IDENTIFIER}=3 {IDENTIFIER}=0",
    ),
    "an alias that a broken packet may have set": (
        "PRP102",
        "opened < topic_alias_maximum=5; > raw 30 08 00 01 61 7f 23 00 01 78; > publish topic_alias=1",
    ),
    "AUTH in 3.1.1": ("HDR101", "opened 3.1.1; > raw f0 00"),
    "PUBACK of 5.0 in 3.1.1": ("HDR104", f"opened 3.1.1; {Q1}; < raw 40 04 00 07 00 00"),
    "fifty wildcards": ("SUB213", WILDCARDS),
}


@each("code, text", ONCE.values(), ids=ONCE)
def test_one_mistake_is_reported_once(code: str, text: str) -> None:
    assert codes(text) == [code]


def test_a_finding_about_many_filters_says_how_many() -> None:
    (finding,) = linted(*steps_of(WILDCARDS), codes=("SUB213",))

    assert finding.field == "subscriptions[0].topic_filter"
    assert "'0/#' and 49 more" in finding.message


@each(
    "more, expected",
    [
        ("", "'c1' pings every 5 s with a Keep Alive of 60 s (4 PINGREQ and no other packet)"),
        ("> publish a", "4 of 4 PINGREQ of 'c1' were sent while the connection was busy (Keep Alive 60 s)"),
    ],
)
def test_what_is_said_of_a_client_that_pings_every_five_seconds(more: str, expected: str) -> None:
    steps = steps_of("opened", more, "for 1..4: +4.99 > pingreq; < pingresp", "> disconnect; > fin")
    (finding,) = linted(*steps, codes=["OPS212"])

    assert finding.message == expected
