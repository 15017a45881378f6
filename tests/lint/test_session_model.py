"""The model of a session: what is carried from one connection to the next, and when nothing may be said of it."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests import tools
from tests.each import each
from tests.lint.lint_help import lint, steps_of, talked

tools.package("msgspec")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.lake.state import dump, load
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import make_connect
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.session_model import (
    ENDLESS,
    SessionModel,
    UnansweredMessage,
    is_refusable,
    may_be_dropped,
    may_move,
    missing,
    session_match,
)
from mqttscope.lint.signs import SIGNS, signs_of
from mqttscope.mqtt import encode
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.stream import PacketStream
from mqttscope.session.inflight import RELEASED, SENT
from tests.each import some
from tests.live import capturing
from tests.proxy.rig import mosquitto

V3_1, V3_1_1, V5 = ProtocolVersion
C2S, S2C = Direction
KEPT = Properties(session_expiry_interval=3_600)
KEEPS = "session_expiry_interval=3600"
BEGINS = f"opened resume {KEEPS}"
RESUMES = f"{BEGINS} < present"
BREAKS = "> reset"
PING = "> pingreq; < pingresp"
PING_1, PING_2 = (f"@{number} > pingreq; @{number} < pingresp" for number in (1, 2))
SENDS = "> publish a qos=1 id=1"
RULES = (
    *("PUB311", "ACK311", "ACK312", "ACK313", "ACK314", "ALS305", "SES303", "SES304", "SES305", "SES306"),
    *("SEC305", "OPS324", "OPS325"),
)


def message(identifier: int, qos: int = 1, topic: str = "a") -> Publish:
    return Publish(qos=qos, topic_name=topic, packet_identifier=identifier)


class Looks(Rule):
    """Keeps the model as it is at each PINGREQ."""

    code = "TST370"
    severity = Severity.INFO
    looks_at: ClassVar[Any] = Pingreq
    models = (SessionModel,)
    seen: ClassVar[list[SessionModel]] = []

    def check(self, packet: Any, at: RuleContext) -> Findings:
        session_model = at.model(SessionModel)
        self.seen.append(load(dump(session_model)))
        assert self.seen[-1] == session_model, "it is written and read as it is"
        return None


def models(*lines: str) -> list[SessionModel]:
    Looks.seen.clear()
    lint([Looks()], talked(*steps_of(*lines)))
    return list(Looks.seen)


def model(*lines: str) -> SessionModel:
    (session_model,) = models(*lines)
    return session_model


def test_what_has_no_answer_is_carried_in_the_order_of_its_sending() -> None:
    sends = "> publish a qos=1 id=9 & publish a qos=2 id=2 & publish a qos=2 id=4 & publish a qos=1 id=5"
    session_model = model(BEGINS, sends, "< pubrec 4 & puback 5; > pubrel 4", BREAKS, f"@1 {RESUMES}; {PING_1}")

    rows = session_model.client_sent.values()
    assert [(row.packet_identifier, row.qos, str(row.phase), row.step, row.sure) for row in rows] == [
        (9, 1, "sent", "PUBLISH", True),
        (2, 2, "sent", "PUBLISH", True),
        (4, 2, "released", "PUBREL", True),
    ]
    assert (session_model.born, session_model.whole, session_model.resumed, session_model.server_sent) == (
        True,
        True,
        True,
        {},
    )


def test_what_is_not_sent_again_is_carried_on_and_what_is_answered_is_not() -> None:
    again = f"@1 {RESUMES}; @1 > publish a qos=1 id=2 & publish a qos=1 id=7; @1 < puback 2 & puback 3; @1 > puback 1"
    session_model = model(
        BEGINS, "> for 1..3: publish a qos=1 id={n}", "< publish a qos=1 id=1", BREAKS, again, "@1 > reset",
        f"@2 {RESUMES}; {PING_2}",
    )  # fmt: skip

    assert list(session_model.client_sent) == [1, 7]
    assert session_model.server_sent == {}


@each(
    "again, expected, discarded",
    [
        ("opened", 0, 1),  # Clean Start
        (BEGINS, 0, 0),  # Session Present 0
        (RESUMES.replace(KEEPS, f"{KEEPS} user_name=bob"), 0, 0),
        (RESUMES, 1, 0),
    ],
)
def test_a_session_continues_where_connack_says_so(again: str, expected: int, discarded: int) -> None:
    session_model = model(BEGINS, SENDS, BREAKS, f"@1 {again}; {PING_1}")

    assert (len(session_model.client_sent), len(session_model.discarded_client_sent)) == (expected, discarded)


def test_discarded_messages_are_forgotten_with_the_next_connection() -> None:
    connections = models(BEGINS, SENDS, BREAKS, f"@1 opened {KEEPS}; {PING_1}; @1 > reset", f"@2 {RESUMES}; {PING_2}")

    assert [list(each.discarded_client_sent) for each in connections] == [[1], []]


def test_a_publish_is_the_message_or_another_one_only_if_all_is_known() -> None:
    packet = Publish(qos=1, topic_name="a", packet_identifier=1, payload=b"x")
    unanswered = UnansweredMessage(1, 1, "a", zlib.crc32(b"x"), SENT, 0, 1, 0)
    for known, topic, published, is_message, differs in (
        (unanswered, "a", packet, True, False),
        (unanswered, "b", packet, False, True),
        (unanswered, None, packet, False, False),
        (unanswered, "a", replace(packet, payload=b"y"), False, True),
        (unanswered, "a", replace(packet, qos=2), False, False),
        (unanswered, "a", replace(packet, missing=1), False, False),
        (unanswered, "b", replace(packet, missing=1), False, False),
        (replace(unanswered, topic=None), "a", packet, False, False),
        (replace(unanswered, checksum=None), "b", packet, False, False),
    ):
        assert (known.is_message(published, topic), known.differs(published, topic)) == (is_message, differs)


def test_in_3_1_nobody_knows_whether_a_session_continues() -> None:
    session_model = model("opened 3.1 resume", SENDS, BREAKS, f"@1 opened 3.1 resume; {PING_1}")

    assert (session_model.resumed, session_model.born, list(session_model.client_sent)) == (None, False, [1])


@each("ends", ["lost < puback 1; > reset", "lost < puback 1; > pingreq; > fin", "< raw 40 02 00; < fin"])
def test_what_was_lost_may_have_been_the_answer(ends: str) -> None:
    """At the end, before it, and in the middle of a packet."""
    session_model = models(BEGINS, SENDS, ends, f"@1 {RESUMES}; +60 @1 > pingreq")[-1]

    (unanswered_message,) = session_model.client_sent.values()
    assert not unanswered_message.sure or session_model.waits_for is not None
    assert not session_model.carried(C2S, None) if session_model.waits_for else not session_model.whole  # type: ignore[arg-type]


def test_a_connection_that_is_taken_over_may_still_bring_answers() -> None:
    text = f"@1 {RESUMES}; {PING_1}"
    during, after = models(BEGINS, "> for 1..2: publish a qos=1 id={n}", text, "< puback 1; < fin", text)

    assert during.waits_for is not None
    assert [unanswered_message.answered for unanswered_message in during.client_sent.values()] == [False, False]
    assert after.waits_for is None
    assert [
        (unanswered_message.answered, unanswered_message.sure) for unanswered_message in after.client_sent.values()
    ] == [(True, True), (False, True)]


@each(
    "text, seconds",
    [
        ("opened; > disconnect", 0),
        (f"opened {KEEPS}; > disconnect", 3_600),
        (f"opened {KEEPS} < session_expiry_interval=60", 60),
        (f"opened {KEEPS}; > disconnect session_expiry_interval=0", 0),
        (f"opened; > disconnect {KEEPS}", None),  # raised from 0
        ("opened 3.1.1", 0),
        ("opened 3.1.1 resume", ENDLESS),
        (f"opened {KEEPS}; lost > disconnect {KEEPS}", None),
    ],
)
def test_how_long_a_session_is_kept(text: str, seconds: int | None) -> None:
    seen: list[int | None] = []

    class Notes(Looks):
        """Keeps what is known at a CONNACK."""

        code = "TST371"
        looks_at: ClassVar[Any] = Connack

        def check(self, packet: Any, at: RuleContext) -> Findings:
            seen.append(at.model(SessionModel).kept_seconds)
            return None

    lint([Notes()], talked(*steps_of(text, "> fin", "@1 opened 5.0")))

    assert seen == [None, seconds]


def test_subscriptions_are_carried_until_they_are_ended() -> None:
    first = "> subscribe 1 a:1 b:1 c:1 d:1; < suback 1 1 1 0x80 0; > unsubscribe 2 b; < unsuback 2 0"
    second = f"@1 {RESUMES}; {PING_1}; @1 > unsubscribe 3 a; @1 > reset"
    session_models = models(BEGINS, first, BREAKS, second, f"@2 {RESUMES}; {PING_2}")

    granted = [{name: subscription.granted for name, subscription in each.filters.items()} for each in session_models]
    assert granted == [{"a": 1, "d": 0}, {"d": 0}]
    assert [list(each.ended_filters) for each in session_models] == [["b"], ["b", "a"]]


class MatchesOfSession(Rule):
    """Keeps the subscriptions that match a topic at each PINGREQ."""

    code = "TST372"
    severity = Severity.INFO
    looks_at: ClassVar[Any] = Pingreq
    models = (SessionModel,)
    topic = "a"
    seen: ClassVar[list[tuple[bool, list[str]]]] = []

    def check(self, packet: Any, at: RuleContext) -> Findings:
        match = session_match(self.topic, at)
        self.seen.append((match.known, [subscription.topic_filter for subscription in match.subscriptions]))
        return None


@each(
    "topic, again, expected",
    [
        ("a", "> nothing", (True, ["a"])),
        ("b/x", "> nothing", (True, ["+/x"])),
        ("$q/x", "> nothing", (True, ["$q/x"])),
        ("a", "> subscribe 2 a:1; @1 < suback 2 1", (True, ["a"])),
        # A message may have been queued for the former subscription.
        ("a", "> subscribe 2 a:0; @1 < suback 2 0", (False, ["a"])),
        ("a", "> subscribe 2 a:1,no_local; @1 < suback 2 1", (False, ["a"])),
    ],
)
def test_a_topic_matches_what_the_session_brought(topic: str, again: str, expected: tuple[bool, list[str]]) -> None:
    MatchesOfSession.seen.clear()
    MatchesOfSession.topic = topic
    first = "> subscribe 1 a:1 +/x:1 $q/x:1; < suback 1 1 1 1"
    lint([MatchesOfSession()], talked(*steps_of(BEGINS, first, BREAKS, f"@1 {RESUMES}; @1 {again}; {PING_1}")))

    assert MatchesOfSession.seen == [expected]


def test_the_state_of_a_session_is_for_its_owner_alone() -> None:
    rows = {1: UnansweredMessage(1, 1, "a", zlib.crc32(b""), SENT, 0, 1, 0)}
    owner, other = (SimpleNamespace(key=number, direction=C2S, topic="a") for number in (1, 2))
    session: Any = SessionModel()
    session.owner = 1
    session.client_sent = session.refused_to_client = session.completed_by_client = session.discarded_client_sent = rows

    def known(at: Any, **state: Any) -> list[bool]:
        for name, value in (
            {"waits_for": None, "resumed": True, "apart": False, "filters_known": True} | state
        ).items():
            setattr(session, name, value)
        return [
            bool(session.carried(C2S, at)), bool(session.refused(C2S, at)), bool(session.completed(C2S, at)),
            session.is_discarded(message(1), at), session.has_all_filters(at),
        ]  # fmt: skip

    assert known(owner) == [True] * 5
    assert known(other) == [False] * 5
    assert known(owner, waits_for=2) == [False, False, True, True, False]
    assert known(owner, resumed=False) == [True, False, False, True, False]
    assert known(owner, apart=True) == [True, True, True, True, False]
    assert not session.is_discarded(Publish(topic_name="a"), owner)


@each("again, phase", [("< pubrec 1", "received"), ("> publish a dup qos=2 id=1; @1 < pubrec 1", "sent")])
def test_a_pubrec_answers_an_earlier_message_unless_its_identifier_was_used_again(again: str, phase: str) -> None:
    session_model = model(BEGINS, "> publish a qos=2 id=1", BREAKS, f"@1 {RESUMES}; @1 {again}; {PING_1}")

    assert str(session_model.client_sent[1].phase) == phase


@each("state", [{"live": True}, {"owner": None}, {"kept_seconds": None}, {}])
def test_the_end_of_a_session_is_known_after_its_owner_ended(state: dict[str, Any]) -> None:
    session: Any = SessionModel()
    for name, value in ({"live": False, "owner": 1, "kept_seconds": 60} | state).items():
        setattr(session, name, value)

    assert (session.kept_until() is None) is bool(state)


@each("before", [None, SimpleNamespace(history=None)])
def test_a_session_without_the_history_of_its_owner_is_in_doubt(before: Any) -> None:
    session: Any = SessionModel()
    session.owner = 1
    session.born = session.filters_known = True
    session._take_over(SimpleNamespace(connection_of=lambda key: before, timestamp_ns=0))

    assert (session.born, session.filters_known, session.waits_for) == (False, False, None)


def test_topic_aliases_of_both_sides_are_kept_until_others_are_set() -> None:
    first = f"opened resume {KEEPS} topic_alias_maximum=5 < topic_alias_maximum=5"
    sends = "> publish a topic_alias=1; < publish b topic_alias=2"
    connections = models(
        first, sends, BREAKS, f"@1 {RESUMES}; {PING_1}; @1 > reset", f"@2 {RESUMES}; {PING_2}; @2 > reset"
    )

    assert [(each.client_aliases, each.server_aliases) for each in connections] == [({1: "a"}, {2: "b"})] * 2


def unanswered_message(**state: Any) -> UnansweredMessage:
    return replace(UnansweredMessage(1, 1, "a", zlib.crc32(b""), SENT, 0, 1, 0, sure=True), **state)


def resumed_context(limit: int | None = None, maximum_qos: int = 2, has_sent: bool = False) -> Any:
    """The receiver's limits on the connection that resumed a session, and whether its sender used an identifier."""
    connection = SimpleNamespace(
        receiver=lambda direction: SimpleNamespace(maximum_packet_size=limit), maximum_qos=maximum_qos
    )
    history = SimpleNamespace(party=lambda direction: SimpleNamespace(has_sent=lambda identifier: has_sent))
    return SimpleNamespace(key=1, connection=connection, history=history, timestamp_ns=100, version=V5)


