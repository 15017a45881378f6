"""Why messages did not arrive."""

from __future__ import annotations

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.explain import messages
from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.messages import MessageWatch, likeness
from mqttscope.lint.examples import Step, acknowledges, client, closes, conversation, lost, on, opened, segments, server
from mqttscope.mqtt.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, connect
from tests.explain.running import capture, traced

TOPIC = "plant/7/alarm"
MESSAGE = Publish(topic_name=TOPIC, qos=1, packet_identifier=5, payload=b"hot")
DELIVERED = server(Publish(topic_name=TOPIC, qos=1, packet_identifier=1, payload=b"hot"))
ANSWER = server(Puback(packet_identifier=5))
LATER = client(Pingreq(), after=1)
"""The capture goes on for long enough that a message would have come."""


def subscribed(topic_filter: str = TOPIC, code: int = 1, **options: bool) -> tuple[Step, Step]:
    wanted = Subscription(topic_filter, maximum_qos=1, **options)
    return (
        client(Subscribe(packet_identifier=1, subscriptions=[wanted])),
        server(Suback(packet_identifier=1, reason_codes=[code])),
    )


def fate(*steps: Step, publish: Publish = MESSAGE, then: tuple[Step, ...] = (), **connect: object) -> tuple[Fate, str]:
    """What becomes of a message of another client for a client that has taken these steps."""
    properties = connect.pop("properties", None)
    trace = traced(
        TOPIC,
        *opened(client_identifier="reader", connect=properties, **connect),  # type: ignore[arg-type]
        *steps,
        *on(1, *opened(client_identifier="writer"), client(publish), ANSWER),
        *then,
    )
    (one,) = [each for each in trace.messages[0].deliveries if each.client == "reader"]
    return one.fate, one.said


def test_the_recorded_alarm() -> None:
    watch = MessageWatch(TOPIC)
    for event in dissect(open_capture([str(capture("undelivered"))])):
        watch.feed(event)
    (one,) = watch.trace().messages

    assert {each.client: str(each.fate) for each in one.deliveries} == {
        "right": "delivered",
        "upper": "no_subscription",
        "left": "unsubscribed",
        "away": "offline",
        "echo": "not_concerned",
        "late": "subscribed_later",
    }
    assert one.said == "delivered to 1 client, not to 3"
    assert one.published is not None
    assert one.published.client == "echo"


def test_delivered() -> None:
    found, said = fate(*subscribed(), then=(DELIVERED,))

    assert found is Fate.DELIVERED
    assert said.startswith("received it ")


def test_it_should_have_come() -> None:
    found, said = fate(*subscribed("plant/+/alarm"), then=(LATER,))

    assert found is Fate.NOT_SENT
    assert "plant/+/alarm" in said


@pytest.mark.parametrize(
    ("topic_filter", "why"),
    [
        ("Plant/7/alarm", " (upper and lower case differ)"),
        ("/plant/7/alarm", " (a slash at an end is a level of its own)"),
        ("plant/7", " (without /# it has no levels below)"),
        ("plant/7/alarms", ""),
    ],
)
def test_the_nearest_filter_is_named(topic_filter: str, why: str) -> None:
    found, said = fate(*subscribed(topic_filter))

    assert found is Fate.NO_SUBSCRIPTION
    assert said.endswith(f"the nearest is {topic_filter}{why}")


@pytest.mark.parametrize("plain", ["house/light", TOPIC, "plant/+/alarm", "p" * 300])
def test_what_matches_or_is_something_else_is_not_like_a_topic(plain: str) -> None:
    assert likeness(TOPIC, plain) is None


def test_the_likest_filter_of_several_is_named() -> None:
    assert fate(*subscribed("plant/7/alarms"), *subscribed("Plant/7/alarm"))[1].endswith(
        "(upper and lower case differ)"
    )


def test_refused_subscription() -> None:
    assert fate(*subscribed(code=0x87)) == (
        Fate.SUBSCRIPTION_REFUSED, f"the broker refused its subscription to {TOPIC} (0x87)",
    )  # fmt: skip


