"""How messages came to their clients: doubled by subscriptions, held back, or not taken by a program."""

from __future__ import annotations

from mqttscope.explain.arrivals import ALARM
from mqttscope.explain.fates import Delivery
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

TWO = "opened client=reader; > subscribe 1 a/+:1; < suback 1 1; > subscribe 2 a/b:1; < suback 2 1"
SENT = "@1 opened client=writer; @1 > publish a/b x qos=1 id=5; @1 < puback 5"
FIRST, SECOND = (f"< publish a/b x qos=1 id={number}" for number in (1, 2))
DOUBLED = ", 2 times (frames 17 and 18), once for each matching subscription (a/+ and a/b): the specification allows"


def said(*lines: str, topic: str = "a/b") -> str:
    """The words about the first message for the reader."""
    deliveries = traced(topic, *steps_of(*lines)).messages[0].deliveries
    return next(delivery.outcome for delivery in deliveries if delivery.client == "reader")


@each("version, section", [("", "(5.0 3.3.4)"), (" 3.1.1", "(3.1.1 3.3.5)")])
def test_a_copy_for_each_matching_subscription(version: str, section: str) -> None:
    text = said(TWO.replace("opened", f"opened{version}"), SENT, FIRST, SECOND)

    assert DOUBLED in text
    assert text.endswith(section)


NAMED = TWO.replace("1 a/+:1", "1 a/+:1 subscription_identifier=7").replace(
    "2 a/b:1", "2 a/b:1 subscription_identifier=8"
)


@each("second, is_doubled", [(8, True), (7, False)])
def test_subscription_identifiers_show_which_subscription_a_copy_is_for(second: int, is_doubled: bool) -> None:
    copies = [f"{copy} subscription_identifier={number}" for number, copy in ((7, FIRST), (second, SECOND))]
    shown = traced("a/b", *steps_of(NAMED, SENT, *copies))

    assert ("once for each matching subscription" in shown.messages[0].deliveries[0].outcome) is is_doubled
    assert any("no captured client published" in line for line in shown.remarks) is not is_doubled


@each(
    "lines",
    [
        (TWO.replace("a/+", "c/+"), SENT, FIRST, SECOND),  # one matches
        (TWO.replace("suback 2 1", "suback 2 0x80"), SENT, FIRST, SECOND),  # one was refused
        (TWO, SENT, FIRST, "+1.1 < publish a/b x qos=1 id=2"),  # nothing shows that they belong together
        (TWO, SENT, FIRST, f"{SECOND} retain"),  # the answer to a SUBSCRIBE
        (TWO, SENT, FIRST, FIRST.replace("qos=1", "qos=1 dup")),  # the same copy again
        (TWO, SENT, "@1 > publish a/b x qos=1 id=5 dup; @1 < puback 5", FIRST, SECOND),  # sent again by its publisher
    ],
)
def test_copies_that_subscriptions_do_not_explain(lines: tuple[str, ...]) -> None:
    assert "once for each matching subscription" not in said(*lines)


READER = "opened client=reader; > subscribe 1 a/b:0; < suback 1 0"
WRITER = "@1 opened client=writer"


def question(length: int, reply: str = "") -> str:
    return f'+2 @1 > publish a/b "x"*{length}; < publish a/b "x"*{length}; {reply or "> ack"}'


REPLY = "> publish a/ack ok"
SHORT = (question(9, REPLY), question(12, REPLY))
LONG = (question(200), question(210))
DROPPED = (
    "its program most probably dropped it: it sent a message within 1 s after each of 2 shorter ones (up to 20 bytes)"
)


def rows(*lines: str) -> list[str]:
    fates = traced("a/b", *steps_of(READER, WRITER, *lines, "+2 > pingreq; < pingresp")).messages
    return [delivery.outcome for fate in fates for delivery in fate.deliveries if "dropped" in delivery.outcome]


def test_a_client_that_never_replies_to_long_messages() -> None:
    first, second = rows(*SHORT, *LONG)

    assert DROPPED in first
    assert "and never after one of 2 with 209 bytes or more" in second


