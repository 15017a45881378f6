"""Two captures compared by what was said in them."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.events import Event
from mqttscope.replay.script import Script
from mqttscope.replay.verify import captures
from mqttscope.replay.verify.captures import (
    A,
    B,
    CaptureComparison,
    CaptureDifference,
    ComparisonSettings,
    TooMuchKeptError,
)
from tests.each import each
from tests.replay.recordings import Builder
from tests.replay.talk import START_NS, asked, speak

Found = tuple[str, str, str]
"""Kind, the only capture that has it, and the field or the type of the packet."""


class _Feeding:
    """Takes events in the place of a reader of scripts, while connections are in the state before them."""

    def __init__(self, comparison: CaptureComparison, side: int, differences: list[CaptureDifference]) -> None:
        self.comparison, self.side, self.differences = comparison, side, differences

    def feed(self, event: Event) -> None:
        self.differences += self.comparison.feed(self.side, event)

    def finish(self) -> list[Script]:
        return []


def compared(a: str, b: str, **settings: Any) -> tuple[list[CaptureDifference], CaptureComparison]:
    capture_differences: list[CaptureDifference] = []
    comparison = CaptureComparison(ComparisonSettings(**settings))
    for side, text in ((A, a), (B, b)):
        speak(Builder(START_NS + side * 10**12, reader=_Feeding(comparison, side, capture_differences)), text)  # type: ignore[arg-type]
    capture_differences += comparison.finish()
    assert comparison.kept_bytes == 0
    assert comparison.counts.differences == len(capture_differences)
    return capture_differences, comparison


def told(differences: list[CaptureDifference]) -> list[Found]:
    return [
        (str(difference.kind), difference.only, difference.field or (difference.entry.type if difference.entry else ""))
        for difference in differences
    ]


PUBLISHED = asked("dev > publish a/b on qos=1 id=3", "dev < puback 3")
SWAPPED = asked("dev > publish c/d off", "dev > publish a/b on qos=1 id=3", "dev < puback 3")

EQUAL = {
    "packet identifiers": (PUBLISHED, PUBLISHED.replace("id=3", "id=9").replace("puback 3", "puback 9")),
    "times": (PUBLISHED, PUBLISHED.replace("dev > publish", "+7 dev > publish")),
    "pings": (PUBLISHED, asked("dev > pingreq", "dev < pingresp", *PUBLISHED.splitlines()[2:4])),
    "aliases": (
        asked("dev > publish a/b on", "dev > publish a/b on"),
        asked("dev > publish a/b on topic_alias=4", "dev > publish - on topic_alias=4"),
    ),
    "sent again": (
        PUBLISHED,
        asked("dev > publish a/b on qos=1 id=3", "dev > publish a/b on qos=1 id=3 dup", "dev < puback 3"),
    ),
    "no identifier, the same topics": (
        asked("dev > publish a/b on").replace("connect", "connect client=", 1),
        asked("dev > publish a/b on").replace("connect", "connect client=", 1),
    ),
    "acknowledged success": (PUBLISHED, PUBLISHED.replace("puback 3", "puback 3 code=0")),
    "topics of deliveries interleave": (
        asked("dev < publish a 1", "dev < publish b 1", "dev < publish a 2"),
        asked("dev < publish a 1", "dev < publish a 2", "dev < publish b 1"),
    ),
}
DIFFERENT: dict[str, tuple[str, str, list[Found]]] = {
    "a field of CONNECT": (
        asked().replace("connect", "connect keep_alive=60", 1),
        asked().replace("connect", "connect keep_alive=30", 1),
        [("field", "", "keep_alive")],
    ),
    "a packet": (PUBLISHED, asked(), [("packet", "a", "publish")]),
    "a packet of B": (asked(), PUBLISHED, [("packet", "b", "publish")]),
    "a payload": (PUBLISHED, PUBLISHED.replace(" on ", " off "), [("field", "", "payload")]),
    "a delivered payload": (
        asked("dev < publish a 1"), asked("dev < publish a 2"), [("field", "", "payload")],
    ),
    "QoS, and not the answers that follow": (PUBLISHED, asked("dev > publish a/b on"), [("field", "", "qos")]),
    "RETAIN": (PUBLISHED, PUBLISHED.replace(" on ", " on retain "), [("field", "", "retain")]),
    "a property": (
        PUBLISHED, PUBLISHED.replace(" on ", " on content_type=x "), [("field", "", "properties.content_type")],
    ),
    "an answer": (PUBLISHED, PUBLISHED.replace("dev < puback 3\n", ""), [("packet", "a", "puback")]),
    "a Reason Code": (PUBLISHED, PUBLISHED.replace("puback 3", "puback 3 code=0x87"), [("field", "", "reason_code")]),
    "a granted QoS": (
        asked("dev > subscribe 1 a/#:2", "dev < suback 1 2"),
        asked("dev > subscribe 1 a/#:2", "dev < suback 1 1"),
        [("field", "", "reason_codes[0]")],
    ),
    "a Topic Filter": (
        asked("dev > subscribe 1 a/#:2", "dev < suback 1 2"),
        asked("dev > subscribe 1 b/#:2", "dev < suback 1 2"),
        [("packet", "a", "subscribe"), ("packet", "b", "subscribe")],
    ),
    "the order": (
        asked("dev > publish a/b on qos=1 id=3", "dev < puback 3", "dev > publish c/d off"),
        SWAPPED,
        [("order", "", "publish")],
    ),
    "the order of deliveries": (
        asked("dev < publish a 1", "dev < publish a 2"),
        asked("dev < publish a 2", "dev < publish a 1"),
        [("order", "", "publish")],
    ),
    "who ends it": (
        "dev > connect\ndev < connack\ndev > fin", "dev > connect\ndev < connack\ndev < fin", [("close", "", "")],
    ),
    "a connection": (asked(), f"{asked()}\n{asked()}", [("connection", "b", "")]),
    "a client": (asked(), asked().replace("dev", "other"), [("connection", "a", ""), ("connection", "b", "")]),
    "a malformed packet": (
        asked("dev > raw 3601"), asked("dev > raw 3602"), [("field", "", "raw")],
    ),
}  # fmt: skip


@each("a, b", EQUAL.values(), ids=list(EQUAL))
def test_what_means_the_same(a: str, b: str) -> None:
    differences, comparison = compared(a, b)

    assert told(differences) == []
    assert comparison.counts.equal > 2


@each("a, b, expected", DIFFERENT.values(), ids=list(DIFFERENT))
def test_what_differs(a: str, b: str, expected: list[Found]) -> None:
    differences, _ = compared(a, b)
    swapped, _ = compared(b, a)

    assert told(differences) == expected
    # The other way round it is the same, with the sides exchanged.
    mirrored = {(kind, {"a": "b", "b": "a"}.get(only, ""), name) for kind, only, name in expected}
    assert set(told(swapped)) == mirrored
    assert told(compared(a, a)[0]) == []


@each(
    "setting, name",
    [
        ({"ignore": frozenset({"payload"})}, "a payload"),
        ({"ignore": frozenset({"payload"})}, "a delivered payload"),
        ({"ignore": frozenset({"qos"})}, "QoS, and not the answers that follow"),
        ({"ignore": frozenset({"retain"})}, "RETAIN"),
        ({"ignore": frozenset({"properties"})}, "a property"),
        ({"ignore": frozenset({"answers"})}, "an answer"),
        ({"ignore": frozenset({"answers"})}, "a Reason Code"),
        ({"ignore": frozenset({"order"})}, "the order"),
        ({"ignore": frozenset({"close"})}, "who ends it"),
        ({"ignored_topics": ("a/+",)}, "a packet"),
        ({"by_topics": True}, "a client"),
    ],
)
def test_what_is_left_out_on_request(setting: dict[str, Any], name: str) -> None:
    a, b, _ = DIFFERENT[name]

    assert told(compared(a, b, **setting)[0]) == []


@each(
    "setting, name, field",
    [
        ({"count": frozenset({"packet-identifier"})}, "packet identifiers", "packet_identifier"),
        ({"count": frozenset({"topic-alias"})}, "aliases", "properties.topic_alias"),
        ({"count": frozenset({"ping"})}, "pings", "pingreq"),
        ({"count": frozenset({"dup"})}, "sent again", "publish"),
        ({"tolerance_ns": 5 * 10**9}, "times", "publish"),
    ],
)
def test_what_counts_on_request(setting: dict[str, Any], name: str, field: str) -> None:
    assert field in [text for _, _, text in told(compared(*EQUAL[name], **setting)[0])]


def test_a_tolerance_that_is_not_reached() -> None:
    assert told(compared(*EQUAL["times"], tolerance_ns=8 * 10**9)[0]) == []


def test_only_some_clients() -> None:
    both = f"{PUBLISHED}\n{asked().replace('dev', 'other')}"

    assert told(compared(both, asked(), clients=("oth*",))[0]) == [("connection", "a", "")]


def test_those_without_identifier_are_paired_by_most_topics() -> None:
    """Not by their order, and not where they have nothing in common."""

    def anonymous(name: str, *topics: str) -> str:
        text = "\n".join(f"{name} > publish {topic} on" for topic in topics)
        return f"{name} > connect client=\n{name} < connack\n{text}\n{name} > disconnect\n{name} > fin\n"

    a = anonymous("x", "a/1", "a/2", "a/3") + anonymous("y", "b/1") + anonymous("z", "c/1")
    b = anonymous("k", "b/1") + anonymous("l", "a/1", "a/2") + anonymous("m", "d/1")

    differences, comparison = compared(a, b)

    assert told(differences) == [("packet", "a", "publish"), ("connection", "a", ""), ("connection", "b", "")]
    assert differences[0].entry is not None
    assert differences[0].entry.topic == "a/3"
    assert comparison.counts.connections == [3, 3]


def test_too_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MAX_KEPT_BYTES", 12_000)
    lines = [f"dev > publish a/b {number}" for number in range(20)]

    with pytest.raises(TooMuchKeptError, match="wait for their counterparts"):
        compared(asked(*lines), asked(*lines))
    # Pairs that have been compared are forgotten.
    short = asked(*lines[:2])
    differences: list[CaptureDifference] = []
    comparison = CaptureComparison()
    for number in range(20):
        for side in (A, B):
            builder = Builder(START_NS, opened=number, reader=_Feeding(comparison, side, differences))  # type: ignore[arg-type]
            speak(builder, short)
    assert differences == []
    assert comparison.kept_bytes == 0
