"""Compares what a broker answered on one connection, and how the connection ended, with the recording.

`compare_answers` compares every packet of the broker but its deliveries.  A client that sends a packet again (a PUBLISH
with DUP, a PUBREL, on the same connection or on the next one of the session) is answered again.  So `repeated` counts
each connection by itself, and as many answers are right as there were packets that ask for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V3_1, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, DifferenceKind, described, reason_text
from mqttscope.replay.verify.fields import failed, field_differences
from mqttscope.replay.verify.run import ENDED, INCOMPLETE, NOT_PERFORMED, UNREADABLE, Pair, ReplayRun, connect_of


def compare_answers(run: ReplayRun, pair: Pair) -> None:
    """Compare everything that the broker sent on a connection but its deliveries."""
    script, live = pair.script, pair.live
    connect = connect_of(script)
    if connect is None and live is None:
        _leave_out(pair, INCOMPLETE)
    elif live is None and connect is not None and run.was_skipped(connect):
        _leave_out(pair, NOT_PERFORMED)
    elif live is None or _never_answered(script, live):
        told = live.ending.detail if live is not None else ""
        message = f"There was no connection to the live broker{': ' if told else '.'}{told}"
        pair.cause = pair.add(DifferenceKind.NOT_CONNECTED, message, connect)
        for entry in _answers(script):
            pair.follow(entry, pair.cause)
    else:
        _Answers(run, pair, live).compare()


def _never_answered(script: Script, live: Script) -> bool:
    """Whether the live connection ended before anything came of it, other than the recorded one."""
    if _from_server(live):
        return False
    return live.ending.how in ("refused", "failed") or (live.ending.by == "server" and bool(_from_server(script)))


def _from_server(script: Script) -> list[Entry]:
    return [one for one in script.entries if not one.from_client]


def _answers(script: Script) -> list[Entry]:
    """What a broker sent but its deliveries and their PUBRELs."""
    return [one for one in _from_server(script) if not isinstance(one.packet, packets.Publish | packets.Pubrel)]


def _leave_out(pair: Pair, reason: str) -> None:
    for entry in _answers(pair.script):
        pair.tally.not_judged(entry, reason)


class _Answers:
    """The comparison of one connection."""

    def __init__(self, run: ReplayRun, pair: Pair, live: Script) -> None:
        self.run, self.pair = run, pair
        self.script, self.live, self.tally = pair.script, live, pair.tally
        places = [one.answers.place for one in _from_server(self.script) if one.answers and one.answers.from_client]
        self.answered_up_to = max(places, default=-1)
        """Place of the last client packet that the recorded broker answered: it is done with those before."""

    def compare(self) -> None:
        """Compare everything."""
        # An early end explains what is missing, so it is found first.
        self._ending()
        often = list(repeated(self.script)), list(repeated(self.live))
        self._repeated(*often)
        again = {id(one.entry) for side in often for one in side}
        recorded, live = _by_request(self.script, again), _by_request(self.live, again)
        for key, answers in recorded.items():
            self._exchange(answers, live.pop(key, []))
        requests = {id(one): one for one in self.script.entries if one.from_client}
        for key, answers in live.items():
            request = requests.get(key)
            if request is not None:
                self._unexpected(request, answers)
            elif request_of(answers[0], self.live) is None:
                self._unrequested(answers)
        self._authentication()
        self._malformed()

    def _exchange(self, recorded: list[Entry], live: list[Entry]) -> None:
        """The answers to one client packet in their order; what comes after the first difference follows from it."""
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
            found = next(answers, None)
            if found is None:
                cause = self._missing(expected, request)
            elif found.type != expected.type and self._otherwise(expected, request):
                self.tally.not_judged(expected, NOT_PERFORMED)
            elif found.type != expected.type:
                message = f"{described(request)} was answered with {found.type.upper()} instead of {_name(expected)}."
                change = "type", expected.type, found.type
                cause = self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, expected, found, change)
            else:
                cause = self._both(expected, found, request)
            if cause is None and found is None:
                return
        further = list(answers)
        if further and cause is None and not self.pair.lost_from_server and not self._unfinished(recorded[-1]):
            self._unexpected(request, further)

    def _missing(self, expected: Entry, request: Entry) -> Difference | None:
        """A recorded answer that did not come; returns the new difference that further ones follow from."""
        if self.pair.cause is not None:
            self.pair.follow(expected, self.pair.cause)
            self.pair.cause.recorded = self.pair.cause.recorded or expected
        elif self._otherwise(expected, request):
            self.tally.not_judged(expected, NOT_PERFORMED)
        else:
            message = f"{described(request)} was not answered with {_name(expected)}."
            made = self.pair.add(DifferenceKind.MISSING_ANSWER, message, expected)
            if isinstance(request.packet, packets.Publish):
                # What nobody gets was not taken; what is delivered nevertheless was.
                self.run.refused[id(request)] = made
            return made
        return None

    def _otherwise(self, expected: Entry, request: Entry) -> bool:
        """Whether the replay did not send what is answered, or with another QoS."""
        asked = self._asked(expected, request)
        if self.run.was_skipped(asked) or id(asked) not in self.run.performed:
            return True
        qos = self.run.played_with_qos(request)
        return isinstance(request.packet, packets.Publish) and qos not in (None, request.packet.qos)

    def _asked(self, expected: Entry, request: Entry) -> Entry:
        """The packet that an answer waits for: of PUBCOMP the PUBREL."""
        if isinstance(expected.packet, packets.Pubcomp):
            for entry in self.script.entries:
                if isinstance(entry.packet, packets.Pubrel) and entry.from_client and entry.answers is request:
                    return entry
        return request

    def _unfinished(self, last: Entry) -> bool:
        """Whether the recording may have ended before the rest of an exchange came."""
        return last.place >= self.answered_up_to

    def _unexpected(self, request: Entry, answers: list[Entry]) -> None:
        """Answers that only the live broker gave."""
        passed_over = request.place < self.answered_up_to
        complete = not self.pair.lost_from_server and not self.pair.joined
        for found in answers:
            if not passed_over or not complete:
                self.tally.not_judged(found, ENDED if complete else INCOMPLETE)
                continue
            message = f"{described(request)} was answered with {_name(found)}, which the recorded broker did not do."
            self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, found)
            return  # the rest of the exchange follows

    def _repeated(self, recorded: list[Repeated], live: list[Repeated]) -> None:
        """Answers that came once too often, and not so in the recording; one difference for each packet."""
        known = Counter(_repetition(one) for one in recorded if not one.asked)
        told: dict[tuple[str, int], Difference] = {}
        for one in live:
            key = _repetition(one)
            if one.asked:
                continue
            if known[key]:
                known[key] -= 1
            elif self.pair.joined or self.pair.script.lost:
                self.tally.not_judged(one.entry, INCOMPLETE)
            elif key in told:
                told[key].follows += 1
                self.tally.follow(one.entry)
            else:
                message = f"{described(one.request)} was answered with {_name(one.entry)} more than once."
                told[key] = self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, one.entry)

    def _both(self, expected: Entry, found: Entry, request: Entry | None) -> Difference | None:
        """Two packets of one type; returns the difference that makes the rest of the exchange another one."""
        recorded, live = expected.packet, found.packet
        if isinstance(recorded, Malformed) or isinstance(live, Malformed):
            self.tally.not_judged(expected, UNREADABLE)
            return None
        self.tally.equal(expected)
        cause: Difference | None = None
        version = self.script.version
        subject = _name(expected) if request is None else f"{_name(expected)} of {described(request)}"
        connects = self.script.connect_packet, self.live.connect_packet
        for one in field_differences(recorded, live, version, connects):
            made = self.pair.add(one.kind, f"The {subject} {one.told}.", expected, found, one.change)
            if one.field == "reason_code" and failed(recorded, version) != failed(live, version):
                cause = made
                if isinstance(recorded, packets.Connack):
                    self.pair.cause = made
                elif request is not None:
                    self.run.refused[id(request)] = made
            elif one.field == "session_present" and one.expected:
                self.pair.session_lost = made
            elif isinstance(recorded, packets.Suback) and one.field.startswith("reason_codes[") and request is not None:
                self.run.changed[id(request), int(one.field[13:-1])] = made
        return cause

    def _unrequested(self, answers: list[Entry]) -> None:
        """Live answers to nothing."""
        for found in answers:
            if self.pair.joined or self.script.lost:
                self.tally.not_judged(found, INCOMPLETE)
            else:
                message = f"The live broker sent {_name(found)}, which answers nothing."
                self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, found)

    def _authentication(self) -> None:
        """AUTH of the broker, by their order."""
        recorded, live = _of(self.script, packets.Auth), _of(self.live, packets.Auth)
        for expected, found in zip(recorded, live, strict=False):
            self._both(expected, found, None)
        for expected in recorded[len(live) :]:
            if self.pair.cause is not None:
                self.pair.follow(expected, self.pair.cause)
            else:
                message = "The live broker sent no AUTH where the recorded one did."
                self.pair.add(DifferenceKind.MISSING_ANSWER, message, expected)
        for found in live[len(recorded) :]:
            if self.pair.cause is None and not self.pair.lost_from_server and not self.pair.joined:
                message = "The live broker sent an AUTH where the recorded one did not."
                self.pair.add(DifferenceKind.UNEXPECTED_ANSWER, message, None, found)

    def _malformed(self) -> None:
        """Packets that cannot be read."""
        known = [one.packet.reason for one in _from_server(self.script) if isinstance(one.packet, Malformed)]
        for found in _from_server(self.live):
            if isinstance(found.packet, Malformed):
                if found.packet.reason in known:
                    known.remove(found.packet.reason)
                    continue
                message = f"The live broker sent a malformed packet: {found.packet.reason.replace('_', ' ')}."
                self.pair.add(DifferenceKind.MALFORMED, message, None, found)
        for entry in _from_server(self.script):
            if isinstance(entry.packet, Malformed):
                self.tally.not_judged(entry, UNREADABLE)

    def _ending(self) -> None:
        """DISCONNECT of the broker, and who ended the connection."""
        recorded, live = self.script.ending, self.live.ending
        expected = self.script.first(packets.Disconnect, from_client=False)
        found = self.live.first(packets.Disconnect, from_client=False)
        over = self._over(self.script), self._over(self.live)
        early = (live.by == "server" or live.how == "failed") and not over[1]
        if expected is not None and found is not None:
            self._both(expected, found, None)
            if self._left_undone():
                cause = next((one for one in self.pair.differences if one.live is found), None)
                self.pair.cause = cause or self._closed("The live broker ended the connection earlier.", found)
        elif found is not None:
            told = f"with {self._disconnected(found)}, which the recorded one did not send"
            self._closed(f"The live broker ended the connection {told}.", found)
        elif self._refuses_only_one() or all(over):
            return  # after the last packet of MQTT it is chance who ends the transport
        elif expected is not None and live.by != "server":
            message = f"The live broker did not end the connection with {self._disconnected(expected)}."
            self.pair.add(DifferenceKind.CLOSE, message, expected)
        elif expected is not None:
            told = f"without a DISCONNECT; the recorded one sent {self._disconnected(expected)}"
            cause = self._closed(f"The live broker ended the connection {told}.", None)
            cause.recorded = expected
            self.tally.different(expected)
        elif live.how == "failed" and early:
            self._closed(f"The connection to the live broker broke{': ' if live.detail else '.'}{live.detail}", None)
        elif early and (recorded.by == "client" or recorded.how == "open" or over[0]):
            self._closed("The live broker ended the connection, which the recorded one did not do.", None)
        elif early and self._left_undone():
            self._closed("The live broker ended the connection earlier than the recorded one.", None)
        elif recorded.by == "server" and not over[0] and live.by != "server":
            message = "The live broker did not end the connection as the recorded one did."
            self.pair.add(DifferenceKind.CLOSE, message, change=("ending.by", "server", live.by))

    def _left_undone(self) -> bool:
        """Whether the connection ended before the last step of the client."""
        for entry in reversed(self.script.entries):
            if entry.from_client and isinstance(entry.packet, _STEPS):
                return id(entry) not in self.run.performed
        return False

    def _disconnected(self, entry: Entry) -> str:
        packet = entry.packet
        assert isinstance(packet, packets.Disconnect)
        return f"{reason_text(PacketType.DISCONNECT, packet.reason_code or 0, self.script.version)}"

    def _closed(self, message: str, found: Entry | None) -> Difference:
        change = "ending.by", self.script.ending.by, self.live.ending.by
        self.pair.cause = self.pair.add(DifferenceKind.CLOSE, message, None, found, change)
        return self.pair.cause

    def _refuses_only_one(self) -> bool:
        """Whether a CONNACK, which is a difference already, makes the ends incomparable."""
        expected, found = self.script.connack, self.live.connack
        if expected is None or found is None:
            return False
        version = self.script.version
        before, now = expected.packet, found.packet
        if isinstance(before, Malformed) or isinstance(now, Malformed):
            return True
        return failed(before, version) != failed(now, version)

    def _over(self, script: Script) -> bool:
        """Whether MQTT came to its end, so that both sides may close the transport."""
        if script.first(packets.Disconnect, from_client=True) is not None:
            return True
        packet = script.connack and script.connack.packet
        return isinstance(packet, packets.Connack) and failed(packet, self.script.version)


def request_of(entry: Entry, script: Script) -> Entry | None:
    """The client packet that an answer belongs to; of a PUBCOMP whose PUBLISH was sent before, its PUBREL."""
    answer = entry.packet
    if entry.answers is None and isinstance(answer, packets.Connack):
        return connect_of(script)
    if entry.answers is None and isinstance(answer, packets.Pubcomp):
        for one in script.entries:
            asked = isinstance(one.packet, packets.Pubrel) and one.packet.packet_identifier == answer.packet_identifier
            if asked and one.from_client and one.place < entry.place:
                return one
    if entry.answers is None and entry.source is not None:
        return entry.source.answers
    return entry.answers


def _repetition(one: Repeated) -> tuple[str, int]:
    return one.entry.type, id(one.request.source or one.request)


def _by_request(script: Script, again: set[int]) -> dict[int, list[Entry]]:
    """The answers to each recorded client packet, one of each type, without those that came again."""
    found: dict[int, list[Entry]] = {}
    for entry in _answers(script):
        if id(entry) in again or isinstance(entry.packet, packets.Auth | packets.Disconnect | Malformed):
            continue
        request = request_of(entry, script)
        if request is None:
            # Answers to nothing: of a recording that begins in the middle, or of a broker that is wrong.
            key = id(entry.source or entry)
        else:
            key = id(request.source or request)
        answers = found.setdefault(key, [])
        if all(one.type != entry.type for one in answers):
            answers.append(entry)
    return found


def _of(script: Script, kind: type[ControlPacket]) -> list[Entry]:
    return [one for one in _from_server(script) if isinstance(one.packet, kind)]


def _name(entry: Entry) -> str:
    return entry.type.upper()


_ASKS: dict[type[ControlPacket], type[ControlPacket]] = {
    packets.Connect: packets.Connack,
    packets.Subscribe: packets.Suback,
    packets.Unsubscribe: packets.Unsuback,
    packets.Pubrel: packets.Pubcomp,
    packets.Pubrec: packets.Pubrel,
    packets.Pingreq: packets.Pingresp,
}
"""What a packet of a client asks for; of a PUBLISH it depends on the QoS."""
_STEPS = (packets.Publish, packets.Subscribe, packets.Unsubscribe, packets.Pingreq, packets.Auth)
_ANSWERS = (*_ASKS.values(), packets.Puback, packets.Pubrec)
_DUP = 0x08

Key = tuple[type[ControlPacket], int | None]
"""Type of the answer and its packet identifier."""


@dataclass(slots=True)
class _Asked:
    request: Entry
    """The last one that asked."""
    times: int = 1
    answered: int = 0


@dataclass(slots=True, frozen=True)
class Repeated:
    """An answer that was given before."""

    entry: Entry
    request: Entry
    """What it answers: the last packet that asked for it."""
    asked: bool
    """Whether that was sent again as well, so that another answer is right."""


def repeated(script: Script) -> Iterator[Repeated]:
    """The answers of the broker that came once more for the same packet.

    An answer to what the connection does not show at all is none of them.
    """
    asked: dict[Key, _Asked] = {}
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        if entry.from_client:
            _ask(asked, entry, packet)
        elif isinstance(packet, packets.Publish):
            if not packet.dup:
                # A new message under an identifier that an earlier one had.
                asked.pop((packets.Pubrel, packet.packet_identifier), None)
        elif isinstance(packet, _ANSWERS):
            found = asked.get(_key(type(packet), packet))
            if found is None:
                if isinstance(packet, packets.Pubrel):
                    # Of a message of an earlier connection, sent again on this one.
                    asked[_key(packets.Pubrel, packet)] = _Asked(entry, answered=1)
            elif found.answered < found.times:
                found.answered += 1
                if found.answered > 1 and hasattr(packet, "packet_identifier"):
                    yield Repeated(entry, found.request, asked=True)
            else:
                yield Repeated(entry, found.request, asked=_sent_again(entry, script.version))


def _ask(asked: dict[Key, _Asked], entry: Entry, packet: ControlPacket) -> None:
    wanted: type[ControlPacket] | None = _ASKS.get(type(packet))
    again = isinstance(packet, packets.Connect | packets.Pingreq | packets.Pubrel | packets.Pubrec)
    if isinstance(packet, packets.Publish) and packet.qos:
        wanted, again = (packets.Puback if packet.qos == 1 else packets.Pubrec), packet.dup
        if not packet.dup:
            # A new exchange: nothing of an earlier one under the same identifier counts.
            asked.pop((packets.Pubcomp, packet.packet_identifier), None)
    if wanted is None:
        return
    key = _key(wanted, packet)
    before = asked.get(key) if again else None
    if before is None:
        asked[key] = _Asked(entry)
    else:
        before.request, before.times = entry, before.times + 1


def _key(wanted: type[ControlPacket], packet: ControlPacket) -> Key:
    return wanted, getattr(packet, "packet_identifier", None)


def _sent_again(entry: Entry, version: ProtocolVersion) -> bool:
    """Whether it says so itself: in 3.1 a PUBREL has the DUP flag (3.1 section 2.1)."""
    return version == V3_1 and isinstance(entry.packet, packets.Pubrel) and bool(entry.raw and entry.raw[0] & _DUP)
