"""One pass over events gives all tables."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import TABLES, event_schema
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector, batch, event_batch
from mqttscope.lint.rule import Scope
from tests.lake.reading import CAPTURES, all_of_them, collected, ordered, usual

PATH = next(path for path in CAPTURES if path.parent.name == "planted-violations")


def run(collector: Collector) -> Collector:
    for event in dissect(open_capture([PATH]), collector.options.reading()):
        collector.feed(event)
    return collector


def test_batches_come_when_there_are_enough_rows() -> None:
    collector = Collector(LakeOptions(batch_rows=3))
    sizes = []
    for event in dissect(open_capture([PATH]), collector.options.reading()):
        collector.feed(event)
        sizes += [found.num_rows for _, found in collector.batches()]
    assert set(sizes) == {3}
    rest = dict(collector.batches(everything=True))
    assert all(0 < found.num_rows < 3 for found in rest.values())
    assert not list(collector.batches(everything=True))


def test_batches_have_the_schemas_of_their_tables() -> None:
    for name, found in run(Collector(LakeOptions(rules=all_of_them()))).batches(everything=True):
        assert found.schema == TABLES[name].arrow()
        wide = event_batch(name, found)
        assert wide.schema == event_schema()
        assert wide.column(name).to_pylist() == found.to_pylist()
        assert wide.column("kind").unique().to_pylist() == [name]
        one = event_batch(name, found, event_schema((name,)))
        assert one.num_columns == 2


def test_nothing_is_kept_of_what_has_ended() -> None:
    collector = run(Collector(LakeOptions(rules=all_of_them())))

    assert not collector.trackers
    assert not collector._introductions


def test_trackers_are_plain_data() -> None:
    collector = Collector(LakeOptions(payload_limit=65_536, rules=all_of_them()))
    for number, event in enumerate(dissect(open_capture([PATH]), collector.options.reading())):
        collector.feed(event)
        if number % 5 == 0 and (connection := getattr(event, "connection", None)) is not None:
            tracker = collector.trackers.get(connection.number)
            if tracker is not None:
                again = load(dump(tracker))
                assert again == tracker
                collector.adopt(connection, again)
    assert ordered(collected(collector)) == ordered(usual(PATH))


def test_options_leave_wide_rules_to_others_and_count_by_connection() -> None:
    options = LakeOptions(dissect=Options(ports={99: "mqtt"}), rules=all_of_them())

    assert {rule.scope for rule in options.narrow_rules()} <= {Scope.PACKET, Scope.CONNECTION}
    assert options.reading() == Options(ports={99: "mqtt"}, count_by_connection=True)
    assert not options.dissect.count_by_connection


def test_rows_must_fit_their_table() -> None:
    with pytest.raises(ValueError, match="zip"):
        batch("ingest_errors", [("a", "b")])
