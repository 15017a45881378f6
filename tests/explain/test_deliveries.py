"""What became of a message for one client."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from mqttscope.explain import message_report
from mqttscope.explain.fates import QUEUE, Fate
from tests.each import each
from tests.explain.running import across, traced
from tests.lint.lint_help import steps_of

TOPIC = "plant/7/alarm"
READER = f"opened client=reader; > subscribe 1 {TOPIC}:1; < suback 1 1"
WRITER = "@1 opened client=writer"
LATER = "+2 @1 > pingreq; @1 < pingresp"


def sent(number: int, arrives: bool) -> str:
    """A message with a payload of its own."""
    delivered = f"; < publish {TOPIC} m{number} qos=1 id={number}; > puback {number}" if arrives else ""
    return f"@1 > publish {TOPIC} m{number} qos=1 id={number}; @1 < puback {number}{delivered}"


@each(
    "arrive, expected",
    [
        ((True, False, True), "before and after, so that no access rule is the reason"),
        ((True, False, False), "and the broker did not send it"),
        ((False, False, True), "and the broker did not send it"),
    ],
)
def test_what_was_delivered_before_and_after_excludes_access_rules(arrive: tuple[bool, ...], expected: str) -> None:
    messages = [sent(number, arrives) for number, arrives in enumerate(arrive, 1)]
    fates = traced(TOPIC, *steps_of(READER, WRITER, *messages, LATER)).messages
    (missed,) = (
        delivery for message in fates[-1:] for delivery in message.deliveries if delivery.fate is Fate.NOT_SENT
    )

    assert expected in missed.outcome
    assert any("access rules" in text for text in missed.advice) is ("no access rule" not in expected)


def test_a_queue_that_may_be_full_comes_before_access_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_report, "MAX_SHOWN", 100)
    resumes = "opened client=reader resume session_expiry_interval=60"
    away = f"{resumes}; > subscribe 1 {TOPIC}:1; < suback 1 1; > disconnect; > fin; {WRITER}"
    backlog = "; ".join(sent(number, False) for number in range(1, 21))
    waits = sent(2, True).removesuffix("; > puback 2")
    waited, queued, plain = (
        next(delivery for delivery in traced(TOPIC, *steps_of(text)).messages[-1].deliveries if delivery.is_trouble)
        for text in (
            f"{READER}; {WRITER}; {sent(1, True)}; {waits}; {sent(3, False)}; > puback 2; {LATER}",
            f"{away}; {backlog}; @2 {resumes} < present; {sent(21, False)}; +1.1 @2 > pingreq",
            f"{READER}; {WRITER}; {sent(1, True)}; {sent(2, False)}; {LATER}",
        )
    )

    assert waited.outcome.endswith("; it had not acknowledged 1 message of the broker then")
    assert queued.outcome.endswith("; 20 messages for it from when it was away have not been sent either")
    assert ["full queue" in missed.advice[0] for missed in (waited, queued, plain)] == [True, True, False]


FULL = f"opened client=reader receive_maximum=1; > subscribe 1 {TOPIC}:2; < suback 1 2; {WRITER}"
TAKES = f"< publish {TOPIC} m1 qos=1 id=1"
RESUMES = f"opened client=reader resume session_expiry_interval=60; > subscribe 1 {TOPIC}:0; < suback 1 0"
ASKS_LATER = [f"+1 > subscribe {number} {TOPIC}:1; < suback {number} 1" for number in range(2, 9)]
ASKS_AND_ENDS = [f"{asks}; > unsubscribe 9 {TOPIC}; < unsuback 9 0" for asks in ASKS_LATER]
ANEW = [f"+1 @2 opened client=reader; @2 > subscribe 1 {TOPIC}:1; @2 < suback 1 1"]
RESUMED = [f"+1 @2 opened client=reader resume < present; @1 > publish {TOPIC} m3; @2 < publish {TOPIC} m3", LATER]
QOS_0 = f"@1 > publish {TOPIC} m2; @1 < ack"


@each(
    "texts, fate, expected",
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
                FULL.replace("maximum=1", "maximum=1 session_expiry_interval=60"),
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
def test_why_the_second_message_did_not_come(texts: tuple[str, ...], fate: str, expected: str) -> None:
    messages = traced(TOPIC, *steps_of(*texts)).messages
    rows = [
        delivery
        for message in messages
        for delivery in message.deliveries
        if delivery.client == "reader" and delivery.is_trouble
    ]
    missed = rows[-1]

    assert (str(missed.fate), fnmatchcase(missed.outcome, expected)) == (fate, True), missed.outcome


ALIVE = "+2 > pingreq; < pingresp; +0.5 > pingreq; > ack"
"""The reader takes part in its connection for long enough, and acknowledges no message."""
HOLDS = (READER, WRITER, sent(1, False), TAKES, "> ack")
OTHER_TOPIC = "< publish plant/8 x qos=1 id=8; > ack"


@each(
    "texts, fate, expected, suspects",
    [
        (
            (*HOLDS, sent(2, False), ALIVE),
            "stalled",
            "has left 1 message of the broker unacknowledged since frame *; many brokers send no more *",
            False,
        ),
        # Nothing shows that the client may read this topic.
        ((READER, WRITER, OTHER_TOPIC, sent(2, False), ALIVE), "stalled", "*left 1 message *", True),
        # An answer makes room, and what was sent above the number disproves the limit, on an earlier connection too.
        ((*HOLDS, sent(2, False), "+0.1 > puback 1", ALIVE), "not_sent", "*", False),
        ((*HOLDS, sent(2, False), "+1 < publish plant/8 x qos=1 id=8", ALIVE), "not_sent", "*", False),
        ((*HOLDS, OTHER_TOPIC, "> puback 8", sent(2, False), ALIVE), "not_sent", "*", False),
        ((*HOLDS, sent(2, False), "+1 < publish plant/8 x", ALIVE), "stalled", "*", False),
        # A broker need not hold back QoS 0, an answer may be lost, and TCP has not acknowledged the message.
        ((*HOLDS, QOS_0, ALIVE), "not_sent", "*", False),
        ((*HOLDS, "lost > puback 1", sent(2, False), ALIVE), "not_sent", "*", False),
        ((*HOLDS[:-1], sent(2, False), "+2 < pingresp"), "not_sent", "*", False),
        ((*HOLDS, sent(2, False), ALIVE, "> raw 4000"), "not_sent", "*", False),
    ],
)
def test_a_client_that_leaves_messages_unacknowledged_may_be_sent_no_more(
    texts: tuple[str, ...], fate: str, expected: str, suspects: bool
) -> None:
    (missed,) = (
        delivery for delivery in traced(TOPIC, *steps_of(*texts)).messages[-1].deliveries if delivery.is_trouble
    )

    assert (str(missed.fate), fnmatchcase(missed.outcome, expected)) == (fate, True), missed.outcome
    if missed.fate is Fate.STALLED:
        assert any("access rules" in text for text in missed.advice) is suspects


def test_what_an_earlier_connection_was_sent_disproves_a_limit() -> None:
    resumes = "opened client=reader resume session_expiry_interval=60"
    asks = f"> subscribe 1 {TOPIC}:1; < suback 1 1"
    two = f"{OTHER_TOPIC}; < publish plant/9 x qos=1 id=9; > puback 8; > puback 9"
    again = f"+1 @2 {resumes} < present"
    holds = f"@2 {OTHER_TOPIC.replace('; >', '; @2 >')}"
    alive = ALIVE.replace("> ", "@2 > ").replace("<", "@2 <")

    def fate(before: str) -> Fate:
        texts = (resumes, asks, before, "> fin", again, holds, WRITER, sent(2, False), alive)
        (missed,) = traced(TOPIC, *steps_of(*filter(None, texts))).messages[-1].deliveries
        return missed.fate

    assert fate("") is Fate.STALLED
    assert fate(two) is Fate.NOT_SENT


DROPS = f"{TAKES}; > ack; +0.2 > reset; {LATER}"
KEEPS = READER.replace("client=reader", "client=reader session_expiry_interval=60")
MEMBER = READER.replace(TOPIC, f"$share/g/{TOPIC}")
SECOND_MEMBER = "@2 " + MEMBER.replace("reader", "second").replace("> ", "@2 > ").replace("< ", "@2 < ")


@each(
    "texts, fates, expected",
    [
        (
            (READER, WRITER, sent(1, False), DROPS),
            "reader not_acknowledged",
            "*did not acknowledge it before its connection and its session ended: TCP may have brought it, *",
        ),
        ((KEEPS, WRITER, sent(1, False), DROPS), "reader delivered", "received it *"),
        ((READER, WRITER, sent(1, True), "+0.2 > reset", LATER), "reader delivered", "received it *"),
        ((READER, WRITER, sent(1, False), TAKES, "> ack", ALIVE, "> reset", LATER), "reader delivered", "*"),
        ((READER, WRITER, sent(1, False), TAKES, "> ack", LATER), "reader delivered", "*"),
        ((READER, WRITER, sent(1, False), TAKES, "> raw 4000", "> reset", LATER), "reader delivered", "*"),
        ((READER, WRITER, QOS_0, "< publish plant/7/alarm m2; > ack; > reset", LATER), "reader delivered", "*"),
        ((READER, WRITER, sent(1, False), TAKES, "lost > puback 1", "> reset", LATER), "reader delivered", "*"),
        (
            (MEMBER, SECOND_MEMBER, WRITER, sent(1, False), DROPS),
            "reader not_acknowledged, second not_concerned",
            "*no other captured member of the share got it, to which a server should send it then (5.0 4.8.2)",
        ),
        (
            (MEMBER, SECOND_MEMBER, WRITER, sent(1, False), DROPS.replace("+2", "+0.5")),
            "reader not_acknowledged, second not_concerned",
            "*did not acknowledge it before its connection and its session ended",
        ),
        (
            (MEMBER, SECOND_MEMBER, WRITER, sent(1, False), TAKES, "> ack", "> reset", f"@2 {TAKES}", LATER),
            "reader delivered, second delivered",
            "*",
        ),
    ],
)
def test_what_a_client_leaves_unacknowledged_when_its_session_ends(
    texts: tuple[str, ...], fates: str, expected: str
) -> None:
    deliveries = traced(TOPIC, *steps_of(*texts)).messages[0].deliveries

    assert ", ".join(f"{delivery.client} {delivery.fate}" for delivery in deliveries) == fates
    assert fnmatchcase(deliveries[0].outcome, expected), deliveries[0].outcome
    assert all("was sent it" in delivery.outcome for delivery in deliveries if delivery.fate is Fate.NOT_CONCERNED)


UNTIL_CUT = f"{TAKES}; < reset"
BACK = "@2 opened client=reader resume session_expiry_interval=60 < present"
DUP = "@2 < publish plant/7/alarm m1 dup qos=1 id=1"
LEFT_OFF = (KEEPS, WRITER, sent(1, False), UNTIL_CUT, f"+5 {BACK}")
SENT_AGAIN = "received it 5.* s later, sent again on #2: nothing acknowledged it when it was first sent, 20.0 ms later"


@each(
    "texts, fate, expected",
    [
        ((*LEFT_OFF, DUP, "@2 > puback 1", LATER), "delivered", SENT_AGAIN),
        # The client is back before the broker has closed the connection that it left.
        ((KEEPS, WRITER, sent(1, False), TAKES, f"+5 {BACK}", DUP, "@2 > puback 1", "< reset", LATER),
         "delivered", SENT_AGAIN),
        ((MEMBER.replace("opened", "opened session_expiry_interval=60"), *LEFT_OFF[1:], DUP, "@2 > puback 1", LATER),
         "delivered", SENT_AGAIN),
        ((*LEFT_OFF, DUP, "@2 < reset", LATER), "not_acknowledged",
         "was sent it 20.0 ms later, and again on #2, 5.* s later, and nothing acknowledged it"),
        ((*LEFT_OFF, DUP, "@2 < pingresp"), "not_captured", "* and the capture does not have an acknowledgment of it"),
        # TCP acknowledged the first one.
        ((*LEFT_OFF[:3], f"{TAKES}; > ack; < reset", f"+5 {BACK}", DUP, "@2 > puback 1", LATER), "delivered",
         "received it 20.0 ms later"),
        # Another message with the payload: it has no DUP, or another identifier.
        ((*LEFT_OFF, DUP.replace(" dup", ""), "@2 > puback 1", LATER), "delivered", "received it 5.* s later"),
        ((*LEFT_OFF, DUP.replace("id=1", "id=2"), "@2 > puback 2", LATER), "delivered", "received it 5.* s later"),
        (LEFT_OFF, "not_acknowledged", "was sent it 20.0 ms later, and nothing acknowledged it"),
    ],
)  # fmt: skip
def test_what_is_sent_again_on_a_later_connection(texts: tuple[str, ...], fate: str, expected: str) -> None:
    (delivery,) = traced(TOPIC, *steps_of(*texts)).messages[0].deliveries

    assert (delivery.fate, fnmatchcase(delivery.outcome, expected)) == (fate, True), delivery.outcome


def test_each_message_that_is_sent_again_keeps_its_identifier() -> None:
    both = "; ".join(f"@1 > publish {TOPIC} m1 qos=1 id={number}; @1 < puback {number}" for number in (1, 2))
    takes = f"{TAKES}; {TAKES.replace('id=1', 'id=2')}; < reset; +5 {BACK}; {DUP.replace('id=1', 'id=2')}"
    trace = traced(TOPIC, *steps_of(KEEPS, WRITER, both, takes, "@2 > puback 2", LATER))

    assert trace.messages[0].deliveries[0].outcome == "was sent it 40.0 ms later, and nothing acknowledged it"
    assert "1 went to every captured client" in trace.remarks[0]


CLOSES = "+0.003 crossing > fin; +0.01 < reset"
NOBODY = "; no other captured member of the share got it, to which a server should send it then (5.0 4.8.2)"


@each(
    "texts, expected, advice",
    [
        ((MEMBER, SECOND_MEMBER, WRITER, sent(1, False), TAKES, CLOSES, LATER),
         f"*nothing acknowledged it: it closed its connection itself 3.0 ms after that{NOBODY}", "to another one"),
        ((MEMBER, SECOND_MEMBER, WRITER, sent(1, False), TAKES, CLOSES.replace("fin", "disconnect; crossing > fin"),
          LATER), f"*it closed its connection itself * ms after that{NOBODY}", "to another one"),
        ((MEMBER, SECOND_MEMBER, WRITER, sent(1, False), TAKES, CLOSES),
         "*, and nothing acknowledged it: it closed its connection itself 3.0 ms after that", ""),
        ((MEMBER, SECOND_MEMBER, WRITER, sent(1, False), TAKES, CLOSES, f"+0.1 @2 {TAKES}; @2 > puback 1", LATER),
         "*, and nothing acknowledged it: it closed its connection itself 3.0 ms after that", ""),
        ((READER, WRITER, sent(1, False), TAKES, CLOSES, LATER),
         "*, and nothing acknowledged it: it closed its connection itself 3.0 ms after that", ""),
        # It closed long after that, or the broker did: the link may have been down.
        ((READER, WRITER, sent(1, False), TAKES, CLOSES.replace("+0.003", "+4"), LATER),
         "*, and nothing acknowledged it", "at the link"),
        ((MEMBER, SECOND_MEMBER, WRITER, sent(1, False), UNTIL_CUT, LATER), f"*, and nothing acknowledged it{NOBODY}",
         "at the link"),
    ],
)  # fmt: skip
def test_a_client_that_closes_by_itself_before_anything_is_acknowledged(
    texts: tuple[str, ...], expected: str, advice: str
) -> None:
    missed = traced(TOPIC, *steps_of(*texts)).messages[0].deliveries[0]

    assert missed.fate is Fate.NOT_ACKNOWLEDGED
    assert fnmatchcase(missed.outcome, expected), missed.outcome
    assert advice in " ".join(missed.advice)
    assert bool(missed.advice) is bool(advice)


SETS = f"{WRITER}; @1 > publish {TOPIC} m1 qos=1 retain id=1; @1 < puback 1"
SETS_OTHER = "@1 > publish plant/8/alarm m1 qos=1 retain id=2; @1 < puback 2"
JOINS = "opened client=reader; > subscribe 1 plant/+/alarm:0; < suback 1 0"
GETS_OTHER = "< publish plant/8/alarm m1 retain"
LEFT_OUT = "subscribed to plant/+/alarm * later, and the broker did not send it this retained message* *"
REPLACES = f"@1 > publish {TOPIC} m2 retain; @1 < ack"


@each(
    "texts, fate",
    [
        ((SETS, SETS_OTHER, JOINS, GETS_OTHER, LATER), "not_sent"),
        ((SETS, SETS_OTHER, "opened 3.1.1 client=reader;" + JOINS.partition(";")[2], GETS_OTHER, LATER), "not_sent"),
        ((SETS, SETS_OTHER, JOINS, LATER), "not_sent"),
        ((SETS, SETS_OTHER, JOINS, GETS_OTHER.removesuffix(" retain"), LATER), "not_sent"),
        # The broker may not keep retained messages, or not this one.
        ((SETS.replace(" qos=1 retain id=1; @1 < puback 1", " retain"), SETS_OTHER, JOINS, GETS_OTHER, LATER),
         "subscribed_later"),
        ((SETS.replace("< puback 1", "< pingresp"), SETS_OTHER, JOINS, GETS_OTHER, LATER), "subscribed_later"),
        ((SETS.replace("m1", "m1 message_expiry_interval=1"), "+1 @1 > pingreq", JOINS, GETS_OTHER, LATER), "expired"),
        ((SETS.replace("1 retain", "2 retain").replace("puback", "pubrec"), JOINS, GETS_OTHER, LATER),
         "subscribed_later"),
        # It may have been replaced, by a message or a will, or the broker may have been restarted.
        ((SETS, REPLACES, JOINS, GETS_OTHER, LATER), "not_concerned"),
        ((SETS, SETS_OTHER, JOINS, GETS_OTHER, REPLACES, LATER), "subscribed_later"),
        ((f"@2 opened client=other will={TOPIC} will_retain", SETS, JOINS, GETS_OTHER, LATER), "subscribed_later"),
        ((SETS, "@1 > fin", JOINS, GETS_OTHER, "+2 > pingreq"), "subscribed_later"),
        # The subscription does not ask for it.
        ((SETS, JOINS.replace(":0", ":0,retain_handling=2"), GETS_OTHER, LATER), "not_concerned"),
        # Whatever the other message is: this one did not come.
        ((SETS, JOINS.replace(":0", ":0,retain_as_published"), GETS_OTHER, LATER), "not_sent"),
        ((SETS, JOINS, "> subscribe 2 plant/8/#:0; < suback 2 0", GETS_OTHER, LATER), "not_sent"),
        ((SETS, JOINS.replace("opened", "opened 3.1.1 protocol_level=0x84"), GETS_OTHER, LATER), "not_sent"),
        # It may come later, or the client may not take it.
        ((SETS, SETS_OTHER, JOINS, GETS_OTHER), "subscribed_later"),
        ((SETS, SETS_OTHER, JOINS, GETS_OTHER, "> fin", LATER), "subscribed_later"),
        ((SETS, JOINS.replace("reader", "reader maximum_packet_size=40"), GETS_OTHER, LATER), "subscribed_later"),
        ((SETS, JOINS, f"{GETS_OTHER} qos=1 id=1", LATER), "subscribed_later"),
        ((SETS, JOINS, GETS_OTHER, f"lost < publish {TOPIC} m1 retain; < pingresp", LATER), "subscribed_later"),
        ((SETS, JOINS, GETS_OTHER, f"< publish {TOPIC} m1 retain", LATER), "delivered"),
    ],
)  # fmt: skip
def test_a_retained_message_that_the_broker_leaves_out(texts: tuple[str, ...], fate: str) -> None:
    (missed,) = traced(TOPIC, *steps_of(*texts)).messages[0].deliveries

    assert missed.fate == fate
    assert fnmatchcase(missed.outcome, LEFT_OUT) is (fate == "not_sent"), missed.outcome


OLD_MEMBER = MEMBER.replace("opened", "opened 3.1.1")
OLD_SECOND = SECOND_MEMBER.replace("opened", "opened 3.1.1")


@each(
    "texts, fates",
    [
        ((OLD_MEMBER, WRITER, sent(1, False), LATER), "reader no_subscription"),
        ((OLD_MEMBER.replace("suback 1 1", "suback 1 0x80"), WRITER, sent(1, False), LATER),
         "reader subscription_refused"),
        ((OLD_MEMBER, WRITER, sent(1, True), sent(2, False), LATER), "reader other_member"),
        ((OLD_MEMBER, OLD_SECOND, WRITER, sent(1, True), LATER), "reader delivered, second not_concerned"),
        # Its ordinary subscription explains what it got.
        (
            (OLD_MEMBER, f"> subscribe 2 {TOPIC}:1; < suback 2 1", WRITER, sent(1, True), LATER),
            "reader delivered",
        ),
    ],
)  # fmt: skip
def test_a_share_before_5_0_is_one_if_messages_came_through_it(texts: tuple[str, ...], fates: str) -> None:
    deliveries = traced(TOPIC, *steps_of(*texts)).messages[-1].deliveries

    assert ", ".join(f"{delivery.client} {delivery.fate}" for delivery in deliveries) == fates
    if deliveries[0].fate is Fate.NO_SUBSCRIPTION:
        assert "through which the broker sent nothing" in deliveries[0].outcome


@each(
    "publishes, expected, fate",
    [
        ("- qos=1 id=5 retain", "*the message removes the retained one *(3.3.1.3)", "not_concerned"),
        ("x qos=1 id=5 retain", "subscribed to *", "not_sent"),
        ("- qos=1 id=5", "subscribed to *", "subscribed_later"),
    ],
)
def test_an_empty_retained_message_rightly_does_not_come_to_later_subscribers(
    publishes: str, expected: str, fate: str
) -> None:
    texts = ("opened client=reader", WRITER, f"@1 > publish {TOPIC} {publishes}; @1 < puback 5")
    asks = f"+1 > subscribe 1 {TOPIC}:1; < suback 1 1"
    (missed,) = traced(TOPIC, *steps_of(*texts, asks, LATER)).messages[0].deliveries

    assert missed.fate == fate
    assert fnmatchcase(missed.outcome, expected)
    assert (fate != "not_concerned") is bool(missed.advice)


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

    assert [any(word in text for text in missed.advice) for word in ("may publish", "with DUP")] == suspects
    assert missed.advice[-1] == QUEUE


LEAVES = (
    f"opened client=reader resume session_expiry_interval=60; > subscribe 1 {TOPIC}:{{qos}}; < suback 1 {{qos}}; > fin"
)
RETAINS = f"@1 > publish {TOPIC} x qos=1 id=1 retain; @1 < puback 1"
LOST = f"{READER.replace('reader', 'reader resume session_expiry_interval=60')}; > fin; {WRITER}"
COMES_BACK = "+1 @2 opened client=reader{} session_expiry_interval=60"
PART = '< raw 32 c1 01 000d "plant/7/alarm" 0001 00 "mmm"'


@each(
    "texts, fate, expected, advice",
    [
        # Retained messages, and a Shared Subscription.
        (
            (WRITER, RETAINS, f"+1 opened client=reader; > subscribe 1 $share/g/{TOPIC}:1; < suback 1 1", LATER),
            "subscribed_later", "*a new Shared Subscription is not sent retained messages (5.0 4.8.2)",
            "*without $share*",
        ),
        (
            (WRITER, RETAINS, f"+1 {READER}", LATER),
            "not_sent", "subscribed to * later, and the broker did not send it this *", "*keeps retained messages*",
        ),
        # Whose QoS is 0.
        (
            (LEAVES.format(qos=0), WRITER, sent(1, False), LATER),
            "offline", "*; its subscription to * has QoS 0, and *", "Subscribe with QoS 1*",
        ),
        (
            (LEAVES.format(qos=1), WRITER, QOS_0, LATER),
            "offline", "*; the message has QoS 0, and *", "Publish with QoS 1*",
        ),
        # A client that asked for its session, and one that did not.
        (
            (LOST, COMES_BACK.format(" resume"), sent(1, False), LATER),
            "session_gone", "its subscription to * had ended with its session *", "Subscribe after each CONNACK *",
        ),
        (
            (LOST, COMES_BACK.format(""), sent(1, False), LATER),
            "session_gone", "its subscription to * had ended with its session *", "Connect without Clean Start *",
        ),
        (
            (LOST, sent(1, False), COMES_BACK.format(" resume"), LATER),
            "session_gone", "*came back as #2 without its session*", "Subscribe after each CONNACK *",
        ),
        (
            (LOST, sent(1, False), COMES_BACK.format(""), LATER),
            "session_gone", "*came back as #2 without its session*", "Connect without Clean Start *",
        ),
        # The connection ended inside the message, or inside another one of the topic.
        (
            (READER, WRITER, f"@1 > publish {TOPIC} {'m' * 180} qos=1 id=1; @1 < puback 1", PART, "> fin", LATER),
            "connection_ended", "was sent the beginning of it, and the connection ended before the rest", "Look why *",
        ),
        (
            (READER, WRITER, f"@1 > publish {TOPIC} {'m' * 20} qos=1 id=1; @1 < puback 1", PART, "> fin", LATER),
            "connection_ended", "its connection ended *", "",
        ),
    ],
)  # fmt: skip
def test_what_the_fate_and_its_advice_say(texts: tuple[str, ...], fate: str, expected: str, advice: str) -> None:
    (message,) = traced(TOPIC, *steps_of(*texts)).messages
    (missed,) = (delivery for delivery in message.deliveries if delivery.client == "reader")

    assert (str(missed.fate), fnmatchcase(missed.outcome, expected)) == (fate, True), missed.outcome
    assert fnmatchcase(next(iter(missed.advice), ""), advice), missed.advice


def test_a_beginning_that_may_be_of_several_messages_is_of_none() -> None:
    sends = "; ".join(f"@1 > publish {TOPIC} {letter * 180} qos=1 id=1; @1 < puback 1" for letter in "mn")
    fates = traced(TOPIC, *steps_of(READER, WRITER, sends, PART, "> fin", LATER)).messages

    assert not any("beginning" in each.outcome for message in fates for each in message.deliveries)


@each("more, fate", [
    ("+5 @1 > pingreq; @1 < pingresp; +5 @1 > pingreq", Fate.NOT_ACKNOWLEDGED),
    ("+5 @1 > pingreq; @1 < pingresp; +4.9 @1 > pingreq", Fate.DELIVERED),
    ("+9 @1 > pubrec 7; +2 @1 > pingreq", Fate.DELIVERED),
    ("+5 @1 > pingreq; @1 < pingresp; @1 lost > pubrec 7; +6 @1 > pingreq", Fate.DELIVERED),
])  # fmt: skip
def test_a_message_that_a_living_client_never_answers(more: str, fate: Fate) -> None:
    """Its session is kept, so that the broker may send it again; its answer may be missing in the capture."""
    lines = (
        "@1 opened 3.1.1 client=r clean_start=0; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1 client=s",
        "> publish a x qos=2 id=1; < pubrec 1; > pubrel 1; < pubcomp 1; @1 < publish a x qos=2 id=7", more,
    )  # fmt: skip
    trace = traced("a", *steps_of(*lines))

    assert [each_one.fate for message in trace.messages for each_one in message.deliveries] == [fate]


CUTS = "the broker closed the connection of writer * after the message (frame *) and never acknowledged it: nothing *"
SENDS_M1 = f"@1 > publish {TOPIC} m1 qos=1 id=1"
AWAY_1 = f"{RESUMES.replace(':0; < suback 1 0', ':1; < suback 1 1')}; > disconnect; > fin; {WRITER}"


@each(
    "texts, fate, expected",
    [
        ((READER, WRITER, SENDS_M1, "@1 < fin", LATER.replace("@1", "")), "not_received", CUTS),
        ((AWAY_1, SENDS_M1, "@1 < reset", "+2 @2 opened client=other"), "not_received", CUTS),
        (
            (READER, WRITER, SENDS_M1, "@1 < disconnect code=0x9B; @1 < fin"),
            "not_received",
            "the broker closed the connection of writer with DISCONNECT 0x9B QoS not supported * after the message *",
        ),
        ((READER, WRITER, SENDS_M1.replace(" qos=1 id=1", ""), "@1 < fin"), "not_received", "the broker closed *"),
        # It may have taken the message, or had nothing against it.
        ((READER, WRITER, SENDS_M1, "@1 < puback 1; @1 < fin", "+2 > pingreq"), "not_sent", "*"),
        ((READER, WRITER, SENDS_M1, "@1 > fin", "+2 > pingreq"), "not_sent", "*"),
        ((READER, WRITER, SENDS_M1, "@1 > disconnect; @1 < fin", "+2 > pingreq"), "not_sent", "*"),
        ((READER, WRITER, SENDS_M1, "+1.1 @1 < fin", "+2 > pingreq"), "not_sent", "*"),
        ((READER, WRITER, SENDS_M1, "@1 < publish x y; @1 < fin", "+2 > pingreq"), "not_sent", "*"),
        (
            (READER, WRITER, SENDS_M1.replace(" qos=1 id=1", ""), "@1 > pingreq; @1 < fin", "+2 > pingreq"),
            "not_sent",
            "*",
        ),
    ],
)
def test_a_broker_that_closes_on_the_message(texts: tuple[str, ...], fate: str, expected: str) -> None:
    (missed,) = (
        delivery for delivery in traced(TOPIC, *steps_of(*texts)).messages[0].deliveries if delivery.is_trouble
    )

    assert (str(missed.fate), fnmatchcase(missed.outcome, expected)) == (fate, True), missed.outcome


def test_a_broker_that_closes_after_another_client_got_the_message() -> None:
    other = f"@2 opened client=other; @2 > subscribe 1 {TOPIC}:0; @2 < suback 1 0"
    trace = traced(
        TOPIC, *steps_of(READER, other, WRITER, SENDS_M1, f"@2 < publish {TOPIC} m1; @1 < fin", "+2 > pingreq")
    )

    assert [str(delivery.fate) for delivery in trace.messages[0].deliveries if delivery.is_trouble] == ["not_sent"]


KEEPS = RESUMES.replace(":0; < suback 1 0", ":1; < suback 1 1")
LEAVES = f"{KEEPS}; {WRITER}; {SENDS_M1}; @1 < puback 1; {TAKES}; > ack; > reset"
BACK_AS_2 = "+1 @2 opened client=reader resume session_expiry_interval=60"


@each(
    "texts, fate, expected",
    [
        (
            (LEAVES, BACK_AS_2, LATER),
            "not_acknowledged",
            "*, and did not acknowledge it before its connection ended; it came back as #2 without its session *",
        ),
        (
            (LEAVES, f"{BACK_AS_2} < present; +1.1 @2 > pingreq; @2 < pingresp"),
            "not_acknowledged",
            "*; it resumed its session as #2, and the broker did not send the message again (4.4)",
        ),
        ((LEAVES, f"{BACK_AS_2} < present; @2 > pingreq"), "delivered", "received it *"),  # it may come
        ((LEAVES, LATER), "delivered", "received it *"),  # it may come back
        ((LEAVES.replace("> ack", "> puback 1"), BACK_AS_2, LATER), "delivered", "received it *"),
        (
            (LEAVES, f"{BACK_AS_2} < present; @2 {TAKES.replace('id=1', 'id=7')}; +1.1 @2 > puback 7"),
            "delivered",
            "received it *",
        ),
        ((LEAVES.replace("m1 qos=1 id=1; > ack", "m1; > ack"), BACK_AS_2, LATER), "delivered", "received it *"),
    ],
)
def test_a_message_that_was_left_unacknowledged(texts: tuple[str, ...], fate: str, expected: str) -> None:
    (row,) = (
        delivery for delivery in traced(TOPIC, *steps_of(*texts)).messages[0].deliveries if delivery.client == "reader"
    )

    assert (str(row.fate), fnmatchcase(row.outcome, expected)) == (fate, True), row.outcome


SHARE = f"> subscribe 1 $share/g/{TOPIC}:1; < suback 1 1"
STAYS = "; ".join(f"@3 {part}" for part in f"opened client=stays; {SHARE}".split("; "))
GOES = f"opened client=goes resume session_expiry_interval=60; {SHARE}"
COMES = "+5 @2 opened client=goes resume session_expiry_interval=60 < present"
TAKES_AS_2 = f"@2 {TAKES}; @2 > puback 1"


@each(
    "texts, expected, is_remarked",
    [
        (
            (STAYS, GOES, "> disconnect; > fin", WRITER, SENDS_M1, "@1 < puback 1", COMES, TAKES_AS_2),
            "received it * later on #3: it was away * for this member of the share (*), although stays was connected",
            True,
        ),
        (
            (GOES, "> disconnect; > fin", WRITER, SENDS_M1, "@1 < puback 1", COMES, TAKES_AS_2),
            "received it * later on #2: it was away *, and the broker kept it for this member of the share (*)",
            True,
        ),
        (
            (GOES.replace(f"$share/g/{TOPIC}", TOPIC), "> fin", WRITER, SENDS_M1, "@1 < puback 1", COMES, TAKES_AS_2),
            "received it * later on #2: it was away when the message was published, and the broker kept it",
            False,
        ),
        ((STAYS, GOES, WRITER, SENDS_M1, f"@1 < puback 1; {TAKES}; > puback 1"), "received it 20.0 ms later", False),
    ],
)
def test_a_message_that_waited_for_its_client(texts: tuple[str, ...], expected: str, is_remarked: bool) -> None:
    trace = traced(TOPIC, *steps_of(*texts))
    (row,) = (delivery for delivery in trace.messages[0].deliveries if str(delivery.fate) == "delivered")

    assert fnmatchcase(row.outcome, expected), row.outcome
    assert any("waited for a member of a share that was away" in line for line in trace.remarks) is is_remarked


RIVALS = "opened 3.1.1 client=reader; > subscribe 42 a:0; > subscribe 42 b:0; > subscribe 42 c:0"


def missed_by(topic: str, *lines: str) -> str:
    """Fate and words of the first message that the reader missed."""
    rows = [row for fate in traced(topic, *steps_of(*lines)).messages for row in fate.deliveries]
    row = next(row for row in rows if row.client == "reader")
    return f"{row.fate}: {row.outcome} | {' '.join(row.advice)}"


def test_a_subscribe_with_the_packet_identifier_of_another_one() -> None:
    shown_text = missed_by("b", RIVALS, "< suback 42 0", WRITER, "+5 @1 > publish b x", LATER)

    assert shown_text.startswith("subscribed_later: asked for b 5.")
    assert (
        ", with the Packet Identifier of its SUBSCRIBE in frame 6, which was not answered; not each of them"
        in shown_text
    )
    assert "may have taken" not in shown_text


@each(
    "lines",
    [
        (RIVALS, "< suback 42 0; < suback 42 0; < suback 42 0", WRITER, "+5 @1 > publish b x", LATER),  # all answered
        (RIVALS, "< suback 42 0", "lost < suback 42 0; < pingresp", WRITER, "+5 @1 > publish b x", LATER),
        (RIVALS.replace("42 c", "41 c").replace("42 b", "42 a"), WRITER, "+5 @1 > publish c x", LATER),
    ],
)
def test_a_subscribe_without_a_rival_that_had_no_answer(lines: tuple[str, ...]) -> None:
    assert "with the Packet Identifier" not in missed_by("#", *lines)


def test_a_subscribe_that_was_never_answered() -> None:
    shown_text = missed_by("b", "opened client=reader; > subscribe 1 b:0", WRITER, "+5 @1 > publish b x", LATER)

    assert (
        "and no SUBACK was captured: nothing shows that the broker has the subscription | Look in the log" in shown_text
    )


@each(
    "opens, shown_text, advice",
    [
        (
            "resume",
            "its CONNECT (frame 4) has no Session Expiry Interval (5.0)",
            "Connect with a Session Expiry Interval;",
        ),
        ("resume session_expiry_interval=0", "its CONNECT (frame 4) has Session Expiry Interval 0", "Connect without"),
        ("3.1.1", "its CONNECT (frame 4) has Clean Session 1", "Connect without"),
    ],
)
def test_why_a_session_ended_with_its_connection(opens: str, shown_text: str, advice: str) -> None:
    reader = f"opened {opens} client=reader; > subscribe 1 b:0; < suback 1 0; > disconnect; > fin"
    words = missed_by("b", reader, WRITER, "@1 > publish b x", LATER)

    assert f"and its session had ended with its connection: {shown_text} | {advice}" in words


SECRET = "opened client=reader; > subscribe 1 s/#:1; < suback 1 1; > subscribe 2 o/#:1; < suback 2 1"
HISTORIAN = "@2 opened client=historian; @2 > subscribe 1 #:1; @2 < suback 1 1"
FORBIDDEN = "for 1..3: @1 > publish s/x {n} qos=1 id={n}; @1 < puback {n}; @2 < publish s/x {n} qos=1 id={n}"
OPEN = "@1 > publish o/x hi qos=1 id=9; @1 < puback 9; < publish o/x hi qos=1 id=9; > puback 9"


def forbidden(*lines: str, topic: str = "s/x") -> bool:
    return "most probably an access rule, and no full queue | Look whether the broker's access rules" in missed_by(
        topic, *lines, LATER
    )


@each("topic", ["s/x", "#"])
def test_a_topic_that_never_comes_beside_others_is_most_probably_forbidden(topic: str) -> None:
    assert forbidden(SECRET, HISTORIAN, WRITER, FORBIDDEN, OPEN, topic=topic)


@each(
    "lines",
    [
        (SECRET, HISTORIAN, WRITER, FORBIDDEN),  # nothing else came since: a queue may be full
        (
            SECRET,
            HISTORIAN,
            WRITER,
            FORBIDDEN,
            OPEN.replace("< publish o/x hi qos=1 id=9; > puback 9", "< publish o/x hi"),
        ),
        (SECRET, HISTORIAN, WRITER, FORBIDDEN.replace("1..3", "1..1"), OPEN),  # one alone shows nothing
        (SECRET, WRITER, FORBIDDEN.replace("; @2 < publish s/x {n} qos=1 id={n}", ""), OPEN),  # nobody got it
        (SECRET, HISTORIAN, WRITER, FORBIDDEN, "< publish s/x 2 qos=1 id=8; > puback 8", OPEN),  # it may read it
    ],
)
def test_what_access_rules_do_not_explain(lines: tuple[str, ...]) -> None:
    assert not forbidden(*lines)


ELSEWHERE = "opened 3.1.1 client=reader resume; > subscribe 1 a/#:1; < suback 1 1; < reset"
HERE = "+5 @2 opened 3.1.1 client=reader resume; @2 > subscribe 1 a/#:1; @2 < suback 1 1"
BETWEEN = "@1 opened client=writer; @1 > publish a/b x qos=1 id=1; @1 < puback 1"
NODES = {0: (5, 1), 1: (6, 2), 2: (5, 2)}


def moved(places: dict[int, tuple[int, int]], *lines: str) -> bool:
    rows = [row for fate in across("#", places, *lines, LATER).messages for row in fate.deliveries]
    shown_text = (
        f"had a subscription to a/# on 10.0.0.{places[0][1]} (frame 6) in a session that it wanted to keep, until its"
    )
    return any(row.fate is Fate.SESSION_GONE and shown_text in row.outcome for row in rows)


def test_a_session_that_did_not_move_to_another_server() -> None:
    assert moved(NODES, ELSEWHERE, BETWEEN, HERE)


@each(
    "old, new",
    [
        ("client=reader resume; @2", "client=reader resume < present; @2"),  # it did
        ("client=reader resume; @2", "client=reader; @2"),  # it did not ask for it
        ("client=reader resume; >", "client=reader; >"),  # it was not to be kept
        ("suback 1 1; < reset", "suback 1 0x80; < reset"),
        ("; < reset", ""),  # it is still there
    ],
)
def test_a_session_that_need_not_move(old: str, new: str) -> None:
    assert not moved(NODES, *(line.replace(old, new) for line in (ELSEWHERE, BETWEEN, HERE)))


def test_a_client_of_the_same_name_on_another_host_has_another_session() -> None:
    assert not moved({**NODES, 2: (7, 2)}, ELSEWHERE, BETWEEN, HERE)


ANSWERED = (
    "opened 3.1.1 client=reader; > subscribe 1 a:1; < suback 1 1; @1 opened client=w; @1 > publish a x qos=1 id=1"
)
DELIVERED = "@1 < puback 1; < publish a x qos=1 id=4"
GOES_ON = "+6 > pingreq; < pingresp; +6 > pingreq; < pingresp"


@each(
    "answer, text",
    [
        ("> raw 40 02 0000", "answered PUBACK with the Packet Identifier 0 (frame "),
        ("> pingreq", "most probably dropped it"),
        ("+2 > raw 40 02 0000", "most probably dropped it"),
        ("> puback 4", "received it"),
    ],
)
def test_an_answer_with_the_packet_identifier_0(answer: str, text: str) -> None:
    (fate,) = traced("a", *steps_of(ANSWERED, DELIVERED, answer, GOES_ON)).messages

    assert text in fate.deliveries[0].outcome


def test_a_client_that_got_earlier_messages_of_a_topic_may_have_lost_its_subscription() -> None:
    opens = "opened client=a; > subscribe 1 t:0; < suback 1 0; @1 opened client=b"
    sent = "@1 > publish t 1; < publish t 1; +1 @1 > publish t 2; @1 < ack; +2 > pingreq; < pingresp"
    (message,) = traced("t", *steps_of(opens, sent)).messages

    assert (
        message.deliveries[0].advice[0].startswith("Look whether the broker still has the subscription, or its access")
    )
    assert not any("may publish" in advice for advice in message.deliveries[0].advice)


@each("back, words", [("", ""), ("+1 @2 opened 3.1.1 client=b resume", ", and b, back as #2 (frame ")])
def test_a_publisher_that_does_not_send_a_message_again(back: str, words: str) -> None:
    opens = "opened client=a; > subscribe 1 t:1; < suback 1 1; @1 opened 3.1.1 client=b resume"
    lines = (opens, "@1 > publish t x qos=1 id=1; @1 > reset", *([back] if back else ()), "+2 > pingreq; < pingresp")
    (message,) = traced("t", *steps_of(*lines)).messages

    assert message.deliveries[0].outcome.startswith("nothing shows that the broker received the message")
    assert (", did not send it again" in message.deliveries[0].outcome) is bool(back)
    assert words in message.deliveries[0].outcome


@each("ends, is_stop", [("+1 @1 < fin; +0.001 @2 < fin", True), ("+1 @1 < fin; +3 @2 < fin", False)])
def test_a_stop_of_the_broker_after_which_a_session_is_gone(ends: str, is_stop: bool) -> None:
    opens = "opened client=a resume session_expiry_interval=99; > subscribe 1 t:1; < suback 1 1; @1 opened client=b"
    lines = (
        opens, "@2 opened client=c; > fin; +1 @1 > publish t x qos=1 id=1; @1 < puback 1", ends,
        "+5 @3 opened client=a resume session_expiry_interval=99; +2 @3 > pingreq; @3 < pingresp",
    )  # fmt: skip
    (message,) = traced("t", *steps_of(*lines)).messages

    assert ("; between these, the broker stopped or restarted" in message.deliveries[0].outcome) is is_stop


AWAY_FOR_A_WHILE = (
    "opened client=r resume session_expiry_interval={}; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin"
)
WRITES = (
    "@1 opened client=w; +1 @1 > publish a {}*40 qos=1 id=1; @1 < puback 1; @1 > publish a y qos=1 id=2; @1 < puback 2"
)
RETURNS = "+5 @2 opened client=r resume session_expiry_interval=300{}"


@each(
    "interval, returns, fate, outcome",
    [
        (3, "; @2 > subscribe 1 a:1; @2 < suback 1 1", "session_gone", "*had expired * (Session Expiry Interval 3 s)"),
        (60, "; @2 > subscribe 1 a:1; @2 < suback 1 1", "session_gone", "*came back as #2 without its session *"),
        (0xFFFFFFFF, "; @2 > subscribe 1 a:1; @2 < suback 1 1", "session_gone", "*came back as #2 without its *"),
        (60, " maximum_packet_size=20 < present", "too_large", "*; as #2 it takes packets of at most 20 bytes *"),
        (60, " maximum_packet_size=47 < present", "too_large", "*; the copy of this message has 48"),
        (60, " maximum_packet_size=200 < present", "not_sent", "*; it resumed its session as #2, *"),
        (60, " receive_maximum=1 < present; @2 < publish b z qos=1 id=9; @2 > ack", "quota_full",
         "*; its Receive Maximum was used up after it had come back as #2: *"),
        (60, " receive_maximum=1 < present; @2 < publish b z qos=1 id=9; @2 > puback 9", "not_sent", "*; it resumed *"),
        (60, " receive_maximum=2 < present; @2 < publish b z qos=1 id=9; @2 > ack", "not_sent", "*; it resumed *"),
    ],
)  # fmt: skip
def test_the_limits_of_a_client_that_comes_back(interval: int, returns: str, fate: str, outcome: str) -> None:
    lines = AWAY_FOR_A_WHILE.format(interval), WRITES.format('"x"'), RETURNS.format(returns), "+3 @2 > pingreq"
    (missed,) = traced("a", *steps_of(*lines)).messages[0].deliveries

    assert (missed.fate, fnmatchcase(missed.outcome, outcome)) == (fate, True), missed.outcome


@each(
    "code, is_refused, then",
    [("0x87", True, "< publish a x"), ("0x87", True, ""), ("0", False, "< publish a x"), ("0x11", False, "")],
)
def test_an_unsubscribe_that_the_broker_refuses_changes_nothing(code: str, is_refused: bool, then: str) -> None:
    lines = "opened client=r; > subscribe 1 a:0; < suback 1 0; > unsubscribe 2 a", f"< unsuback 2 {code}"
    writes = "@1 opened client=w; +1 @1 > publish a x qos=1 id=1; @1 < puback 1"
    (row,) = (
        traced("a", *steps_of(*lines, writes, *filter(None, [then]), "+2 > pingreq; < pingresp")).messages[0].deliveries
    )

    if then:
        words = ", after its UNSUBSCRIBE of a, which the broker refused (0x87, frame "
        assert (row.fate is Fate.DELIVERED, words in row.outcome) == (True, is_refused)
    else:
        assert row.fate is (Fate.NOT_SENT if is_refused else Fate.UNSUBSCRIBED)
