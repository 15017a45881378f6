"""Differences in words, and counts."""

from __future__ import annotations

from mqttscope.mqtt import PacketType, ProtocolVersion
from mqttscope.replay.verify.difference import Tally, described, reason_text
from tests.replay.talk import record


def test_an_entry_counts_once_and_a_difference_wins() -> None:
    (script,) = record("dev > connect\ndev < connack\ndev < publish a x\ndev < publish b\ndev < publish -")
    first, second, third, fourth = script.entries[1:]
    tally = Tally(script)
    tally.equal(first)
    tally.different(first)
    tally.different(first)
    tally.equal(second)
    tally.follow(third)
    tally.not_judged(fourth, "why")
    tally.otherwise()

    assert (tally.compared, tally.equals, tally.differing, tally.following, tally.unjudged) == (3, 1, 2, 1, 1)
    assert tally.reasons == {"why": 1}


def test_words() -> None:
    (script,) = record("dev > connect\ndev < publish a/\x1b x\ndev < publish - x topic_alias=4\ndev < publish - x")

    assert [described(script_entry) for script_entry in script.entries] == [
        "CONNECT", r"PUBLISH to 'a/\x1b'", "PUBLISH to an unknown topic",
        "PUBLISH to an empty topic",
    ]  # fmt: skip
    assert reason_text(PacketType.PUBACK, 0x10, ProtocolVersion.V5) == "0x10 No matching subscribers"
