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

ONE = "publish t/a one"
SENT = OPENED + "pub > publish t/a x\n"
CAME = SENT + "sub < publish t/a x"
SENT_ONCE = OPENED + "pub > publish t/a x qos=1 id=1\n"
ACKNOWLEDGED = SENT_ONCE + "pub < puback 1\n"
FORWARDED = ACKNOWLEDGED + "sub < publish t/a x"
EXACTLY_ONCE = SENT + "sub < publish t/a x qos=2 id=1\nsub > pubrec 1"
CAUGHT_UP = "sub > pingreq\nsub < pingresp"
"""What a subscriber gets afterwards would come too late."""
PINGED = "pub > pingreq\npub < pingresp\n"
MISSING = ("missing-delivery", "", 0)
EXTRA = ("extra-delivery", "", 0)
OTHER_PROPERTIES = {
    "a content type lost": ("content_type=json", "", "content_type"),
    "another response topic": ("response_topic=a", "response_topic=b", "response_topic"),
    "another correlation": ("correlation_data=a", "correlation_data=b", "correlation_data"),
    "a payload that is text no more": ("payload_format_indicator=1", "", "payload_format_indicator"),
    "user properties of a message in another order": (
        "user_property=a:1 user_property=a:2",
        "user_property=a:2 user_property=a:1",
        "user_property",
    ),
    "another subscription identifier": (
        "subscription_identifier=1",
        "subscription_identifier=2",
        "subscription_identifier",
    ),
    "an expiry interval that is not there": ("message_expiry_interval=9", "", "message_expiry_interval"),
}
"""Properties of a delivery in the recording and live, and which one differs."""
DIFFERENT: Different = {
    "a lower QoS, and what is delivered with it": (
        FORWARDED + " qos=1 id=1\nsub > puback 1",
        FORWARDED.replace("suback 1 2", "suback 1 0"),
        [("granted-qos", "reason_codes[0]", 1)],
    ),
    "a message is missing": (delivered(*ALL), delivered(*ALL[:2]), [MISSING]),
    "a message too many": (delivered(*ALL), delivered(*ALL, ONE), [EXTRA]),
    "a payload that nobody published": (
        delivered(*ALL),
        delivered("publish t/a eno", *ALL[1:]),
        [("payload", "payload", 0)],
    ),
    "another message of the topic": (delivered(ONE), delivered("publish t/a three"), [MISSING, EXTRA]),
    "another QoS": (delivered(*ALL), delivered(f"{ONE} qos=1 id=1", *ALL[1:]), [("delivery-qos", "qos", 0)]),
    "a RETAIN flag": (delivered(*ALL), delivered(f"{ONE} retain", *ALL[1:]), [("retain", "retain", 0)]),
    **{
        name: (delivered(f"{ONE} {before}"), delivered(f"{ONE} {after}"), [("property", f"properties.{field}", 0)])
        for name, (before, after, field) in OTHER_PROPERTIES.items()
    },
    "no PUBREL": (EXACTLY_ONCE + "\nsub < pubrel 1\nsub > pubcomp 1", EXACTLY_ONCE, [("missing-answer", "", 0)]),
    "the client is refused": (
        FORWARDED,
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
        FORWARDED,
        SENT_ONCE + "pub < puback 1 code=0x87",
        [("reason-code", "reason_code", 1)],
    ),
    "a message that is not acknowledged, and not delivered": (FORWARDED, SENT_ONCE, [("missing-answer", "", 1)]),
    "a message that is not acknowledged, but delivered": (
        FORWARDED,
        SENT_ONCE + "sub < publish t/a x\n" * 2,
        [EXTRA, ("missing-answer", "", 0)],
    ),
    "messages that were sent when the broker closed": (
        CAME + "\n" + PINGED + "pub > fin",
        SENT + "pub < fin",
        [("close", "ending.by", 2)],
    ),
    "messages that it had got before": (
        CAME + "\n" + PINGED * 2 + "pub > fin",
        SENT + PINGED + "pub < fin",
        [MISSING, ("close", "ending.by", 1)],
    ),
    "an early end, and what is missing then": (
        CAME + "\npub > publish t/b y qos=1 id=1\npub < puback 1\nsub < publish t/b y\npub > disconnect\npub > fin",
        CAME + "\npub < reset",
        [("close", "ending.by", 2)],
    ),
    "messages that only the live broker lets through": (
        SENT.replace("suback 1 2", "suback 1 0x87") + CAUGHT_UP,
        CAME + "\n" + CAUGHT_UP,
        [("reason-code", "reason_codes[0]", 1)],
    ),
    "a message that only the live broker accepts, and its delivery": (
        SENT_ONCE + "pub < puback 1 code=0x87\n" + CAUGHT_UP,
        FORWARDED + "\n" + CAUGHT_UP,
        [("reason-code", "reason_code", 1)],
    ),
    "everything on a connection that only the live broker accepts": (
        "sub > connect\nsub < connack code=0x87\npub > connect\npub < connack\npub > publish t/a x",
        CAME,
        [("reason-code", "reason_code", 1)],
    ),
    "an order": (delivered(*ALL), delivered(ALL[2], ALL[1], ALL[0]), [("order", "", 0)]),
}

