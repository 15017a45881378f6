"""Messages of Sparkplug B of two recordings, compared by meaning."""

from __future__ import annotations

import io
from typing import Any

from mqttscope.lint.sparkplug_text import parse_payload
from mqttscope.replay.verify.captures import CaptureDifference
from mqttscope.replay.verify.metrics import NamedValue
from mqttscope.report.base import View
from mqttscope.report.compare import CompareText
from tests.each import each
from tests.replay.talk import asked
from tests.replay.verify.test_captures import compared

NBIRTH = "spb(seq=0 bdSeq:Int64=0 T#7:Int32=20 Name:String=a)"
BIRTH = f"spBv1.0/g/NBIRTH/e {NBIRTH}"
OTHER_ALIASES = BIRTH.replace("T#7", "T#8")
UNIT = '{"properties":{"keys":["unit"],"values":[{"type":12,"string_value":"C"}]}}'
KEY = '{"properties":{"keys":["password"],"values":[{"type":12,"string_value":"KEY"}]}}'
DATA = "spBv1.0/g/NDATA/e spb(seq=1 #7=21)"
STATE = "spBv1.0/STATE/h state(online=true timestamp=5)"


def recorded(*messages: str) -> Any:
    """A recording of one client with messages ``topic payload``."""
    rows = (message.partition(" ") for message in messages)
    lines = [f"dev > publish {topic} 0x{parse_payload(payload).hex()}" for topic, _, payload in rows]
    return asked("\n".join(lines))


def changes(before: list[str], now: list[str]) -> list[tuple[str, Any, Any]]:
    """Field, or kind, and both values of each difference."""

    def plain(value: Any) -> Any:
        return value.value if isinstance(value, NamedValue) else value

    differences = compared(recorded(*before), recorded(*now))[0]
    return [(row.field or str(row.kind), *map(plain, row.values)) for row in differences]


@each(
    "now, expected",
    [
        (NBIRTH, []),
        ("spb(timestamp=5 seq=0 Name:String=a bdSeq:Int64=9 T#8:Int32=20)", []),
        ("spb(compressed=GZIP seq=0 bdSeq:Int64=0 T#7:Int32=20 Name:String=a)", []),
        (NBIRTH.replace("=20", "=-3"), [("payload.metrics[T].value", 20, -3)]),
        ("spb(bdSeq:Int64=0 T#7:Int32=20)", [("payload.metrics[Name]", "String", None)]),
        (NBIRTH[:-1] + " New:Boolean=true)", [("payload.metrics[New]", None, "Boolean")]),
        (NBIRTH.replace("Int32", "Int64"), [("payload.metrics[T].datatype", "Int32", "Int64")]),
        (NBIRTH.replace("=20", f"=20{UNIT}"), [("payload.metrics[T].properties", None, [("unit", "C")])]),
        (NBIRTH.replace("T#7:Int32=20", "T#7:Int32{\"is_null\":true}"), [
            ("payload.metrics[T].is_null", None, True), ("payload.metrics[T].value", 20, None),
        ]),
    ],
)  # fmt: skip
def test_births_are_compared_by_metric(now: str, expected: list[Any]) -> None:
    assert changes([BIRTH], [BIRTH.replace(NBIRTH, now)]) == expected


