"""The engine: dispatch, state before the packet, keys, withheld findings, failing rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, MalformedEvent
from mqttscope.lint.catalogue import all_rules, instances
from mqttscope.lint.context import RuleContext, scope_key
from mqttscope.lint.engine import Linter, WithheldBytes
from mqttscope.lint.examples import (
    ExampleConversation,
    ExampleStep,
    client,
    closes,
    conversation,
    crossing,
    hexadecimal,
    lost,
    opened,
    segments,
    server,
)
from mqttscope.lint.finding import MAX_PLACES, Confidence, Finding, Scope, Severity
from mqttscope.lint.rule import MAX_REPORTS, V3_1_1, Findings, Needs, Rule
from mqttscope.mqtt import Connect, encode
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingreq, Pingresp, Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import CaptureDrops
from mqttscope.session.connection import Connection
from tests.dissect.talk import Talk
from tests.each import each
from tests.lint.lint_help import lint, linted, steps_of, talked

LOGIN = encode(Connect(client_identifier="dev-7", user_name="ford", password=b"Xyzzy-Plugh"), V3_1_1)
DAMAGED = LOGIN.replace(b"\x00\x04ford", b"\x00\x34ford")


def damaged(raw: bytes) -> tuple[MalformedEvent, Connection]:
    talk = Talk().handshake()
    talk.client(raw)
    talk.close("client")
    events = list(dissect_segments(talk.tape.segments))
    assert isinstance(events[0], ConnectionOpened)
    assert isinstance(events[-1], ConnectionClosed)
    return next(event for event in events if isinstance(event, MalformedEvent)), events[0].connection


def test_what_is_hidden_of_a_connect_is_kept_until_its_connection_ends() -> None:
    event, connection = damaged(DAMAGED)
    withheld_bytes = WithheldBytes()
    withheld_bytes.note(event)
    assert any(b"Xyzzy-Plugh" in byte for byte in withheld_bytes.bytes_of(connection))
    withheld_bytes.forget(connection)
    assert withheld_bytes.bytes_of(connection) == ()


def test_of_a_packet_of_which_nothing_is_remembered_nothing_is_kept() -> None:
    raw = encode(Publish(topic_name="plant/a", payload=b"21.5"), V3_1_1).replace(b"\x00\x07", b"\x00\x47")
    event, connection = damaged(LOGIN + raw)
    withheld_bytes = WithheldBytes()
    withheld_bytes.note(event)
    assert withheld_bytes.bytes_of(connection) == ()


WRONG = hexadecimal("30 08 00 03 61 2f ff 00 68 69")


@each(
    "code, step, where",
    [
        ("PUB209", client(Publish(qos=1, topic_name="a", packet_identifier=1)), lambda raw: (0, 1)),
        ("ENC101", client(WRONG), lambda raw: (2, 5)),
        ("CON212", opened()[0], lambda raw: (0, len(raw))),
    ],
    ids=["a bit of the fixed header is its byte", "a fault is its field", "the packet as a whole is all its bytes"],
)
def test_the_place_of_a_finding(code: str, step: ExampleStep, where: Callable[[bytes], tuple[int, int]]) -> None:
    (finding,) = linted(*opened(connack=Properties(maximum_qos=0)), step, codes=(code,))

    assert (finding.offset, finding.length) == where(finding.raw)
    assert code != "ENC101" or finding.raw == WRONG


@pytest.mark.parametrize("cut", [b"\x30", b"\x30\x05\x00"])
def test_a_truncated_packet_has_a_place_within_its_bytes(cut: bytes) -> None:

    for finding in linted(*opened(), client(cut), closes("client")):
        if finding.packet == 2:
            assert finding.offset is not None
            assert finding.length is not None
            assert finding.offset + finding.length <= len(cut)


def test_a_packet_is_traced_once_for_all_its_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand faults of several rules: the packet is walked once for their places."""
    from mqttscope.mqtt import codec

    traced: list[int] = []
    original = codec.trace

    def trace(raw: bytes, *rest: object) -> object:
        traced.append(len(raw))
        return original(raw, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "trace", trace)
    rows = [Subscription(f"a/#/{number}\x01", 3) for number in range(2_000)]
    findings = [
        finding for finding in linted(*opened(), client(Subscribe(1, subscriptions=rows))) if finding.packet == 2
    ]

    assert len({finding.rule for finding in findings}) > 2
    assert len(traced) == 1
    (wrong,) = [finding for finding in findings if finding.rule == "SUB107"]
    assert wrong.count == 2_000
    assert wrong.message.endswith(", and 1,999 more")
    assert [place.field for place in wrong.places] == [f"subscriptions[{n}].topic_filter" for n in range(MAX_PLACES)]
    assert [wrong.raw[place.offset :][: place.length] for place in wrong.places] == [
        len(row.topic_filter).to_bytes(2, "big") + row.topic_filter.encode() for row in rows[:MAX_PLACES]
    ]
    assert (wrong.field, wrong.offset, wrong.length) == (
        wrong.places[0].field,
        wrong.places[0].offset,
        wrong.places[0].length,
    )


