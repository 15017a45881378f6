"""What plain Python counts in the tables of a lake, for comparing with reports."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from mqttscope.report.fleet.model import Percentiles
from tests.lake.reading import Row


def own(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["direction"] == "client_to_server"]


def who(row: Row) -> str:
    return str(row["client_identifier"] if row["client_identifier"] is not None else row["client"])


def spread(values: list[int]) -> Percentiles:
    values = sorted(values)
    if not values:
        return Percentiles()
    p50, p90, p99 = (values[ceil(part * len(values)) - 1] for part in (0.5, 0.9, 0.99))
    return Percentiles(len(values), p50, p90, p99, values[-1])
