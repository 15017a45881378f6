"""Metrics of Sparkplug as rows."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lake.schemas import SPARKPLUG_METRICS
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import MetricMemory, Tracker
from mqttscope.lint.examples import conversation, segments
from mqttscope.payloads.sparkplug_topics import read_topic
from tests.each import each
from tests.lake.reading import Row, collected, options
from tests.lint.lint_help import steps_of

BIRTH = "> publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=3 T#7:Int32=-4)"
DATA = '> publish spBv1.0/g/NDATA/e spb(seq=1 #7{"int_value":4294967291})'


def rows(*lines: str, limit: int = 65_536) -> list[Row]:
    """The rows of a conversation."""
    collector = Collector(options(payload_limit=limit))
    for event in dissect_segments(segments(conversation("", *steps_of("opened 5.0 client=e", *lines)))):
        collector.feed(event)
    return collected(collector).get(SPARKPLUG_METRICS.name, [])


def some(metrics: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in metrics]


def test_a_row_has_its_metric_with_name_and_type_of_the_birth() -> None:
    metrics = rows(BIRTH, DATA)

    names = ("message_type", "seq", "bdseq", "metric_in_message", "metric", "alias", "datatype", "value")
    assert some(metrics, *names) == [
        ("NBIRTH", 0, 3, 0, "bdSeq", None, "Int64", "3"), ("NBIRTH", 0, 3, 1, "T", 7, "Int32", "-4"),
        ("NDATA", 1, None, 0, "T", 7, "Int32", "-5"),
    ]  # fmt: skip
    assert some(
        metrics[-1:], "node", "device", "number", "timestamp_ms", "is_null", "client_identifier", "problem"
    ) == [("g/e", None, -5.0, 1_700_000_000_000, False, "e", None)]


def test_values_are_kept_with_whole_payloads_only() -> None:
    length = 50
    assert some(rows(BIRTH, DATA, limit=0), "metric", "datatype", "bdseq", "value", "number") == [
        ("bdSeq", "Int64", 3, None, None), ("T", "Int32", 3, None, None), ("T", "Int32", None, None, None),
    ]  # fmt: skip
    text = f'> publish spBv1.0/g/NDATA/e spb(timestamp=- S{{"timestamp":null,"string_value":"{"x" * (length - 7)}"}})'
    assert [row["value"] for limit in (length, length - 1) for row in rows(text, limit=limit)] == ["x" * 43, None]


@each(
    "metric, value, number",
    [
        ("T:Boolean=true", "true", None), ("T:Double=1.5", "1.5", 1.5), ("T:String=on", "on", None),
        ('T:Int32{"is_null":true}', None, None), ("password:String=geheim-123", "*" * 10, None),
        (('T:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"],"types":[3],'
         '"rows":[{"elements":[{"int_value":1}]}]}}'), '{"columns":["a"],"types":["Int32"],"rows":[[1]]}', None),
    ],
)  # fmt: skip
def test_values(metric: str, value: str | None, number: float | None) -> None:
    (row,) = rows(f"> publish spBv1.0/g/NDATA/e spb({metric})")
    assert (row["value"], row["number"]) == (value, number)


@each(
    "lines, name",
    [
        ([DATA], None), ([BIRTH, "lost " + DATA, DATA], None),
        ([BIRTH, "> publish spBv1.0/g/NBIRTH/e spb(seq=0)", DATA], None),
        ([BIRTH, DATA.replace("NDATA/e", "DDATA/e/d")], "T"), ([BIRTH, DATA.replace(">", "<")], None),
        ([BIRTH, DATA.replace("/e ", "/f ")], None), ([BIRTH, "lost " + DATA, BIRTH, DATA], "T"),
    ],
)  # fmt: skip
def test_a_name_is_of_a_birth_in_its_direction_without_lost_bytes_since(lines: list[str], name: str | None) -> None:
    assert rows(*lines)[-1]["metric"] == name


def test_messages_without_metrics_and_unreadable_ones_have_a_row() -> None:
    metrics = rows("> publish spBv1.0/g/DDEATH/e/d spb(seq=4)", "> publish spBv1.0/g/NDATA/e 0xffff")

    assert some(metrics, "message_type", "device", "seq", "metric_in_message", "metric") == [
        ("DDEATH", "d", 4, 0, None), ("NDATA", None, None, 0, None)
    ]  # fmt: skip
    assert metrics[0]["problem"] is None
    assert metrics[1]["problem"]


@pytest.mark.parametrize(
    "line", ["> publish spBv1.0/STATE/h state(online=true)", "> publish spBv1.0/g/NOTHING/e x", "> publish a/b x",
             "> publish spBv1.0/g/NDATA/e/d x"],
)  # fmt: skip
def test_other_messages_have_no_row(line: str) -> None:
    assert rows(line) == []


def test_births_are_in_the_memory_of_a_connection() -> None:
    tracker = Tracker("c")
    place = read_topic("spBv1.0/g/NBIRTH/e")
    assert place is not None
    memory = tracker.metrics["client_to_server"] = MetricMemory()
    memory.births.add(place, {"metrics": [{"name": "T", "alias": 7, "datatype": 3}]})

    assert load(dump(tracker)).metrics["client_to_server"].births.metrics_of(place).aliases == {7: ("T", 3)}