def test_a_packet_without_findings_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.mqtt import codec

    monkeypatch.delattr(codec, "trace")

    assert linted(*opened(), client(Publish(topic_name="a", payload=b"x")), codes=("SUB107", "PUB101")) == []


C2S = Direction.CLIENT_TO_SERVER


class Probe(Rule):
    """Reports every packet that it is called for."""

    code = "TST101"
    severity = Severity.ERROR
    looks_at: ClassVar[Any] = ControlPacket

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        return self.report("", f"{packet.packet_type.name} {at.connection.phase}")


def made(code: str, check: Callable[..., Any] | None = None, **fields: Any) -> Rule:
    """A `Probe` with another check or other attributes."""
    rule: Rule = type("Made", (Probe,), {"code": code, **({} if check is None else {"check": check}), **fields})()
    return rule


def run(rule: Rule | Iterable[Rule], *talks: ExampleConversation) -> tuple[list[Finding], Linter]:
    linter = Linter([rule] if isinstance(rule, Rule) else rule)
    findings = [
        finding for talk in talks for event in dissect_segments(segments(talk)) for finding in linter.feed(event)
    ]
    return findings, linter


def messages(rule: Rule, *talks: ExampleConversation) -> list[str]:
    return [finding.message for finding in run(rule, *talks)[0]]


TALK = conversation("a talk", *opened(), client(Pingreq()), server(Pingresp()))


def test_a_rule_sees_the_state_before_the_packet() -> None:
    wanted = ["CONNECT opening", "CONNACK connecting", "PINGREQ connected", "PINGRESP connected"]
    assert messages(Probe(), TALK) == wanted


@each(
    "fields, packets",
    [
        ({"looks_at": (Pingreq, Pingresp)}, [2, 3]),
        ({"sender": C2S}, [0, 2, 4, 5]),
        ({"versions": ()}, []),
        ({"looks_at": Publish, "when": "qos"}, [5]),
    ],
)
def test_dispatch_is_by_type_direction_version_and_attribute(fields: dict[str, Any], packets: list[int]) -> None:
    sent = client(Publish(topic_name="a"), Publish(qos=1, packet_identifier=1, topic_name="b"))
    talk = conversation("a talk", *opened(), client(Pingreq()), server(Pingresp()), sent)
    findings, _ = run(made("TST102", **fields), talk)

    assert [finding.packet for finding in findings] == packets


def fails(*_: object) -> Findings:
    raise ZeroDivisionError("a bug")


def test_a_failing_rule_is_named_with_its_frame_and_the_others_go_on() -> None:
    findings, linter = run([made("TST106", fails), Probe()], TALK)

    assert len(findings) == 4
    assert linter.failures == {"TST106": 4}
    first = linter.internal_errors[0]
    assert (first.rule, first.frame) == ("TST106", 4)
    assert re.fullmatch(r"ZeroDivisionError: a bug \(.*test_engine\.py, line \d+\)", first.error)
    assert "a bug" in first.trace
    assert linter.failure_sentences() == ["TST106 failed 4 times: the findings are not complete"]


@pytest.mark.parametrize("leaves", [SystemExit, KeyboardInterrupt])
def test_a_rule_that_ends_the_program_ends_nothing_but_a_keyboard_interrupt_does(leaves: type[BaseException]) -> None:
    def leave(*_: object) -> Findings:
        raise leaves(0)

    if leaves is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            run(made("TST109", leave), TALK)
        return
    findings, linter = run([made("TST109", leave), Probe()], TALK)
    assert (len(findings), linter.failures) == (4, {"TST109": 4})


def test_reports_without_end_are_an_error_of_the_rule() -> None:
    def endless(rule: Rule, *_: object) -> Iterator[Any]:
        while True:
            yield rule.report("", "again")

    findings, linter = run([made("TST110", endless, looks_at=Pingreq), Probe()], TALK)

    assert linter.failures == {"TST110": 1}
    assert "a check of TST110 returned more than 10,000 reports for one event" in linter.internal_errors[0].error
    assert [finding.count for finding in findings if finding.rule == "TST110"] == [MAX_REPORTS]
    assert len(findings) == 5


