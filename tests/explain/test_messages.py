"""Why messages did not arrive."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.explain import messages
from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt.packets import Disconnect, Publish
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, connect
from tests.each import each
from tests.explain.running import capture, traced
from tests.lint.lint_help import steps_of

TOPIC = "plant/7/alarm"
ASKS, GRANTS = f"> subscribe 1 {TOPIC}:1", "< suback 1 1"
LEAVES = f"> unsubscribe 2 {TOPIC}"
CONNECTS = "opened client=reader"
READER = f"{CONNECTS}; {ASKS}; {GRANTS}"
SENDS, ANSWERS = f"@1 > publish {TOPIC} hot qos=1 id=5", "@1 < puback 5"
WRITER = f"@1 opened client=writer; {SENDS}; {ANSWERS}"
DELIVERS = f"< publish {TOPIC} hot qos=1 id=1"
OTHER = f"@2 opened client=other; @2 {ASKS}; @2 {GRANTS}"
AWAY = f"opened client=reader resume session_expiry_interval=3600; {ASKS}; {GRANTS}; > disconnect; > fin"
IS_BACK, IS_NEW = (f"+5 @2 opened client=reader resume{present}" for present in (" < present", ""))
AGAIN = f"+1 @1 > publish {TOPIC} hot qos=1 id=6; @1 < puback 6"
LATER = "+1 > pingreq"
"""The capture goes on for long enough that a message would have come."""
NEAR = f"{CONNECTS}; > subscribe 1 {TOPIC.upper()}:1; {GRANTS}"
SHARE = f"> subscribe 1 $share/g/{TOPIC}:1; {GRANTS}"
MEMBERS = f"@1 opened client=two; @1 {SHARE.replace('<', '@1 <')}; @2 opened client=writer; opened client=one; {SHARE}"
"""Two members of a share on connections 0 and 1, and a publisher on 2."""
MEMBERS_AND_ALL = f"{MEMBERS}; > subscribe 1 plant/#:1; {GRANTS}"
WIDER = "> subscribe 1 plant/#:0; < suback 1 0"
BOTH, SENDS_ITSELF = f"opened client=both; {ASKS},no_local; {GRANTS}", f"{SENDS.replace('@1 ', '')}; < puback 5"
ON, COPY = (f"{arrow} publish {TOPIC} ON" for arrow in ("@2 >", "<"))


def trace(*texts: str, topic: str = TOPIC) -> Trace:
    return traced(topic, *steps_of(*texts))


def test_the_recorded_alarm() -> None:
    watch = MessageWatch(TOPIC)
    for event in dissect(open_capture([str(capture("undelivered"))])):
        watch.feed(event)
    (message_fate,) = MessageReport(watch).trace().messages

    assert {each.client: str(each.fate) for each in message_fate.deliveries} == {
        "right": "delivered",
        "upper": "no_subscription",
        "left": "unsubscribed",
        "away": "offline",
        "echo": "not_concerned",
        "late": "subscribed_later",
    }
    assert message_fate.outcome == "delivered to 1 client, not to 3"
    assert message_fate.published is not None
    assert message_fate.published.client == "echo"


FATES: dict[str, tuple[str, str, str]] = {
    "it came": (f"{READER}; {WRITER}; {DELIVERS}", "reader delivered", "received it *"),
    "it should have come": (
        f"{CONNECTS}; > subscribe 1 plant/+/alarm:1; {GRANTS}; {WRITER}; {LATER}",
        "reader not_sent",
        "*plant/+/alarm*",
    ),
    "refused": (
        f"{CONNECTS}; {ASKS}; < suback 1 0x87; {WRITER}",
        "reader subscription_refused",
        f"the broker refused its subscription to {TOPIC} (0x87)",
    ),
    "unsubscribed": (f"{READER}; {LEAVES}; {WRITER}", "reader unsubscribed", "*"),
    "subscribed later": (f"{CONNECTS}; {WRITER}; {ASKS}; {GRANTS}", "reader subscribed_later", "*"),
    # For messages of other connections a subscription counts from its SUBACK on.
    "granted later": (
        f"{CONNECTS}; {ASKS}; {WRITER}; {GRANTS}; {LATER}",
        "reader subscribed_later",
        f"asked for {TOPIC} 30.0 ms before, and its SUBACK came 20.0 ms after the message: the broker*",
    ),
    "never granted": (
        f"{CONNECTS}; {ASKS}; {WRITER}; {LATER}",
        "reader subscribed_later",
        "*no SUBACK was captured: the broker may have taken the message first",
    ),
    "granted": (f"{READER}; {WRITER}; {LATER}", "reader not_sent", "*"),
    "asked for again": (f"{READER}; > subscribe 2 {TOPIC}:1; {WRITER}; {LATER}", "reader not_sent", "*"),
    "ended at once, perhaps before": (f"{READER}; {WRITER}; {LEAVES}; {LATER}", "reader unsubscribed", "*"),
    "ended later": (f"{READER}; {WRITER}; +1.1 > pingreq; {LEAVES}; {LATER}", "reader not_sent", "*"),
    # One connection has one order: the SUBACK need not come before the message.
    "its own message, once it has asked": (
        f"{CONNECTS}; {ASKS}; {SENDS.replace('@1 ', '')}; {GRANTS}; < puback 5; {LATER}",
        "reader not_sent",
        "*",
    ),
    # Whatever its transport does: a FIN ends what its sender says.
    "it left": (f"{READER}; > disconnect; {WRITER}; {LATER}", "reader session_gone", "*"),
    "it was left": (f"{READER}; < fin; {WRITER}; {LATER}", "reader session_gone", "*"),
    "it left, and its session is kept": (
        f"{CONNECTS} session_expiry_interval=60; {ASKS}; {GRANTS}; > disconnect; {WRITER}; {LATER}",
        "reader offline",
        "*",
    ),
    "it was left, and its session is kept": (
        f"{CONNECTS} session_expiry_interval=60; {ASKS}; {GRANTS}; < fin; {WRITER}; {LATER}",
        "reader offline",
        "*",
    ),
    "too large": (
        f"{CONNECTS} maximum_packet_size=100; {ASKS}; {GRANTS}; " + WRITER.replace("hot", '"x"*200'),
        "reader too_large",
        "*at most 100 bytes*",
    ),
    "the Receive Maximum is used up": (
        f"{CONNECTS} receive_maximum=1; {ASKS}; {GRANTS}; < publish {TOPIC} cold qos=1 id=1; {WRITER}",
        "reader quota_full",
        "*",
    ),
    "a gap of the capture": (f"{READER}; {WRITER}; lost {DELIVERS}; < publish b", "reader not_captured", "*"),
    "the connection ends just then": (f"{READER}; {WRITER}; +0.2 > fin", "reader connection_ended", "*"),
    "away": (f"{AWAY}; {WRITER}", "reader offline", "*"),
    "away, QoS 0": (f"{AWAY}; {WRITER.replace(' hot qos=1 id=5', '')}", "reader offline", "*"),
    "away without a session": (
        f"{AWAY.replace('3600', '0')}; {WRITER}",
        "reader session_gone",
        "was not connected (since 30.0 ms), and its session had ended with its connection: its CONNECT (frame 4) has *",
    ),
    "back without its session": (f"{AWAY}; {WRITER}; {IS_NEW}", "reader session_gone", "*"),
    "back": (f"{AWAY}; {WRITER}; {IS_BACK}; {LATER}", "reader not_sent", "*"),
    "back too late": (
        f"{AWAY}; {WRITER.replace('id=5', 'id=5 message_expiry_interval=2')}; {IS_BACK}",
        "reader expired",
        "*",
    ),
    "back, and it came": (f"{AWAY}; {WRITER}; {IS_BACK}; @2 {DELIVERS}", "reader delivered", "*"),
    "No Local": (
        f"{BOTH}; {SENDS_ITSELF}",
        "both not_concerned",
        "*",
    ),
    "another member of its share got it": (
        f"{CONNECTS}; {SHARE}; @2 opened client=other; @2 {SHARE.replace('<', '@2 <')}; {WRITER}; @2 {DELIVERS}",
        "other delivered, reader not_concerned",
        "*",
    ),
    "subscribed before it was accepted": (
        f"> connect client=reader; {ASKS}; < connack; {GRANTS}; {WRITER}; {LATER}",
        "reader not_sent",
        "*",
    ),
    "accepted later": (
        f"@1 opened client=writer; > connect client=reader; {ASKS}; {SENDS}; {ANSWERS}; < connack; {GRANTS}",
        "reader subscribed_later",
        f"subscribed to {TOPIC}, and its connection was accepted *",
    ),
    "never accepted": (f"> connect client=reader; {ASKS}; < connack code=0x87; {WRITER}", "", "*"),
    "subscribed before it got a name": (
        f"> connect client=-; {ASKS}; < connack assigned_client_identifier=reader; {GRANTS}; {WRITER}; {LATER}",
        "reader not_sent",
        "*",
    ),
    "the copy of a member's other subscription is not that of the share": (
        f"{MEMBERS_AND_ALL}; @1 > ack; {ON}; @2 < ack; {COPY}; {LATER}",
        "one other_member, two other_member, one delivered",
        f"another member of the share ($share/g/{TOPIC}) may have got its copy, which the capture does not have",
    ),
    "the copy of a share, and none for the other subscription, as the identifiers say": (
        f"{MEMBERS}; {WIDER.replace(':0', ':0 subscription_identifier=4')}; @1 > ack; {ON}; @2 < ack; {COPY}; {LATER}",
        "one not_sent, one delivered, two not_concerned",
        "should have got it: it is subscribed to plant/#, *",
    ),
    "the copy of one share is not that of another one": (
        f"{CONNECTS}; {SHARE}; > subscribe 1 $share/h/{TOPIC}:1; {GRANTS}; > ack; {WRITER}; {DELIVERS}; {LATER}",
        "reader other_member, reader delivered",
        f"another member of the share ($share/h/{TOPIC}) *",
    ),
    "a member of a share that was away": (
        f"{AWAY.replace(TOPIC, '$share/g/' + TOPIC)}; {WRITER}; {IS_BACK}; {LATER}",
        "reader other_member",
        "another member of the share *",
    ),
    "one copy for overlapping subscriptions": (
        f"{READER}; > subscribe 1 plant/#:1; {GRANTS}; {WRITER}; {DELIVERS}; {LATER}",
        "reader delivered",
        "*",
    ),
    "a copy for each of them": (
        f"{READER}; > subscribe 1 plant/#:1; {GRANTS}; {WRITER}; {DELIVERS}; {DELIVERS.replace('id=1', 'id=2')}",
        "reader delivered",
        "*",
    ),
    "one of them ended, and the other did not": (
        f"{READER}; {WIDER}; {WRITER}; {LEAVES}; {LATER}",
        "reader not_sent",
        "*it is subscribed to plant/#*",
    ),
    "one of them was refused, and the other was not": (
        f"{CONNECTS}; {ASKS}; < suback 1 0x87; {WIDER}; {WRITER}; {LATER}",
        "reader not_sent",
        "*it is subscribed to plant/#,*",
    ),
    "No Local on one of them does not excuse the other": (
        f"{BOTH}; {WIDER}; {SENDS_ITSELF}; {LATER}",
        "both not_sent",
        "*it is subscribed to plant/#*",
    ),
    "nor its share": (
        f"{BOTH}; {SHARE}; {SENDS_ITSELF}; {LATER}",
        "both other_member",
        "*",
    ),
    "No Local on both of them": (
        f"{BOTH}; {WIDER.replace(':0', ':0,no_local')}; {SENDS_ITSELF}; {LATER}",
        "both not_concerned",
        "*",
    ),
    "the copies of both of its subscriptions": (
        f"{MEMBERS_AND_ALL}; {ON}; {COPY}; {COPY}",
        "one delivered, two not_concerned",
        "*",
    ),
    "a share that gets it again gets no other message": (
        f"{MEMBERS}; {ON}; {COPY}; > fin; @1 {COPY}",
        "one delivered, two delivered",
        "*",
    ),
    "others got it before the end of the connection": (
        f"{READER}; {OTHER}; {WRITER}; @2 {DELIVERS}; +0.2 > fin",
        "reader not_sent, other delivered",
        "* the broker did not send it before its connection ended 220.0 ms later",
    ),
    "the connection ended before others got it": (
        f"{READER}; {OTHER}; {WRITER}; > fin; @2 {DELIVERS}",
        "reader connection_ended, other delivered",
        "*",
    ),
    "the connection ended long after": (f"{READER}; {WRITER}; +1.5 > fin", "reader not_sent", "*"),
    "it ended, and the client is back without its session": (
        f"{READER}; {WRITER}; +0.2 > fin; {IS_NEW}",
        "reader connection_ended",
        "*",
    ),
    "it ended, and the client is only just back": (
        f"{READER}; {WRITER}; +0.2 > fin; {IS_BACK}",
        "reader connection_ended",
        "*",
    ),
    "it ended, and the client is back": (
        f"{READER}; {WRITER}; +0.2 > fin; {IS_BACK}; {LATER}",
        "reader not_sent",
        "*it resumed its session as #2*",
    ),
    "one before its subscription": (
        f"{WRITER}; {READER}; {SENDS}; {ANSWERS}; {DELIVERS}; {LATER}",
        "reader subscribed_later",
        "*",
    ),
    "its session had ended with its connection, and it did not subscribe again": (
        f"{READER}; > fin; +1 @2 opened client=reader; {WRITER}; {LATER}",
        "reader session_gone",
        "its subscription to plant/7/alarm had ended with its session *",
    ),
    "with QoS 2, and its publisher never released it": (
        f"{READER}; @1 opened client=writer; @1 > publish {TOPIC} x qos=2 id=3; @1 < pubrec 3; {LATER}",
        "reader not_released",
        "writer never released it: it sent no PUBREL after the PUBREC",
    ),
    "with QoS 2 and released": (
        f"{READER}; @1 opened client=writer; @1 > publish {TOPIC} x qos=2 id=3; @1 < pubrec 3; @1 > pubrel 3; {LATER}",
        "reader not_sent",
        "*",
    ),
    "those whose filter comes near are before those who got it": (
        f"{NEAR}; {OTHER}; {WRITER}; @2 {DELIVERS}",
        "reader no_subscription, other delivered",
        "*",
    ),
}


@each("text, expected, shown_expected", FATES.values(), ids=FATES)
def test_what_becomes_of_a_message(text: str, expected: str, shown_expected: str) -> None:
    actual_trace = trace(text)
    (message,) = actual_trace.messages

    assert ", ".join(f"{delivery.client} {delivery.fate}" for delivery in message.deliveries) == expected
    assert all(fnmatchcase(delivery.outcome, shown_expected) for delivery in message.deliveries[:1])
    others = [line for line in actual_trace.remarks if "came more than once" not in line and "not shown" not in line]
    assert len(others) == 1 + ("cold" in text), "nothing else without its publishing"


@pytest.mark.parametrize(
    ("topic_filter", "why"),
    [
        ("Plant/7/alarm", " (upper and lower case differ)"),
        ("/plant/7/alarm", " (a slash at an end is a level of its own)"),
        ("plant/7", " (without /# it has no levels below)"),
        ("plant/7/alarms", ""),
        ("plant/7/alarms Plant/7/alarm", " (upper and lower case differ)"),
    ],
)
def test_the_nearest_filter_is_named(topic_filter: str, why: str) -> None:
    asks = [f"> subscribe 1 {name}:1; {GRANTS}" for name in topic_filter.split()]
    (delivery,) = trace(CONNECTS, *asks, WRITER).messages[0].deliveries

    assert delivery.fate is Fate.NO_SUBSCRIPTION
    assert delivery.outcome.endswith(f"the nearest is {topic_filter.split()[-1]}{why}")


def test_a_server_that_has_closed_sends_nothing_more_though_it_reads_on() -> None:
    reader = Conversation().open().whole()
    tape = reader.tape
    writer = Conversation(tape)
    writer.keys = Talk(client_port=50_001).keys
    writer.open().begin(connect(client_identifier="writer"))
    writer.say(SERVER, CONNACK)
    reader.fin(SERVER)
    writer.say(CLIENT, Publish(topic_name="cmd/1", payload=b"on"))
    writer.ack(SERVER)
    reader.wait(2).say(CLIENT, Disconnect())
    reader.fin(CLIENT)
    reader.ack(SERVER)
    watch = MessageWatch("cmd/1")
    for event in dissect_segments(numbered(tape.segments)):
        watch.feed(event)

    assert [delivery.fate for delivery in MessageReport(watch).trace().messages[0].deliveries] == [Fate.SESSION_GONE]


def test_a_message_that_the_broker_refuses() -> None:
    (message,) = trace(READER, f"{WRITER} code=0x87").messages

    assert message.outcome == "refused by the broker (0x87)"
    assert message.deliveries[0].fate is Fate.MESSAGE_REFUSED


def test_no_subscribers_as_the_broker_says() -> None:
    (message,) = trace(f"{WRITER} code=0x10").messages

    texts = [evidence.text for evidence in message.evidence]
    assert "the broker reports that no client had a subscription for it then" in texts
    assert message.outcome == "delivered to no captured client"


def test_nobody_published() -> None:
    actual_trace = trace("opened")

    assert actual_trace.messages == []
    assert actual_trace.remarks == [f"The capture contains no message to {TOPIC}."]


WILLED = f"opened 3.1.1 will={TOPIC}"
NOT_SENT_WILL = f"c1 announced a will to {TOPIC} (frame 4), and no client was sent it in this capture."


@each(
    "text, expected",
    [
        (
            f"opened; > publish {TOPIC}/",
            f"The nearest topic with messages is {TOPIC}/ (a slash at an end is a level of its own).",
        ),
        (
            f"> connect 3.1.1 will={TOPIC}; < connack",
            f"c1 announced a will to {TOPIC} (frame 4), and no client was sent it in this capture.",
        ),
        # Only a DISCONNECT with code 0 that the broker has, on a connection that it had not ended, discards a will.
        (
            f"{WILLED}; > disconnect; < ack; > fin",
            f"c1 announced a will to {TOPIC} (frame 4); it sent DISCONNECT (frame 6), which discards the will.",
        ),
        (f"{WILLED}; > disconnect; crossing < reset", NOT_SENT_WILL),
        (f"{WILLED}; < fin; > disconnect; < ack; > fin", NOT_SENT_WILL),
        (f"{WILLED}; > reset", NOT_SENT_WILL),
        (f"opened will={TOPIC}; > disconnect code=4; < ack; > fin", NOT_SENT_WILL),
        (f"opened will={TOPIC}; < disconnect code=0x8d; > disconnect; < ack; > fin", NOT_SENT_WILL),
        (f"{WILLED}; @1 opened client=other; @1 > disconnect; @1 < ack", NOT_SENT_WILL),
    ],
)
def test_what_there_is_instead_of_a_message(text: str, expected: str) -> None:
    assert trace(text).remarks[1:] == [expected]


def test_a_delivery_without_its_publishing() -> None:
    assert "that no captured client published" in trace(READER, f"< publish {TOPIC} old retain").remarks[-1]


WILL = f"@1 opened client=writer will={TOPIC} will_payload=gone"
GONE = f"+1 < publish {TOPIC} gone"
KEPT = f"@1 opened client=writer; @1 > publish {TOPIC} on retain; @1 < ack; < publish {TOPIC} on"
IS_UNKNOWN = "*that no captured client published*"


@each(
    "texts, expected",
    [
        (
            (READER, WILL, "@1 > reset", GONE),
            (
                "One delivery has the topic and the payload of the will of a connection that had ended; the first:"
                f" {TOPIC} to reader, frame *; writer announced that in frame *, and its #1 had ended."
            ),
        ),
        ((READER, WILL, "@1 > disconnect code=4; @1 > fin", GONE), "One delivery has * the will of a connection *"),
        ((READER, WILL, "@1 > reset", GONE, GONE), "2 deliveries have * of the will of a connection that had ended; *"),
        (
            (READER, WILL, "@1 > disconnect; @1 > fin", GONE),
            "One delivery has * the will of a client that had sent DISCONNECT, so that no will is due; * in frame *.",
        ),
        (
            (READER, WILL, "@1 > reset", WILL.replace("@1", "@2"), "@2 > disconnect", GONE),
            "*will of a connection that had ended*",
        ),
        # The connection is open, or was not accepted; or the payload is another one.
        ((READER, WILL, GONE, "@1 > reset"), IS_UNKNOWN),
        ((READER, WILL.replace("opened", "> connect"), "@1 > reset", GONE), IS_UNKNOWN),
        ((READER, WILL, "@1 > reset", GONE.replace("gone", "lost")), IS_UNKNOWN),
        (
            (READER, KEPT, f"< publish {TOPIC} on retain"),
            (
                "One delivery has the topic and the payload of a retained message that was published before; the first:"
                f" {TOPIC} to reader, frame *; writer published that in frame *."
            ),
        ),
        ((READER, KEPT, f"< publish {TOPIC} on"), IS_UNKNOWN),
        ((READER, KEPT.replace(" retain", ""), f"< publish {TOPIC} on retain"), IS_UNKNOWN),
    ],
)
def test_what_a_delivery_without_its_publishing_is_like(texts: tuple[str, ...], expected: str) -> None:
    last = trace(*texts).remarks[-1]

    assert fnmatchcase(last, expected), last


def test_a_resend_is_one_message() -> None:
    assert len(trace("@1 opened", SENDS, f"{SENDS} dup", ANSWERS).messages) == 1


@each(
    "text, fate",
    [
        pytest.param(
            f"{LEAVES}; < unsuback 2; {SENDS}; {ANSWERS}; > subscribe 3 {TOPIC}:1; < suback 3 1; {AGAIN}; {DELIVERS}",
            Fate.UNSUBSCRIBED, id="filter",
        ),
        pytest.param(
            f"> disconnect; > fin; {SENDS}; {ANSWERS}; +1 @2 {READER.replace('; ', '; @2 ')}; {AGAIN}; @2 {DELIVERS}",
            Fate.SESSION_GONE, id="session",
        ),
        pytest.param(
            f"> disconnect; > fin; @2 {AWAY.replace('; ', '; @2 ')}; {SENDS}; {ANSWERS};"
            f" +1 @3 {READER.replace('; ', '; @3 ')}; {AGAIN}; @3 {DELIVERS}",
            Fate.SESSION_GONE, id="session that was kept",
        ),
    ],
)  # fmt: skip
def test_a_copy_is_of_the_message_that_was_due(text: str, fate: Fate) -> None:
    """An earlier message with the same payload came when the client had no subscription or no session."""
    (missed,) = trace(f"{READER}; @1 opened client=writer; {text}; +2 @1 > pingreq").messages

    assert [delivery.fate for delivery in missed.deliveries] == [fate]


def test_messages_that_arrived_make_room_for_those_that_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGES", 3)
    arrives = f"@1 > publish {TOPIC} {{n}}; < publish {TOPIC} {{n}}"
    actual_trace = trace(READER, "@1 opened", f"for 0..1: {arrives}", f"@1 > publish {TOPIC} 2", f"for 3..9: {arrives}")

    assert [message.outcome for message in actual_trace.messages] == ["not delivered to 1 client"]
    assert actual_trace.remarks[0].endswith(
        "9 went to every captured client that wanted them, 1 did not, 0 were delivered to no captured client."
    )


def test_a_share_gets_one_copy_of_each_message() -> None:
    actual_trace = trace(MEMBERS, *[f"{ON}; {copy}" for copy in (COPY, f"@1 {COPY}", COPY, f"@1 {COPY}")])

    assert actual_trace.remarks[0].startswith(f"4 messages to {TOPIC} in the capture: 4 went to every captured client")


def test_a_message_that_no_member_got_is_missed_by_all_of_them() -> None:
    assert [message.outcome for message in trace(MEMBERS, ON, COPY, ON).messages] == ["not delivered to 2 clients"]


def test_a_client_is_away_since_the_end_before_the_message() -> None:
    (delivery,) = trace(AWAY, WRITER, IS_BACK, "+5 > fin").messages[0].deliveries

    assert "since" in delivery.outcome
    assert "-" not in delivery.outcome


SENT_5_TIMES = [f"{SENDS}; {ANSWERS}"] * 5


def test_a_filter_that_only_comes_near_is_named_once() -> None:
    copies = [f"{sent}; @2 {DELIVERS}" for sent in SENT_5_TIMES]
    actual_trace = trace(NEAR, OTHER, "@1 opened client=writer", *copies)

    assert "5 went to every captured client that wanted them, 0 did not" in actual_trace.remarks[0]
    named = [
        each.client
        for message in actual_trace.messages
        for each in message.deliveries
        if each.fate is Fate.NO_SUBSCRIPTION
    ]
    assert named == ["reader"]


def test_messages_that_only_come_near_a_filter_are_shown_once_for_a_topic() -> None:
    actual_trace = trace(NEAR, "@1 opened client=writer", *SENT_5_TIMES)

    assert [message.outcome for message in actual_trace.messages] == ["delivered to no captured client"]
    assert [each.client for each in actual_trace.messages[0].deliveries] == ["reader"]
    assert "0 did not, 5 were delivered to no captured client." in actual_trace.remarks[0]
    assert actual_trace.remarks[1].startswith("4 of the messages that no captured client got are not shown: ")


def test_a_filter_that_comes_near_is_named_where_all_others_got_their_messages() -> None:
    other = f"@2 opened client=other; @2 > subscribe 1 #:1; @2 {GRANTS}"
    copies = [f"{SENDS}; {ANSWERS}; @2 {DELIVERS}"] * 3
    actual_trace = trace(NEAR, other, "@1 opened client=writer; @1 > publish x missed", *copies, topic="#")

    assert [message.outcome for message in actual_trace.messages] == ["not delivered to 1 client"]
    assert sum(remark.startswith("reader has no subscription that it matches") for remark in actual_trace.remarks) == 1


def test_those_who_come_near_are_not_counted_as_missing_it() -> None:
    assert trace(NEAR, OTHER, WRITER, f"@2 {DELIVERS}").messages[0].outcome == "delivered to 1 client"


def watched(text: str, topic: str = "#") -> MessageWatch:
    watch = MessageWatch(topic)
    for event in dissect_segments(segments(conversation("", *steps_of(text)))):
        watch.feed(event)
    return watch


ALIKE = SENDS.replace("5", "6")
RETURNS = f"{WRITER}; {IS_BACK}; @2 {LATER}"
RETURNS_ANEW = f"{WRITER}; {IS_NEW}; @2 {LATER}"


@each(
    "text, expected",
    [
        (f"{READER}; {WRITER}; {LATER}", "reader not_sent"),
        (f"{READER}; {WRITER}; +0.9 > pingreq", ""),  # it may still come
        (f"{READER}; {WRITER}; {DELIVERS}; {LATER}", ""),
        # Nobody wanted the message.
        (f"{WRITER}; {LATER}", ""),
        (f"{CONNECTS}; > subscribe 1 plant/7/alarms:1; {GRANTS}; {WRITER}; {LATER}", ""),
        (f"{CONNECTS}; {WRITER}; {ASKS}; {GRANTS}; {LATER}", ""),
        (f"{READER}; {LEAVES}; {WRITER}; {LATER}", ""),
        # The capture lacks bytes.
        (f"{READER}; {WRITER}; lost {DELIVERS}; < publish b; {LATER}", ""),
        # Messages that look alike, and others.
        (f"{READER}; {WRITER}; {ALIKE}; {LATER}", ""),
        (
            f"{READER}; {WRITER}; {ALIKE.replace('hot', 'hotter')}; @1 < puback 6; {LATER}",
            "reader not_sent, reader not_sent",
        ),
        # Refusals are losses of those who asked.
        (f"{READER}; {WRITER} code=0x87", "writer message_refused"),
        (f"{CONNECTS}; {ASKS}; < suback 1 0x80", "reader subscription_refused"),
        (f"{CONNECTS}; {ASKS}; < suback 1 2", ""),
        # A client that was away lost what its session should have kept.
        (f"{AWAY}; {RETURNS}", "reader not_sent"),
        (f"{AWAY}; {RETURNS_ANEW}", "reader session_gone"),
        # One that was cut off lost what it missed, and one that left did not.
        (f"{AWAY.replace('3600', '0').replace('> disconnect; ', '')}; {RETURNS_ANEW}", "reader session_gone"),
        (f"{AWAY.replace('3600', '0')}; {RETURNS_ANEW}", ""),
        # One that does not come back lost nothing.
        (f"{READER}; > fin; {WRITER}; @1 {LATER}", ""),
    ],
)
def test_losses(text: str, expected: str) -> None:
    losses = list(MessageReport(watched(text)).losses())

    assert ", ".join(f"{loss.client} {loss.fate}" for loss in losses) == expected
    assert {loss.topic for loss in losses} <= {TOPIC}


def test_messages_that_nobody_wants_make_room_for_those_that_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGES", 3)
    plain = "; ".join(f"@1 > publish x/{number} x" for number in range(6))
    watch = watched(f"{READER}; {WRITER}; {plain}; {LATER}")

    assert [loss.topic for loss in MessageReport(watch).losses()] == [TOPIC]
    assert (watch.unwanted, watch.beyond) == (4, 0)
    text = MessageReport(watch).trace().remarks[0]
    assert "7 messages to # in the capture: 0 went to every captured client that wanted them, 1 did not, 6" in text


def test_a_message_of_which_the_capture_lacks_bytes_may_have_come() -> None:
    watch = MessageWatch(TOPIC)
    for event in dissect_segments(segments(conversation("", *steps_of(f"{READER}; {WRITER}; {LATER}")))):
        if isinstance(event, PacketEvent) and isinstance(event.packet, Publish):
            event.packet.missing = 2
        watch.feed(event)

    (message,) = MessageReport(watch).trace().messages
    assert [each.fate for each in message.deliveries] == [Fate.NOT_CAPTURED]
    assert list(MessageReport(watch).losses()) == []


@each("qos, answers", [(1, "< puback 1"), (2, "< pubrec 1; > pubrel 1; < pubcomp 1")])
def test_a_message_that_is_sent_again_on_the_next_connection_is_one(qos: int, answers: str) -> None:
    reader = f"@9 opened client=r; @9 > subscribe 1 {TOPIC}:1; @9 < suback 1 1"
    lost = f"opened 3.1.1 client=w resume; > publish {TOPIC} x qos={qos} id=1; > reset"
    again = f"+1 @1 > connect 3.1.1 client=w resume; @1 < connack present; @1 > publish {TOPIC} x qos={qos} id=1 dup"
    answered = "; ".join(f"@1 {step}" for step in answers.split("; "))
    actual_trace = trace(
        reader, lost, again, answered, f"@9 < publish {TOPIC} x qos=1 id=7; @9 > puback 7; +2 @9 > pingreq"
    )

    assert [[delivery.fate for delivery in message.deliveries] for message in actual_trace.messages] == [
        [Fate.DELIVERED]
    ]


def test_a_pubrel_may_come_after_the_end_of_the_capture() -> None:
    sent = f"@1 opened client=w; @1 > publish {TOPIC} x qos=2 id=1; @1 < pubrec 1"
    fates = [
        delivery.fate
        for wait in ("", "+2 @1 > pingreq")
        for message in trace(READER, sent, *([wait] if wait else [])).messages
        for delivery in message.deliveries
    ]

    assert fates[0] is not Fate.NOT_RELEASED
    assert fates[1] is Fate.NOT_RELEASED


@each(
    "connect, asks, rounds, is_named",
    [
        ("opened 3.1.1 protocol_level=0x84", "> subscribe 1 {}:1", 20, True),
        ("opened", "> subscribe 1 {}:1,no_local", 20, True),
        ("opened 3.1.1 protocol_level=0x84", "> subscribe 1 {}:1", 19, False),
        # The broker sends the client what it publishes itself.
        ("opened 3.1.1", "> subscribe 1 {}:1", 20, False),
    ],
)
def test_a_message_that_circulates_between_brokers(connect: str, asks: str, rounds: int, is_named: bool) -> None:
    loop = f"for 1..{rounds}: > publish {TOPIC} x; < publish {TOPIC} x"
    texts = traced("#", *steps_of(f"{connect}; {asks.format(TOPIC)}; {GRANTS}", loop)).remarks

    assert any("came back to c1 (#0) 20 times" in text for text in texts) is is_named