def test_unsubscribed_and_subscribed_later() -> None:
    ended = client(Unsubscribe(packet_identifier=2, topic_filters=[TOPIC]))

    assert fate(*subscribed(), ended)[0] is Fate.UNSUBSCRIBED
    assert fate(then=subscribed())[0] is Fate.SUBSCRIBED_LATER


def test_a_subscription_counts_from_its_suback_on_for_messages_of_other_connections() -> None:
    asked, granted = subscribed()
    again = client(Subscribe(packet_identifier=2, subscriptions=[Subscription(TOPIC, maximum_qos=1)]))

    found, said = fate(asked, then=(granted, LATER))
    assert found is Fate.SUBSCRIBED_LATER
    assert said.startswith(
        f"asked for {TOPIC} 30.0 ms before, and its SUBACK came 20.0 ms after the message: the broker"
    )
    assert fate(asked, then=(LATER,))[1].endswith("no SUBACK was captured: the broker may have taken the message first")
    assert fate(asked, granted, then=(LATER,))[0] is Fate.NOT_SENT
    assert fate(asked, granted, again, then=(LATER,))[0] is Fate.NOT_SENT


def test_a_subscription_that_ends_at_once_may_have_ended_before_the_message() -> None:
    ended = client(Unsubscribe(packet_identifier=2, topic_filters=[TOPIC]))

    assert fate(*subscribed(), then=(ended, LATER))[0] is Fate.UNSUBSCRIBED
    assert fate(*subscribed(), then=(client(Pingreq(), after=1.1), ended, LATER))[0] is Fate.NOT_SENT


def test_a_client_gets_its_own_message_once_it_has_asked() -> None:
    """One connection has one order: the SUBACK need not come before the message."""
    asked, granted = subscribed()
    trace = traced(TOPIC, *opened(client_identifier="reader"), asked, client(MESSAGE), granted, ANSWER, LATER)

    assert [one.fate for one in trace.messages[0].deliveries] == [Fate.NOT_SENT]


@pytest.mark.parametrize("end", [client(Disconnect()), closes("server")], ids=["DISCONNECT", "FIN of the server"])
def test_a_client_that_left_or_was_left_gets_nothing_more(end: Step) -> None:
    """Whatever its transport does: a FIN ends what its sender says."""
    assert fate(*subscribed(), end, then=(LATER,))[0] is Fate.SESSION_GONE
    kept = Properties(session_expiry_interval=60)
    assert fate(*subscribed(), end, then=(LATER,), properties=kept)[0] is Fate.OFFLINE


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

    assert [one.fate for one in watch.trace().messages[0].deliveries] == [Fate.SESSION_GONE]


def test_a_message_that_the_broker_refuses() -> None:
    trace = traced(
        TOPIC,
        *opened(client_identifier="reader"),
        *subscribed(),
        *on(
            1,
            *opened(client_identifier="writer"),
            client(MESSAGE),
            server(Puback(packet_identifier=5, reason_code=0x87)),
        ),
    )

    assert trace.messages[0].said == "refused by the broker (0x87)"
    assert trace.messages[0].deliveries[0].fate is Fate.MESSAGE_REFUSED


def test_no_subscribers_as_the_broker_says() -> None:
    answer = server(Puback(packet_identifier=5, reason_code=0x10))
    trace = traced(TOPIC, *opened(client_identifier="writer"), client(MESSAGE), answer)

    assert "the broker says that nobody had a subscription for it then" in [
        told.text for told in trace.messages[0].evidence
    ]
    assert trace.messages[0].said == "delivered to no captured client"


def test_a_message_larger_than_the_client_takes() -> None:
    large = Publish(topic_name=TOPIC, qos=1, packet_identifier=5, payload=b"x" * 200)
    found, said = fate(*subscribed(), publish=large, properties=Properties(maximum_packet_size=100))

    assert found is Fate.TOO_LARGE
    assert "at most 100 bytes" in said


