"""What became of a message for one client."""

from __future__ import annotations

from fnmatch import fnmatchcase

from mqttscope.explain.deliveries import likeness
from mqttscope.explain.fates import QUEUE, Fate
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

TOPIC = "plant/7/alarm"
READER = f"opened client=reader; > subscribe 1 {TOPIC}:1; < suback 1 1"
WRITER = "@1 opened client=writer"
LATER = "+2 @1 > pingreq; @1 < pingresp"


@each("plain", ["house/light", TOPIC, "plant/+/alarm", "p" * 300])
def test_what_matches_or_is_something_else_is_not_like_a_topic(plain: str) -> None:
    assert likeness(TOPIC, plain) is None


def sent(number: int, arrives: bool) -> str:
    """A message with a payload of its own."""
    delivered = f"; < publish {TOPIC} m{number} qos=1 id={number}; > puback {number}" if arrives else ""
    return f"@1 > publish {TOPIC} m{number} qos=1 id={number}; @1 < puback {number}{delivered}"


@each(
    "arrive, said",
    [
        ((True, False, True), "before and after, so that no access rule is the reason"),
        ((True, False, False), "and the broker did not send it"),
        ((False, False, True), "and the broker did not send it"),
    ],
)
def test_what_was_delivered_before_and_after_excludes_access_rules(arrive: tuple[bool, ...], said: str) -> None:
    messages = [sent(number, arrives) for number, arrives in enumerate(arrive, 1)]
    found = traced(TOPIC, *steps_of(READER, WRITER, *messages, LATER)).messages
    (missed,) = (one for message in found[-1:] for one in message.deliveries if one.fate is Fate.NOT_SENT)

    assert said in missed.said
    assert any("access rules" in told for told in missed.advice) is ("no access rule" not in said)


FULL = f"opened client=reader receive_maximum=1; > subscribe 1 {TOPIC}:2; < suback 1 2; {WRITER}"
TAKES = f"< publish {TOPIC} m1 qos=1 id=1"
RESUMES = f"opened client=reader resume session_expiry_interval=60; > subscribe 1 {TOPIC}:0; < suback 1 0"
ASKS_LATER = [f"+1 > subscribe {number} {TOPIC}:1; < suback {number} 1" for number in range(2, 9)]
ASKS_AND_ENDS = [f"{asks}; > unsubscribe 9 {TOPIC}; < unsuback 9 0" for asks in ASKS_LATER]
ANEW = [f"+1 @2 opened client=reader; @2 > subscribe 1 {TOPIC}:1; @2 < suback 1 1"]
RESUMED = [f"+1 @2 opened client=reader resume < present; @1 > publish {TOPIC} m3; @2 < publish {TOPIC} m3", LATER]
QOS_0 = f"@1 > publish {TOPIC} m2; @1 < ack"


@each(
    "texts, fate, said",
    [
        (
            (FULL, sent(1, False), TAKES, sent(2, False), LATER),
            "quota_full",
            "*it had not acknowledged earlier messages",
        ),
        (
            (FULL, sent(1, False), sent(2, False), TAKES, LATER),
            "quota_full",
            "*it had not acknowledged earlier messages",
        ),
        (
            (FULL, sent(1, False), TAKES, sent(2, False), "+1 > puback 1", LATER),
            "quota_full",
            "*; it acknowledged one 1.010 s after the message, and the broker did not send it then either",
        ),
        ((FULL, sent(1, False), TAKES, QOS_0, LATER), "quota_full", "*a broker may hold back QoS 0 then, too"),
        ((FULL, sent(1, True), sent(2, False), LATER), "not_sent", "*"),
        # A PUBREC that refuses a message makes room, and so does the end of a connection.
        (
            (FULL, sent(1, False), TAKES.replace("qos=1", "qos=2"), "> pubrec 1", sent(2, False), LATER),
            "quota_full",
            "*",
        ),
        (
            (FULL, sent(1, False), TAKES.replace("qos=1", "qos=2"), "> pubrec 1 code=0x80", sent(2, False), LATER),
            "not_sent",
            "*",
        ),
        (
            (
                FULL,
                sent(1, False),
                TAKES,
                "> fin",
                f"+1 @2 {READER.replace('> ', '@2 > ')}".replace("; <", "; @2 <"),
                sent(2, False),
                "+2 @2 > pingreq",
            ),
            "not_sent",
            "*",
        ),
        # What came on the next connection does not exclude that the end of this one is the reason.
        (
            (
                RESUMES,
                WRITER,
                f"@1 > publish {TOPIC} m1; < publish {TOPIC} m1",
                QOS_0,
                "> reset",
                f"+1 @2 opened client=reader resume < present; @1 > publish {TOPIC} m3; @2 < publish {TOPIC} m3",
                LATER,
            ),
            "connection_ended",
            "*",
        ),
        # The first SUBSCRIBE that was granted is named.
        (("opened client=reader", WRITER, sent(2, False), *ASKS_LATER), "subscribed_later", "* 1.010 s later"),
        (
            (
                "opened client=reader",
                WRITER,
                sent(2, False),
                *ASKS_AND_ENDS,
            ),
            "subscribed_later",
            "* 1.010 s later",
        ),
        (
            ("opened client=reader", WRITER, sent(2, False), f"> subscribe 9 {TOPIC}:1; < suback 9 0x87", *ASKS_LATER),
            "subscribed_later",
            "* 1.030 s later",
        ),
        (
            ("opened client=reader", WRITER, sent(2, False), f"> subscribe 9 {TOPIC}:1; < suback 9 0x87", LATER),
            "subscription_refused",
            "asked for * 20.0 ms later, and the broker refused it (0x87)",
        ),
    ],
)
def test_why_the_second_message_did_not_come(texts: tuple[str, ...], fate: str, said: str) -> None:
    messages = traced(TOPIC, *steps_of(*texts)).messages
    (missed,) = (one for message in messages for one in message.deliveries if one.client == "reader" and one.is_trouble)

    assert (str(missed.fate), fnmatchcase(missed.said, said)) == (fate, True), missed.said


@each(
    "version, publishes, suspects",
    [
        ("5.0", sent(1, False), [False, False]),
        ("3.1.1", sent(1, False), [True, False]),
        ("5.0", QOS_0, [True, False]),
        ("3.1.1", sent(1, False).replace("qos=1", "qos=1 dup"), [True, True]),
    ],
)
def test_what_the_broker_may_have_done_with_a_message(version: str, publishes: str, suspects: list[bool]) -> None:
    writer = f"@1 opened {version} client=writer"
    (missed,) = traced(TOPIC, *steps_of(READER, "> ack", writer, publishes, LATER)).messages[0].deliveries

    assert [any(word in told for told in missed.advice) for word in ("may publish", "with DUP")] == suspects
    assert missed.advice[-1] == QUEUE
