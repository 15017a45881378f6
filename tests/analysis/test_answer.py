"""Comments of SQL, and values of Python as those of JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mqttscope.analysis.answer import plain, without_comments


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (1 << 70, 1 << 70), ("ä", "ä"), (1.5, 1.5), (float("nan"), None),
        (float("inf"), None), (b"\x00\xff", {"length": 2, "hex": "00ff"}),
        ({1: [None, b""]}, {"1": [None, plain(b"")]}),
        (datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=1))), "2026-01-31T11:00:00Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 1, UTC), "2026-01-31T12:00:00.000001Z"),
        (datetime(2026, 1, 31, 12), "2026-01-31T12:00:00"),  # noqa: DTZ001 - it has no zone
        (date(2026, 1, 31), "2026-01-31"), (timedelta(seconds=3), "0:00:03"), (Decimal("1.50"), "1.50"),
        (Decimal("12345678901234567890"), 12_345_678_901_234_567_890), (UUID(int=1), str(UUID(int=1))),
    ],
)  # fmt: skip
def test_values(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("sql", "bare"),
    [
        ("", ""),
        ("-- a\n select 1 /* b */ , 2 --c", "select 1   , 2"),
        ("/* /* */ x */ y", "y"),
        ("/* /* */ x", ""),
        ("select '--', \"/* a */\", `--` -- '", "select '--', \"/* a */\", `--`"),
        ("select 'a\\' -- ' /* */ - 1 / 2", "select 'a\\' -- '   - 1 / 2"),
        ("--\\\nshow\nx", "x"),
        ("a*/b/**/c", "a*/b c"),
        ("select /*+ merge(a) */ /* b */ 1", "select /*+ merge(a) */   1"),
        ("'open -- a", "'open"),
    ],
)
def test_comments_are_taken_away_as_sql_does(sql: str, bare: str) -> None:
    assert without_comments(sql) == bare