def test_a_receive_maximum_that_is_used_up() -> None:
    earlier = server(Publish(topic_name=TOPIC, qos=1, packet_identifier=1, payload=b"cold"))

    assert fate(*subscribed(), earlier, properties=Properties(receive_maximum=1))[0] is Fate.QUOTA_FULL


def test_a_gap_of_the_capture() -> None:
    after = server(Publish(topic_name="b"))

    assert fate(*subscribed(), then=(lost(DELIVERED), after))[0] is Fate.NOT_CAPTURED


def test_a_connection_that_ends_just_then() -> None:
    assert fate(*subscribed(), then=(closes("client", after=0.2),))[0] is Fate.CONNECTION_ENDED


def away(*later: Step, kept: int = 3600, publish: Publish = MESSAGE) -> tuple[Fate, str]:
    gone = (*subscribed(), client(Disconnect()), closes("client"))
    return fate(
        *gone, publish=publish, then=later, clean_start=False, properties=Properties(session_expiry_interval=kept)
    )


def back(*, present: bool, after: float = 5) -> tuple[Step, ...]:
    first, second = opened(client_identifier="reader", clean_start=False, session_present=present)
    return on(2, Step("client", first.packets, after), second)


def test_clients_that_are_away() -> None:
    quick = Publish(topic_name=TOPIC, qos=1, packet_identifier=5, properties=Properties(message_expiry_interval=2))

    assert away()[0] is Fate.OFFLINE
    assert away(publish=Publish(topic_name=TOPIC))[0] is Fate.OFFLINE
    assert away(kept=0) == (
        Fate.SESSION_GONE, "was not connected (since 30.0 ms), and its session had ended with its connection",
    )  # fmt: skip
    assert away(*back(present=False))[0] is Fate.SESSION_GONE
    assert away(*back(present=True), LATER)[0] is Fate.NOT_SENT
    assert away(*back(present=True), publish=quick)[0] is Fate.EXPIRED
    assert away(*back(present=True), *on(2, DELIVERED))[0] is Fate.DELIVERED


def test_no_local_and_shares_are_no_trouble() -> None:
    trace = traced(TOPIC, *opened(client_identifier="both"), *subscribed(no_local=True), client(MESSAGE), ANSWER)
    assert [each.fate for each in trace.messages[0].deliveries] == [Fate.NOT_CONCERNED]

    shared = f"$share/g/{TOPIC}"
    found = fate(
        *subscribed(shared), *on(2, *opened(client_identifier="other"), *subscribed(shared)), then=on(2, DELIVERED)
    )
    assert found[0] is Fate.NOT_CONCERNED


def test_nobody_published() -> None:
    trace = traced(TOPIC, *opened())

    assert trace.messages == []
    assert trace.told == [f"No message to {TOPIC} is in the capture: nobody published one, as far as it shows."]


def test_a_delivery_without_its_publishing() -> None:
    kept = server(Publish(topic_name=TOPIC, retain=True, payload=b"old"))
    trace: Trace = traced(TOPIC, *opened(client_identifier="reader"), *subscribed(), kept)

    assert "whose publishing is not in the capture" in trace.told[-1]


def test_a_resend_is_one_message() -> None:
    again = Publish(topic_name=TOPIC, qos=1, packet_identifier=5, payload=b"hot", dup=True)

    assert len(traced(TOPIC, *opened(), client(MESSAGE), client(again), ANSWER).messages) == 1


def test_messages_and_clients_are_bounded_and_that_is_told() -> None:
    limits = messages.MAX_MESSAGES, messages.MAX_CLIENTS
    messages.MAX_MESSAGES, messages.MAX_CLIENTS = 2, 2
    sent = [client(Publish(topic_name=TOPIC, payload=bytes([number]))) for number in range(5)]
    others = [step for number in range(1, 5) for step in on(number, *opened(client_identifier=f"c{number}"))]
    try:
        trace = traced("plant/#", *others, *opened(), *subscribed(), *sent)
    finally:
        messages.MAX_MESSAGES, messages.MAX_CLIENTS = limits

    assert trace.told[-2:] == [
        "limit: 2 messages are followed; 3 earlier ones are not.",
        "limit: 2 clients are followed; 3 were forgotten.",
    ]