TWO_COPIES = [f"{ONE} subscription_identifier={number}" for number in (1, 2)]
RETURNED = CAME + " qos=1 id=1\nsub > fin\nsub > connect resume\nsub < connack"
OVERTAKEN = OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
EXPIRING = "publish t/a old message_expiry_interval=10"
EQUAL: Equal = {
    "packet identifiers": (
        delivered(f"{ONE} qos=1 id=1", *ALL[1:]),
        delivered(f"{ONE} qos=1 id=700", *ALL[1:]),
    ),
    "aliases": (
        delivered(f"{ONE} topic_alias=1", ALL[1], "publish - three topic_alias=1"),
        delivered(f"{ONE} topic_alias=5", ALL[1], "publish - three topic_alias=5"),
    ),
    "an alias that one side uses": (delivered(*ALL), delivered(f"{ONE} topic_alias=1", *ALL[1:])),
    "subscription identifiers as a set": (delivered(TWO_COPIES[0]), delivered(TWO_COPIES[0])),
    "the broker's own topics": (delivered(*ALL), delivered("publish $SYS/uptime 1", *ALL)),
    "once more with DUP": (
        delivered(f"{ONE} qos=1 id=1", *ALL[1:]),
        delivered(f"{ONE} qos=1 id=1", f"{ONE} qos=1 id=1 dup", *ALL[1:]),
    ),
    "once more on the next connection": (RETURNED, RETURNED + "\nsub < publish t/a x qos=1 id=1 dup"),
    "the expiry interval counted down": (
        delivered("publish t/a old message_expiry_interval=9").replace(ONE, EXPIRING, 1),
        delivered("+4 sub < publish t/a old message_expiry_interval=6")
        .replace("sub < +4", "+4")
        .replace(ONE, EXPIRING, 1),
    ),
    "the capture ended before the delivery": (SENT, CAME),
    "order across topics": (delivered(*ALL), delivered(ALL[1], ALL[0], ALL[2])),
    "copies of one message for two filters": (delivered(*TWO_COPIES), delivered(*reversed(TWO_COPIES))),
    "two clients overtake each other": (
        OVERTAKEN + "sub < publish t/a one\nsub < publish t/a two",
        OVERTAKEN + "sub < publish t/a two\nsub < publish t/a one",
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
        ("a < publish own z\nb < publish t/1 x", [MISSING]),
        ("a < publish t/1 x\nb < publish t/2 y\nb < publish own z", [MISSING, EXTRA]),
        (
            "a < publish t/1 x\nb < publish t/1 x\nb < publish t/2 y\na < publish own z\na < publish t/1 x",
            [EXTRA, EXTRA],
        ),
    ],
)
def test_a_shared_subscription_is_compared_over_its_members(live: str, expected: list[Found]) -> None:
    rest = "\na > pingreq\na < pingresp\nb > pingreq\nb < pingresp"
    recorded = SHARED + "a < publish t/1 x\nb < publish t/2 y\na < publish own z" + rest

    assert told(compare(pairs(recorded, SHARED + live + rest))) == expected


@pytest.mark.parametrize(("left", "grows"), [(10, False), (11, True)])
def test_an_expiry_interval_may_not_grow(left: int, *, grows: bool) -> None:
    published = OPENED + "pub > publish t/a x message_expiry_interval=10\n"
    differences = compare(
        pairs(
            published + "+1 sub < publish t/a x message_expiry_interval=9",
            published + f"+5 sub < publish t/a x message_expiry_interval={left}",
        )
    )

    assert told(differences) == ([("property", "properties.message_expiry_interval", 0)] if grows else [])


def test_topics_may_be_ignored() -> None:
    both = pairs(delivered(*ALL), delivered())

    assert told(compare(both, ignored_topics=("t/#",))) == []
    assert len(compare(both)) == 3


