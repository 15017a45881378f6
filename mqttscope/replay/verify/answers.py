"""Compares a broker's answers on one connection, and the end of the connection, with the recording.

`compare_answers` compares every packet of the broker except its deliveries.  A client that sends a packet again (a
PUBLISH with DUP, a PUBREL, on the same connection or on the next one of the session) is answered again.  So `repeated`
counts each connection by itself, and as many answers are right as there were packets that asked for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V3_1, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import Difference, DifferenceKind, described, reason_text
from mqttscope.replay.verify.fields import failed, field_differences
from mqttscope.replay.verify.run import (
    ENDED,
    INCOMPLETE,
    NOT_PERFORMED,
    UNREADABLE,
    ConnectionPair,
    ReplayRun,
    connect_of,
)


def compare_answers(run: ReplayRun, pair: ConnectionPair) -> None:
    """Compare everything that the broker sent on a connection except its deliveries."""
    script, live = pair.script, pair.live
    connect = connect_of(script)
    if connect is None and live is None:
        _leave_out(pair, INCOMPLETE)
    elif live is None and connect is not None and run.was_skipped(connect):
        _leave_out(pair, NOT_PERFORMED)
    elif live is None or _never_answered(script, live):
        detail = live.ending.detail if live is not None else ""
        message = f"There was no connection to the live broker{': ' if detail else '.'}{detail}"
        pair.cause = pair.add(DifferenceKind.NOT_CONNECTED, message, connect)
        for entry in _answers(script):
            pair.follow(entry, pair.cause)
    else:
        _AnswerComparison(run, pair, live).compare()


def _never_answered(script: Script, live: Script) -> bool:
    """Whether the live connection ended before any answer, unlike the recorded one."""
    if _from_server(live):
        return False
    return live.ending.how in ("refused", "failed") or (live.ending.by == "server" and bool(_from_server(script)))


def _from_server(script: Script) -> list[ScriptEntry]:
    return [entry for entry in script.entries if not entry.from_client]


def _answers(script: Script) -> list[ScriptEntry]:
    """Packets that a broker sent, except its deliveries and their PUBRELs."""
    return [entry for entry in _from_server(script) if not isinstance(entry.packet, packets.Publish | packets.Pubrel)]


def _leave_out(pair: ConnectionPair, reason: str) -> None:
    for entry in _answers(pair.script):
        pair.tally.not_judged(entry, reason)


class _AnswerComparison:
    """The comparison of one connection."""

    def __init__(self, run: ReplayRun, pair: ConnectionPair, live: Script) -> None:
        self.run, self.pair = run, pair
        self.script, self.live, self.tally = pair.script, live, pair.tally
        requests = (entry.answers for entry in _from_server(self.script) if entry.answers is not None)
        places = [request.place for request in requests if request.from_client]
        self.answered_up_to = max(places, default=-1)
        """Place of the last client packet that the recorded broker answered; earlier packets get no further answers."""

    def compare(self) -> None:
        # An early end explains missing answers, so it is compared first.
        self._ending()
        repetitions = list(repeated(self.script)), list(repeated(self.live))
        self._repeated(*repetitions)
        repeated_entries = {id(answer.entry) for side in repetitions for answer in side}
        recorded, live = _by_request(self.script, repeated_entries), _by_request(self.live, repeated_entries)
        for key, answers in recorded.items():
            self._exchange(answers, live.pop(key, []))
        requests = {id(entry): entry for entry in self.script.entries if entry.from_client}
        for key, answers in live.items():
            request = requests.get(key)
            if request is not None:
                self._unexpected(request, answers)
            elif request_of(answers[0], self.live) is None:
                self._unrequested(answers)
        self._authentication()
        self._malformed()

    def _exchange(self, recorded: list[ScriptEntry], live: list[ScriptEntry]) -> None:
        """Compare the answers to one client packet in order; answers after the first difference follow from it."""
        request = request_of(recorded[0], self.script)
        if request is None:
            for entry in recorded:
                self.tally.not_judged(entry, INCOMPLETE)
            return
        cause: Difference | None = None
        answers = iter(live)
        for expected in recorded:
            if cause is not None:
                self.pair.follow(expected, cause)
                continue
            actual = next(answers, None)
            if actual is None:
                cause = self._missing(expected, request)
            elif actual.type != expected.type and self._is_unrequested(expected, request):
                self.tally.not_judged(expected, NOT_PERFORMED)
            elif actual.type != expected.type:
                message = f"{described(request)} was answered with {actual.type.upper()} instead of {_name(expected)}."
                change = "type", expected.type, actual.type
                cause = self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, expected, actual, change)
            else:
                cause = self._compare_packets(expected, actual, request)
            if cause is None and actual is None:
                return
        further = list(answers)
        if further and cause is None and not self.pair.lost_from_server and not self._unfinished(recorded[-1]):
            self._unexpected(request, further)

    def _missing(self, expected: ScriptEntry, request: ScriptEntry) -> Difference | None:
        """A recorded answer that did not come; returns a new difference that further missing answers follow from."""
        if self.pair.cause is not None:
            self.pair.follow(expected, self.pair.cause)
            self.pair.cause.recorded = self.pair.cause.recorded or expected
        elif self._is_unrequested(expected, request):
            self.tally.not_judged(expected, NOT_PERFORMED)
        else:
            message = f"{described(request)} was not answered with {_name(expected)}."
            difference = self.pair.add(DifferenceKind.MISSING_ANSWER, message, expected)
            if isinstance(request.packet, packets.Publish):
                # If its deliveries are missing too, the broker has not accepted the message.
                self.run.refused[id(request)] = difference
            return difference
        return None

    def _is_unrequested(self, expected: ScriptEntry, request: ScriptEntry) -> bool:
        """Whether the replay did not send the request, or sent it with another QoS."""
        awaited = self._awaited_request(expected, request)
        if self.run.was_skipped(awaited) or id(awaited) not in self.run.performed:
            return True
        qos = self.run.played_with_qos(request)
        return isinstance(request.packet, packets.Publish) and qos not in (None, request.packet.qos)

    def _awaited_request(self, expected: ScriptEntry, request: ScriptEntry) -> ScriptEntry:
        """The packet that an answer waits for: for PUBCOMP the PUBREL."""
        if isinstance(expected.packet, packets.Pubcomp):
            for entry in self.script.entries:
                if isinstance(entry.packet, packets.Pubrel) and entry.from_client and entry.answers is request:
                    return entry
        return request

    def _unfinished(self, last: ScriptEntry) -> bool:
        """Whether the recording may have ended before the exchange was complete."""
        return last.place >= self.answered_up_to

    def _unexpected(self, request: ScriptEntry, answers: list[ScriptEntry]) -> None:
        """Answers that only the live broker sent."""
        passed_over = request.place < self.answered_up_to
        complete = not self.pair.lost_from_server and not self.pair.joined
        for actual in answers:
            if not passed_over or not complete:
                self.tally.not_judged(actual, ENDED if complete else INCOMPLETE)
                continue
            message = f"{described(request)} was answered with {_name(actual)}, which the recorded broker did not do."
            self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, actual)
            return  # the rest of the exchange follows

    def _repeated(self, recorded: list[RepeatedAnswer], live: list[RepeatedAnswer]) -> None:
        """Answers that came more often than requested, unlike in the recording; one difference for each packet."""
        recorded_counts = Counter(_repetition(repetition) for repetition in recorded if not repetition.asked)
        reported: dict[tuple[str, int], Difference] = {}
        for repetition in live:
            key = _repetition(repetition)
            if repetition.asked:
                continue
            if recorded_counts[key]:
                recorded_counts[key] -= 1
            elif self.pair.joined or self.pair.script.lost:
                self.tally.not_judged(repetition.entry, INCOMPLETE)
            elif key in reported:
                reported[key].follows += 1
                self.tally.follow(repetition.entry)
            else:
                message = f"{described(repetition.request)} was answered with {_name(repetition.entry)} more than once."
                reported[key] = self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, repetition.entry)

    def _compare_packets(
        self, expected: ScriptEntry, actual: ScriptEntry, request: ScriptEntry | None
    ) -> Difference | None:
        """Compare two packets of one type; returns the difference that changes the rest of the exchange."""
        recorded, live = expected.packet, actual.packet
        if isinstance(recorded, Malformed) or isinstance(live, Malformed):
            self.tally.not_judged(expected, UNREADABLE)
            return None
        self.tally.equal(expected)
        cause: Difference | None = None
        version = self.script.version
        subject = _name(expected) if request is None else f"{_name(expected)} of {described(request)}"
        connects = self.script.connect_packet, self.live.connect_packet
        for change in field_differences(recorded, live, version, connects):
            difference = self.pair.add(change.kind, f"The {subject} {change.phrase}.", expected, actual, change.change)
            if change.field == "reason_code" and failed(recorded, version) != failed(live, version):
                cause = difference
                if isinstance(recorded, packets.Connack):
                    self.pair.cause = difference
                elif request is not None:
                    self.run.refused[id(request)] = difference
            elif change.field == "session_present" and change.expected:
                self.pair.session_lost = difference
            elif request is not None and isinstance(recorded, packets.Suback) and change.field[:13] == "reason_codes[":
                self.run.changed[id(request), int(change.field[13:-1])] = difference
        return cause

    def _unrequested(self, answers: list[ScriptEntry]) -> None:
        """Live answers without a request."""
        for actual in answers:
            if self.pair.joined or self.script.lost:
                self.tally.not_judged(actual, INCOMPLETE)
            else:
                message = f"The live broker sent {_name(actual)}, which answers nothing."
                self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, actual)

    def _authentication(self) -> None:
        """Compare the AUTH packets of the broker, in order."""
        recorded, live = _packets_of_type(self.script, packets.Auth), _packets_of_type(self.live, packets.Auth)
        for expected, actual in zip(recorded, live, strict=False):
            self._compare_packets(expected, actual, None)
        for expected in recorded[len(live) :]:
            if self.pair.cause is not None:
                self.pair.follow(expected, self.pair.cause)
            else:
                message = "The live broker sent no AUTH where the recorded one did."
                self.pair.add(DifferenceKind.MISSING_ANSWER, message, expected)
        for actual in live[len(recorded) :]:
            if self.pair.cause is None and not self.pair.lost_from_server and not self.pair.joined:
                message = "The live broker sent an AUTH where the recorded one did not."
                self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, actual)

    def _malformed(self) -> None:
        """Report packets of the broker that cannot be read."""
        recorded = (entry.packet for entry in _from_server(self.script))
        reasons = [packet.reason for packet in recorded if isinstance(packet, Malformed)]
        for actual in _from_server(self.live):
            if isinstance(actual.packet, Malformed):
                if actual.packet.reason in reasons:
                    reasons.remove(actual.packet.reason)
                    continue
                message = f"The live broker sent a malformed packet: {actual.packet.reason.replace('_', ' ')}."
                self.pair.add(DifferenceKind.MALFORMED, message, None, actual)
        for entry in _from_server(self.script):
            if isinstance(entry.packet, Malformed):
                self.tally.not_judged(entry, UNREADABLE)

    def _ending(self) -> None:
        """Compare the DISCONNECT of the broker, and which side ended the connection."""
        recorded, live = self.script.ending, self.live.ending
        expected = self.script.first(packets.Disconnect, from_client=False)
        actual = self.live.first(packets.Disconnect, from_client=False)
        over = self._mqtt_ended(self.script), self._mqtt_ended(self.live)
        ended_early = (live.by == "server" or live.how == "failed") and not over[1]
        if expected is not None and actual is not None:
            self._compare_packets(expected, actual, None)
            if self._ended_early():
                cause = next((difference for difference in self.pair.differences if difference.live is actual), None)
                self.pair.cause = cause or self._add_close("The live broker ended the connection earlier.", actual)
        elif actual is not None:
            manner = f"with {self._disconnect_text(actual)}, which the recorded one did not send"
            self._add_close(f"The live broker ended the connection {manner}.", actual)
        elif self._refuses_only_one() or all(over):
            return  # after the last packet of MQTT either side may end the transport
        elif expected is not None and live.by != "server":
            message = f"The live broker did not end the connection with {self._disconnect_text(expected)}."
            self.pair.add(DifferenceKind.CLOSE, message, expected)
        elif expected is not None:
            manner = f"without a DISCONNECT; the recorded one sent {self._disconnect_text(expected)}"
            cause = self._add_close(f"The live broker ended the connection {manner}.", None)
            cause.recorded = expected
            self.tally.different(expected)
        elif live.how == "failed" and ended_early:
            self._add_close(f"The connection to the live broker broke{': ' if live.detail else '.'}{live.detail}", None)
        elif ended_early and (recorded.by == "client" or recorded.how == "open" or over[0]):
            self._add_close("The live broker ended the connection, which the recorded one did not do.", None)
        elif ended_early and self._ended_early():
            self._add_close("The live broker ended the connection earlier than the recorded one.", None)
        elif recorded.by == "server" and not over[0] and live.by != "server":
            message = "The live broker did not end the connection as the recorded one did."
            self.pair.add(DifferenceKind.CLOSE, message, change=("ending.by", "server", live.by))

    def _ended_early(self) -> bool:
        """Whether the connection ended before the last step of the client."""
        for entry in reversed(self.script.entries):
            if entry.from_client and isinstance(entry.packet, _STEPS):
                return id(entry) not in self.run.performed
        return False

    def _disconnect_text(self, entry: ScriptEntry) -> str:
        packet = entry.packet
        assert isinstance(packet, packets.Disconnect)
        return f"{reason_text(PacketType.DISCONNECT, packet.reason_code or 0, self.script.version)}"

    def _add_close(self, message: str, actual: ScriptEntry | None) -> Difference:
        change = "ending.by", self.script.ending.by, self.live.ending.by
        self.pair.cause = self.pair.add(DifferenceKind.CLOSE, message, None, actual, change)
        return self.pair.cause

    def _refuses_only_one(self) -> bool:
        """Whether only one CONNACK refuses the connection; then the ends cannot be compared."""
        expected, actual = self.script.connack, self.live.connack
        if expected is None or actual is None:
            return False
        version = self.script.version
        before, now = expected.packet, actual.packet
        if isinstance(before, Malformed) or isinstance(now, Malformed):
            return True
        return failed(before, version) != failed(now, version)

    def _mqtt_ended(self, script: Script) -> bool:
        """Whether MQTT had come to its end, so that either side may close the transport."""
        if script.first(packets.Disconnect, from_client=True) is not None:
            return True
        packet = script.connack and script.connack.packet
        return isinstance(packet, packets.Connack) and failed(packet, self.script.version)


def request_of(entry: ScriptEntry, script: Script) -> ScriptEntry | None:
    """The client packet that an answer belongs to; for a PUBCOMP on a later connection than its PUBLISH, the PUBREL."""
    answer = entry.packet
    if entry.answers is None and isinstance(answer, packets.Connack):
        return connect_of(script)
    if entry.answers is None and isinstance(answer, packets.Pubcomp):
        for other in script.entries:
            pubrel = isinstance(other.packet, packets.Pubrel) and other.packet
            asked = pubrel and pubrel.packet_identifier == answer.packet_identifier
            if asked and other.from_client and other.place < entry.place:
                return other
    if entry.answers is None and entry.source is not None:
        return entry.source.answers
    return entry.answers


def _repetition(repetition: RepeatedAnswer) -> tuple[str, int]:
    return repetition.entry.type, id(repetition.request.source or repetition.request)


def _by_request(script: Script, repeated_entries: set[int]) -> dict[int, list[ScriptEntry]]:
    """The answers to each recorded client packet, one of each type, without repeated ones."""
    by_request: dict[int, list[ScriptEntry]] = {}
    for entry in _answers(script):
        if id(entry) in repeated_entries or isinstance(entry.packet, packets.Auth | packets.Disconnect | Malformed):
            continue
        request = request_of(entry, script)
        if request is None:
            # Answers without a request: in a recording that begins in the middle, or from a faulty broker.
            key = id(entry.source or entry)
        else:
            key = id(request.source or request)
        answers = by_request.setdefault(key, [])
        if all(answer.type != entry.type for answer in answers):
            answers.append(entry)
    return by_request


def _packets_of_type(script: Script, kind: type[ControlPacket]) -> list[ScriptEntry]:
    return [entry for entry in _from_server(script) if isinstance(entry.packet, kind)]


def _name(entry: ScriptEntry) -> str:
    return entry.type.upper()


_ASKS: dict[type[ControlPacket], type[ControlPacket]] = {
    packets.Connect: packets.Connack,
    packets.Subscribe: packets.Suback,
    packets.Unsubscribe: packets.Unsuback,
    packets.Pubrel: packets.Pubcomp,
    packets.Pubrec: packets.Pubrel,
    packets.Pingreq: packets.Pingresp,
}
"""Type of answer that each type of client packet asks for; for a PUBLISH it depends on the QoS."""
_STEPS = (packets.Publish, packets.Subscribe, packets.Unsubscribe, packets.Pingreq, packets.Auth)
_ANSWERS = (*_ASKS.values(), packets.Puback, packets.Pubrec)
_DUP = 0x08

Key = tuple[type[ControlPacket], int | None]
"""Type and packet identifier of an answer."""


@dataclass(slots=True)
class _ExpectedAnswer:
    request: ScriptEntry
    """The last packet that asked for the answer."""
    times: int = 1
    answered: int = 0


@dataclass(slots=True, frozen=True)
class RepeatedAnswer:
    """An answer that had been sent before."""

    entry: ScriptEntry
    request: ScriptEntry
    """The last packet that asked for the answer."""
    asked: bool
    """Whether the request was sent again as well, so that another answer is right."""


def repeated(script: Script) -> Iterator[RepeatedAnswer]:
    """Answers that the broker sent once more for the same packet.

    An answer without a request on this connection is left out.
    """
    asked: dict[Key, _ExpectedAnswer] = {}
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        if entry.from_client:
            _add_request(asked, entry, packet)
        elif isinstance(packet, packets.Publish):
            if not packet.dup:
                # A new message with the packet identifier of an earlier one.
                asked.pop((packets.Pubrel, packet.packet_identifier), None)
        elif isinstance(packet, _ANSWERS):
            expectation = asked.get(_key(type(packet), packet))
            if expectation is None:
                if isinstance(packet, packets.Pubrel):
                    # For a message of an earlier connection, sent again on this one.
                    asked[_key(packets.Pubrel, packet)] = _ExpectedAnswer(entry, answered=1)
            elif expectation.answered < expectation.times:
                expectation.answered += 1
                if expectation.answered > 1 and hasattr(packet, "packet_identifier"):
                    yield RepeatedAnswer(entry, expectation.request, asked=True)
            else:
                yield RepeatedAnswer(entry, expectation.request, asked=_sent_again(entry, script.version))


def _add_request(asked: dict[Key, _ExpectedAnswer], entry: ScriptEntry, packet: ControlPacket) -> None:
    answer_type: type[ControlPacket] | None = _ASKS.get(type(packet))
    is_repetition = isinstance(packet, packets.Connect | packets.Pingreq | packets.Pubrel | packets.Pubrec)
    if isinstance(packet, packets.Publish) and packet.qos:
        answer_type, is_repetition = (packets.Puback if packet.qos == 1 else packets.Pubrec), packet.dup
        if not packet.dup:
            # A new exchange: earlier ones with the same identifier no longer count.
            asked.pop((packets.Pubcomp, packet.packet_identifier), None)
    if answer_type is None:
        return
    key = _key(answer_type, packet)
    before = asked.get(key) if is_repetition else None
    if before is None:
        asked[key] = _ExpectedAnswer(entry)
    else:
        before.request, before.times = entry, before.times + 1


def _key(answer_type: type[ControlPacket], packet: ControlPacket) -> Key:
    return answer_type, getattr(packet, "packet_identifier", None)


def _sent_again(entry: ScriptEntry, version: ProtocolVersion) -> bool:
    """Whether the packet itself is marked as a repetition: in 3.1 a PUBREL has the DUP flag (3.1 section 2.1)."""
    return version == V3_1 and isinstance(entry.packet, packets.Pubrel) and bool(entry.raw and entry.raw[0] & _DUP)
