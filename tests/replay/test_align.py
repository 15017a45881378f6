"""Which recorded packet a packet is: of two whole sequences, and as packets come; and which ones have moved."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Publish, decode
from mqttscope.replay.align import (
    CAPTURE_KEYS,
    DEVICE_KEYS,
    SERVER_KEYS,
    Counterparts,
    Key,
    align,
    displaced,
    longest_rise,
)
from mqttscope.replay.align import CAPTURE_KEYS_WITHOUT_PAYLOAD as WITHOUT_PAYLOAD
from mqttscope.replay.script import ScriptEntry
from tests.each import each
from tests.replay.talk import read, record


def live(words: str, place: int = 0) -> ScriptEntry:
    """A packet in words."""
    packet = decode(bytes.fromhex(words.removeprefix("raw "))) if words.startswith("raw ") else read(words)
    return ScriptEntry(True, packet, packet.topic_name if isinstance(packet, Publish) else None, 0, place)


PACKETS = """
    dev > connect
    dev > publish a 1
    dev > publish b 2
    dev > publish a 3
    dev > subscribe 1 x:1 y:2
    dev > subscribe 2 z:0 w:0
    dev > pingreq
"""


@each(
    "asked, places",
    [
        # By topic and payload, then by topic.
        (["publish a 3", "publish a other", "publish a third"], [3, 1, None]),
        # What only resembles takes nothing away.
        (["publish a other", "publish a 1", "publish a 3"], [1, 1, 3]),
        # Another topic is what was expected.
        (["publish other 2", ("publish other 2", 2), ("publish other 2", 4)], [None, 2, None]),
        (["subscribe 7 y:0 x:0", "subscribe 8 unknown:0", "subscribe 9 unknown:0"], [4, 5, None]),
        (["subscribe 7 w:0 z:0", "subscribe 8 unknown:0"], [5, 4]),
        (["pingreq", "pingreq"], [6, None]),
    ],
)
def test_which_recorded_packet_a_live_one_is(asked: list[str | tuple[str, int]], places: list[int | None]) -> None:
    """Packets in words, some with the place of the packet that is expected."""
    entries = record(PACKETS)[0].entries
    counterparts, matches = Counterparts(entries, SERVER_KEYS), []
    for row in asked:
        words, expected = (row, None) if isinstance(row, str) else row
        match = counterparts.find(live(words), None if expected is None else entries[expected])
        matches.append(None if match is None else entries.index(match[0]))

    assert matches == places


@each(
    "keys, recorded, asked, pairs",
    [
        # All packets at one level before the next one.
        (CAPTURE_KEYS, ["publish t 1", "publish t 2"], ["publish t 3", "publish t 1"], {(0, 1), (1, 0)}),
        (CAPTURE_KEYS, ["publish t 1", "publish t 1 retain"], ["publish t 1 retain", "publish t 1"], {(0, 1), (1, 0)}),
        (DEVICE_KEYS, ["publish t 1", "publish t 1 retain"], ["publish t 1 retain", "publish t 1"], {(0, 0), (1, 1)}),
        (WITHOUT_PAYLOAD, ["publish t 1", "publish t 2"], ["publish t 2", "publish t 1"], {(0, 0), (1, 1)}),
        (CAPTURE_KEYS, ["publish t 1"], ["publish u 1"], set()),
        (DEVICE_KEYS, ["publish t 1"], ["publish u 1"], {(0, 0)}),
        (DEVICE_KEYS, ["publish t -"], ["publish u -"], set()),
        (CAPTURE_KEYS, ["subscribe 1 a:0 b:0"], ["subscribe 2 b:0 a:0"], {(0, 0)}),
        (CAPTURE_KEYS, ["subscribe 1 a:0"], ["subscribe 1 b:0"], set()),
        (DEVICE_KEYS, ["subscribe 1 a:0"], ["subscribe 1 b:0"], {(0, 0)}),
        (CAPTURE_KEYS, ["disconnect", "disconnect code=4"], ["disconnect code=4"], {(1, 0)}),
        (CAPTURE_KEYS, ["disconnect"], ["disconnect code=4"], {(0, 0)}),
        (CAPTURE_KEYS, ["pingreq"], ["disconnect"], set()),
        (CAPTURE_KEYS, ["raw 3601", "raw 3602"], ["raw 3602", "raw 3605"], {(0, 1), (1, 0)}),
        (CAPTURE_KEYS, ["raw 3601"], ["raw c00100"], set()),
        (DEVICE_KEYS, ["raw 3601", "raw 3602"], ["raw 3602", "raw 3605"], {(1, 0)}),
    ],
)
def test_whole_sequences(
    keys: list[Key[ScriptEntry]], recorded: list[str], asked: list[str], pairs: set[tuple[int, int]]
) -> None:
    """Pairs by index; what has no counterpart is left on its side."""
    first, other = [live(words) for words in recorded], [live(words) for words in asked]
    matched, left, right = align(first, other, keys)

    assert {(first.index(before), other.index(now)) for before, now in matched} == pairs
    assert left == [entry for index, entry in enumerate(first) if index not in {at for at, _ in pairs}]
    assert right == [entry for index, entry in enumerate(other) if index not in {at for _, at in pairs}]


def test_each_flow_has_its_order() -> None:
    topics = "a", "b", "a", "b", "a", "free"
    recorded = [live(f"publish {topic} x", place) for place, topic in enumerate(topics)]
    places = 3, 1, 4, 2, 0, 9
    pairs = [(entry, live("publish x x", place)) for entry, place in zip(recorded, places, strict=True)]

    ((moved, flow),) = displaced(reversed(pairs), lambda before, _: None if before.topic == "free" else before.topic)
    assert moved == [pairs[4]]
    assert flow == [pairs[0], pairs[2], pairs[4]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0), ([1], 1), ([1, 2, 3], 3), ([3, 2, 1], 1), ([2, 1, 3, 4, 0], 3), ([5, 1, 2, 3], 3), ([1, 9, 2, 3, 8], 4)],
)
def test_the_fewest_are_taken_for_moved(values: list[int], expected: int) -> None:
    numbers = longest_rise(values)

    assert len(numbers) == expected
    assert [values[index] for index in sorted(numbers)] == sorted(values[index] for index in numbers)
