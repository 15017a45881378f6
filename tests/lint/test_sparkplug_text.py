"""Payloads of Sparkplug B as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqttscope.lint.conversation_text import ConversationTextError, parse_conversations
from mqttscope.lint.sparkplug_text import TIMESTAMP, parse_payload
from mqttscope.mqtt import Publish
from mqttscope.payloads.sparkplug_wire import open_payload, parse_message


def metric(text: str) -> Any:
    """The only metric of a payload, without its timestamp."""
    (only,) = parse_message(parse_payload(f"spb({text})"))[0]["metrics"]
    assert only.pop("timestamp") == TIMESTAMP
    return only


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("T", {"name": "T"}),
        ("#7=1", {"alias": 7, "int_value": 1}),
        ("In/T#7:Int32=-5", {"name": "In/T", "alias": 7, "datatype": 3, "int_value": (1 << 32) - 5}),
        ('"A B":UInt64=5', {"name": "A B", "datatype": 8, "long_value": 5}),
        ("T:99=1", {"name": "T", "datatype": 99, "int_value": 1}),
        ("T=5000000000", {"name": "T", "long_value": 5_000_000_000}),
        ("T=-1.5", {"name": "T", "double_value": -1.5}),
        ("T:Float=2", {"name": "T", "datatype": 9, "float_value": 2.0}),
        ("T=true", {"name": "T", "boolean_value": True}),
        ("T:String=true", {"name": "T", "datatype": 12, "string_value": "true"}),
        ('T="a )b"', {"name": "T", "string_value": "a )b"}),
        ('T:Double{"is_null": true}', {"name": "T", "datatype": 10, "is_null": True}),
        (
            'D:DataSet{"dataset_value":{"columns":["a"],\n  "types":[3]}}',
            {"name": "D", "datatype": 16, "dataset_value": {"columns": ["a"], "types": [3]}},
        ),
    ],
)
def test_metrics(text: str, fields: Any) -> None:
    assert metric(text) == fields


def test_fields_of_the_payload() -> None:
    message, _ = parse_message(parse_payload('spb(seq=3 uuid=u T{"timestamp":null})'))
    assert message == {"timestamp": TIMESTAMP, "seq": 3, "uuid": "u", "metrics": [{"name": "T"}]}
    assert parse_message(parse_payload("spb(timestamp=- timestamp=5 seq=-)"))[0] == {"timestamp": 5}
    assert parse_payload("spb(timestamp=-)") == b""


@pytest.mark.parametrize(("name", "form"), [("GZIP", "gzip"), ("DEFLATE", "zlib")])
def test_compressed_payloads(name: str, form: str) -> None:
    message, _, opened_as = open_payload(parse_payload(f"spb(compressed={name} seq=3)"))
    assert (message, opened_as) == ({"timestamp": TIMESTAMP, "seq": 3}, form)


def test_states() -> None:
    assert json.loads(parse_payload("state(online=true)")) == {"timestamp": TIMESTAMP, "online": True}
    assert json.loads(parse_payload('state(online="x" timestamp=-)')) == {"online": "x"}


def test_a_payload_is_one_word_of_a_conversation() -> None:
    text = 'two messages\n  > publish a spb("A; B"=1 C=2) qos=1 id=5; > publish b "spb(x)"'
    (example,) = parse_conversations(text)
    first, second = (step.packets[0] for step in example.steps)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    names = [row["name"] for row in parse_message(first.payload)[0]["metrics"]]
    assert (names, first.qos, second.payload) == (["A; B", "C"], 1, b"spb(x)")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("spb(T:Int33=1)", "'Int33' is not a data type"),
        ("spb(T:Int32=warm)", "'warm' is not a value of the data type Int32"),
        ("spb(T!=1)", "'T!=1' is not a metric"),
        ('spb(T{"timestamp":1)', "a brace is missing"),
        ('spb(T{"nam":1})', "Metric has no field 'nam'"),
    ],
)
def test_a_wrong_payload_is_an_error_with_its_line(word: str, reason: str) -> None:
    with pytest.raises(ConversationTextError, match=f"line 2: .*{reason}"):
        parse_conversations(f"title\n  > publish a {word}")
