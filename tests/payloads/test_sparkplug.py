"""Sparkplug B: values by their data type, aliases by the BIRTH of the edge node, hostile payloads."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from mqttscope.payloads import sparkplug
from mqttscope.payloads.sparkplug import Births, decode
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.payloads.sparkplug_wire import COMPRESSED, DATATYPES
from mqttscope.payloads.values import UndecodableError, compact, simplified
from tests.each import each
from tests.payloads.samples import BIRTH, DATA, NBIRTH_TOPIC, NDATA_TOPIC, metric, part, values


def read(payload: bytes, topic: str | None = NDATA_TOPIC, births: Births | None = None) -> tuple[Any, str]:
    """The value of a payload with maps as dictionaries, and its note."""
    value, note = decode(topic, payload, births or Births())
    return values(value), note


def one(*parts: bytes) -> Any:
    """The only metric of a payload."""
    return read(metric(*parts))[0]["metrics"][0]


def test_a_birth_has_names_types_and_values() -> None:
    value, note = read(BIRTH, NBIRTH_TOPIC)
    assert note == ""
    assert list(value) == ["timestamp", "metrics", "seq"]
    assert value["metrics"] == [
        {"name": "Temperature", "alias": 7, "datatype": "Double", "value": 21.5},
        {"name": "Level", "alias": 8, "datatype": "Int32", "value": -1},
        {"name": "Wifi/Password", "datatype": "String", "value": "hunter2hunter2"},
    ]


def test_data_by_alias_gets_the_name_and_type_of_the_birth() -> None:
    births = Births()
    value, note = read(DATA, births=births)
    assert "name" not in value["metrics"][0]
    assert note == "2 metrics by alias alone, without a remembered BIRTH of the edge node that names them"
    decode(NBIRTH_TOPIC, BIRTH, births)
    value, note = read(DATA, births=births)
    assert note == ""
    assert value["metrics"] == [
        {"name": "Temperature", "alias": 7, "datatype": "Double", "value": 41.0},
        {"name": "Level", "alias": 8, "datatype": "Int32", "value": 5},
    ]
    other, note = read(DATA, "spBv1.0/plant/NDATA/edge-2", births)
    assert "name" not in other["metrics"][0]
    assert note


def test_devices_add_to_their_node_and_a_new_birth_begins_again() -> None:
    births = Births()
    births.observe(NBIRTH_TOPIC, BIRTH)
    births.observe("spBv1.0/plant/DBIRTH/edge-1/pump", metric(part(1, b"Speed"), part(2, 20), part(4, 3)))
    births.observe("spBv1.0/plant/DDATA/edge-1/pump", metric(part(1, b"Wrong"), part(2, 20)))
    births.observe("spBv1.0/plant/DBIRTH/edge-1/pump", b"\xff\xff")
    births.observe("spBv1.0/plant/DBIRTH/edge-1/pump", metric(part(1, b"\xff\xfe"), part(2, 21)))
    place = read_topic("spBv1.0/plant/DDATA/edge-1/pump")
    assert births.metrics_of(place).aliases[20] == ("Speed", 3)
    assert 7 in births.metrics_of(place).aliases
    births.observe(NBIRTH_TOPIC, metric(part(1, b"Only"), part(2, 1)))
    assert births.metrics_of(place).aliases == {1: ("Only", 0)}


MINUS_5 = 0xFFFFFFFB


def test_data_by_name_gets_the_type_of_the_birth_of_its_node_or_device() -> None:
    births = Births()
    births.observe(NBIRTH_TOPIC, metric(part(1, b"T"), part(4, 3), part(10, 0)) + metric(part(1, b"U"), part(4, 7)))
    births.observe("spBv1.0/plant/DBIRTH/edge-1/pump", metric(part(1, b"T"), part(4, 7)))
    data = metric(part(1, b"T"), part(10, MINUS_5)) + metric(part(1, b"U"), part(10, MINUS_5))
    value, note = read(data, births=births)
    assert note == ""
    assert value["metrics"] == [
        {"name": "T", "datatype": "Int32", "value": -5},
        {"name": "U", "datatype": "UInt32", "value": MINUS_5},
    ]
    (on_device, unknown), note = (lambda result: (result[0]["metrics"], result[1]))(
        read(data, "spBv1.0/plant/DDATA/edge-1/pump", births)
    )
    assert on_device == {"name": "T", "datatype": "UInt32", "value": MINUS_5}
    assert unknown == {"name": "U", "value": MINUS_5}
    assert note == "1 metric without a data type, perhaps negative: no remembered BIRTH has their type"
    assert (
        read(metric(part(1, b"T"), part(4, 7), part(10, MINUS_5)), births=births)[0]["metrics"][0]["value"] == MINUS_5
    )


def test_members_of_a_template_have_names_of_their_own() -> None:
    births = Births()
    births.observe(NBIRTH_TOPIC, metric(part(1, b"T"), part(4, 3)))
    template = part(2, part(1, b"T") + part(10, MINUS_5))
    value, _ = read(metric(part(1, b"M"), part(4, 19), part(18, template)), births=births)
    assert value["metrics"][0]["value"]["metrics"] == [{"name": "T", "value": MINUS_5}]


@each(
    "topic, payload, wanted",
    [
        ("spBv1.0/STATE/h", b'{"online":true,"timestamp":5}', {"online": True, "timestamp": 5}),
        ("STATE/h", b"ONLINE", "ONLINE"),
        ("spBv1.0/STATE/h", b"{online", "{online"),
    ],
)
def test_a_state_is_json_or_text(topic: str, payload: bytes, wanted: object) -> None:
    assert read(payload, topic) == (wanted, "")


def test_a_compressed_payload_is_opened() -> None:
    inner = zlib.compress(metric(part(1, b"T"), part(10, 1)) + part(3, 9))
    value, note = read(part(4, COMPRESSED.encode()) + part(5, inner))
    assert value == {"metrics": [{"name": "T", "value": 1}], "seq": 9}
    assert note == "decompressed from zlib"


@pytest.mark.parametrize(
    ("datatype", "value", "shown"),
    [
        ("Int8", part(10, 0xFF), -1),
        ("Int8", part(10, 0xFFFFFFFF), -1),
        ("Int16", part(10, 0x8000), -32768),
        ("Int64", part(11, (1 << 64) - 5), -5),
        ("UInt32", part(10, 0xFFFFFFFF), 0xFFFFFFFF),
        ("Boolean", part(14, 1), True),
        ("String", part(15, b"on"), "on"),
        ("Bytes", part(16, b"\0\1"), b"\0\1"),
        ("Int16Array", part(16, struct.pack("<2h", -2, 3)), [-2, 3]),
        ("Int16Array", part(16, b"\0\1\2"), b"\0\1\2"),
        ("DoubleArray", part(16, struct.pack("<d", 0.5)), [0.5]),
        ("StringArray", part(16, b"a\0\0b\0"), ["a", "", "b"]),
        ("StringArray", part(16, b"a"), b"a"),
        ("BooleanArray", part(16, b"\x0c\0\0\0\x34\xd0"), [c == "1" for c in "001101001101"]),
        ("BooleanArray", part(16, b"\xff\xff\xff\xff\x34"), b"\xff\xff\xff\xff\x34"),
        ("Double", b"", None),
    ],
)
def test_values_follow_their_data_type(datatype: str, value: bytes, shown: Any) -> None:
    result = one(part(1, b"m"), part(4, DATATYPES.index(datatype)), value)
    assert result["datatype"] == datatype
    assert result["value"] == shown
    assert type(result["value"]) is type(shown)


def test_data_sets_templates_and_properties() -> None:
    row = part(1, part(1, 0xFFFFFFFF)) + part(1, part(6, b"x"))
    held = part(1, 2) + part(2, b"a") + part(2, b"b") + part(3, b"\x03\x0c") + part(4, row)
    assert one(part(4, 16), part(17, held))["value"] == {
        "columns": ["a", "b"], "types": ["Int32", "String"], "rows": [[-1, "x"]]
    }  # fmt: skip
    parameter = part(1, b"p") + part(2, 3) + part(3, 4)
    template = part(4, b"Motor") + part(5, 0) + part(3, parameter) + part(2, part(1, b"rpm") + part(4, 3) + part(10, 9))
    assert one(part(4, 19), part(18, template))["value"] == {
        "template_ref": "Motor", "is_definition": False, "parameters": [{"name": "p", "type": "Int32", "value": 4}],
        "metrics": [{"name": "rpm", "datatype": "Int32", "value": 9}],
    }  # fmt: skip
    inner = part(1, b"low") + part(2, part(1, 3) + part(3, 2))
    properties = part(1, b"unit") + part(1, b"more") + part(1, b"all") + part(2, part(8, b"C"))
    properties += part(2, part(9, inner)) + part(2, part(10, part(1, inner)))
    result = one(part(1, b"m"), part(8, part(6, b"csv")), part(9, properties))
    assert result["metadata"] == {"file_type": "csv"}
    assert result["properties"] == {"unit": "C", "more": {"low": 2}, "all": [{"low": 2}]}


def test_deep_and_many_are_cut() -> None:
    inner = part(1, b"k") + part(2, part(8, b"v"))
    for _ in range(40):
        inner = part(1, b"k") + part(2, part(9, inner))
    value, _ = decode(NDATA_TOPIC, metric(part(9, inner)), Births())
    assert "..." in compact(value)
    value, _ = decode(NDATA_TOPIC, metric() * 30_000, Births())
    assert len(values(value)["metrics"]) == sparkplug.MAX_METRICS + 1
    assert len(compact(simplified(value).value)) < 200_000


@pytest.mark.parametrize("payload", [b"\xff", b"online", BIRTH[:-4], metric(part(1, b"ab"))[:-1]])
def test_what_is_no_payload_gives_the_reason(payload: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode(NBIRTH_TOPIC, payload, Births())


def test_unknown_fields_and_types_are_shown() -> None:
    value, note = read(metric(part(4, 99), part(10, 1)) + part(77, 1))
    assert value["metrics"][0]["datatype"] == 99
    assert note == "1 field that the schema does not have"


def test_one_line_has_the_sequence_and_the_metrics() -> None:
    births = Births()
    decode(NBIRTH_TOPIC, BIRTH, births)
    line = sparkplug.one_line(simplified(decode(NDATA_TOPIC, DATA, births)[0]).value)

    assert line.startswith("seq ") or not line.startswith("{")
    assert "Temperature:Double=" in line
    assert sparkplug.one_line(simplified(decode(NDATA_TOPIC, DATA, Births())[0]).value).count("alias 7=") == 1
    assert sparkplug.one_line({"online": True}) == compact({"online": True})
