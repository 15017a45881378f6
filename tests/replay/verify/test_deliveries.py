"""Deliveries: what differs is found by its name, on Shared Subscriptions over all members.

Their order counts as far as one is promised.  What only one side has is a difference, follows from others, or cannot be
judged.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import Publish
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.deliveries import longest_rise
from mqttscope.replay.verify.difference import DifferenceKind
from tests.each import each
from tests.replay.talk import (
    ALL,
    OPENED,
    Different,
    Equal,
    Found,
    asked,
    check,
    compare,
    delivered,
    pairs,
    record,
    replay,
    told,
)

DIFFERENT: Different = {
    "a lower QoS, and what is delivered with it": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x qos=1 id=1\nsub > puback 1",
        OPENED.replace("suback 1 2", "suback 1 0")
        + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        [("granted-qos", "reason_codes[0]", 1)],
    ),
    "a message is missing": (delivered(*ALL), delivered(*ALL[:2]), [("missing-delivery", "", 0)]),
    "a message too many": (delivered(*ALL), delivered(*ALL, "publish t/a one"), [("extra-delivery", "", 0)]),
    "a payload that nobody published": (
        delivered(*ALL),
        delivered("publish t/a eno", *ALL[1:]),
        [("payload", "payload", 0)],
    ),
    "another message of the topic": (
        delivered("publish t/a one"),
        delivered("publish t/a three"),
        [("missing-delivery", "", 0), ("extra-delivery", "", 0)],
    ),
    "another QoS": (
        delivered("publish t/a one", *ALL[1:]),
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        [("delivery-qos", "qos", 0)],
    ),
    "a RETAIN flag": (
        delivered(*ALL),
        delivered("publish t/a one retain", *ALL[1:]),
        [("retain", "retain", 0)],
    ),
    "a content type lost": (
        delivered("publish t/a one content_type=json"),
        delivered("publish t/a one"),
        [("property", "properties.content_type", 0)],
    ),
    "another response topic": (
        delivered("publish t/a one response_topic=a"),
        delivered("publish t/a one response_topic=b"),
        [("property", "properties.response_topic", 0)],
    ),
    "another correlation": (
        delivered("publish t/a one correlation_data=a"),
        delivered("publish t/a one correlation_data=b"),
        [("property", "properties.correlation_data", 0)],
    ),
    "a payload that is text no more": (
        delivered("publish t/a one payload_format_indicator=1"),
        delivered("publish t/a one"),
        [("property", "properties.payload_format_indicator", 0)],
    ),
    "user properties of a message in another order": (
        delivered("publish t/a one user_property=a:1 user_property=a:2"),
        delivered("publish t/a one user_property=a:2 user_property=a:1"),
        [("property", "properties.user_property", 0)],
    ),
    "another subscription identifier": (
        delivered("publish t/a one subscription_identifier=1"),
        delivered("publish t/a one subscription_identifier=2"),
        [("property", "properties.subscription_identifier", 0)],
    ),
    "an expiry interval that is not there": (
        delivered("publish t/a one message_expiry_interval=9"),
        delivered("publish t/a one"),
        [("property", "properties.message_expiry_interval", 0)],
    ),
    "no PUBREL": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=2 id=1\nsub > pubrec 1\nsub < pubrel 1\nsub > pubcomp 1",
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=2 id=1\nsub > pubrec 1",
        [("missing-answer", "", 0)],
    ),
    "the client is refused": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        OPENED.replace("pub < connack", "pub < connack code=0x87"),
        [("reason-code", "reason_code", 2)],
    ),
    "the session is gone": (
        "dev > connect resume\ndev < connack present\ndev < publish t/a x qos=1 id=1\ndev > puback 1",
        "dev > connect resume\ndev < connack",
        [("session-present", "session_present", 1)],
    ),
    "a refused subscription, and what is not delivered": (
        delivered(*ALL),
        delivered().replace("suback 1 2", "suback 1 0x87"),
        [("reason-code", "reason_codes[0]", 3)],
    ),
    "a refused message, which is not delivered": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1 code=0x87",
        [("reason-code", "reason_code", 1)],
    ),
    "a message that is not acknowledged, and not delivered": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        OPENED + "pub > publish t/a x qos=1 id=1",
        [("missing-answer", "", 1)],
    ),
    "a message that is not acknowledged, but delivered": (
        OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x",
        OPENED + "pub > publish t/a x qos=1 id=1\nsub < publish t/a x\nsub < publish t/a x",
        [("extra-delivery", "", 0), ("missing-answer", "", 0)],
    ),
    "messages that were sent when the broker closed": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x\npub > pingreq\npub < pingresp\npub > fin",
        OPENED + "pub > publish t/a x\npub < fin",
        [("close", "ending.by", 2)],
    ),
    "messages that it had got before": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x\n" + 2 * "pub > pingreq\npub < pingresp\n" + "pub > fin",
        OPENED + "pub > publish t/a x\npub > pingreq\npub < pingresp\npub < fin",
        [("missing-delivery", "", 0), ("close", "ending.by", 1)],
    ),
    "an order": (delivered(*ALL), delivered(ALL[2], ALL[1], ALL[0]), [("order", "", 0)]),
}

EQUAL: Equal = {
    "packet identifiers": (
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        delivered("publish t/a one qos=1 id=700", *ALL[1:]),
    ),
    "aliases": (
        delivered("publish t/a one topic_alias=1", ALL[1], "publish - three topic_alias=1"),
        delivered("publish t/a one topic_alias=5", ALL[1], "publish - three topic_alias=5"),
    ),
    "an alias that one side uses": (delivered(*ALL), delivered("publish t/a one topic_alias=1", *ALL[1:])),
    "subscription identifiers as a set": (
        delivered("publish t/a one subscription_identifier=1"),
        delivered("publish t/a one subscription_identifier=1"),
    ),
    "the broker's own topics": (delivered(*ALL), delivered("publish $SYS/uptime 1", *ALL)),
    "once more with DUP": (
        delivered("publish t/a one qos=1 id=1", *ALL[1:]),
        delivered("publish t/a one qos=1 id=1", "publish t/a one qos=1 id=1 dup", *ALL[1:]),
    ),
    "once more on the next connection": (
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=1 id=1\nsub > fin\nsub > connect resume\nsub < connack",
        OPENED + "pub > publish t/a x\nsub < publish t/a x qos=1 id=1\nsub > fin\nsub > connect resume\nsub < connack\n"
        "sub < publish t/a x qos=1 id=1 dup",
    ),
    "the expiry interval counted down": (
        delivered("publish t/a old message_expiry_interval=9").replace(
            "publish t/a one", "publish t/a old message_expiry_interval=10", 1
        ),
        delivered("+4 sub < publish t/a old message_expiry_interval=6")
        .replace("sub < +4", "+4")
        .replace("publish t/a one", "publish t/a old message_expiry_interval=10", 1),
    ),
    "the capture ended before the delivery": (
        OPENED + "pub > publish t/a x",
        OPENED + "pub > publish t/a x\nsub < publish t/a x",
    ),
    "order across topics": (delivered(*ALL), delivered(ALL[1], ALL[0], ALL[2])),
    "copies of one message for two filters": (
        delivered("publish t/a one subscription_identifier=1", "publish t/a one subscription_identifier=2"),
        delivered("publish t/a one subscription_identifier=2", "publish t/a one subscription_identifier=1"),
    ),
    "two clients overtake each other": (
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a one\nsub < publish t/a two",
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a two\nsub < publish t/a one",
    ),
}


@each("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    check(*EQUAL[name], [])


SHARED = """
    a > connect
    a < connack
    a > subscribe 1 $share/g/t/#:1 own:0
    a < suback 1 1 0
    b > connect
    b < connack
    b > subscribe 1 $share/g/t/#:0
    b < suback 1 0
    pub > connect
    pub < connack
    pub > publish t/1 x
    pub > publish t/2 y
    pub > publish own z