@each(
    "lines",
    [
        (*SHORT, *LONG, question(220, REPLY)),  # it takes longer ones
        (*SHORT, *LONG, question(9)),  # it does not always reply
        (SHORT[0], *LONG),
        (*SHORT, LONG[0]),
        (*SHORT, *LONG, "> fin"),  # the last reply may be missing
        (*SHORT, *(line.replace("< publish a/b", "< publish a/b qos=1 id=7") for line in LONG)),  # PUBACK may come
    ],
)
def test_a_client_that_may_take_long_messages(lines: tuple[str, ...]) -> None:
    assert not rows(*lines)


SUBSCRIBED = "opened client=reader; > subscribe 1 t:1; < suback 1 1; > ack; @1 opened client=plc"
ACCEPTED = "@1 > publish t x1 qos=1 id=1; @1 < puback 1; < publish t x1 qos=1 id=1; > puback 1"
BLOCKED = "@1 > publish t x2 qos=1 id=2; @1 < ack"


def blocked(*lines: str) -> list[Delivery]:
    """The deliveries that are missing, at the end of a conversation."""
    shown = traced("t", *steps_of(SUBSCRIBED, *lines, "+2 > pingreq; < pingresp"))
    return [row for fate in shown.messages for row in fate.deliveries if row.is_trouble]


def test_a_broker_that_stops_processing_messages() -> None:
    (delivery,) = blocked(ACCEPTED, BLOCKED)

    assert str(delivery.fate) == "not_received"
    assert (
        "it had acknowledged 1 message of plc to this topic that came to this client: TCP brought" in delivery.outcome
    )
    assert delivery.advice == (ALARM,)


@each(
    "lines",
    [
        (BLOCKED,),  # no message came before
        (ACCEPTED, f"{BLOCKED}; @1 < puback 2"),
        (ACCEPTED, BLOCKED, "@1 > publish t x3 qos=1 id=3; @1 < puback 3"),  # it processes later ones
        (ACCEPTED, BLOCKED.replace(" qos=1 id=2", "")),
    ],
)
def test_a_broker_that_processes_messages(lines: tuple[str, ...]) -> None:
    deliveries = blocked(*lines)

    assert deliveries
    assert not any(ALARM in delivery.advice for delivery in deliveries)


EXACTLY = "opened client=reader; > subscribe 1 a/b:2; < suback 1 2; @1 opened client=writer; @1 > publish a/b x"
GETS_IT = "< publish a/b x qos=2 id=9; > pubrec 9"


@each(
    "after, is_unreleased",
    [
        ("+1 > pingreq", True),
        ("+1.1 > fin", True),
        ("+0.9 > pingreq", False),  # the PUBREL may still come
        ("+0.5 > fin; +2 @1 > pingreq", False),  # the connection ended too soon
        ("< pubrel 9; > pubcomp 9; +2 > pingreq", False),
        ("< pubrel 9; +2 > pingreq", False),
        ("< pubrel 9; > pubcomp 9; < publish a/b y qos=2 id=9; > pubrec 9; +2 > pingreq", False),  # another message
    ],
)
def test_a_broker_that_does_not_release_a_message(after: str, is_unreleased: bool) -> None:
    trace = traced("a/b", *steps_of(EXACTLY, GETS_IT, after))
    delivery = trace.messages[0].deliveries[0]

    assert ("the broker sent no PUBREL after its PUBREC" in delivery.outcome) is is_unreleased
    assert any("sent no PUBREL" in advice for advice in delivery.advice) is is_unreleased


def test_a_broker_that_forgets_a_message_of_a_session_it_kept_is_told_so() -> None:
    keeps = "resume session_expiry_interval=60"
    lines = [f"opened client=reader {keeps}; > subscribe 1 a/b:1; < suback 1 1; {WRITER}; @1 > publish a/b x"]
    lines += [f"{FIRST}; > reset; @2 opened client=reader {keeps} < present; +1.1 @2 > pingreq; @2 < pingresp"]
    (delivery,) = traced("a/b", *steps_of(*lines)).messages[0].deliveries

    assert delivery.advice[0].startswith("Look in the broker why it forgot an unacknowledged message")


