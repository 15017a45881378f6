"""The kernel of wider scopes: one run finds what the linter finds, and so do several, each on the state of the last."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa

from mqttscope.lake.manifest import LakeError
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import SCOPE_EVENTS, SCOPE_ROWS, SCOPE_STATE
from mqttscope.lake.scope_kernel import SCOPE_COLUMNS, SCOPE_ORDER, scope_batch, scope_kernel, state_batch
from mqttscope.lake.state import dump, load
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.packets import Connack
from mqttscope.net.segment import Segment
from tests.dissect.talk import Talk, connect, publish
from tests.lake.reading import CAPTURES, Row, by_kernel, read_segments, remembered_row, segment_rows
from tests.lake.test_scopes import OfBroker, OfSession, in_process

SCOPES = (Scope.SESSION, Scope.BROKER)
BOTH: tuple[Rule, ...] = (OfSession(), OfBroker())


def given(**changes: Any) -> LakeOptions:
    return replace(LakeOptions(rules=BOTH, scope_events=True), **changes)


class Fold:
    """Ingests one after the other, as an engine makes them: what flows and keys remember goes on."""

    def __init__(self, options: LakeOptions) -> None:
        self.options = options
        self.findings: list[Row] = []
        self.open: list[Row] = []
        self.flows: list[tuple[Any, ...]] = []
        self.states: dict[Scope, list[Row]] = {scope: [] for scope in SCOPES}
        self.events: list[Row] = []

    def ingest(self, found: list[Segment]) -> None:
        last = found[-1].timestamp_ns
        rows = [*self.flows, *segment_rows(found)]
        tables = by_kernel(rows, self.options, more=True, watermark_ns=last)
        self.flows = [remembered_row(row["flow"], row["state"]) for row in tables.get("state", [])]
        self.events = tables.get("scope_events", [])
        self.open = tables.get("open/findings", [])
        self.findings += tables.get("findings", [])
        for scope in SCOPES:
            self._fold(scope)

    def _fold(self, scope: Scope) -> None:
        events = pa.RecordBatch.from_pylist(self.events, schema=SCOPE_EVENTS.arrow())
        states = pa.RecordBatch.from_pylist(self.states[scope], schema=SCOPE_STATE.arrow())
        self.states[scope] = []
        rows = sorted_rows([scope_batch(events, scope), state_batch(states, scope)])
        for one in scope_kernel(rows, scope, self.options, more=True):
            kind = one.column("kind")[0].as_py()
            found = one.column(kind.removeprefix("open/")).to_pylist()
            {"findings": self.findings, "open/findings": self.open}.get(kind, self.states[scope]).extend(found)


def sorted_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    rows = [row for one in batches for row in one.to_pylist()]
    random.Random(1).shuffle(rows)
    rows.sort(key=lambda row: tuple(row[name] for name in SCOPE_ORDER))
    for at in range(0, len(rows), 7):
        yield pa.RecordBatch.from_pylist(rows[at : at + 7], schema=SCOPE_ROWS.arrow())


def told(rows: list[Row]) -> list[Any]:
    """What the findings say, whichever scope and whatever order."""
    return sorted((row["rule"], row["connection_id"], row["finding_in_connection"], row["message"]) for row in rows)


@cache
def wanted(path: Path, scopes: tuple[Scope, ...] = SCOPES) -> list[Any]:
    return sorted(repr(one[:5]) for scope in scopes for one in in_process(path, scope))


def found_by(fold: Fold) -> list[Any]:
    return sorted(
        repr((row["rule"], row["message"], row["capture"], row["frame"], row["timestamp_ns"]))
        for row in [*fold.findings, *fold.open]
        if row["scope"] != "connection"
    )


def test_columns_are_those_of_the_rows() -> None:
    assert SCOPE_ROWS.names == SCOPE_COLUMNS


def test_where_a_rule_needs_a_server_all_wide_rules_run_over_its_rows() -> None:
    assert (given().rules_by(Scope.SESSION), given().rules_by(Scope.BROKER)) == ([], list(BOTH))
    narrower = given(rules=BOTH[:1])
    assert (narrower.rules_by(Scope.SESSION), narrower.rules_by(Scope.BROKER)) == ([BOTH[0]], [])
    assert not any(given(rules=()).rules_by(scope) for scope in SCOPES)


@pytest.mark.parametrize("rules", [BOTH, BOTH[:1]], ids=["by-server", "by-session"])
@pytest.mark.parametrize("name", ["session-taken-over", "joined-v5", "planted-violations"])
def test_one_run_and_several_find_the_same(name: str, rules: tuple[Rule, ...]) -> None:
    path = next(path for path in CAPTURES if path.parent.name == name)
    found = read_segments(path)
    whole = Fold(given(rules=rules))
    whole.ingest(found)
    edges = sorted(random.Random(5).sample(range(1, len(found)), 4))
    parts = Fold(given(rules=rules))
    for start, stop in zip([0, *edges], [*edges, len(found)], strict=True):
        parts.ingest(found[start:stop])

    assert told([*parts.findings, *parts.open]) == told([*whole.findings, *whole.open])
    assert found_by(whole) == wanted(path, tuple(rule.scope for rule in rules))
    assert {row["scope"] for row in whole.findings} == {str(rule.scope) for rule in rules}


def test_rows_wait_for_the_session_over_the_end_of_an_ingest() -> None:
    talk = Talk().handshake()
    tape = talk.tape
    talk.client(connect())
    fold = Fold(given())
    fold.ingest(list(tape.segments))

    # Only rules of the server have seen it so far; the endings say what it would be.
    before = [row for row in fold.events if not row["ending"]]
    assert [(row["server"], row["session"]) for row in before] == [("192.0.2.2:1883", None)] * 2
    assert {row["session"] for row in fold.events if row["ending"]} == {"192.0.2.2:1883 dev"}
    assert [row["key"] for row in fold.states[Scope.BROKER]] == ["192.0.2.2:1883"]
    assert not fold.states[Scope.SESSION]

    at = len(tape.segments)
    talk.server(Connack())
    fold.ingest(tape.segments[at:])
    after = [row for row in fold.events if not row["ending"]]
    assert [row["server"] for row in after] == [None, None, "192.0.2.2:1883"]
    assert {row["session"] for row in after} == {"192.0.2.2:1883 dev"}
    assert [row["event_in_connection"] for row in after] == [0, 1, 2]
    assert [row["key"] for row in fold.states[Scope.SESSION]] == ["192.0.2.2:1883 dev"]


def test_endings_are_supposed_only() -> None:
    talk = Talk().handshake()
    tape = talk.tape
    talk.client(connect())
    talk.server(Connack())
    fold = Fold(given())
    fold.ingest(list(tape.segments))
    closing = [row for row in fold.open if "'closed'" in row["message"]]
    assert {row["scope"] for row in closing} == {"session", "broker"}
    (state,) = (load(row["state"]) for row in fold.states[Scope.BROKER])
    assert len(state.running) == 1

    at = len(tape.segments)
    talk.client(publish())
    fold.ingest(tape.segments[at:])
    assert not [row for row in fold.findings if "'closed'" in row["message"]]
    talk.close()
    fold.ingest(tape.segments[at + 1 :])
    assert [row["scope"] for row in fold.findings if "'closed'" in row["message"]] == ["session", "broker"]
    assert not fold.open
    for scope in ("session", "broker"):
        numbers = [row["finding_in_connection"] for row in fold.findings if row["scope"] == scope]
        assert numbers == list(range(len(numbers)))


def test_what_nothing_happened_to_passes_unread() -> None:
    state = pa.RecordBatch.from_pylist(
        [{"scope": "session", "key": "a b", "last_ns": 5, "state": b"whatever"}], schema=SCOPE_STATE.arrow()
    )
    rows = [state_batch(state, Scope.SESSION)]
    (found,) = scope_kernel(rows, Scope.SESSION, given(), more=True)

    assert found.column("scope_state").to_pylist() == state.to_pylist()
    assert not state_batch(state, Scope.BROKER).num_rows
    assert not list(scope_kernel(rows, Scope.SESSION, given()))


@pytest.mark.parametrize("state", [b"whatever", dump(5)])
def test_state_that_cannot_be_read_is_said(state: bytes) -> None:
    names = dict.fromkeys(SCOPE_COLUMNS, 0) | {"key": "k", "connection_id": "", "event": state}
    rows = [names, names | {"kind_order": 1}]

    with pytest.raises(LakeError, match="the lake is damaged"):
        list(scope_kernel(sorted_rows([pa.RecordBatch.from_pylist(rows, SCOPE_ROWS.arrow())]), Scope.SESSION, given()))


def test_batches_are_bounded() -> None:
    fold = Fold(given(batch_rows=3))
    fold.ingest(read_segments(CAPTURES[0]))
    events = pa.RecordBatch.from_pylist(fold.events, schema=SCOPE_EVENTS.arrow())
    found = list(scope_kernel(sorted_rows([scope_batch(events, Scope.BROKER)]), Scope.BROKER, given(batch_rows=3)))

    assert len(found) > 3
    assert max(one.num_rows for one in found) == 3
