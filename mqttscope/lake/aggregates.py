"""Tables that are sums over others: topics, clients and sessions.  Whatever engine has the rows can make them again.

A *session* begins with a connection that is known to have none before it (Clean Start, or a CONNACK without Session
Present), and at the first connection of a client that was captured, of which the session may be older.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake.columns import array_of, batch_of
from mqttscope.lake.schemas import TABLES

Row = Mapping[str, Any]
TOPIC_COLUMNS = (
    "server", "topic", "direction", "payload_length", "qos", "retain", "retransmissions", "connection_id",
    "timestamp_ns",
)  # fmt: skip
"""Columns of messages that topics are made of."""
CONNECTION_COLUMNS = (
    "connection_id", "server", "client_identifier", "timestamp_ns", "closed_ns", "clean_start", "session_present",
    "session_expiry_interval", "packets", "bytes", "version",
)  # fmt: skip
"""Columns of connections that clients and sessions are made of."""


def topics(messages: Iterable[pa.RecordBatch]) -> pa.Table:
    """Topics of each server, from batches of ``messages``; those of unknown topic do not count.

    Memory holds one row for each topic and connection.
    """
    kept: list[pa.Table] = []
    rows = 0
    for one in messages:
        found = _counted(one)
        kept.append(found)
        rows += found.num_rows
        if rows > _TOGETHER and len(kept) > 1:
            kept = [_summed(pa.concat_tables(kept), _PARTIAL)]
            # Only what is new has to be summed up again, and the sums may be many.
            rows = 0
    schema = TABLES["topics"].arrow()
    if not kept:
        return schema.empty_table()
    found = _summed(pa.concat_tables(kept), _PARTIAL)
    found = found.append_column("connections", pa.chunked_array([array_of([1] * found.num_rows, pa.int64())]))
    found = _summed(found, _WHOLE)
    made = pa.Table.from_arrays([found.column(one.name).cast(one.type) for one in schema], schema=schema)
    return made.sort_by([("server", "ascending"), ("topic", "ascending"), ("direction", "ascending")])


_TOGETHER = 200_000
_WHOLE = ("server", "topic", "direction")
_PARTIAL = (*_WHOLE, "connection_id")
_SUMMED = ("messages", "payload_bytes", "qos_0", "qos_1", "qos_2", "retained", "retransmissions", "connections")


def _counted(one: pa.RecordBatch) -> pa.Table:
    """What each message counts for."""
    known = pa.Table.from_batches([one.select(list(TOPIC_COLUMNS)).filter(one.column("topic").is_valid())])
    qos = known.column("qos")
    columns = {name: known.column(name) for name in _PARTIAL}
    columns |= {
        "messages": pa.chunked_array([array_of([1] * known.num_rows, pa.int64())]),
        "payload_bytes": known.column("payload_length"),
        **{f"qos_{level}": pc.equal(qos, one).cast(pa.int64()) for level, one in enumerate(_NUMBERS)},
        "retained": known.column("retain").cast(pa.int64()),
        "retransmissions": known.column("retransmissions").cast(pa.int64()),
        "first_ns": known.column("timestamp_ns"),
        "last_ns": known.column("timestamp_ns"),
    }
    return _summed(pa.table(columns), _PARTIAL)


def _summed(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Sums of the rows that have the same in some columns, and the first and last of their times.

    `pyarrow.Table.group_by` does the same, and loads pandas where that is installed, half a second for each ingest.
    """
    table = table.combine_chunks()
    if not table.num_rows:
        return table
    group = _numbered([table.column(name) for name in by])
    ends: dict[str, pa.Array] = {}
    for name in ("first_ns", "last_ns"):
        times = pa.table({"group": group, "time": table.column(name)})
        ends[name] = pc.sort_indices(times, sort_keys=[("group", "ascending"), ("time", "ascending")])
    order = ends["first_ns"]
    stops = pc.run_end_encode(group.take(order)).run_ends.cast(pa.int64())
    last = pc.subtract(stops, _NUMBERS[1])
    first = pa.concat_arrays([_NUMBERS[:1], stops[:-1]])
    firsts, lasts = order.take(first), ends["last_ns"].take(last)
    made = {name: table.column(name).take(firsts) for name in by}
    for name in _SUMMED:
        if name in table.column_names:
            so_far = pc.cumulative_sum(pc.fill_null(table.column(name).take(order), _NUMBERS[0])).combine_chunks()
            at_ends = so_far.take(last)
            made[name] = pc.subtract(at_ends, pa.concat_arrays([_NUMBERS[:1], at_ends[:-1]]))
    return pa.table(
        made | {"first_ns": table.column("first_ns").take(firsts), "last_ns": table.column("last_ns").take(lasts)}
    )