def test_messages_that_arrived_make_room_for_those_that_did_not() -> None:
    most, messages.MAX_MESSAGES = messages.MAX_MESSAGES, 3
    steps: list[Step] = []
    for number in range(10):
        payload = bytes([number])
        steps += on(1, client(Publish(topic_name=TOPIC, payload=payload)))
        if number != 2:
            steps.append(server(Publish(topic_name=TOPIC, payload=payload)))
    try:
        trace = traced(TOPIC, *opened(client_identifier="reader"), *subscribed(), *on(1, *opened()), *steps)
    finally:
        messages.MAX_MESSAGES = most

    assert [one.said for one in trace.messages] == ["not delivered to 1 client"]
    assert trace.told[0].endswith(
        "9 went to every captured client that wanted them, 1 did not, 0 were delivered to no captured client."
    )


def test_a_client_may_subscribe_before_it_is_accepted() -> None:
    connect, connack = opened(client_identifier="reader")
    ask, grant = subscribed()
    writes = on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER)
    trace = traced(TOPIC, connect, ask, connack, grant, *writes, LATER)

    assert [(one.client, one.fate) for one in trace.messages[0].deliveries] == [("reader", Fate.NOT_SENT)]


def test_what_a_client_asks_for_before_its_connack_counts_from_there_on() -> None:
    connect, connack = opened(client_identifier="reader")
    ask, grant = subscribed()
    writes = on(1, client(MESSAGE), ANSWER)
    trace = traced(TOPIC, *on(1, *opened(client_identifier="writer")), connect, ask, *writes, connack, grant)

    assert [(one.client, one.fate) for one in trace.messages[0].deliveries] == [("reader", Fate.SUBSCRIBED_LATER)]
    assert trace.messages[0].deliveries[0].said.startswith(f"subscribed to {TOPIC}, and its connection was accepted ")


def test_what_a_client_asks_for_before_it_is_refused_is_no_subscription() -> None:
    connect, _ = opened(client_identifier="reader")
    refused = server(Connack(reason_code=0x87))
    writes = on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER)
    trace = traced(TOPIC, connect, subscribed()[0], refused, *writes)

    assert trace.messages[0].deliveries == ()


def test_a_client_without_a_name_may_subscribe_before_it_gets_one() -> None:
    connect, connack = opened(client_identifier="", connack=Properties(assigned_client_identifier="reader"))
    ask, grant = subscribed()
    writes = on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER)
    trace = traced(TOPIC, connect, ask, connack, grant, *writes, LATER)

    assert [(one.client, one.fate) for one in trace.messages[0].deliveries] == [("reader", Fate.NOT_SENT)]


def test_a_share_gets_one_copy_of_each_message() -> None:
    shared = f"$share/g/{TOPIC}"
    writes = on(2, client(Publish(topic_name=TOPIC, payload=b"ON")))
    copy = server(Publish(topic_name=TOPIC, payload=b"ON"))
    trace = traced(
        TOPIC,
        *opened(client_identifier="one"), *subscribed(shared),
        *on(1, *opened(client_identifier="two"), *subscribed(shared)),
        *on(2, *opened(client_identifier="writer")),
        *writes, copy, *writes, *on(1, copy), *writes, copy, *writes, *on(1, copy),
    )  # fmt: skip

    assert trace.told[0].startswith(f"4 messages to {TOPIC} in the capture: 4 went to every captured client")


