"""Rules of session and broker scope find over rows what they find in process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.scopes import ORDER, ScopeRun, group_rows, run_scope
from mqttscope.lake.state import load
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.moment import Moment
from mqttscope.lint.rule import Findings, Needs, Rule, Scope
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.session.connection import Connection
from tests.lake.reading import CAPTURES, Row, by_kernel, collect, options, read_segments, segment_rows

VERSIONS = Rule.versions


@dataclass(slots=True)
class Seen:
    """What a test rule keeps of its key."""

    connections: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


class Tells(Rule):
    """Tells all that a rule can see, so that any difference shows."""

    severity = Severity.INFO
    looks_at = ControlPacket
    Memory = Seen
    needs = Needs.NOTHING

    def told(self, what: str, at: Moment) -> Findings:
        memory: Seen = at.memory(self)
        memory.bytes += at.sender.bytes
        state = (
            what, memory.connections, sorted(memory.topics.items()), memory.bytes, at.timestamp_ns, at.topic,
            at.version, at.acknowledged, at.begun_ns, at.sender, at.receiver, _plain(at.party), _plain(at.other),
            at.history.disordered, at.history.settled, at.history.subscriptions, at.history.early,
            at.connection.phase, at.connection.details, at.connection.gaps, at.connection.closed_how,
            at.connection.closed_by, at.connection.version_evidence, at.connection.decrypted,
        )  # fmt: skip
        return self.report("", repr(state))

    def check(self, packet: ControlPacket, at: Moment) -> Findings:
        memory: Seen = at.memory(self)
        if isinstance(packet, Connect):
            memory.connections.append(at.connection.client)
        if isinstance(packet, Publish) and at.topic is not None:
            memory.topics[at.topic] = memory.topics.get(at.topic, 0) + 1
        shown = packet if packet.packet_type not in (1, 2, 15) else packet.packet_type
        return self.told(repr(shown), at)

    def check_damaged(self, found: Malformed, at: Moment) -> Findings:
        return self.told(f"{found.reason} {found.faults}", at)

    def check_unparsed(self, unparsed: Any, at: Moment) -> Findings:
        return self.told(f"{unparsed.reason} {unparsed.length}", at)

    def check_opened(self, connection: Connection, at: Moment) -> Findings:
        return self.told("opened", at)

    def check_close(self, connection: Connection, at: Moment) -> Findings:
        return self.told("closed", at)


class OfSession(Tells):
    code = "TST390"


class OfBroker(Tells):
    code = "TST490"


def _plain(party: Any) -> str:
    return repr(party)


RULES: dict[Scope, type[Rule]] = {Scope.SESSION: OfSession, Scope.BROKER: OfBroker}
Named = list[tuple[str, Finding]]


def shown(found: Finding) -> tuple[Any, ...]:
    return (
        found.rule, found.message, found.capture, found.frame, found.timestamp_ns, found.packet, found.client,
        found.server, found.client_identifier, found.version, found.field, found.fingerprint, str(found.confidence),
        found.packet_type, found.topic,
    )  # fmt: skip


def in_process(path: Path, scope: Scope) -> list[tuple[Any, ...]]:
    linter = Linter([RULES[scope]()], strict=True)
    found: list[tuple[Any, ...]] = []
    for event in dissect(open_capture([path]), LakeOptions().reading()):
        found += map(shown, linter.feed(event))
    return found


def over_rows(rows: list[Row], scope: Scope) -> Iterator[tuple[Any, ...]]:
    random.Random(1).shuffle(rows)
    for group in group_rows(rows, scope).values():
        for _, finding in run_scope(group, [RULES[scope]()], strict=True):
            yield shown(finding)


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.BROKER])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_findings_are_those_of_one_engine_that_sees_everything(path: Path, scope: Scope) -> None:
    given = LakeOptions(scope_events=True)
    rows = by_kernel(segment_rows(read_segments(path)), given)["scope_events"]

    wanted = in_process(path, scope)
    assert wanted
    assert sorted(over_rows(rows, scope), key=repr) == sorted(wanted, key=repr)


def test_narrow_rules_beside_change_nothing() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "planted-violations")
    with_rules = by_kernel(segment_rows(read_segments(path)), options(scope_events=True))["scope_events"]
    without = by_kernel(segment_rows(read_segments(path)), LakeOptions(scope_events=True))["scope_events"]

    assert list(over_rows(with_rules, Scope.SESSION)) == list(over_rows(without, Scope.SESSION))


def test_rows_are_the_same_in_process() -> None:
    path = CAPTURES[0]
    given = LakeOptions(scope_events=True)
    apart = by_kernel(segment_rows(read_segments(path)), given)["scope_events"]
    whole = collect(dissect(open_capture([path]), given.reading()), given)["scope_events"]

    def plain(rows: list[Row]) -> list[Any]:
        return sorted((row["connection_id"], row["event_in_connection"], repr(load(row["event"])[1])) for row in rows)

    assert plain(apart) == plain(whole)


def test_a_connection_whose_beginning_is_elsewhere_is_passed_over() -> None:
    path = CAPTURES[0]
    rows = by_kernel(segment_rows(read_segments(path)), LakeOptions(scope_events=True))["scope_events"]
    rows.sort(key=lambda row: tuple(row[name] for name in ORDER))

    assert not ScopeRun([OfBroker()]).feed(rows[1])
    assert {len(key) for key in group_rows(rows, Scope.BROKER)} == {1}