def _numbered(columns: list[pa.ChunkedArray]) -> pa.Array:
    """A number for each row; rows that have the same in all columns have the same number."""
    number: Any = None
    for column in columns:
        found = column.combine_chunks().dictionary_encode()
        own = found.indices.cast(pa.int64())
        if number is None:
            number = own
        else:
            # Numbered again each time, so that the product of a few columns fits.
            wider = pc.multiply(number, array_of([len(found.dictionary)], pa.int64())[0])
            number = pc.add(wider, own).dictionary_encode().indices.cast(pa.int64())
    return number


_NUMBERS = array_of([0, 1, 2], pa.int64())


@dataclass(slots=True)
class _Client:
    """One Client Identifier on one server, while its connections are gone through."""

    connections: int = 0
    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    first_ns: int = 1 << 62
    last_ns: int = -1 << 62
    versions: set[str] = field(default_factory=set)


def clients(connections: Iterable[Row]) -> pa.Table:
    """Clients of each server, from rows of ``connections``; those without a Client Identifier do not count."""
    found: dict[tuple[str, str], _Client] = defaultdict(_Client)
    for row in connections:
        if not row["client_identifier"]:
            continue
        one = found[row["server"], row["client_identifier"]]
        one.connections += 1
        one.sent += row["packets"]["client_to_server"]
        one.received += row["packets"]["server_to_client"]
        one.bytes_sent += row["bytes"]["client_to_server"]
        one.bytes_received += row["bytes"]["server_to_client"]
        one.first_ns = min(one.first_ns, row["timestamp_ns"])
        one.last_ns = max(one.last_ns, _last(row))
        one.versions.add(row["version"])
    rows = [
        {
            "server": server, "client_identifier": name, "connections": one.connections, "packets_sent": one.sent,
            "packets_received": one.received, "bytes_sent": one.bytes_sent, "bytes_received": one.bytes_received,
            "first_ns": one.first_ns, "last_ns": one.last_ns, "versions": sorted(one.versions),
        }
        for (server, name), one in sorted(found.items())
    ]  # fmt: skip
    return _table("clients", rows)


def _last(row: Row) -> int:
    closed: int | None = row["closed_ns"]
    begun: int = row["timestamp_ns"]
    return begun if closed is None else closed


def sessions(connections: Iterable[Row]) -> pa.Table:
    """Sessions of each client, from rows of ``connections``."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in connections:
        if row["client_identifier"]:
            found[row["server"], row["client_identifier"]].append(row)
    rows: list[dict[str, Any]] = []
    for (server, name), some in sorted(found.items()):
        some.sort(key=lambda row: (row["timestamp_ns"], row["connection_id"]))
        number = -1
        for row in some:
            fresh = row["clean_start"] is True or row["session_present"] is False
            if fresh or number < 0:
                number += 1
                rows.append(
                    {
                        "server": server, "client_identifier": name, "session": number,
                        "first_ns": row["timestamp_ns"], "last_ns": _last(row), "clean_start": row["clean_start"],
                        "begin_known": fresh, "connections": 0, "connection_ids": [],
                    }
                )  # fmt: skip
            last = rows[-1]
            last["last_ns"] = max(last["last_ns"], _last(row))
            last["session_expiry_interval"] = row["session_expiry_interval"]
            last["connections"] += 1
            last["connection_ids"].append(row["connection_id"])
    return _table("sessions", rows)


def _table(name: str, rows: Iterable[Row]) -> pa.Table:
    names = TABLES[name].names
    return pa.Table.from_batches([batch_of(TABLES[name].arrow(), [tuple(row[one] for one in names) for row in rows])])
