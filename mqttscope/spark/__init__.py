"""Captures and lakes as tables of Spark: reading, decoding, linting and querying them.

Nothing outside this package imports pyspark; it comes with the extra ``spark``.

``ranges`` of ``mqttscope.capture`` cuts captures, ``locations`` finds and opens them, ``source`` is the data source
``mqttcapture``, ``rows`` defines its rows, ``dataframes`` has the functions to call, ``session`` starts sessions.
``tables`` returns the tables of a lake, ``joins`` combines them, ``engine`` answers the queries of
`mqttscope.analysis`.

``mqttscope.spark.packets(spark, lake)`` is a shortcut for ``tables.table``; every table has one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

_TABLES = frozenset((
    "packets", "messages", "connections", "sessions", "findings", "topics", "clients", "gaps", "ingest_errors",
    "sparkplug_metrics",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    """A function that returns the table of this name."""
    if name in _TABLES:
        from mqttscope.spark.tables import table

        return partial(table, name=name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_TABLES})
