"""Tables that are sums over others: topics, clients and sessions.  Any engine with the rows can compute them again.

A *session* begins with a connection that is known to have no earlier session (Clean Start, or a CONNACK without Session
Present), and at the first captured connection of a client; that session may be older.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqttscope.lake.columns import array_of, batch_of
from mqttscope.lake.files import LakeFiles, reading
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.store import Place, opened

Row = Mapping[str, Any]
SUMS = ("topics", "clients", "sessions")
TOPIC_COLUMNS = (
    "server", "topic", "direction", "payload_length", "qos", "retain", "retransmissions", "connection_id",
    "timestamp_ns",
)  # fmt: skip
"""Columns of messages for the table of topics."""
CONNECTION_COLUMNS = (
    "connection_id", "server", "client_identifier", "timestamp_ns", "closed_ns", "clean_start", "session_present",
    "session_expiry_interval", "packets", "bytes", "version",
)  # fmt: skip
"""Columns of connections for the tables of clients and sessions."""


def topics(messages: Iterable[pa.RecordBatch]) -> pa.Table:
    """Topics of each server, from batches of ``messages``; messages of unknown topic are left out.

    Memory holds one row for each topic and connection.
    """
    counts: list[pa.Table] = []
    rows = 0
    for record_batch in messages:
        sums = _counted(record_batch)
        counts.append(sums)
        rows += sums.num_rows
        if rows > _TOGETHER and len(counts) > 1:
            counts = [_summed(pa.concat_tables(counts), _PARTIAL)]
            # Only new rows have to be summed again, and the sums may be many.
            rows = 0
    schema = TABLES["topics"].arrow()
    if not counts:
        return schema.empty_table()
    sums = _summed(pa.concat_tables(counts), _PARTIAL)
    sums = sums.append_column("connections", pa.chunked_array([array_of([1] * sums.num_rows, pa.int64())]))
    sums = _summed(sums, _WHOLE)
    table = pa.Table.from_arrays([sums.column(column.name).cast(column.type) for column in schema], schema=schema)
    return table.sort_by([("server", "ascending"), ("topic", "ascending"), ("direction", "ascending")])


_TOGETHER = 200_000
_WHOLE = ("server", "topic", "direction")
_PARTIAL = (*_WHOLE, "connection_id")
_SUMMED = ("messages", "payload_bytes", "qos_0", "qos_1", "qos_2", "retained", "retransmissions", "connections")


def _counted(messages: pa.RecordBatch) -> pa.Table:
    """Counts of each message."""
    known = pa.Table.from_batches([messages.select(list(TOPIC_COLUMNS)).filter(messages.column("topic").is_valid())])
    qos = known.column("qos")
    columns = {name: known.column(name) for name in _PARTIAL}
    columns |= {
        "messages": pa.chunked_array([array_of([1] * known.num_rows, pa.int64())]),
        "payload_bytes": known.column("payload_length"),
        **{f"qos_{level}": pc.equal(qos, constant).cast(pa.int64()) for level, constant in enumerate(_NUMBERS)},
        "retained": known.column("retain").cast(pa.int64()),
        "retransmissions": known.column("retransmissions").cast(pa.int64()),
        "first_ns": known.column("timestamp_ns"),
        "last_ns": known.column("timestamp_ns"),
    }
    return _summed(pa.table(columns), _PARTIAL)


def _summed(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Sums of the rows with equal values in some columns, and their first and last times.

    `pyarrow.Table.group_by` would load pandas if it is installed, half a second for each ingest.
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
    columns = {name: table.column(name).take(firsts) for name in by}
    for name in _SUMMED:
        if name in table.column_names:
            so_far = pc.cumulative_sum(pc.fill_null(table.column(name).take(order), _NUMBERS[0])).combine_chunks()
            at_ends = so_far.take(last)
            columns[name] = pc.subtract(at_ends, pa.concat_arrays([_NUMBERS[:1], at_ends[:-1]]))
    return pa.table(
        columns | {"first_ns": table.column("first_ns").take(firsts), "last_ns": table.column("last_ns").take(lasts)}
    )


def _numbered(columns: list[pa.ChunkedArray]) -> pa.Array:
    """A number for each row; rows with equal values in all columns have equal numbers."""
    number: Any = None
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
        own = encoded.indices.cast(pa.int64())
        if number is None:
            number = own
        else:
            # Numbered again each time, so that the product of a few columns fits.
            wider = pc.multiply(number, array_of([len(encoded.dictionary)], pa.int64())[0])
            number = pc.add(wider, own).dictionary_encode().indices.cast(pa.int64())
    return number


_NUMBERS = array_of([0, 1, 2], pa.int64())


@dataclass(slots=True)
class _Client:
    """Counters of one Client Identifier on one server."""

    connections: int = 0
    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    first_ns: int = 1 << 62
    last_ns: int = -1 << 62
    versions: set[str] = field(default_factory=set)


def clients(connections: Iterable[Row]) -> pa.Table:
    """Clients of each server, from rows of ``connections``; connections without a Client Identifier are left out."""
    by_client: dict[tuple[str, str], _Client] = defaultdict(_Client)
    for row in connections:
        if not row["client_identifier"]:
            continue
        client = by_client[row["server"], row["client_identifier"]]
        client.connections += 1
        client.sent += row["packets"]["client_to_server"]
        client.received += row["packets"]["server_to_client"]
        client.bytes_sent += row["bytes"]["client_to_server"]
        client.bytes_received += row["bytes"]["server_to_client"]
        client.first_ns = min(client.first_ns, row["timestamp_ns"])
        client.last_ns = max(client.last_ns, _last(row))
        client.versions.add(row["version"])
    rows = [
        {
            "server": server, "client_identifier": name, "connections": own.connections, "packets_sent": own.sent,
            "packets_received": own.received, "bytes_sent": own.bytes_sent, "bytes_received": own.bytes_received,
            "first_ns": own.first_ns, "last_ns": own.last_ns, "versions": sorted(own.versions),
        }
        for (server, name), own in sorted(by_client.items())
    ]  # fmt: skip
    return _table("clients", rows)


def _last(row: Row) -> int:
    closed: int | None = row["closed_ns"]
    begun: int = row["timestamp_ns"]
    return begun if closed is None else closed


def sessions(connections: Iterable[Row]) -> pa.Table:
    """Sessions of each client, from rows of ``connections``."""
    by_client: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in connections:
        if row["client_identifier"]:
            by_client[row["server"], row["client_identifier"]].append(row)
    rows: list[dict[str, Any]] = []
    for (server, name), some in sorted(by_client.items()):
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
    return pa.Table.from_batches([batch_of(TABLES[name].arrow(), [tuple(row[key] for key in names) for row in rows])])


def write_sums(root: Place, after: Manifest, generation: int | None = None) -> None:
    """Write topics, clients and sessions again from all rows, and put their files into ``after``.

    ``generation``: for the names of files, by default of ``after``.
    """
    tables = {}
    with reading(root / "messages"):
        tables["topics"] = topics(batches(root, after, "messages", TOPIC_COLUMNS))
    with reading(root / "connections"):
        read = batches(root, after, "connections", CONNECTION_COLUMNS)
        connections = [row for record_batch in read for row in record_batch.to_pylist()]
    tables |= {"clients": clients(connections), "sessions": sessions(connections)}
    with LakeFiles(root, generation or after.generation) as files:
        for name, table in tables.items():
            for record_batch in table.to_batches():
                files.write(name, record_batch)
    for name in SUMS:
        after.files[name] = files.names.get(name, [])


def batches(root: Place, manifest: Manifest, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Columns of a table in the present version, file by file; columns that a file lacks are null.

    `dataset` would load pandas if it is installed.
    """
    schema = TABLES[name].arrow()
    for path in (*manifest.files.get(name, ()), *manifest.open_files.get(name, ())):
        # Checksums of files in a store have not been compared.
        file = pq.ParquetFile(opened(root / path), page_checksum_verification=True)
        known = [column for column in columns if column in file.schema_arrow.names]
        for record_batch in file.iter_batches(columns=known):
            arrays = [
                record_batch.column(name) if name in known else pa.nulls(record_batch.num_rows, schema.field(name).type)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))