@each(
    "before, now, expected",
    [
        ([BIRTH, DATA], [OTHER_ALIASES, DATA.replace("#7", "#8").replace("seq=1", "timestamp=9 seq=2")], []),
        ([BIRTH, DATA], [BIRTH, DATA.replace("#7=21", "T=21")], []),
        ([BIRTH, DATA], [BIRTH, DATA.replace("21", "22")], [("payload.metrics[T].value", 21, 22)]),
        # Equal bytes mean another metric.
        ([BIRTH, DATA], [BIRTH.replace("T#7", "T#8").replace("Name:", "Name#7:"), DATA], [
            ("payload.metrics[T]", "Int32", None), ("payload.metrics[Name]", None, "String"),
        ]),
        # A recording without the birth does not show the name and the type, but the value.
        ([BIRTH, DATA], [DATA], [("packet", None, None)]),
        ([BIRTH, DATA.replace("21", "4294967293")], [BIRTH, DATA.replace("21", "4294967293")], []),
        ([DATA], [DATA], []),
        ([DATA], [DATA.replace("21", "22")], [("payload.metrics[alias 7].value", 21, 22)]),
        # The order of metrics is no difference, the order of values of one metric is.
        ([BIRTH, DATA.replace("#7=21", "#7=1 Name=b")], [BIRTH, DATA.replace("#7=21", "Name=b #7=1")], []),
        ([DATA.replace("#7=21", "X=1 X=2")], [DATA.replace("#7=21", "X=2 X=1")], [
            ("payload.metrics[X].value", 1, 2), ("payload.metrics[X].value", 2, 1),
        ]),
        # Messages are aligned by their metrics.
        (
            [BIRTH, DATA, DATA.replace("21", "22"), DATA.replace("21", "23")],
            [OTHER_ALIASES, DATA.replace("#7=21", "#8=22"), DATA.replace("#7=21", "#8=23")], [("packet", None, None)],
        ),
        ([STATE], [STATE.replace("5", "6")], []),
        ([STATE], [STATE.replace("true", "false")], [("payload.online", True, False)]),
        (["spBv1.0/g/NCMD/e spb(T=1)"], ["spBv1.0/g/NCMD/e spb(timestamp=4 T=1)"], []),
        (["spBv1.0/g/DCMD/e/d spb(T=1)"], ["spBv1.0/g/DCMD/e/d spb(T=2)"], [("payload.metrics[T].value", 1, 2)]),
        (["spBv1.0/g/DDEATH/e/d spb(seq=1)"], ["spBv1.0/g/DDEATH/e/d spb(seq=2)"], []),
    ],
)  # fmt: skip
def test_messages_are_compared_by_metric(before: list[str], now: list[str], expected: list[Any]) -> None:
    assert changes(before, now) == expected


def test_other_payloads_and_unreadable_ones_are_compared_by_their_bytes() -> None:
    for topic, first, other in (
        ("a/b", "spb(seq=1)", "spb(seq=2)"), ("spBv1.0/g/NDATA/e", "0xff", "spb(seq=1)"), ("STATE/h", "ON", "OFF"),
    ):  # fmt: skip
        texts = (f"0x{parse_payload(text).hex()}" if text.startswith("spb") else text for text in (first, other))
        before, now = (asked(f"dev > publish {topic} {text}") for text in texts)
        assert [row.field for row in compared(before, now)[0]] == ["payload"]


def test_wills() -> None:
    first, other = (
        f"dev > connect client=dev will=spBv1.0/g/NDEATH/e will_payload=0x{parse_payload(text).hex()}\ndev < connack"
        for text in ("spb(bdSeq:Int64=0)", "spb(bdSeq:Int64=1)")
    )
    assert compared(first, other)[0] == []
    assert len(compared(first.replace("NDEATH", "x"), other.replace("NDEATH", "x"))[0]) == 1


def shown(difference: CaptureDifference, *, show_secrets: bool = False) -> str:
    sink = io.BytesIO()
    text = CompareText(sink, View(show_secrets=show_secrets))
    group = text._group(difference)
    return group.detail


def test_hidden_values_that_differ_are_a_difference() -> None:
    first, other = (f"spBv1.0/g/NDATA/e spb(T=1{KEY.replace('KEY', key)} password={key})" for key in ("abcd", "efgh"))
    differences = compared(recorded(first), recorded(other))[0]

    assert [row.field for row in differences] == ["payload.metrics[T].properties", "payload.metrics[password].value"]
    assert [shown(row) for row in differences] == [f"{row.field} differs" for row in differences]
    assert '"abcd" in A, "efgh" in B' in shown(differences[1], show_secrets=True)
    assert compared(recorded(first), recorded(other), ignore=frozenset({"payload"}))[0] == []