@each(
    "limit, before, maximum_qos, expected",
    [
        (None, None, 2, (False, False)),
        (None, 20, 2, (False, False)),
        (20, None, 2, (True, True)),
        (19, 20, 2, (True, True)),
        (20, 20, 2, (False, False)),
        (None, None, 0, (True, False)),  # the limit of the server, for the client alone
    ],
)
def test_a_receiver_with_lower_limits_may_refuse_what_it_took_before(
    limit: int | None, before: int | None, maximum_qos: int, expected: tuple[bool, bool]
) -> None:
    session, at = SessionModel(), resumed_context(limit, maximum_qos)
    session.server_takes = session.client_takes = before

    assert tuple(is_refusable(unanswered_message(), direction, session, at) for direction in (C2S, S2C)) == expected


def test_a_message_may_move_to_another_member_of_a_share() -> None:
    session: Any = SessionModel()
    for known, name, expected in ((False, "a", True), (True, "a", False), (True, "$share/g/a", True)):
        session.filters_known, session.filters = known, {name: None}
        assert may_move(unanswered_message(), S2C, session) is expected
        assert not may_move(unanswered_message(), C2S, session)
        assert not may_move(unanswered_message(qos=2), S2C, session)


def test_a_sender_may_drop_what_expired_or_may_be_refused() -> None:
    session: Any = SessionModel()
    session.filters_known = True
    for state, limit, expected in (
        ({}, None, False),
        ({"expires_ns": 100}, None, True),
        ({"expires_ns": 101}, None, False),
        ({}, 10, True),
        ({"expires_ns": 100, "phase": RELEASED}, 10, False),
    ):
        assert may_be_dropped(unanswered_message(**state), S2C, session, resumed_context(limit)) is expected


