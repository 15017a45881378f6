"""Which rows wait for a session, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.dissect import dissect_segments
from mqttscope.lake import held as holding
from mqttscope.lake.held import Held, ScopeRow
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.mqtt.packets import Connack
from mqttscope.mqtt.properties import Properties
from tests.dissect.talk import V5, Talk, Tape, connect, publish
from tests.lake.reading import Row, collect

SERVER = "192.0.2.2:1883"


def rows_of(tape: Tape) -> list[Row]:
    given = LakeOptions(scope_events=True)
    return collect(dissect_segments(tape.segments, given.reading()), given)["scope_events"]


def sessions(tape: Tape) -> set[str]:
    return {row["session"] for row in rows_of(tape)}


def test_the_connack_names_the_session() -> None:
    talk = Talk().handshake()
    talk.client(replace(connect(5), client_identifier=""), version=V5)
    talk.server(Connack(properties=Properties(assigned_client_identifier="auto-1")), version=V5)

    assert sessions(talk.tape) == {f"{SERVER} auto-1"}


def test_a_later_name_changes_nothing() -> None:
    talk = Talk().handshake()
    talk.client(connect())
    talk.server(Connack())
    talk.client(connect(client_identifier="other"))
    talk.server(Connack())

    assert sessions(talk.tape) == {f"{SERVER} dev"}


def test_who_has_no_name_is_alone() -> None:
    tape = Tape()
    for port in (50_000, 50_001):
        talk = Talk(tape, client_port=port).handshake()
        talk.client(connect(client_identifier=""))
        talk.server(Connack())
    rows = rows_of(tape)

    assert {row["session"] for row in rows} == {f"{SERVER} \\{row['connection_id']}" for row in rows}
    assert len(sessions(tape)) == 2


def test_a_joined_connection_has_no_name() -> None:
    talk = Talk()
    for _ in range(3):
        talk.client(publish())
        talk.ack("server")
    rows = rows_of(talk.tape)

    assert [row["session"] for row in rows] == [f"{SERVER} \\{rows[0]['connection_id']}"] * len(rows)


@pytest.mark.parametrize(("name", "value"), [("MAX_ROWS", 4), ("MAX_BYTES", 3_000)])
def test_rows_do_not_wait_for_ever(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk().handshake()
    talk.client(replace(connect(5), client_identifier="dev"), version=V5)
    for _ in range(9):
        talk.client(publish(), version=V5)
    talk.server(Connack(properties=Properties(assigned_client_identifier="auto-1")), version=V5)
    assert sessions(talk.tape) == {f"{SERVER} auto-1"}

    monkeypatch.setattr(holding, name, value)
    assert sessions(talk.tape) == {f"{SERVER} dev"}


def test_what_the_server_was_told_is_told_once() -> None:
    held, rows = Held(), [ScopeRow("s", (number, 0, 0), number, b"xy") for number in range(3)]
    held.hold(rows[0])
    assert held.tell() == rows[:1]
    held.hold(rows[1])
    held = load(dump(held))
    assert held.tell() == rows[1:2]
    assert held.tell() == []
    held.hold(rows[2])
    assert held.size == 6

    assert list(held.release()) == [(rows[0], True), (rows[1], True), (rows[2], False)]
    assert held == Held()