def shared_by(*filters: str) -> tuple[Step, ...]:
    """A member of a share on connection 0, with other filters; another member on 1, and a publisher on 2."""
    one = [step for topic_filter in (f"$share/g/{TOPIC}", *filters) for step in subscribed(topic_filter)]
    two = on(1, *opened(client_identifier="two"), *subscribed(f"$share/g/{TOPIC}"))
    return (*opened(client_identifier="one"), *one, *two, *on(2, *opened(client_identifier="writer")))


ON = Publish(topic_name=TOPIC, payload=b"ON")


def test_a_message_that_no_member_got_is_missed_by_all_of_them() -> None:
    trace = traced(TOPIC, *shared_by(), *on(2, client(ON)), server(ON), *on(2, client(ON)))

    assert [one.said for one in trace.messages] == ["not delivered to 2 clients"]


def test_the_copy_of_a_members_other_subscription_is_not_the_copy_of_the_share() -> None:
    taken = on(1, acknowledges("client"))
    trace = traced(TOPIC, *shared_by("plant/#"), *taken, *on(2, client(ON), acknowledges("server")), server(ON), LATER)
    (one,) = trace.messages
    assert {each.client: each.fate for each in one.deliveries} == {"one": Fate.DELIVERED, "two": Fate.NOT_SENT}

    trace = traced(TOPIC, *shared_by("plant/#"), *on(2, client(ON)), server(ON), server(ON))
    assert {each.client: each.fate for each in trace.messages[0].deliveries} == {
        "one": Fate.DELIVERED, "two": Fate.NOT_CONCERNED,
    }  # fmt: skip
    assert len(trace.told) == 1


def test_a_share_that_gets_a_message_again_gets_no_other_one() -> None:
    trace = traced(TOPIC, *shared_by(), *on(2, client(ON)), server(ON), closes("client"), *on(1, server(ON)))

    assert {each.client: each.fate for each in trace.messages[0].deliveries} == {
        "one": Fate.DELIVERED, "two": Fate.DELIVERED,
    }  # fmt: skip
    assert len(trace.told) == 1, "nothing without its publishing"


def test_what_others_got_before_the_end_of_a_connection_was_not_sent() -> None:
    other = (*opened(client_identifier="other"), *subscribed())
    found, said = fate(*subscribed(), *on(2, *other), then=(*on(2, DELIVERED), closes("client", after=0.2)))

    assert found is Fate.NOT_SENT
    assert said.endswith(" the broker did not send it before its connection ended 220.0 ms later")


def test_an_end_before_others_got_it_explains_that_it_did_not_come() -> None:
    other = (*opened(client_identifier="other"), *subscribed())

    assert fate(*subscribed(), *on(2, *other), then=(closes("client"), *on(2, DELIVERED)))[0] is Fate.CONNECTION_ENDED


def test_an_end_long_after_a_message_that_nobody_got_does_not_explain_it() -> None:
    assert fate(*subscribed(), then=(closes("client", after=1.5),))[0] is Fate.NOT_SENT


def test_an_end_before_a_message_could_come_explains_it_for_clients_that_are_back_too() -> None:
    left = closes("client", after=0.2)

    assert fate(*subscribed(), then=(left, *back(present=False)))[0] is Fate.CONNECTION_ENDED
    assert fate(*subscribed(), then=(left, *back(present=True)))[0] is Fate.CONNECTION_ENDED
    found, said = fate(*subscribed(), then=(left, *back(present=True), LATER))
    assert found is Fate.NOT_SENT
    assert "it resumed its session as #2" in said


def test_a_client_is_away_since_the_end_before_the_message() -> None:
    _, said = away(*back(present=True), closes("client", after=5))

    assert "since" in said
    assert "-" not in said


def test_a_filter_that_only_comes_near_is_named_once() -> None:
    other = (*opened(client_identifier="other"), *subscribed())
    writes = on(1, client(MESSAGE), ANSWER)
    trace = traced(
        TOPIC, *opened(client_identifier="reader"), *subscribed(TOPIC.upper()), *on(2, *other),
        *on(1, *opened(client_identifier="writer")), *([*writes, *on(2, DELIVERED)] * 5),
    )  # fmt: skip

    assert "5 went to every captured client that wanted them, 0 did not" in trace.told[0]
    named = [each.client for one in trace.messages for each in one.deliveries if each.fate is Fate.NO_SUBSCRIPTION]
    assert named == ["reader"]