def test_a_message_is_missing_if_it_surely_needs_to_be_sent_again() -> None:
    session: Any = SessionModel()
    session.owner = 1
    for state, has_sent, expected in (
        ({}, False, True),
        ({}, True, False),
        ({"sure": False}, False, False),
        ({"answered": True}, False, False),
        ({"phase": RELEASED}, False, True),
        ({"phase": RELEASED, "released": True}, False, False),
    ):
        session.client_sent = {1: unanswered_message(**state)}
        assert bool([*missing(session, C2S, resumed_context(has_sent=has_sent))]) is expected, state


@each("last, expected", [("> pingreq", ["ACK311"]), ("< publish b", [])])
def test_a_silent_sender_is_not_accused(last: str, expected: list[str]) -> None:
    steps = steps_of(BEGINS, SENDS, BREAKS, f"@1 {RESUMES}; +60 @1 {last}; +1 @1 {last}")

    assert [finding.rule for finding in lint([all_rules()["ACK311"]()], talked(*steps))] == expected


def test_a_session_older_than_the_capture_is_not_born_in_it() -> None:
    session_model = model(RESUMES, SENDS, BREAKS, f"@1 {RESUMES}; {PING_1}")

    assert (session_model.born, session_model.filters_known) == (False, False)
    assert list(session_model.client_sent) == [1]


