"""Rules of session and broker scope find over rows what they find in process."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import PacketEvent
from mqttscope.lake import scopes
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.scopes import ORDER, Remembered, ScopeRun
from mqttscope.lake.state import allow, dump, load
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Scope, Severity
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.session.connection import Connection
from tests.lake.reading import CAPTURES, Row, by_kernel, collect, options, read_event, read_segments, segment_rows

VERSIONS = Rule.versions


@allow
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

    def told(self, what: str, at: RuleContext) -> Findings:
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

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        memory: Seen = at.memory(self)
        if isinstance(packet, Connect):
            memory.connections.append(at.connection.client)
        if isinstance(packet, Publish) and at.topic is not None:
            memory.topics[at.topic] = memory.topics.get(at.topic, 0) + 1
        # What may be of a secret is not written down.
        open_one = isinstance(at.event, PacketEvent) and packet.packet_type not in (1, 2, 15)
        shown = packet if open_one else packet.packet_type
        return self.told(repr(shown), at)

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        return self.told(f"{found.reason} {found.faults}", at)

    def check_unparsed(self, unparsed: Any, at: RuleContext) -> Findings:
        return self.told(f"{unparsed.reason} {unparsed.length}", at)

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        return self.told("opened", at)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        return self.told("closed", at)


class OfSession(Tells):
    code = "TST390"


class OfBroker(Tells):
    code = "TST490"


def _plain(party: Any) -> str:
    return repr(party)


RULES: dict[Scope, type[Rule]] = {Scope.SESSION: OfSession, Scope.BROKER: OfBroker}
KEYS = {Scope.SESSION: "session", Scope.BROKER: "server"}


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


def by_key(rows: list[Row], scope: Scope) -> dict[str, list[Row]]:
    """The rows of each key, in order."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in ORDER)):
        groups.setdefault(row[KEYS[scope]], []).append(row)
    return groups


def over_rows(rows: list[Row], scope: Scope) -> Iterator[tuple[Any, ...]]:
    random.Random(1).shuffle(rows)
    for group in by_key(rows, scope).values():
        run = ScopeRun([RULES[scope]()], strict=True)
        for row in group:
            for found in run.feed(row["connection_id"], row["event"]):
                yield shown(found.finding)


def scope_events(path: Path, given: LakeOptions) -> list[Row]:
    return by_kernel(segment_rows(read_segments(path)), given)["scope_events"]


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.BROKER])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_findings_are_those_of_one_engine_that_sees_everything(path: Path, scope: Scope) -> None:
    wanted = in_process(path, scope)
    assert wanted
    found = over_rows(scope_events(path, LakeOptions(scope_events=True)), scope)
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_narrow_rules_beside_change_nothing() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "planted-violations")
    with_rules = scope_events(path, options(scope_events=True))
    without = scope_events(path, LakeOptions(scope_events=True))

    assert list(over_rows(with_rules, Scope.SESSION)) == list(over_rows(without, Scope.SESSION))


def test_rows_are_the_same_in_process() -> None:
    path = CAPTURES[0]
    given = LakeOptions(scope_events=True)
    apart = scope_events(path, given)
    whole = collect(dissect(open_capture([path]), given.reading()), given)["scope_events"]

    def plain(rows: list[Row]) -> list[Any]:
        return sorted(
            (row["connection_id"], row["event_in_connection"], repr(read_event(row["event"])[0])) for row in rows
        )

    assert plain(apart) == plain(whole)


def test_a_connection_whose_beginning_is_elsewhere_is_passed_over() -> None:
    rows = scope_events(CAPTURES[0], LakeOptions(scope_events=True))
    rows.sort(key=lambda row: tuple(row[name] for name in ORDER))

    assert not ScopeRun([OfBroker()]).feed(rows[1]["connection_id"], rows[1]["event"])


def test_a_run_goes_on_where_another_one_stopped() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "session-taken-over")
    (group,) = by_key(scope_events(path, LakeOptions(scope_events=True)), Scope.BROKER).values()

    def found(stops: Container[int]) -> list[tuple[Any, ...]]:
        run, told = ScopeRun([OfBroker()], strict=True), list[tuple[Any, ...]]()
        for number, row in enumerate(group):
            if number in stops:
                before = run.remembered()
                assert before is None or isinstance(load(dump(before)), Remembered)
                run = ScopeRun([OfBroker()], None if before is None else load(dump(before)), strict=True)
            told += [(*shown(one.finding), one[2:]) for one in run.feed(row["connection_id"], row["event"])]
        return told

    assert found(range(len(group))) == found(()) != []


def test_what_remembers_nothing_is_none() -> None:
    assert ScopeRun([OfBroker()]).remembered() is None
    rows = scope_events(CAPTURES[0], LakeOptions(scope_events=True))
    rows.sort(key=lambda row: tuple(row[name] for name in ORDER))
    run = ScopeRun([])
    run.feed(rows[0]["connection_id"], rows[0]["event"])

    assert (state := run.remembered()) is not None
    assert list(state.running) == [rows[0]["connection_id"]]
    for row in rows[1:]:
        run.feed(row["connection_id"], row["event"])
    assert run.remembered() is None


def test_what_tells_a_publish_from_its_bytes_is_what_decoding_them_tells() -> None:
    compared = 0
    for path in CAPTURES:
        for event in dissect(open_capture([path])):
            if isinstance(event, PacketEvent) and isinstance(event.packet, Publish):
                compared += 1
                packet, connection = event.packet, event.connection
                for version in VERSIONS:
                    told = scopes._is_as_its_bytes_say(packet, replace(connection, version=version))
                    assert told is (not packet.missing and decode(packet.raw, version) == packet)
    assert compared > 300