messages = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=12)


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_no_permutation_across_topics_is_a_difference(sent: list[tuple[str, int]], random: Random) -> None:
    shuffled = _shuffled(sent, random)

    assert told(compare(pairs(_conversation(sent, sent), _conversation(sent, shuffled)))) == []


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_whatever_is_missing_or_new_is_counted(sent: list[tuple[str, int]], random: Random) -> None:
    came = [pair for pair in _shuffled(sent, random) if random.random() < 0.7]
    missing = (Counter(sent) - Counter(came)).total()
    there = compare(pairs(_conversation(sent, sent), _conversation(sent, came)))
    back = compare(pairs(_conversation(sent, came), _conversation(sent, sent)))

    # Of messages that are alike nobody knows which one is missing, so the order is left aside.
    assert sum(difference.kind is DifferenceKind.MISSING_DELIVERY for difference in there) == missing
    assert sum(difference.kind is DifferenceKind.EXTRA_DELIVERY for difference in back) == missing
    assert {difference.kind for difference in there + back} <= {
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
    waiting = {topic: iter([pair for pair in sent if pair[0] == topic]) for topic in topics}
    return [next(waiting[topic]) for topic in topics]


def test_what_was_left_out_is_not_missed() -> None:
    recorded = record(FORWARDED)
    left_out = {
        script_entry
        for script in recorded
        for script_entry in script.entries
        if script_entry.type == "publish" and script_entry.from_client
    }
    verification = verify(replay(recorded, OPENED), skipped=left_out)

    assert verification.differences == []
    assert [tally.reasons for tally in verification.tallies] == [
        {"the replay did not perform the step that it belongs to": 1}
    ] * 2


@pytest.mark.parametrize(
    ("recorded", "live", "unjudged"),
    [
        pytest.param(
            OPENED + "sub < lost 20\npub > publish t/a x\n" + CAUGHT_UP,
            CAME + "\n" + CAUGHT_UP,
            [{"the recording is not complete": 1}, {}],
            id="what the recording lost",
        ),
        pytest.param(
            OPENED + "pub > lost 20\nsub < publish t/a x",
            OPENED,
            [{"the recording is not complete": 1}, {}],
            id="what was published in bytes that are lost",
        ),
        pytest.param(FORWARDED + " qos=1 id=1\nsub > puback 1", CAME, [1, 1], id="sent with a lower QoS"),
        pytest.param(
            CAME,
            "sub > connect\nsub < connack\npub > connect\npub < connack\npub > publish t/a x",
            [2, 0],
            id="what was not subscribed in the replay",
        ),
    ],
)
def test_what_is_not_judged(recorded: str, live: str, unjudged: list[int | dict[str, int]]) -> None:
    """How often in each connection, or why."""
    verification = verify(pairs(recorded, live))

    assert verification.differences == []
    result = zip(verification.tallies, unjudged, strict=True)
    assert [tally.unjudged if isinstance(wanted, int) else tally.reasons for tally, wanted in result] == unjudged


def test_what_was_left_out_since_the_connection_had_ended_follows_from_its_end() -> None:
    recorded = record(asked("dev > publish a x qos=1 id=1", "dev < puback 1", "dev > pingreq", "dev < pingresp"))
    unsent = [
        script_entry
        for script_entry in recorded[0].entries
        if script_entry.from_client and script_entry.type != "connect"
    ]

    differences = compare(replay(recorded, "dev > connect\ndev < connack\ndev < fin"), skipped=unsent)
    assert told(differences) == [("close", "ending.by", 2)]

    refused = replay(recorded, "dev < fin")
    assert refused[0][1] is not None
    refused[0][1].ending.how = "refused"
    differences = compare(
        refused, skipped=[script_entry for script_entry in recorded[0].entries if script_entry.from_client]
    )
    assert told(differences) == [("not-connected", "", 3)]


def test_messages_that_were_stored_before_the_recording_are_missed_all_the_same() -> None:
    (difference,) = compare(pairs(OPENED + "sub < publish t/a x retain", OPENED))

    assert difference.kind == "missing-delivery"
    assert difference.message.endswith("it was stored before, is a Will, or its publisher was left out.")


def test_a_message_of_which_bytes_are_lost_is_not_judged() -> None:
    recorded = record(OPENED + "sub < publish t/a xyz")
    packet = recorded[0].entries[-1].packet
    assert isinstance(packet, Publish)
    packet.missing = 5
    verification = verify(replay(recorded, OPENED))

    assert (verification.differences, verification.tallies[0].unjudged) == ([], 1)
