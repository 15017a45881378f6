"""Memories by key: one engine for each key finds what one engine finds that sees everything."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.events import ConnectionClosed, Event
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.context import WIDE, Memories, RuleContext, _property_place, scope_key
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import (
    START_NS,
    ExampleConversation,
    segments,
)
from mqttscope.lint.finding import Finding, Scope, Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt import ProtocolVersion, decode, encode
from mqttscope.mqtt.codec import SpanIndex
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Publish
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.session.connection import Connection
from mqttscope.session.history import History
from tests.conftest import ROOT
from tests.each import each, sampled
from tests.lint.lint_help import lint, steps_of, talked

V5 = ProtocolVersion.V5
CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))
EXAMPLES = [
    conversation for rule in all_rules().values() if rule.scope in WIDE for conversation in (*rule.good, *rule.bad)
]

USUAL = [usual_rule(rule) for rule in all_rules().values()]

Source = Callable[[], Iterable[Event]]


def keys(source: Source) -> dict[Scope, dict[int, tuple[Hashable, ...]]]:
    """The key of each connection in each scope, by number: known for certain when it has ended."""
    ended = [event.connection for event in source() if isinstance(event, ConnectionClosed)]
    return {scope: {connection.number: scope_key(scope, connection) for connection in ended} for scope in Scope}


def told(findings: Iterable[Finding]) -> list[tuple[Any, ...]]:
    rows = []
    for finding in findings:
        number = -1 if finding.packet is None else finding.packet
        sure = (str(finding.severity), str(finding.confidence), finding.fingerprint)
        rows.append((finding.rule, finding.connection, finding.frame, number, finding.field, finding.message, *sure))
    return sorted(rows)


def together(source: Source) -> list[Finding]:
    """What one engine finds."""
    linter = Linter(USUAL, strict=True)
    return [finding for event in source() for finding in linter.feed(event)]


def check(source: Source) -> None:
    """Compare one engine with one for each key, for each scope."""
    findings = together(source)
    done: dict[frozenset[frozenset[int]], list[Finding]] = {}
    for scope, homes in keys(source).items():
        # Scopes that put the same connections together have the same engines.
        shared = frozenset(frozenset(number for number in homes if homes[number] == home) for home in homes.values())
        if shared not in done:
            done[shared] = apart_by(homes, source)
        codes = {rule.code for rule in all_rules().values() if rule.scope is scope}
        apart = told(finding for finding in done[shared] if finding.rule in codes)
        assert apart == told(finding for finding in findings if finding.rule in codes), scope


def apart_by(homes: dict[int, tuple[Hashable, ...]], source: Source) -> list[Finding]:
    """What an engine for each key finds."""
    engines: dict[Hashable, Linter] = {}
    apart: list[Finding] = []
    for event in source():
        connection = getattr(event, "connection", None)
        if connection is None:
            continue
        home = homes[connection.number]
        if home not in engines:
            # Others look at what these have found.
            engines[home] = Linter(USUAL, strict=True)
        apart += engines[home].feed(event)
    return apart


@pytest.mark.long
@sampled("path", CAPTURES, ids=lambda path: path.parent.name)
def test_a_capture_gives_the_same_by_key(path: Path) -> None:
    check(lambda: dissect(open_capture([str(path)])))


@sampled("talk", EXAMPLES, ids=lambda talk: talk.title)
def test_an_example_gives_the_same_by_key(talk: ExampleConversation) -> None:
    check(lambda: dissect_segments(segments(talk)))


def test_there_are_findings_that_look_beyond_one_connection() -> None:
    bad = [rule.bad[0] for rule in all_rules().values() if rule.scope in WIDE]

    assert len(bad) >= 5
    assert all(together(lambda talk=talk: dissect_segments(segments(talk))) for talk in bad)  # type: ignore[misc]


class Patient(Rule):
    """Asks to be asked ten seconds after a CONNACK."""

    code = "TST320"
    severity = Severity.ERROR
    looks_at = Connack
    other = False

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        whom = None
        if self.other:
            memory = at.memory(self)
            whom = memory.setdefault("first", at.key)
        at.ask(self, at.timestamp_ns + 10_000_000_000, whom)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        return self.report("", f"due on {connection.number}", overdue=True, topic="t")

    Memory = dict


class Steady(Patient):
    """Asks again each time."""

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        at.ask(self, at.timestamp_ns + 10_000_000_000)
        return super().check_due(connection, at)


OTHER = type("Other", (Patient,), {"code": "TST321", "other": True})


@each(
    "rule, text, asked",
    [
        (Patient, "opened; > pingreq; +11 > pingreq; +11 > pingreq", [(0, 10)]),
        # At the end, where nothing came before and that is not too early.
        (Patient, "opened; +11 > fin", [(0, 10)]),
        (Patient, "opened; +5 > fin", []),
        # In time, though its connection is silent, and not after the end of the capture.
        (Patient, "opened; @1 opened client=c2; +30 @1 > pingreq", [(0, 10), (1, 10)]),
        (Patient, "opened; @1 opened client=c2; +9 @1 > pingreq", []),
        # About another connection of the key, unless that has ended.
        (OTHER, "opened; @1 opened; +11 @1 > pingreq; > pingreq", [(0, 10)]),
        (OTHER, "opened; > fin; @1 opened; +11 @1 > pingreq", []),
        (Steady, "opened; +45 > pingreq", [(0, 10), (0, 20), (0, 30), (0, 40)]),
    ],
)
def test_a_rule_is_asked_when_its_time_has_come(rule: type[Rule], text: str, asked: list[tuple[int, int]]) -> None:
    findings = lint([rule()], talked(*steps_of(text)))

    assert [(finding.connection, round((finding.timestamp_ns - START_NS) / 1e9)) for finding in findings] == asked
    assert [finding.message for finding in findings] == [f"due on {number}" for number, _ in asked]
    nowhere = {
        (finding.packet, finding.packet_type, finding.topic, finding.direction, finding.offset) for finding in findings
    }
    assert nowhere <= {(None, None, "t", None, None)}
    if len({number for number, _ in asked}) == 2:
        assert findings[0].frame == 5, "the last one of its connection"


def test_the_key_of_a_session_is_that_of_the_first_connack() -> None:
    """A second CONNECT is a mistake that changes nothing of whose session it is."""
    talk = talked(*steps_of("opened client=a; > connect client=b; < pingresp; > disconnect"))
    connections = [event.connection for event in dissect_segments(talk) if isinstance(event, ConnectionClosed)]

    assert [scope_key(Scope.SESSION, connection)[1] for connection in connections] == ["a"]
    assert connections[0].client_identifier == "b"


def test_a_server_and_a_session_are_at_hand_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.context.MAX_KEYS", 3)

    class OfSession(Rule):
        """Keeps something of sessions."""

        code, scope, Memory = "TST398", Scope.SESSION, dict

    class OfServer(OfSession):
        """Keeps something of servers."""

        code, scope = "TST498", Scope.BROKER

    of_session, of_server, memories = OfSession(), OfServer(), Memories()

    def at(name: str, number: int) -> RuleContext:
        connection = Connection(number, "c:1", "s:1883", "x.pcap", 1, 0, client_identifier=name)
        return RuleContext(memories, connection, History(), Direction.CLIENT_TO_SERVER)

    for number, name in enumerate("abcdef"):
        here = at(name, number)
        here.memory(of_server)[name] = number
        here.memory(of_session)["own"] = name
        assert here.memory(of_session) == {"own": name}
    # The server was touched all the time, sessions once each: the oldest of these went.
    assert here.memory(of_server) == {name: number for number, name in enumerate("abcdef")}
    assert [key[1:] for key in memories.states] == [("e",), (), ("f",)]
    assert memories.forgotten == 4
    # Who comes again after that has nothing any more.
    assert at("a", 9).memory(of_session) == {}


def test_what_is_looked_at_ends_with_the_connection() -> None:
    linter, seen = Linter([]), set()
    for event in dissect_segments(talked(*steps_of("opened; > pingreq; > fin"))):
        linter.feed(event)
        history = getattr(event, "connection", Connection(0, "", "", "", 0, 0)).history
        if history is not None:
            seen.add(history.looked_at is None)
            assert isinstance(event, ConnectionClosed) == (history.looked_at is None)
    assert seen == {False, True}


def test_a_property_is_located_as_in_the_traced_packet() -> None:
    properties = Properties(
        payload_format_indicator=1, message_expiry_interval=9, topic_alias=2, response_topic="r/é",
        correlation_data=b"12", subscription_identifier=[300, 4], content_type="t" * 200, user_property=[("a", "b")],
    )  # fmt: skip
    for block in (properties, Properties(user_property=[("a", "b"), ("c", "d")]), Properties()):
        for qos in (0, 1):
            raw = encode(Publish(topic_name="t/1", qos=qos, packet_identifier=qos or None, properties=block), V5)
            packet = decode(raw, V5)
            assert isinstance(packet, Publish)
            for name in (*BY_NAME, "unknown"):
                span = SpanIndex(raw, V5).of(packet, f"properties.{name}")
                expected = (0, len(raw)) if span is None else (span.start, span.end - span.start)
                assert _property_place(packet, name, raw) in (None, expected)
            place = _property_place(packet, "content_type", raw)
            assert block is not properties or place is not None