def test_messages_that_only_come_near_a_filter_are_shown_once_for_a_topic() -> None:
    writes = on(1, client(MESSAGE), ANSWER)
    trace = traced(
        TOPIC, *opened(client_identifier="reader"), *subscribed(TOPIC.upper()),
        *on(1, *opened(client_identifier="writer")), *(writes * 5),
    )  # fmt: skip

    assert [one.said for one in trace.messages] == ["delivered to no captured client"]
    assert [each.client for each in trace.messages[0].deliveries] == ["reader"]
    assert "0 did not, 5 were delivered to no captured client." in trace.told[0]
    assert trace.told[1].startswith("4 of the messages that no captured client got are not shown: ")


def test_a_filter_that_comes_near_is_named_where_all_others_got_their_messages() -> None:
    steps = [*opened(client_identifier="reader"), *subscribed(TOPIC.upper())]
    steps += on(2, *opened(client_identifier="other"), *subscribed("#"))
    steps += on(1, *opened(client_identifier="writer"))
    missed = Publish(topic_name="x", payload=b"missed")
    trace = traced("#", *steps, *on(1, client(missed)), *([*on(1, client(MESSAGE), ANSWER), *on(2, DELIVERED)] * 3))

    assert [one.said for one in trace.messages] == ["not delivered to 1 client"]
    assert sum(told.startswith("reader has no subscription that it matches") for told in trace.told) == 1


def test_those_who_come_near_stand_before_those_who_got_it() -> None:
    others = on(2, *opened(client_identifier="other"), *subscribed())
    trace = traced(
        TOPIC, *opened(client_identifier="reader"), *subscribed(TOPIC.upper()), *others,
        *on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER), *on(2, DELIVERED),
    )  # fmt: skip

    assert [each.client for each in trace.messages[0].deliveries] == ["reader", "other"]
    assert trace.messages[0].said == "delivered to 1 client"


def losses(*steps: Step) -> list[tuple[str, Fate, str]]:
    """What clients did not get in a conversation, of all topics."""
    watch = MessageWatch("#")
    for event in dissect_segments(segments(conversation("", *steps))):
        watch.feed(event)
    return [(loss.client, loss.fate, loss.topic) for loss in watch.losses()]


READER = (*opened(client_identifier="reader"), *subscribed())
WRITER = on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER)


def test_a_message_that_did_not_come_is_a_loss_once_it_would_have_come() -> None:
    assert losses(*READER, *WRITER, LATER) == [("reader", Fate.NOT_SENT, TOPIC)]
    assert losses(*READER, *WRITER, client(Pingreq(), after=0.9)) == []
    assert losses(*READER, *WRITER, DELIVERED, LATER) == []


def test_no_loss_where_nobody_wanted_the_message() -> None:
    assert losses(*WRITER, LATER) == []
    assert losses(*opened(client_identifier="reader"), *subscribed("plant/7/alarms"), *WRITER, LATER) == []
    assert losses(*opened(client_identifier="reader"), *WRITER, *subscribed(), LATER) == []
    ended = client(Unsubscribe(packet_identifier=2, topic_filters=[TOPIC]))
    assert losses(*READER, ended, *WRITER, LATER) == []


def test_no_loss_where_the_capture_lacks_bytes() -> None:
    assert losses(*READER, *WRITER, lost(DELIVERED), server(Publish(topic_name="b")), LATER) == []


def test_no_loss_among_messages_that_look_alike() -> None:
    again = on(1, client(Publish(topic_name=TOPIC, qos=1, packet_identifier=6, payload=b"hot")))
    assert losses(*READER, *WRITER, *again, LATER) == []
    hotter = Publish(topic_name=TOPIC, qos=1, packet_identifier=6, payload=b"hotter")
    other = on(1, client(hotter), server(Puback(packet_identifier=6)))
    assert len(losses(*READER, *WRITER, *other, LATER)) == 2


