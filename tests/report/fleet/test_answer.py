"""Answers to questions in SQL: tables that fit, CSV and JSON that can be read."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.fleet.answer import as_csv, as_json, as_text
from tests.report.fleet.samples import HOSTILE, LONG

COLUMNS = [("name", "string"), ("number", "bigint"), ("what is it", "struct<a:int,b:int>"), (HOSTILE, "binary")]
ROWS: list[list[Any]] = [
    [HOSTILE, 12, {"a": 1, "b": None}, {"length": 2, "hex": "00ff"}],
    [LONG, None, None, None],
    ["", 10**30, {"a": None, "b": [True, 1.5]}, {"length": 0, "hex": ""}],
]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 500])
def test_text_fits(width: int) -> None:
    lines = as_text(COLUMNS, ROWS, View(width=width)).decode().rstrip("\n").split("\n")

    assert max(map(cells, lines)) <= width
    assert ("row 1" in lines) is (width < 38)
    assert not [line for line in lines if not line.isprintable()]


def test_text() -> None:
    text = as_text([("a", "int"), ("b", "string")], [[1, "x"], [None, "yy"], [300, True]], View(width=80)).decode()
    assert text == "   a  b\n──────────\n   1  x\nnull  yy\n 300  true\n"
    assert as_text([("ä", "int")], [], View(unicode=False)) == b"\\u00e4\n------\n"
    assert '{"a":1}' in as_text(COLUMNS, ROWS, View(width=0)).decode()
    # Nothing is cut there; what no line should hold becomes a list.
    wide = as_text([("a", "string"), ("b", "string")], [["x" * 200, "y" * 200]], View(width=0)).decode()
    assert wide.split() == ["row", "1", "a", "x" * 200, "b", "y" * 200]


def test_csv() -> None:
    text_lists = list(csv.reader(io.StringIO(b"".join(as_csv(COLUMNS, ROWS)).decode(), newline="")))

    assert text_lists[0][:3] == ["name", "number", "what is it"]
    assert text_lists[1][0] == "<script>alert('&\"1')</script>\\x1b[31m\\u202e\\n"
    assert text_lists[1][1:] == ["12", '{"a":1}', "00ff"]
    assert text_lists[2] == [LONG, "", "", ""]
    assert text_lists[3][1:] == [str(10**30), '{"b":[true,1.5]}', ""]


def test_json() -> None:
    data = b"".join(as_json(COLUMNS, ROWS))
    document = json.loads(data)

    assert document["schema"] == 1
    assert [row["name"] for row in document["columns"]] == [name for name, _ in COLUMNS]
    assert [list(row.values()) for row in document["rows"]] == ROWS
    assert data.count(b"\n") == 5
    assert b"\x1b" not in data
    assert "\u202e" not in data.decode()
    assert json.loads(b"".join(as_json(COLUMNS, []))) == {"schema": 1, "columns": document["columns"], "rows": []}