def test_a_client_without_messages_under_way_costs_no_look_at_its_acknowledgments() -> None:
    looked = []

    class Watches(Looks):
        """Asks whether PUBACK bears the sign that the model minds."""

        code = "TST372"
        looks_at: ClassVar[Any] = Puback

        def check(self, packet: Any, at: RuleContext) -> Findings:
            looked.append(bool(signs_of(packet, at) & SIGNS[SessionModel.when[Puback]]))
            return None

    talk = [f"@{number} {SENDS}; @{number} < puback 1" for number in range(3)]
    second = f"@1 {RESUMES}; {talk[1]}; @1 > publish a qos=1 id=2; @1 > reset"
    lint([Watches()], talked(*steps_of(BEGINS, talk[0], BREAKS, second, f"@2 {RESUMES}; {talk[2]}")))

    assert looked == [False, False, True]


def test_two_devices_with_one_identifier_are_told_from_one_that_comes_back() -> None:
    """Examples have one address for all clients."""
    captured = talked(*steps_of("for 0..4: @{n} opened"))
    even = bytes((10, 0, 0, 4))

    def apart(key: bytes) -> bytes:
        ports = {int.from_bytes(key[place : place + 2], "big") for place in (8, 10)}
        return key.replace(even, bytes((10, 0, 0, 5))) if max(ports & set(range(51_234, 51_240))) % 2 else key

    def result(finding: Finding) -> tuple[str, str]:
        return str(finding.severity), finding.message

    def noted(rows: list[Any]) -> list[tuple[str, str]]:
        return [result(finding) for finding in lint([all_rules()["OPS324"]()], rows)]

    ((same, _),) = noted(captured)
    ((two, words),) = noted([replace(segment, key=apart(segment.key)) for segment in captured])
    assert (same, two) == ("info", "warning")
    assert "between 10.0.0.5 and 10.0.0.4" in words or "between 10.0.0.4 and 10.0.0.5" in words


