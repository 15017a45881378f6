"""Deliveries that only one side has: differences, what follows from others, what cannot be judged."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Publish
from mqttscope.replay.verify.verify import compare, verify
from tests.replay.talk import (
    ALL,
    OPENED,
    Different,
    Equal,
    asked,
    check,
    delivered,
    pairs,
    record,
    replay,
    told,
)

DIFFERENT: Different = {
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
}

EQUAL: Equal = {
    "the capture ended before the delivery": (
        OPENED + "pub > publish t/a x",
        OPENED + "pub > publish t/a x\nsub < publish t/a x",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    check(*EQUAL[name], [])


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