def test_failures_of_rules_of_ours_are_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = all_rules()["PUB101"]

    def check(*_: object) -> Findings:
        raise ValueError("odd")

    monkeypatch.setattr(rule, "check", check)
    monkeypatch.setattr(rule, "looks_at", Pingreq)
    monkeypatch.setattr(rule, "sender", None)
    monkeypatch.setattr(rule, "when", None)
    _, linter = run([rule()], TALK)

    assert linter.internal_errors[0].error == "ValueError: odd"
    assert linter.failure_sentences() == [
        "rules failed 1 times: this is a bug in mqttscope, and the findings are not complete"
    ]


def test_a_generator_that_fails_midway_keeps_what_it_said() -> None:
    def half(rule: Rule, *_: object) -> Iterator[Any]:
        yield rule.report("", "first")
        raise ValueError("then this")

    findings, linter = run(made("TST107", half, looks_at=Pingreq), TALK)

    assert [finding.message for finding in findings] == ["first"]
    assert linter.failures == {"TST107": 1}


def test_strict_lets_exceptions_through() -> None:
    with pytest.raises(ZeroDivisionError):
        lint([made("TST108", fails)], segments(TALK))


JOINED = conversation(
    "joined", client(Pingreq()), server(Pingresp()), client(Pingreq()), server(Pingresp()), handshake=False
)
RESUMED = conversation("resumed", *opened(clean_start=False, session_present=True), client(Pingreq()))
HOLE = conversation(
    "hole", *opened(), lost(server(Pingresp())), client(Pingreq()), server(Pingresp()), client(Pingreq(), after=1)
)
CLIENT_ONLY = conversation("one side", client(opened()[0].packets[0], Pingreq()))


@pytest.mark.parametrize(
    ("needs", "talk", "expected"),
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
    needs: Needs, talk: ExampleConversation, expected: bool
) -> None:
    findings, linter = run(made("TST109", looks_at=Pingreq, needs=needs), talk)

    assert bool(linter.withheld) is not expected
    if expected:
        assert len(findings) == 1 + (talk is not TALK and talk is not CLIENT_ONLY and talk is not RESUMED)


def test_what_is_assumed_makes_a_finding_likely() -> None:
    assert {finding.confidence for finding in run(Probe(), TALK)[0]} == {Confidence.CERTAIN}
    assert {finding.confidence for finding in run(Probe(), JOINED)[0]} == {Confidence.LIKELY}


def test_a_capture_that_dropped_frames_makes_findings_that_need_all_of_them_likely() -> None:
    linter = Linter([made("TST118", looks_at=Pingreq, needs=Needs.WHOLE), Probe()])
    linter.feed(CaptureDrops("example", 0, 10, 3))
    findings = [finding for event in dissect_segments(segments(TALK)) for finding in linter.feed(event)]

    assert {finding.confidence for finding in findings if finding.rule == "TST118"} == {Confidence.LIKELY}
    assert {finding.confidence for finding in findings if finding.rule == "TST101"} == {Confidence.CERTAIN}


def test_faults_of_the_decoder_go_to_their_rule() -> None:
    faults = made("TST110", looks_at=(), malformed=(MalformedReason.QOS_INVALID,))
    talk = conversation("qos 3", *opened(), client(hexadecimal("36 05 00 01 61 00 01")))
    (finding,) = run(faults, talk)[0]

    assert (finding.packet, finding.field, finding.offset, finding.length) == (2, "qos", 0, 1)


def test_memory_belongs_to_the_key_of_the_scope() -> None:
    @dataclass
    class Count:
        packets: int = 0

    class Counts(Probe):
        code = "TST211"
        looks_at = Pingreq
        Memory = Count

        def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
            memory = at.memory(self)
            memory.packets += 1
            return self.report("", str(memory.packets))

    def talk(name: str) -> ExampleConversation:
        return conversation(name, *opened(client_identifier=name), client(Pingreq()))

    talks = (talk("a"), talk("b"), talk("a"))
    assert messages(Counts(), *talks) == ["1", "1", "1"]
    assert messages(type("OfSession", (Counts,), {"code": "TST311"})(), *talks) == ["1", "1", "2"]
    assert messages(type("OfBroker", (Counts,), {"code": "TST411"})(), *talks) == ["1", "2", "3"]


def test_keys_say_what_findings_of_a_scope_depend_on() -> None:
    connection = Connection(3, "c:1", "s:1883", "x.pcap", 1, 0, client_identifier="dev1")

    alone = ("s:1883", ("x.pcap", 3, 0))
    assert scope_key(Scope.PACKET, connection) == scope_key(Scope.CONNECTION, connection) == alone
    assert scope_key(Scope.SESSION, connection) == ("s:1883", "dev1")
    assert scope_key(Scope.BROKER, connection) == ("s:1883",)
    for nobody in (None, ""):
        connection.client_identifier = nobody
        assert scope_key(Scope.SESSION, connection) == alone


