"""Documents that are declared once: what is written fits the schema that comes with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace

from mqttscope.report import documents as doc
from mqttscope.session.capture_time import CaptureTime


class Colour(StrEnum):
    RED = "red"


@dataclass
class Place:
    field: str
    offset: int | None = None
    inner: Place | None = None


def test_a_record_reads_attributes_paths_and_functions() -> None:
    kind = doc.record({
        "field": doc.NAME, "offset": doc.maybe(doc.COUNT), "inner": doc.TEXT.at("inner.field"),
        "length": doc.COUNT.at(lambda place: len(place.field)), "event": doc.constant("place"),
    })  # fmt: skip

    assert kind.view(Place("a\udcff", inner=Place("b"))) == {
        "field": {"length": 2, "hex": "61ff"}, "offset": None, "inner": "b", "length": 2, "event": "place",
    }  # fmt: skip
    assert list(kind["properties"]) == kind["required"] == ["field", "offset", "inner", "length", "event"]


def test_optional_keys_are_left_out_without_a_value() -> None:
    kind = doc.record({"field": doc.TEXT}, {"offset": doc.COUNT})

    assert kind.view(Place("a")) == {"field": "a"}
    assert kind.view(Place("a", 0)) == {"field": "a", "offset": 0}
    assert kind["required"] == ["field"]


def test_values_are_made_as_their_kinds_say() -> None:
    time = CaptureTime(5, 7)

    assert doc.TIME.view(time) == 7
    assert doc.ESCAPED.view("\udcff") == "\\xff"
    assert doc.HEX.view(b"\x01") == "01"
    assert doc.SECONDS.view(1.23456789) == 1.234568
    assert type(doc.word(Colour).view(Colour.RED)) is str
    assert doc.word(Colour, "blue") == {"enum": ["red", "blue"]}
    assert doc.unless_empty(doc.TEXT).view("") is None
    assert doc.both(doc.COUNT).view((1, 2)) == {"client_to_server": 1, "server_to_client": 2}
    moment = doc.record(doc.times("first")).view(SimpleNamespace(first_ns=1))
    assert moment == {"first": "1970-01-01T00:00:00.000000001Z", "first_ns": 1}


def test_lists_and_mappings_are_made_of_their_values() -> None:
    assert doc.each(doc.NAME).view(("a", "\udcff")) == ["a", {"length": 1, "hex": "ff"}]
    assert doc.each(doc.TEXT.at("field")).view([Place("a"), Place("b")]) == ["a", "b"]
    assert doc.mapping(doc.NAME).view({"a": "\udcff"}) == {"a": {"length": 1, "hex": "ff"}}
    assert list(doc.by_name(doc.COUNT).view({"b": 1, "a": 2})) == ["a", "b"]
    assert doc.counts("a", "b").view(Counter(a=3)) == {"a": 3, "b": 0}
    assert doc.rows("reason", doc.TEXT, "times").view(Counter("aab")) == [
        {"reason": "a", "times": 2}, {"reason": "b", "times": 1},
    ]  # fmt: skip
