"""Values of payloads: decoded, without secrets, as JSON, looked up by path."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.payloads.values import (
    CUT,
    MAX_ITEMS,
    MAX_JSON_DEPTH,
    Pairs,
    TaggedValue,
    UndecodableError,
    as_json,
    compact,
    from_cbor,
    from_json,
    from_msgpack,
    from_text,
    pick,
    simplified,
)
from tests import tools
from tests.each import each


def test_formats_become_values() -> None:
    tools.package("cbor2")
    import cbor2

    assert from_text("é".encode()) == "é"
    assert from_json(b'{"a": [1, null]}') == {"a": [1, None]}
    assert from_cbor(cbor2.dumps({"a": b"\1"})) == {"a": b"\1"}
    assert from_msgpack(msgpack.packb({"a": 1})) == Pairs([("a", 1)])


@each(
    "read, data",
    [
        (from_text, b"\xff"), (from_text, b"\0"), (from_json, b"{"), (from_json, b"[" * 5_000),
        (from_json, b" " * ((1 << 20) + 1)), (from_cbor, b""), (from_cbor, b"\x01\x02"), (from_cbor, b"\x81" * 9_000),
        (from_cbor, b"\xff"), (from_cbor, b"\x81\xff"),
        (from_cbor, b"\x5b" + b"\xff" * 8), (from_cbor, b"\0" * 20_000), (from_msgpack, b"\xc1"),
        (from_msgpack, b"\x91" * 9_000), (from_msgpack, b"\xdd\xff\xff\xff\xff"), (from_msgpack, b"\0" * 20_000),
    ],
)  # fmt: skip
def test_what_does_not_decode_has_a_reason(read: Any, data: bytes) -> None:
    with pytest.raises(UndecodableError) as caught:
        read(data)
    assert str(caught.value)


TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh"


@each(
    "data, expected",
    [
        (b"1e999", "JSON with a number beyond the range"), (b'{"a": -' + b"9" * 5_000 + b"}", "beyond the range"),
        (rb'["\ud800"]', "JSON with one half of a surrogate pair"), (rb'{"\udc00": 1}', "JSON with one half"),
        (b"[" * 1_025 + b"]" * 1_025, "nested deeper than about 1,000 levels"), (b"[NaN]", "not JSON"),
        (b'{"a":' * 1_025 + b"1" + b"}" * 1_025, "nested deeper than about 1,000 levels"),
        (rb'["' + b"[" * 2_000 + rb'\"[", "\ud800"]', "JSON with one half of a surrogate pair"),
        (b"[" * 990 + b"1e999" + b"]" * 990, "nested deeper|beyond"), (b"[1e999", "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"), (b"", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_json_without_a_value_is_not_called_no_json(data: bytes, expected: str) -> None:
    with pytest.raises(UndecodableError, match=expected):
        from_json(data)


def test_json_is_read_to_its_greatest_depth() -> None:
    assert from_json(b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH) != []


@each(
    "value, shown",
    [
        ({"password": "hunter2"}, '{"password":"*******"}'),
        ({"wifi_password": b"\1\2"}, "{\"wifi_password\":h'2a2a'}"),
        ({"token": ["a", {"b": "cd"}]}, '{"token":["*",{"b":"**"}]}'),
        ({"name": "Node/secret", "value": "x"}, '{"name":"Node/secret","value":"*"}'),
        ({"note": TOKEN}, f'{{"note":"{"*" * len(TOKEN)}"}}'),
        (TaggedValue(5, {"api_key": "k"}), '5({"api_key":"*"})'),
        ({"password": ""}, None),
        ({"passwords": 3, "pin": 13, "auth": "WPA2-PSK"}, None),
        ({"pin": 1234, "auth": ["Zq99a8f3", "none"]}, '{"pin":"****","auth":["********","none"]}'),
        ({"name": "Node/pin", "value": b"1234"}, '{"name":"Node/pin","value":h\'2a2a2a2a\'}'),
        ({"password": 7}, None),
        (["password", "x"], None),
    ],
)
def test_secrets_have_asterisks_in_their_place(value: Any, shown: str | None) -> None:
    simplified_value = simplified(value)
    assert simplified_value.hidden is (shown is not None)
    assert compact(simplified_value.value) == compact(
        simplified(value, show_secrets=True).value if shown is None else value
    ) or (compact(simplified_value.value) == shown)
    if shown is not None:
        assert compact(simplified_value.value) == shown
        assert not simplified(value, show_secrets=True).hidden


def test_what_contains_itself_or_is_huge_is_cut() -> None:
    value: list[Any] = []
    value.append(value)
    simplified_value = simplified(value)
    assert simplified_value.cut
    assert len(compact(simplified_value.value)) < 1_000
    many = simplified([[0] * 1_000] * 1_000)
    assert many.cut
    assert sum(len(each) if isinstance(each, list) else 1 for each in many.value) <= MAX_ITEMS + 2
    assert many.value[-1] is CUT or many.value[-1][-1] is CUT
    assert simplified({str(number): number for number in range(9_000)}).cut
    shared = from_cbor(b"\xd8\x1c\x82\xd8\x1d\x00\xd8\x1d\x00")  # a list of itself, twice
    assert simplified(shared).cut


def test_json_holds_what_json_can() -> None:
    value = {
        1: "a", "b": b"\xff", "t": b"text", "n": float("nan"), "i": float("-inf"), "big": 1 << 80, "huge": 1 << 5_000,
        "s": "\udcff", "tag": TaggedValue(1, "x"), "ext": msgpack.ExtType(5, b"ab"), "set": {1},
    }  # fmt: skip
    result = as_json(simplified(value).value)
    assert json.loads(orjson.dumps(result)) == {
        "1": "a", "b": {"length": 1, "hex": "ff"}, "t": {"length": 4, "text": "text"}, "n": "NaN", "i": "-Infinity",
        "big": str(1 << 80), "huge": "(5001-bit integer)", "s": {"length": 1, "hex": "ff"},
        "tag": {"tag": 1, "value": "x"}, "ext": {"tag": "ext 5", "value": {"length": 2, "text": "ab"}}, "set": [1],
    }  # fmt: skip


@given(st.binary(max_size=80))
@settings(max_examples=150, deadline=None)
def test_whatever_decodes_can_be_shown(data: bytes) -> None:
    for read in (from_cbor, from_msgpack, from_json):
        try:
            value = read(data)
        except UndecodableError:
            continue
        simplified_value = simplified(value)
        compact(simplified_value.value)
        json.dumps(as_json(simplified_value.value))


HELD = {
    "a": {"b": [1, {"c": 2}, {"c": 3}]}, "m": [{"name": "T", "value": 4}, {"name": "U", "value": 5}], "": 0,
    "l": [[1], 2],
}  # fmt: skip


@each(
    "path, expected",
    [
        (["a", "b", "c"], [2, 3]), (["a", "b"], [1, {"c": 2}, {"c": 3}]), (["a", "b", 0], [1]),
        (["a", "b", -1, "c"], [3]),
        (["m", "T", "value"], [4]), (["m", "value"], [4, 5]), (["x"], []), (["a", 7], []), (["a", "b", 9], []),
        ([""], [0]), (["l", 0], [1]), (["a", "x", "y"], []),
    ],
)  # fmt: skip
def test_paths(path: list[str | int], expected: list[Any]) -> None:
    assert pick(HELD, path) == expected
    assert pick(from_msgpack(msgpack.packb(HELD)), path) == [
        Pairs(each.items()) if isinstance(each, dict) else each for each in expected
    ]


def test_paths_lead_through_tags_and_are_bounded() -> None:
    assert pick(TaggedValue(1, {"a": TaggedValue(2, {"b": 3})}), ["a", "b"]) == [3]
    assert len(pick([{"a": 1}] * 9_000, ["a"])) == MAX_ITEMS