def test_the_end_of_a_connection_is_judged_and_belongs_to_no_packet() -> None:
    def check_close(rule: Rule, connection: Connection, at: RuleContext) -> Findings:
        return rule.report("", f"{connection.closed_by} {connection.closed_how}")

    ends = made("TST213", severity=Severity.INFO, looks_at=(), check_close=check_close)
    (finding,) = run(ends, conversation("end", *opened(), closes("client")))[0]

    assert (finding.message, finding.packet, finding.offset, finding.direction) == ("client fin", None, None, None)


def test_violations_can_be_looked_back_at() -> None:
    def back(rule: Rule, packet: ControlPacket, at: RuleContext) -> Findings:
        return rule.report(
            "", str([(violation.rule, violation.sender, violation.packet) for violation in at.history.reported])
        )

    first = made("TST214", looks_at=Pingreq)
    findings, _ = run([first, made("TST215", back, looks_at=Pingresp)], TALK)
    assert findings[-1].message == str([("TST214", C2S, 2)])


@pytest.mark.parametrize("crosses", [False, True])
def test_tcp_proves_what_the_sender_had_received(crosses: bool) -> None:
    def knows(rule: Rule, packet: ControlPacket, at: RuleContext) -> Findings:
        return rule.report("", str(at.knew(at.history.connack_sent)))

    step = client(Pingreq())
    talk = conversation("proof", *opened(connack=Properties(maximum_qos=1)), crossing(step) if crosses else step)

    assert messages(made("TST216", knows, looks_at=Pingreq), talk) == [str(not crosses)]


def test_faults_of_one_list_are_one_finding() -> None:
    """A packet of 2,000 wrong codes, which takes long where each is judged and told by itself."""
    codes = 2_000
    raw = b"\x90" + _length(codes + 3) + b"\0\x07\0" + b"\x9a" * codes
    findings, _ = run(
        instances(all_rules().values()),
        conversation("many codes", *opened(), client(hexadecimal("82 07 00 07 00 00 01 61 00")), server(raw)),
    )

    texts = [finding.message for finding in findings if finding.rule == "RSN101"]
    assert len(texts) == 1
    assert texts[0].endswith(", and 1,999 more")


def _length(value: int) -> bytes:
    """A Variable Byte Integer of two bytes."""
    return bytes((value & 0x7F | 0x80, value >> 7))


NO_ANSWER = {"ACK515": 1, "KAL504": 1, "SUB519": 1}
LOST = "@1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1; < puback 1"


@each(
    "line, timeout, pending",
    [
        (f"{LOST}; +3 @1 > fin", 30, {"DLV410": 1}),
        (f"{LOST}; +3 @1 > fin", 5, {}),
        (f"{LOST}; @1 < publish a first qos=1 id=1; @1 > puback 1; +3 @1 > fin", 30, {}),
        (f"{LOST}; +3 @1 > fin; +40 > fin; @2 opened", 30, {}),
        (f"{LOST}; @1 lost < publish a first qos=1 id=1; @1 > puback 1; +3 @1 > fin", 30, {}),
        ("opened; > publish a first qos=1 id=1; > pingreq; > subscribe 2 a:0; > fin", 30, NO_ANSWER),
        ("opened; > publish a first qos=1 id=1; < puback 1; > pingreq; < pingresp; > fin", 30, {}),
        ("> connect; < ack; > fin", 30, {"CON527": 1}),
    ],
)
def test_rules_that_wait_longer_than_connections_last(line: str, timeout: int, pending: dict[str, int]) -> None:
    """The time-out may have run out, nothing may be missing, or bytes that hide it may be lost."""
    waiting = ("DLV410", "ACK515", "KAL504", "SUB519", "CON527")
    linter = Linter([all_rules()[code]({"timeout": timeout}) for code in waiting], strict=True)
    findings = [finding for event in dissect_segments(talked(*steps_of(line))) for finding in linter.feed(event)]

    assert dict(linter.pending) == pending
    assert not findings or timeout == 5


def test_a_rule_that_has_found_something_is_not_pending() -> None:
    lost = f"{LOST}; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2"
    later = "> publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect"
    linter = Linter([all_rules()["DLV410"]()], strict=True)
    findings = [finding for event in dissect_segments(talked(*steps_of(lost, later))) for finding in linter.feed(event)]

    assert [finding.rule for finding in findings] == ["DLV410"]
    assert not linter.pending
