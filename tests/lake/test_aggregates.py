"""Topics, clients and sessions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mqttscope.lake import aggregates
from mqttscope.lake.aggregates import clients, sessions, topics
from mqttscope.lake.schemas import TABLES
from tests.lake.reading import CAPTURES, usual


def message(topic: str | None, at: int, **changes: Any) -> dict[str, Any]:
    return {
        "server": "s:1", "topic": topic, "direction": "client_to_server", "payload_length": 2, "qos": 0,
        "retain": False, "retransmissions": 0, "connection_id": "c1", "timestamp_ns": at,
    } | changes  # fmt: skip


def batches(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    schema = TABLES["messages"].arrow()
    return [pa.RecordBatch.from_pylist(rows[at : at + size], schema=schema) for at in range(0, len(rows), size)]


@pytest.mark.parametrize("together", [1, 200_000])
def test_topics_are_summed_up_over_any_batches(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "_TOGETHER", together)
    rows = [
        message("a", 5), message("a", 3, qos=1, retain=True, connection_id="c2"), message("b", 4, retransmissions=2),
        message(None, 1), message("a", 9, qos=2, payload_length=None), message("a", 7, direction="server_to_client"),
    ]  # fmt: skip
    for size in (1, 2, 10):
        first, second, third = topics(batches(rows, size)).to_pylist()
        assert first == {
            "server": "s:1", "topic": "a", "direction": "client_to_server", "messages": 3, "payload_bytes": 4,
            "qos_0": 1, "qos_1": 1, "qos_2": 1, "retained": 1, "retransmissions": 0, "connections": 2, "first_ns": 3,
            "last_ns": 9,
        }  # fmt: skip
        assert second["direction"] == "server_to_client"
        assert (third["topic"], third["retransmissions"]) == ("b", 2)
    assert topics([]).num_rows == 0
    assert topics([]).schema == topics(batches(rows, 2)).schema


def connection(name: str, at: int, client: str | None = "dev", **changes: Any) -> dict[str, Any]:
    both = {"client_to_server": 3, "server_to_client": 2}
    return {
        "connection_id": name, "server": "s:1", "client_identifier": client, "timestamp_ns": at, "closed_ns": at + 5,
        "clean_start": False, "session_present": True, "session_expiry_interval": 60, "packets": both, "bytes": both,
        "version": "5.0",
    } | changes  # fmt: skip


def test_clients() -> None:
    rows = [connection("1", 10, version="3.1.1"), connection("2", 20, closed_ns=None), connection("3", 30, None)]

    (result,) = clients(rows).to_pylist()
    assert result == {
        "server": "s:1", "client_identifier": "dev", "connections": 2, "packets_sent": 6, "packets_received": 4,
        "bytes_sent": 6, "bytes_received": 4, "first_ns": 10, "last_ns": 20, "versions": ["3.1.1", "5.0"],
    }  # fmt: skip


def test_sessions_begin_where_nothing_was_before() -> None:
    rows = [
        connection("4", 40, session_present=False), connection("1", 10), connection("2", 20, session_expiry_interval=0),
        connection("3", 30, clean_start=True), connection("5", 50), connection("6", 60, ""),
        connection("7", 5, "other"),
    ]  # fmt: skip
    result = sessions(rows).to_pylist()

    assert [(row["client_identifier"], row["session"], row["connection_ids"]) for row in result] == [
        ("dev", 0, ["1", "2"]), ("dev", 1, ["3"]), ("dev", 2, ["4", "5"]), ("other", 0, ["7"]),
    ]  # fmt: skip
    assert [row["begin_known"] for row in result] == [False, True, True, False]
    assert [(row["first_ns"], row["last_ns"], row["session_expiry_interval"]) for row in result[:2]] == [
        (10, 25, 0), (30, 35, 60),
    ]  # fmt: skip


def test_captures() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "session-taken-over")
    rows = usual(path)["connections"]

    assert sum(row["connections"] for row in clients(rows).to_pylist()) == len(rows)
    assert {name for row in sessions(rows).to_pylist() for name in row["connection_ids"]} == {
        row["connection_id"] for row in rows
    }