class Speaker:
    """A client that says what it is told to a real server."""

    all: ClassVar[list[socket.socket]] = []

    def __init__(self, port: int, *, resumes: bool, version: ProtocolVersion = V5, **fields: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.all.append(self.socket)
        self.version = version
        self._stream = PacketStream(version)
        self._got: list[ControlPacket] = []
        properties = fields.pop("properties", KEPT) if version is V5 else None
        connect = make_connect(version, clean_start=not resumes, properties=properties, **fields)
        self.say(connect)
        self.connack = self.hear(Connack)

    def say(self, *packets: ControlPacket) -> None:
        self.socket.sendall(b"".join(encode(packet, self.version) for packet in packets))

    def hear(self, kind: type[ControlPacket]) -> Any:
        """The next packet of a type; others before it are passed over."""
        while True:
            while self._got:
                packet = self._got.pop(0)
                if isinstance(packet, kind):
                    return packet
            data = self.socket.recv(4_096)
            assert data, "the server has closed the connection"
            self._got += [packet for packet in self._stream.feed(data) if isinstance(packet, ControlPacket)]

    def ping(self) -> None:
        self.say(Pingreq())
        self.hear(Pingresp)

    def breaks(self) -> None:
        """Reset the connection."""
        time.sleep(0.2)  # let the kernel acknowledge what came
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
        time.sleep(0.2)

    def leaves(self) -> None:
        self.say(Disconnect())
        self.socket.close()
        time.sleep(0.2)


@contextmanager
def recorded(folder: Path, listener: str = "") -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """A mosquitto, and what the rules find of it when all is over: code and severity."""
    pairs: list[tuple[str, str]] = []
    target = folder / "session.pcapng"
    with mosquitto(folder, listener) as broker, capturing(broker.port, target):
        yield broker.port, pairs
        while Speaker.all:
            Speaker.all.pop().close()
    rules = [all_rules()[code]({"timeout": 2} if code in ("ACK311", "ACK314") else None) for code in RULES]
    linter = Linter(rules, strict=True)
    for event in dissect(open_capture([target])):
        pairs += [(finding.rule, str(finding.severity)) for finding in linter.feed(event)]


def subscribed(speaker: Speaker, qos: int) -> Speaker:
    speaker.say(Subscribe(1, subscriptions=[Subscription("a", qos)]))
    speaker.hear(Suback)
    return speaker


@pytest.mark.broker
@pytest.mark.parametrize("version", some([V5, V3_1_1]), ids=["5.0", "3.1.1"])
def test_nothing_is_found_of_a_mosquitto_and_a_client_that_conform(tmp_path: Path, version: ProtocolVersion) -> None:
    with recorded(tmp_path) as (port, pairs):
        speaker = subscribed(Speaker(port, resumes=False, version=version), 2)
        speaker.leaves()
        speaker = subscribed(Speaker(port, resumes=True, version=version), 2)
        # Both sides have messages under way in each phase.
        speaker.say(message(7, 2, "b"))
        speaker.hear(Pubrec)
        speaker.say(message(8, 1), message(9, 2))
        first, second = speaker.hear(Publish), speaker.hear(Pubrec)
        assert (first.qos, second.packet_identifier) == (1, 9)
        speaker.breaks()
        speaker = Speaker(port, resumes=True, version=version)
        assert speaker.connack.session_present
        speaker.say(Pubrel(7), Publish(dup=True, qos=2, topic_name="a", packet_identifier=9))
        again = speaker.hear(Publish)
        assert (again.dup, again.packet_identifier) == (True, first.packet_identifier)
        speaker.say(Puback(again.packet_identifier), Pubrel(9))
        delivered = speaker.hear(Publish)
        speaker.say(Pubrec(delivered.packet_identifier))
        speaker.hear(Pubrel)
        speaker.breaks()
        speaker = Speaker(port, resumes=True, version=version)
        speaker.hear(Pubrel)
        speaker.say(Pubcomp(delivered.packet_identifier))
        time.sleep(2.2)
        speaker.ping()
        speaker.ping()
        # The session is taken over with a message under way.
        speaker.say(message(3, 1))
        stuck = speaker.hear(Publish)
        other = Speaker(port, resumes=True, version=version)
        other.say(Puback(other.hear(Publish).packet_identifier))
        assert stuck.topic_name == "a"
        time.sleep(2.2)
        other.ping()
        other.ping()
        other.leaves()
    assert [row for row in pairs if row[1] != "info"] == []


@pytest.mark.broker
def test_a_client_that_breaks_its_session_is_found(tmp_path: Path) -> None:
    with recorded(tmp_path) as (port, pairs):
        # mosquitto answers at once: a QoS 2 message waits for the client's next step, and stays there.
        speaker = Speaker(port, resumes=False)
        speaker.say(message(7, 2), message(8, 2))
        speaker.hear(Pubrec)
        speaker.hear(Pubrec)
        speaker.breaks()
        speaker = Speaker(port, resumes=True)
        time.sleep(2.2)
        speaker.ping()
        speaker.ping()
        speaker.leaves()
    assert pairs == [("ACK311", "error")]


@pytest.mark.broker
def test_what_a_client_takes_along_is_found(tmp_path: Path) -> None:
    """An exchange into a new session, and the meaning of a Topic Alias into a new connection."""
    alias = Properties(topic_alias=1)
    with recorded(tmp_path) as (port, pairs):
        speaker = Speaker(port, resumes=False)
        speaker.say(Publish(topic_name="a", properties=alias), message(7, 2))
        speaker.hear(Pubrec)
        speaker.breaks()
        speaker = Speaker(port, resumes=False)
        speaker.say(Pubrel(7))
        speaker.hear(Pubcomp)
        speaker.say(Publish(properties=alias))
        speaker.hear(Disconnect)
    assert pairs == [("SES306", "error"), ("ALS305", "error")]


@pytest.mark.broker
def test_many_connections_with_one_identifier_are_found(tmp_path: Path) -> None:
    with recorded(tmp_path) as (port, pairs):
        speakers = [Speaker(port, resumes=False) for _ in range(12)]
        speakers[-1].leaves()
    assert pairs == [("OPS324", "info"), ("OPS325", "warning")]


@pytest.mark.broker
def test_guessing_is_found(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    with recorded(tmp_path, f"password_file {passwords}") as (port, pairs):
        for number in range(12):
            speaker = Speaker(
                port, resumes=False, client_identifier=f"c{number}", user_name="u", password=b"%d" % number
            )
            assert speaker.connack.reason_code
            speaker.socket.close()
    assert pairs == [("SEC305", "warning")]


def test_who_answers_a_pubrec_of_the_old_session_is_not_to_blame() -> None:
    steps = steps_of(BEGINS, "< publish a qos=2 id=7", BREAKS, "@1 opened; @1 > pubrec 7; @1 < pubrel 7")

    assert lint([all_rules()["SES306"]()], talked(*steps)) == []


def test_a_connect_brings_no_model_before_it_is_accepted() -> None:
    """Only what was accepted is a session."""
    session_model = model(
        "opened", SENDS, BREAKS, "@1 > connect; @1 < connack code=0x87; @1 < fin", f"@2 opened; {PING_2}"
    )

    assert list(session_model.discarded_client_sent) == [1]


@pytest.mark.parametrize(("version", "confidence"), [("3.1", "likely"), ("3.1.1", "certain"), ("5.0", "certain")])
def test_a_message_of_a_discarded_session_is_one_finding(version: str, confidence: str) -> None:
    steps = steps_of(f"opened {version} resume; {SENDS}; {BREAKS}; @1 opened; @1 > publish a dup qos=1 id=1")
    (finding,) = lint([all_rules()[code]() for code in ("PUB208", "SES306")], talked(*steps))

    assert (finding.rule, finding.confidence) == ("SES306", confidence)


@pytest.mark.parametrize(
    ("moves", "severity", "confidence"), [(False, "error", "likely"), (True, "warning", "heuristic")]
)
def test_a_client_at_another_address_may_have_a_session_of_its_own(moves: bool, severity: str, confidence: str) -> None:
    """The second connection comes from another host, or from the same one."""
    captured = talked(*steps_of("opened; > disconnect; > fin; +5 > nothing; @1 opened resume < present; @1 > pingreq"))
    host, other = b"\x0a\x00\x00\x04", b"\x0a\x00\x00\x05"
    if moves:
        captured = [
            replace(segment, key=segment.key.replace(host, other)) if b"\xc8\x23" in segment.key[8:12] else segment
            for segment in captured
        ]
    (finding,) = lint([all_rules()["SES510"]()], captured)

    assert (finding.severity, finding.confidence) == (severity, confidence)


def test_subscriptions_of_another_capture_are_not_those_of_a_session() -> None:
    steps = f"{BEGINS}; > subscribe 1 b:1; < suback 1 1; > disconnect; > fin; @1 {RESUMES}; @1 < publish a"
    captured = talked(*steps_of(steps))
    later = [replace(segment, capture="later") if b"\xc8\x23" in segment.key[8:12] else segment for segment in captured]
    linters = Linter([all_rules()["DLV201"]()], strict=True), Linter([all_rules()["DLV201"]()], strict=True)
    text_lists = [
        [finding.rule for event in dissect_segments(rows) for finding in linter.feed(event)]
        for linter, rows in zip(linters, (captured, later), strict=True)
    ]

    assert text_lists == [["DLV201"], []]
    assert [dict(linter.withheld) for linter in linters] == [{}, {"DLV201": 1}]
