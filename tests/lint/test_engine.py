"""The engine: dispatch, state before the packet, keys, withheld findings, failing rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, instances
from mqttscope.lint.engine import CONDITIONS, Linter, scope_key
from mqttscope.lint.examples import (
    Conversation,
    client,
    closes,
    conversation,
    crossing,
    hexadecimal,
    lost,
    opened,
    server,
)
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.moment import Moment
from mqttscope.lint.rehearsal import segments
from mqttscope.lint.rule import V5, Findings, Needs, Rule, Scope
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Pingreq, Pingresp, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import CaptureDrops
from mqttscope.session.connection import Connection

C2S = Direction.CLIENT_TO_SERVER


class Probe(Rule):
    """Reports every packet that it is called for."""

    code = "TST101"
    severity = Severity.ERROR
    looks_at: ClassVar[Any] = ControlPacket

    def check(self, packet: ControlPacket, at: Moment) -> Findings:
        return self.report("", f"{packet.packet_type.name} {at.connection.phase}")


def run(rule: Rule | Iterable[Rule], *talks: Conversation) -> tuple[list[Finding], Linter]:
    linter = Linter([rule] if isinstance(rule, Rule) else rule)
    found = [finding for talk in talks for event in dissect_segments(segments(talk)) for finding in linter.feed(event)]
    return found, linter


def messages(rule: Rule, *talks: Conversation) -> list[str]:
    return [one.message for one in run(rule, *talks)[0]]


TALK = conversation("a talk", *opened(), client(Pingreq()), server(Pingresp()))


def test_a_rule_sees_the_state_before_the_packet() -> None:
    assert messages(Probe(), TALK) == [
        "CONNECT opening",
        "CONNACK connecting",
        "PINGREQ connected",
        "PINGRESP connected",
    ]


def test_dispatch_is_by_type_direction_version_and_attribute() -> None:
    class OfPings(Probe):
        code = "TST102"
        looks_at = (Pingreq, Pingresp)

    class OfClients(Probe):
        code = "TST103"
        sender = C2S

    class OfOldVersions(Probe):
        code = "TST104"
        versions = ()

    class OfQos(Probe):
        code = "TST105"
        looks_at = Publish
        when = "qos"

    assert messages(OfPings(), TALK) == ["PINGREQ connected", "PINGRESP connected"]
    assert messages(OfClients(), TALK) == ["CONNECT opening", "PINGREQ connected"]
    assert messages(OfOldVersions(), TALK) == []
    messages_sent = conversation(
        "two", *opened(), client(Publish(topic_name="a"), Publish(qos=1, packet_identifier=1, topic_name="b"))
    )
    assert [one.packet for one in run(OfQos(), messages_sent)[0]] == [3]


def test_a_failing_rule_is_named_with_its_frame_and_the_others_go_on() -> None:
    class Broken(Probe):
        code = "TST106"

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            raise ZeroDivisionError("a bug")

    found, linter = run([Broken(), Probe()], TALK)

    assert len(found) == 4
    assert linter.failures == {"TST106": 4}
    first = linter.internal_errors[0]
    assert (first.rule, first.frame, first.error) == ("TST106", 4, "ZeroDivisionError: a bug")
    assert "a bug" in first.trace


def test_a_generator_that_fails_midway_keeps_what_it_said() -> None:
    class Half(Probe):
        code = "TST107"
        looks_at = Pingreq

        def check(self, packet: ControlPacket, at: Moment) -> Iterator[Any]:
            yield self.report("", "first")
            raise ValueError("then this")

    found, linter = run(Half(), TALK)

    assert [one.message for one in found] == ["first"]
    assert linter.failures == {"TST107": 1}


def test_strict_lets_exceptions_through() -> None:
    class Broken(Probe):
        code = "TST108"

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            raise ZeroDivisionError

    linter = Linter([Broken()], strict=True)
    opening, connect, *_ = dissect_segments(segments(TALK))
    linter.feed(opening)
    with pytest.raises(ZeroDivisionError):
        linter.feed(connect)


JOINED = conversation(
    "joined", client(Pingreq()), server(Pingresp()), client(Pingreq()), server(Pingresp()), handshake=False
)
RESUMED = conversation("resumed", *opened(clean_start=False, session_present=True), client(Pingreq()))
HOLE = conversation(
    "hole", *opened(), lost(server(Pingresp())), client(Pingreq()), server(Pingresp()), client(Pingreq(), after=1)
)
CLIENT_ONLY = conversation("one side", client(opened()[0].packets[0], Pingreq()))


@pytest.mark.parametrize(
    ("needs", "talk", "kept"),
    [
        (Needs.OPENING, TALK, True),
        (Needs.OPENING, JOINED, False),
        (Needs.SESSION_BIRTH, TALK, True),
        (Needs.SESSION_BIRTH, RESUMED, False),
        (Needs.SESSION_BIRTH, JOINED, False),
        (Needs.WHOLE_SENDER, TALK, True),
        (Needs.WHOLE_SENDER, HOLE, False),  # what the client had received is not there, so nothing has its order
        (Needs.WHOLE_RECEIVER, HOLE, False),
        (Needs.WHOLE, HOLE, False),
        (Needs.BOTH_DIRECTIONS, TALK, True),
        (Needs.BOTH_DIRECTIONS, CLIENT_ONLY, False),
        (Needs.NOTHING, JOINED, True),
    ],
)
def test_a_finding_is_withheld_where_the_capture_lacks_what_it_needs(
    needs: Needs, talk: Conversation, kept: bool
) -> None:
    rule = type("Needy", (Probe,), {"code": "TST109", "looks_at": Pingreq, "needs": needs})()
    found, linter = run(rule, talk)

    assert bool(linter.withheld) is not kept
    if kept:
        assert len(found) == 1 + (talk is not TALK and talk is not CLIENT_ONLY and talk is not RESUMED)


def test_what_is_assumed_makes_a_finding_likely() -> None:
    assert {one.confidence for one in run(Probe(), TALK)[0]} == {Confidence.CERTAIN}
    assert {one.confidence for one in run(Probe(), JOINED)[0]} == {Confidence.LIKELY}


def test_a_capture_that_dropped_frames_makes_findings_that_need_all_of_them_likely() -> None:
    whole = type("Whole", (Probe,), {"code": "TST118", "looks_at": Pingreq, "needs": Needs.WHOLE})()
    linter = Linter([whole, Probe()])
    linter.feed(CaptureDrops("example", 0, 10, 3))
    found = [finding for event in dissect_segments(segments(TALK)) for finding in linter.feed(event)]

    assert {one.confidence for one in found if one.rule == "TST118"} == {Confidence.LIKELY}
    assert {one.confidence for one in found if one.rule == "TST101"} == {Confidence.CERTAIN}


def test_faults_of_the_decoder_go_to_their_rule() -> None:
    class Faults(Rule):
        """Stands for a reason of the decoder."""

        code = "TST110"
        severity = Severity.ERROR
        malformed = (MalformedReason.QOS_INVALID,)

    talk = conversation("qos 3", *opened(), client(hexadecimal("36 05 00 01 61 00 01")))
    (finding,) = run(Faults(), talk)[0]

    assert (finding.packet, finding.field, finding.offset, finding.length) == (2, "qos", 0, 1)


def test_memory_belongs_to_the_key_of_the_scope() -> None:
    @dataclass
    class Count:
        packets: int = 0

    class Counts(Probe):
        code = "TST211"
        looks_at = Pingreq
        Memory = Count

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            memory = at.memory(self)
            memory.packets += 1
            return self.report("", str(memory.packets))

    def talk(name: str) -> Conversation:
        return conversation(name, *opened(client_identifier=name), client(Pingreq()))

    talks = (talk("a"), talk("b"), talk("a"))
    assert messages(Counts(), *talks) == ["1", "1", "1"]
    assert messages(type("OfSession", (Counts,), {"code": "TST311"})(), *talks) == ["1", "1", "2"]
    assert messages(type("OfBroker", (Counts,), {"code": "TST411"})(), *talks) == ["1", "2", "3"]


def test_memories_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.memories.MAX_KEYS", 2)

    class Keeps(Probe):
        code = "TST312"
        looks_at = Connack
        Memory = dict

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            at.memory(self)
            return None

    _, linter = run(Keeps(), *(conversation(name, *opened(client_identifier=name)) for name in "abcd"))

    assert linter.forgotten_keys == 2


def test_keys_say_what_findings_of_a_scope_depend_on() -> None:
    connection = Connection(3, "c:1", "s:1883", "x.pcap", 1, 0, client_identifier="dev1")

    alone = ("x.pcap", 3, b"", 0)
    assert scope_key(Scope.PACKET, connection) == scope_key(Scope.CONNECTION, connection) == alone
    assert scope_key(Scope.SESSION, connection) == ("s:1883", "dev1")
    assert scope_key(Scope.BROKER, connection) == ("s:1883",)
    for nobody in (None, ""):
        connection.client_identifier = nobody
        assert scope_key(Scope.SESSION, connection) == alone


def test_the_end_of_a_connection_is_judged_and_belongs_to_no_packet() -> None:
    class Ends(Rule):
        """Reports how a connection ended."""

        code = "TST213"
        severity = Severity.INFO

        def check_close(self, connection: Connection, at: Moment) -> Findings:
            return self.report("", f"{connection.closed_by} {connection.closed_how}")

    (finding,) = run(Ends(), conversation("end", *opened(), closes("client")))[0]

    assert (finding.message, finding.packet, finding.offset, finding.direction) == ("client fin", None, None, None)


def test_violations_can_be_looked_back_at() -> None:
    class Back(Probe):
        code = "TST215"
        looks_at = Pingresp

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            return self.report("", str([row[:3] for row in at.history.reported]))

    class First(Probe):
        code = "TST214"
        looks_at = Pingreq

    assert run([First(), Back()], TALK)[0][-1].message == str([("TST214", C2S, 2)])


@pytest.mark.parametrize("crosses", [False, True])
def test_tcp_proves_what_the_sender_had_received(crosses: bool) -> None:
    class Knows(Probe):
        code = "TST216"
        looks_at = Pingreq

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            return self.report("", str(at.knew(at.history.connack_sent)))

    step = client(Pingreq())
    talk = conversation("proof", *opened(connack=Properties(maximum_qos=1)), crossing(step) if crosses else step)

    assert messages(Knows(), talk) == [str(not crosses)]


def test_statements_follow_version_side_packet_and_field() -> None:
    class Cites(Probe):
        code = "TST117"
        versions = (V5,)
        looks_at = Publish
        statements: ClassVar[dict[Any, dict[str, str]]] = {
            V5: {"A": "", "B": "server publish", "C": "publish.topic_name", "D": "connect", "E": "client"}
        }

        def check(self, packet: ControlPacket, at: Moment) -> Findings:
            return self.report("topic_name", "")

    (finding,) = run(Cites(), conversation("cites", *opened(), client(Publish(topic_name="a"))))[0]

    assert finding.statements == ("5.0 A", "5.0 C", "5.0 E")


class Thorough(Linter):
    """Asks about every packet what the engine leaves out where nothing can come of it."""

    def _plan(self, packet: ControlPacket, at: Moment) -> Any:
        groups = []
        for rule in self.rules:
            if (
                rule.implements("check")
                and isinstance(packet, rule.looks_at)
                and at.version in rule.versions
                and rule.sender in (None, at.direction)
            ):
                when = rule.when.get(type(packet)) if isinstance(rule.when, dict) else rule.when
                needless = when is None or when in CONDITIONS or isinstance(packet, rule.always)
                groups.append((None if needless else attrgetter(str(when)), ((rule, rule.check),)))
        return tuple(groups)


@pytest.mark.parametrize("talk", [one for rule in all_rules().values() for one in (*rule.good, *rule.bad)][::3])
def test_rules_are_asked_whenever_they_have_something_to_say(talk: Conversation) -> None:
    quick, thorough = Linter(instances(all_rules().values())), Thorough(instances(all_rules().values()))
    found: list[list[tuple[str, int, str]]] = []
    for linter in (quick, thorough):
        events = dissect_segments(segments(talk))
        found.append([(one.rule, one.frame, one.message) for event in events for one in linter.feed(event)])

    assert sorted(found[0]) == sorted(found[1])
    assert not quick.internal_errors


def test_faults_of_one_list_are_one_finding() -> None:
    """A packet of 2,000 wrong codes, which takes long where each is judged and told by itself."""
    codes = 2_000
    raw = b"\x90" + _length(codes + 3) + b"\0\x07\0" + b"\x9a" * codes
    found, _ = run(
        instances(all_rules().values()),
        conversation("many codes", *opened(), client(hexadecimal("82 07 00 07 00 00 01 61 00")), server(raw)),
    )

    told = [one.message for one in found if one.rule == "RSN101"]
    assert len(told) == 1
    assert told[0].endswith(", and 1,999 more")


def _length(value: int) -> bytes:
    """A Variable Byte Integer of two bytes."""
    return bytes((value & 0x7F | 0x80, value >> 7))