@each(
    "asks, is_named",
    [
        ("> subscribe 1 a/#:1; < suback 1 0x80", True),
        ("> subscribe 1 a/#:1 a/b:0; < suback 1 0x80 0x87", True),
        ("> subscribe 1 a/#:1 a/b:0; < suback 1 0x80 0", False),
        ("> subscribe 1 a/b:0; < suback 1 0; > subscribe 2 a/b:1; < suback 2 0x80", False),
        ("> subscribe 1 c:1; < suback 1 0x80", False),
    ],
)
def test_a_message_for_a_subscription_that_the_broker_refused(asks: str, is_named: bool) -> None:
    lines = [f"opened client=reader; {asks}", f"{WRITER}; @1 > publish a/b x", "< publish a/b x"]

    assert ("had refused its subscription to a/# (0x80)" in said(*lines)) is is_named


LIMITED = "opened client=r maximum_packet_size={}; > subscribe 1 #:{}; < suback 1 {}; @1 opened client=w {}"
ALIASED = "5.0 < topic_alias_maximum=1"


@each(
    "limit, granted, version, lines, fate, size",
    [
        (12, 1, "5.0", "publish a/b one qos=1 id=1", "too_large", "has 13"),
        (13, 1, "5.0", "publish a/b one qos=1 id=1", "not_sent", ""),
        # QoS 0 has no Packet Identifier, which shortens the Remaining Length, too.
        (12, 0, "5.0", "publish a/b one qos=1 id=1", "not_sent", ""),
        (10, 0, "5.0", "publish a/b one qos=1 id=1", "too_large", "has 11"),
        (128, 0, "5.0", 'publish a/b "x"*120 qos=1 id=1', "not_sent", ""),
        (127, 0, "5.0", 'publish a/b "x"*120 qos=1 id=1', "too_large", "has 128"),
        # MQTT 3.1.1 has no Property Length.
        (12, 1, "3.1.1", "publish a/b one qos=1 id=1", "too_large", "has 13"),
        # The alias of the publisher is its own.
        (13, 1, ALIASED, "publish a/b one qos=1 id=1 topic_alias=1", "not_sent", ""),
        (12, 1, ALIASED, "publish a/b one qos=1 id=1 topic_alias=1", "too_large", "has 13"),
        (13, 1, ALIASED, 'publish a/b 1 qos=1 id=1 topic_alias=1; @1 > publish "" onetwo qos=1 id=2 topic_alias=1',
         "too_large", "has 16"),
        # What the broker may add or leave out.
        ("15 topic_alias_maximum=1", 1, "5.0", "publish a/bcdefgh one qos=1 id=1", "too_large",
         "has 13 to 22, so that it may be too large"),
        ("12 topic_alias_maximum=1", 1, "5.0", "publish a/bcdefgh one qos=1 id=1", "too_large", "has at least 13"),
        ("22 topic_alias_maximum=1", 1, "5.0", "publish a/bcdefgh one qos=1 id=1", "not_sent", ""),
        (14, "1 subscription_identifier=7", "5.0", "publish a/b one qos=1 id=1", "too_large",
         "has 13 to 15, so that it may be too large"),
    ],
)  # fmt: skip
def test_the_size_of_a_copy(
    limit: int | str, granted: int | str, version: str, lines: str, fate: str, size: str
) -> None:
    client, answer = LIMITED.format(limit, granted, str(granted)[0], version), f"@1 < puback {lines.count('>') + 1}"
    shown = traced("#", *steps_of(client, f"+1 @1 > {lines}", answer, "+2 > pingreq; < pingresp"))
    (row,) = (row for row in shown.messages[-1].deliveries if row.client == "r")

    assert row.fate == fate
    assert not size or row.outcome.endswith(f"(Maximum Packet Size); the copy of this message {size}"), row.outcome