"""


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ("b < publish t/1 x\na < publish t/2 y\na < publish own z", []),
        ("b < publish t/2 y\nb < publish t/1 x subscription_identifier=4\na < publish own z", []),
        ("a < publish own z\nb < publish t/1 x", [("missing-delivery", "", 0)]),
        (
            "a < publish t/1 x\nb < publish t/2 y\nb < publish own z",
            [("missing-delivery", "", 0), ("extra-delivery", "", 0)],
        ),
        (
            "a < publish t/1 x\nb < publish t/1 x\nb < publish t/2 y\na < publish own z\na < publish t/1 x",
            [("extra-delivery", "", 0), ("extra-delivery", "", 0)],
        ),
    ],
)
def test_a_shared_subscription_is_compared_over_its_members(live: str, expected: list[Found]) -> None:
    rest = "\na > pingreq\na < pingresp\nb > pingreq\nb < pingresp"
    recorded = SHARED + "a < publish t/1 x\nb < publish t/2 y\na < publish own z" + rest

    assert told(compare(pairs(recorded, SHARED + live + rest))) == expected


@pytest.mark.parametrize(("left", "grows"), [(10, False), (11, True), (4, False), (0, True)])
def test_an_expiry_interval_may_not_grow_nor_lose_more_than_time_passed(left: int, *, grows: bool) -> None:
    published = OPENED + "pub > publish t/a x message_expiry_interval=10\n"
    found = compare(
        pairs(
            published + "+1 sub < publish t/a x message_expiry_interval=9",
            published + f"+5 sub < publish t/a x message_expiry_interval={left}",
        )
    )

    assert told(found) == ([("property", "properties.message_expiry_interval", 0)] if grows else [])


def test_topics_may_be_ignored() -> None:
    both = pairs(delivered(*ALL), delivered())

    assert told(compare(both, ignored_topics=("t/#",))) == []
    assert len(compare(both)) == 3


@pytest.mark.parametrize(
    ("values", "kept"),
    [([], 0), ([1], 1), ([1, 2, 3], 3), ([3, 2, 1], 1), ([2, 1, 3, 4, 0], 3), ([5, 1, 2, 3], 3), ([1, 9, 2, 3, 8], 4)],
)
def test_the_fewest_are_taken_for_moved(values: list[int], kept: int) -> None:
    found = longest_rise(values)

    assert len(found) == kept
    assert [values[index] for index in sorted(found)] == sorted(values[index] for index in found)


messages = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=12)


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_no_permutation_across_topics_is_a_difference(sent: list[tuple[str, int]], random: Random) -> None:
    shuffled = _shuffled(sent, random)

    assert told(compare(pairs(_conversation(sent, sent), _conversation(sent, shuffled)))) == []


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_whatever_is_missing_or_new_is_counted(sent: list[tuple[str, int]], random: Random) -> None:
    came = [one for one in _shuffled(sent, random) if random.random() < 0.7]
    missing = (Counter(sent) - Counter(came)).total()
    there = compare(pairs(_conversation(sent, sent), _conversation(sent, came)))
    back = compare(pairs(_conversation(sent, came), _conversation(sent, sent)))

    # Of messages that are alike nobody knows which one is missing, so the order is left aside.
    assert sum(one.kind is DifferenceKind.MISSING_DELIVERY for one in there) == missing
    assert sum(one.kind is DifferenceKind.EXTRA_DELIVERY for one in back) == missing
    assert {one.kind for one in there + back} <= {
        DifferenceKind.MISSING_DELIVERY,
        DifferenceKind.EXTRA_DELIVERY,
        DifferenceKind.ORDER,
    }


def _conversation(sent: list[tuple[str, int]], came: list[tuple[str, int]]) -> str:
    lines = [f"pub > publish t/{topic} {payload}" for topic, payload in sent]
    lines += [f"sub < publish t/{topic} {payload} qos=1 id={index + 1}" for index, (topic, payload) in enumerate(came)]
    return OPENED + "\n".join([*lines, "sub > pingreq", "sub < pingresp"])


def _shuffled(sent: list[tuple[str, int]], random: Random) -> list[tuple[str, int]]:
    """The same messages, those of each topic in their order."""
    topics = [topic for topic, _ in sent]
    random.shuffle(topics)
    waiting = {topic: iter([one for one in sent if one[0] == topic]) for topic in topics}
    return [next(waiting[topic]) for topic in topics]


def test_what_was_left_out_is_not_missed() -> None:
    recorded = record(OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x")
    left_out = {one for script in recorded for one in script.entries if one.type == "publish" and one.from_client}
    found = verify(replay(recorded, OPENED), skipped=left_out)

    assert found.differences == []
    assert [one.reasons for one in found.tallies] == [{"the replay did not perform what it belongs to": 1}] * 2


def test_what_the_recording_lost_is_not_judged() -> None:
    recorded = OPENED + "sub < lost 20\npub > publish t/a x\nsub > pingreq\nsub < pingresp"
    live = OPENED + "pub > publish t/a x\nsub < publish t/a x\nsub > pingreq\nsub < pingresp"
    found = verify(pairs(recorded, live))

    assert found.differences == []
    assert found.tallies[0].reasons == {"the recording is not complete": 1}


def test_what_was_published_in_bytes_that_are_lost_is_not_missed() -> None:
    found = verify(pairs(OPENED + "pub > lost 20\nsub < publish t/a x", OPENED))

    assert (found.differences, found.tallies[0].reasons) == ([], {"the recording is not complete": 1})


def test_an_early_end_explains_what_is_missing() -> None:
    recorded = OPENED + "pub > publish t/a x\nsub < publish t/a x\npub > publish t/b y qos=1 id=1\npub < puback 1\n"
    recorded += "sub < publish t/b y\npub > disconnect\npub > fin"
    live = OPENED + "pub > publish t/a x\nsub < publish t/a x\npub < reset"

    assert told(compare(pairs(recorded, live))) == [("close", "ending.by", 2)]


def test_messages_that_only_the_live_broker_lets_through_follow() -> None:
    recorded = OPENED.replace("suback 1 2", "suback 1 0x87") + "pub > publish t/a x\nsub > pingreq\nsub < pingresp"
    live = OPENED + "pub > publish t/a x\nsub < publish t/a x\nsub > pingreq\nsub < pingresp"

    assert told(compare(pairs(recorded, live))) == [("reason-code", "reason_codes[0]", 1)]


def test_what_was_left_out_since_the_connection_had_ended_follows_from_its_end() -> None:
    recorded = record(asked("dev > publish a x qos=1 id=1", "dev < puback 1", "dev > pingreq", "dev < pingresp"))
    unsent = [one for one in recorded[0].entries if one.from_client and one.type != "connect"]

    found = compare(replay(recorded, "dev > connect\ndev < connack\ndev < fin"), skipped=unsent)
    assert told(found) == [("close", "ending.by", 2)]

    refused = replay(recorded, "dev < fin")
    assert refused[0][1] is not None
    refused[0][1].ending.how = "refused"
    found = compare(refused, skipped=[one for one in recorded[0].entries if one.from_client])
    assert told(found) == [("not-connected", "", 3)]


def test_a_message_that_the_replay_had_to_send_with_a_lower_qos_is_not_judged() -> None:
    recorded = OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x qos=1 id=1\nsub > puback 1"
    found = verify(pairs(recorded, OPENED + "pub > publish t/a x\nsub < publish t/a x"))

    assert found.differences == []
    assert [one.unjudged for one in found.tallies] == [1, 1]


def test_messages_that_were_stored_before_the_recording_are_missed_all_the_same() -> None:
    (one,) = compare(pairs(OPENED + "sub < publish t/a x retain", OPENED))

    assert one.kind == "missing-delivery"
    assert one.message.endswith("it was stored before, is a Will, or its publisher was left out.")


def test_a_message_of_which_bytes_are_lost_is_not_judged() -> None:
    recorded = record(OPENED + "sub < publish t/a xyz")
    packet = recorded[0].entries[-1].packet
    assert isinstance(packet, Publish)
    packet.missing = 5
    found = verify(replay(recorded, OPENED))

    assert (found.differences, found.tallies[0].unjudged) == ([], 1)


def test_what_was_not_subscribed_in_the_replay_is_not_missed() -> None:
    recorded = OPENED + "pub > publish t/a x\nsub < publish t/a x"
    live = "sub > connect\nsub < connack\npub > connect\npub < connack\npub > publish t/a x"
    found = verify(pairs(recorded, live))

    assert (found.differences, found.tallies[0].unjudged) == ([], 2)


def test_a_message_that_only_the_live_broker_accepts_brings_its_delivery() -> None:
    recorded = OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1 code=0x87\nsub > pingreq\nsub < pingresp"
    live = OPENED + "pub > publish t/a x qos=1 id=1\npub < puback 1\nsub < publish t/a x\nsub > pingreq\nsub < pingresp"

    assert told(compare(pairs(recorded, live))) == [("reason-code", "reason_code", 1)]


def test_everything_on_a_connection_that_only_the_live_broker_accepts_follows() -> None:
    recorded = "sub > connect\nsub < connack code=0x87\npub > connect\npub < connack\npub > publish t/a x"

    assert told(compare(pairs(recorded, OPENED + "pub > publish t/a x\nsub < publish t/a x"))) == [
        ("reason-code", "reason_code", 1)
    ]