def test_refusals_are_losses_of_those_who_asked() -> None:
    refusal = server(Puback(packet_identifier=5, reason_code=0x87))
    writer = on(1, *opened(client_identifier="writer"), client(MESSAGE), refusal)
    assert losses(*READER, *writer) == [("writer", Fate.MESSAGE_REFUSED, TOPIC)]
    assert losses(*opened(client_identifier="reader"), *subscribed(code=0x80)) == [
        ("reader", Fate.SUBSCRIPTION_REFUSED, TOPIC)
    ]
    assert losses(*opened(client_identifier="reader"), *subscribed(code=2)) == []


def returned(*, kept: int, present: bool, cut: bool) -> list[tuple[str, Fate, str]]:
    """The losses of a client that was away when a message was published."""
    first = opened(client_identifier="reader", clean_start=False, connect=Properties(session_expiry_interval=kept))
    end = (closes("client"),) if cut else (client(Disconnect()), closes("client"))
    return losses(*first, *subscribed(), *end, *WRITER, *back(present=present), *on(2, LATER))


def test_a_client_that_was_away_lost_what_its_session_should_have_kept() -> None:
    assert returned(kept=3600, present=True, cut=False) == [("reader", Fate.NOT_SENT, TOPIC)]
    assert returned(kept=3600, present=False, cut=False) == [("reader", Fate.SESSION_GONE, TOPIC)]


def test_a_client_that_was_cut_off_lost_what_it_missed_and_one_that_left_did_not() -> None:
    assert returned(kept=0, present=False, cut=True) == [("reader", Fate.SESSION_GONE, TOPIC)]
    assert returned(kept=0, present=False, cut=False) == []


def test_a_client_that_does_not_come_back_lost_nothing() -> None:
    gone = (*opened(client_identifier="reader"), *subscribed(), closes("client"))
    assert losses(*gone, *WRITER, *on(1, LATER)) == []


def test_a_copy_is_of_the_message_that_the_client_had_a_subscription_for() -> None:
    before = on(1, *opened(client_identifier="writer"), client(MESSAGE), ANSWER)
    trace = traced(TOPIC, *before, *READER, *on(1, client(MESSAGE), ANSWER), DELIVERED, LATER)

    assert [[(each.client, each.fate) for each in message.deliveries] for message in trace.messages] == [
        [("reader", Fate.SUBSCRIBED_LATER)]
    ]


def test_messages_that_nobody_wants_make_room_for_those_that_somebody_does() -> None:
    most, messages.MAX_MESSAGES = messages.MAX_MESSAGES, 3
    plain = [step for number in range(6) for step in on(1, client(Publish(topic_name=f"x/{number}", payload=b"x")))]
    watch = MessageWatch("#")
    try:
        for event in dissect_segments(segments(conversation("", *READER, *WRITER, *plain, LATER))):
            watch.feed(event)
    finally:
        messages.MAX_MESSAGES = most

    assert [loss.topic for loss in watch.losses()] == [TOPIC]
    assert (watch.unwanted, watch.beyond) == (4, 0)
    assert (
        "7 messages to # in the capture: 0 went to every captured client that wanted them, 1 did not, 6"
        in (watch.trace().told[0])
    )


def test_a_message_of_which_the_capture_lacks_bytes_may_have_come() -> None:
    watch = MessageWatch(TOPIC)
    for event in dissect_segments(segments(conversation("", *READER, *WRITER, LATER))):
        if isinstance(event, PacketEvent) and isinstance(event.packet, Publish):
            event.packet.missing = 2
        watch.feed(event)

    (message,) = watch.trace().messages
    assert [each.fate for each in message.deliveries] == [Fate.NOT_CAPTURED]
    assert list(watch.losses()) == []
