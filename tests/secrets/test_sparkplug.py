"""Secrets in the bytes of payloads of Sparkplug B."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from mqttscope.lint.sparkplug_text import parse_payload
from mqttscope.payloads.sparkplug import Births, decode
from mqttscope.payloads.sparkplug_wire import encode_message
from mqttscope.payloads.values import simplified
from mqttscope.secrets import forms
from mqttscope.secrets.forms import MAX_UNPACKED, without_tokens
from mqttscope.secrets.sparkplug import MAX_NESTING, sparkplug_values
from tests.each import each

DATA_SET = {
    "num_of_columns": 3, "columns": ["user", "password", "pin"], "types": [12, 12, 7],
    "rows": [{"elements": [{"string_value": "bob"}, {"string_value": "hunter"}, {"int_value": 123456}]}],
}  # fmt: skip
TEMPLATE = {
    "metrics": [{"name": "token", "string_value": "abcdef"}, {"name": "T", "int_value": 70_000}],
    "parameters": [{"name": "psk", "type": 12, "string_value": "ghijkl"}],
}
PROPERTIES = {"keys": ["unit", "secret"], "values": [{"string_value": "Celsius"}, {"string_value": "mnopqr"}]}
NESTED = {"keys": ["more"], "values": [{"propertyset_value": PROPERTIES}]}
LISTED = {"keys": ["more"], "values": [{"propertysets_value": {"propertyset": [PROPERTIES, PROPERTIES]}}]}


def payload(**metric: Any) -> bytes:
    return encode_message({"timestamp": 1, "metrics": [{"name": "T", "int_value": 5}, metric], "seq": 7})


@each(
    "metric, hidden",
    [
        ({"name": "password", "string_value": "hunter"}, [b"hunter"]),
        ({"name": "Wifi/Password", "string_value": "hunter"}, [b"hunter"]),
        ({"name": "Api/Key", "string_value": "hunter"}, [b"hunter"]),
        ({"name": "Wifi/Password/Value", "string_value": "hunter"}, [b"hunter"]),
        ({"name": f"{'a/' * 200}password/1", "string_value": "hunter"}, [b"hunter"]),
        ({"name": "Password/Policy", "string_value": "hunter"}, []),
        ({"name": "password", "bytes_value": b"\0\1\2\3"}, [b"\0\1\2\3"]),
        ({"name": "pin code", "int_value": 123456}, [b"\xc0\xc4\7"]),
        ({"name": "password", "double_value": 1234.5}, [b"\0\0\0\0\0\x4a\x93\x40"]),
        ({"name": "T", "dataset_value": DATA_SET}, [b"hunter", b"\xc0\xc4\7"]),
        ({"name": "password", "dataset_value": DATA_SET}, [b"bob", b"hunter", b"\xc0\xc4\7"]),
        ({"name": "T", "template_value": TEMPLATE}, [b"abcdef", b"ghijkl"]),
        ({"name": "T", "int_value": 1, "properties": PROPERTIES}, [b"mnopqr"]),
        ({"name": "T", "int_value": 1, "properties": NESTED}, [b"mnopqr"]),
        ({"name": "T", "int_value": 1, "properties": LISTED}, [b"mnopqr", b"mnopqr"]),
        ({"name": "auth", "string_value": "abcd1234"}, [b"abcd1234"]),
        ({"name": "auth", "string_value": "none"}, []),
        ({"name": "password", "boolean_value": True}, []),
        ({"name": "password", "int_value": 12}, []),
        ({"name": "passwordLength", "int_value": 123456}, []),
        ({"name": "T", "string_value": "password"}, []),
    ],
)  # fmt: skip
def test_values_with_the_name_of_a_secret(metric: dict[str, Any], hidden: list[bytes]) -> None:
    data = payload(**metric)
    ranges = [*sparkplug_values(data, MAX_UNPACKED)]

    assert [data[start:end] for start, end in ranges] == hidden
    # What decoded values hide is hidden in the bytes.
    assert simplified(decode("spBv1.0/g/NBIRTH/e", data, Births())[0]).hidden is bool(hidden)
    covered = without_tokens(data)
    assert len(covered) == len(data)
    assert not any(part in covered for part in hidden)
    # An incomplete payload hides what it has.
    for end in range(len(data)):
        rest = without_tokens(data[:end])
        assert all(part in rest for start, last in ranges if last <= end for part in (b"*" * (last - start),))


@each("data", [b"password hunter", b"\x08", b"\x12\xff\xff\xff", b"\x12\x05\x0f\x0f\x0f\x0f\x0f", b"\xff\x12", b""])
def test_other_bytes(data: bytes) -> None:
    assert [*sparkplug_values(data, MAX_UNPACKED)] == []


def test_compressed_payloads_are_hidden_if_they_hold_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, is_hidden in (("spb(T=1 password=hunter)", True), ("spb(T=1 user=hunter)", False)):
        for algorithm in ("GZIP", "DEFLATE"):
            data = parse_payload(text.replace("(", f"(compressed={algorithm} "))
            assert (b"**********" in without_tokens(data)) is is_hidden
    first = encode_message({"uuid": "SPBV1.0_COMPRESSED", "body": zlib.compress(parse_payload("spb(password=hunter)"))})
    assert b"**********" in without_tokens(first)
    data = parse_payload("spb(compressed=GZIP T=1)")
    monkeypatch.setattr(forms, "MAX_UNPACKED", 4)
    assert b"**********" in without_tokens(data)


def test_deep_nesting_ends() -> None:
    deep: dict[str, Any] = {"name": "T", "int_value": 1}
    for _ in range(MAX_NESTING * 3):
        deep = {"name": "T", "template_value": {"metrics": [deep]}}
    assert [*sparkplug_values(payload(**deep), MAX_UNPACKED)] == []
    assert len([*sparkplug_values(payload(**{**deep, "name": "password"}), MAX_UNPACKED)]) == 1
