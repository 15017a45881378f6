"""Births of two firmware versions, compared by meaning."""

from __future__ import annotations

from typing import Any

from mqttscope.lint.sparkplug_text import parse_payload
from mqttscope.replay.verify.births import metric_changes
from tests.each import each
from tests.replay.talk import asked
from tests.replay.verify.test_captures import compared

TOPIC = "spBv1.0/g/NBIRTH/e"
BEFORE = "spb(seq=0 bdSeq:Int64=0 T#7:Int32=20 Name:String=a)"
UNIT = '{"properties":{"keys":["unit"],"values":[{"type":12,"string_value":"C"}]}}'


def changes(before: str, now: str, topic: str | None = TOPIC) -> Any:
    return metric_changes(topic, parse_payload(before), parse_payload(now))


@each(
    "now, wanted",
    [
        (BEFORE, []),
        ("spb(timestamp=5 seq=0 bdSeq:Int64=9 Name:String=b T#8:Int32=-3)", []),
        ("spb(bdSeq:Int64=0 T#7:Int32=20)", [("payload.metrics[Name]", "String", None)]),
        (BEFORE[:-1] + " New:Boolean=true)", [("payload.metrics[New]", None, "Boolean")]),
        (BEFORE.replace("Int32", "Int64"), [("payload.metrics[T].datatype", "Int32", "Int64")]),
        (BEFORE.replace("=20", f"=20{UNIT}"), [("payload.metrics[T].properties", "none", '{"unit":"C"}')]),
    ],
)  # fmt: skip
def test_metrics_are_compared_by_name_type_and_properties(now: str, wanted: list[Any]) -> None:
    assert changes(BEFORE, now) == wanted


def test_other_messages_and_unreadable_ones_are_not_compared_here() -> None:
    assert changes(BEFORE, BEFORE, "spBv1.0/g/NDATA/e") is changes(BEFORE, BEFORE, "a/b") is None
    assert metric_changes(TOPIC, b"\xff", b"\xff") is None
    assert changes("spb(bdSeq:Int64=0)", "spb(bdSeq:Int64=1)", "spBv1.0/g/NDEATH/e") == []


def test_the_will_of_an_edge_node() -> None:
    first, other = (
        f"dev > connect client=dev will=spBv1.0/g/NDEATH/e will_payload=0x{parse_payload(text).hex()}\ndev < connack"
        for text in ("spb(bdSeq:Int64=0)", "spb(bdSeq:Int64=1)")
    )
    assert compared(first, other)[0] == []
    assert len(compared(first.replace("NDEATH", "x"), other.replace("NDEATH", "x"))[0]) == 1


def test_births_in_captures() -> None:
    first, other, same = (
        asked(f"dev > publish {TOPIC} 0x{parse_payload(text).hex()}")
        for text in (BEFORE, BEFORE.replace("T#7:Int32", "T#9:Double"), BEFORE.replace("=20", "=21"))
    )
    (difference,), comparison = compared(first, other)

    assert (str(difference.kind), difference.field, difference.values) == (
        "field", "payload.metrics[T].datatype", ("Int32", "Double")
    )  # fmt: skip
    assert compared(first, same)[0] == compared(first, other, ignore=frozenset({"payload"}))[0] == []
    assert comparison.counts.differences == 1
