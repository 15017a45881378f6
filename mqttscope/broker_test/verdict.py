"""Judges the reaction of a broker to a case by the specification.

Only the text of the statements counts, not the behaviour of other brokers.  If the broker may have had its own reason,
or cannot have seen the violation, the verdict is ``conforming``.

`judge` compares an observation with the answers that the broker owes (`expected_responses`, 5.0 3.1 to 3.12) and with
the `Baseline`: an answer that is missing or refused without the mutation proves nothing about the mutation.
One observation is not proof, so `decide` combines several plays of one case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import RETURN_CODES, MalformedReason, PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Disconnect, Puback, Pubcomp, Pubrec, Suback, Unsuback
from mqttscope.mutate import Demand, MutatedFlow, Mutation, MutationCase, RecordedFlow
from mqttscope.mutate.flow import CLIENT, recorded_steps
from mqttscope.mutate.mutation import ACCEPT, MutationKind

V3_1, V3_1_1, V5 = ProtocolVersion


@dataclass(slots=True, frozen=True)
class Baseline:
    """Reaction of a broker to a connection without mutations."""

    missing: frozenset[PacketType] = frozenset()
    """Owed answers that did not arrive."""
    codes: frozenset[int] = frozenset()
    """Reason codes of failures."""
    ended: bool = False
    """Whether the broker ended the connection."""

    def summary(self) -> str:
        """The deviations as text; empty without deviations."""
        parts = []
        if self.missing:
            parts.append(f"sends no {', '.join(sorted(answer.name for answer in self.missing))}")
        if self.codes:
            parts.append(f"refuses with {', '.join(f'0x{code:02x}' for code in sorted(self.codes))}")
        if self.ended:
            parts.append("ends the connection")
        return " and ".join(parts)


NO_BASELINE = Baseline()
CLIENTS_CODES = frozenset({0x00, 0x04})
"""Reason codes of DISCONNECT that only clients may send (5.0 3.14.2.1): normal disconnection, with or without Will."""
OF_A_CLIENT = ("5.0 V5-DISCONNECT-sender",)
"""Statement that limits each DISCONNECT code to the sides named in the table."""
NOT_OF_TABLE = {
    PacketType.CONNACK: ("5.0 MQTT-3.2.2-8",),
    PacketType.DISCONNECT: ("5.0 MQTT-3.14.2-1",),
}
"""Statements that limit the reason codes of a packet type to its table."""
_SILENTLY = ("3.1.1 MQTT-3.1.4-1",)
"""In 3.1.1 a malformed CONNECT must not be answered with CONNACK."""
BLAMES = frozenset({0x81, 0x82, 0x90, 0x93, 0x94, 0x95, 0x9A, 0x9B, 0x9E, 0xA1, 0xA2})
"""Reason codes of 5.0 that blame a packet of the client; other codes may have other causes (5.0 4.13.2)."""
GENERAL = frozenset({0x81, 0x82})
"""Malformed Packet and Protocol Error, which are acceptable in the place of every other code."""
OWN_REASONS_5 = frozenset(range(0x83, 0xA3)) - {0x84, 0x8D, 0x92, 0x93, 0x94}
"""Reason codes of 5.0 for refusing legal packets: authorization, limits, state of the broker.

This includes 0x8F and 0x90: "correctly formed but not allowed for this Client" (3.9.3), "not malformed, but not
accepted by this Client or Server" (3.4.2.1).
"""
OWN_REASONS_BEFORE_5 = frozenset({2, 3, 4, 5})
"""Return codes of CONNACK in 3.1 and 3.1.1 that concern the client or the server, not the packet."""
_FAILED = 0x80


class BrokerVerdict(StrEnum):
    """Verdict on a broker in one case."""

    CONFORMING = "conforming"
    TOLERATED = "tolerated"
    """The broker did not close the connection, which a statement demands."""
    WRONG_REASON = "wrong-reason"
    """The broker closed the connection with a wrong reason code."""
    REFUSED_LEGAL = "refused-legal"
    """The broker refused a flow that must be accepted."""
    NO_ANSWER = "no-answer"
    """The broker neither sent an owed answer nor closed the connection."""
    CRASHED = "crashed"
    HUNG = "hung"
    """The broker accepts TCP connections but serves no client, or no new client."""
    LEAKED = "leaked"
    """The memory of the broker grows every time the case is played."""
    COLLATERAL = "collateral"
    """Another client was affected."""


BROKER_WIDE = frozenset({BrokerVerdict.CRASHED, BrokerVerdict.HUNG, BrokerVerdict.LEAKED, BrokerVerdict.COLLATERAL})
"""Verdicts about the broker as a whole, which need no broken statement."""


@dataclass(slots=True, frozen=True)
class Ruling:
    """A verdict with its reason."""

    verdict: BrokerVerdict
    why: str
    """Reason, as a sentence fragment."""
    statements: tuple[str, ...] = ()
    """Statements that the broker breaks; empty if it conforms."""

    @property
    def deviates(self) -> bool:
        return self.verdict is not BrokerVerdict.CONFORMING


@dataclass(slots=True)
class Observation:
    """Events on the connection of a case, from the first byte of the mutation on."""

    answers: list[ControlPacket | Malformed] = field(default_factory=list)
    """Packets that the broker sent since then."""
    accepted: bool = False
    """Whether a CONNACK accepted the connection, before or after the mutation."""
    ended: str = ""
    """``fin``, ``reset`` or ``failed`` if the broker ended the connection, else empty."""
    client_left: bool = False
    """Whether the client had left with DISCONNECT, FIN or reset."""
    ping_answered: bool | None = None
    """Whether a final PINGREQ was answered; ``None`` if it could not be sent."""
    missing: list[PacketType] = field(default_factory=list)
    """Awaited answers that did not arrive."""
    needs_authentication: bool = False
    """Whether the broker demanded more authentication than recorded, before it accepted the connection."""
    recorded_codes: frozenset[int] = frozenset()
    """Reason codes of failures in the recording, which the broker may repeat."""
    waited_s: float = 0.0
    """Time that the broker had for its last reaction, in seconds."""
    uses_login: bool = False
    """Whether we connect with our own User Name: the broker may refuse other users."""

    @property
    def codes(self) -> list[tuple[PacketType, int]]:
        return list(_codes(self.answers))


def _codes(answers: Iterable[ControlPacket | Malformed]) -> Iterable[tuple[PacketType, int]]:
    for packet in answers:
        if isinstance(packet, Connack):
            if packet.reason_code:
                yield packet.packet_type, packet.reason_code
        elif isinstance(packet, Disconnect | Puback | Pubrec | Pubcomp):
            if (packet.reason_code or 0) >= _FAILED:
                yield packet.packet_type, packet.reason_code or 0
        elif isinstance(packet, Suback | Unsuback):
            for code in packet.reason_codes or ():
                if code >= _FAILED:
                    yield packet.packet_type, code


def judge(case: MutationCase, seen: Observation, baseline: Baseline = NO_BASELINE) -> Ruling:
    """The ruling of the specification on this connection alone.

    ``baseline`` is the reaction to the connection without the mutation: an answer missing there proves nothing.
    """
    demand = case.reaction.demand
    if demand is Demand.ANY:
        return _conforming("the specification only demands that the broker keeps running")
    ruling = _judge_close(case, seen) if demand is not Demand.ACCEPT else _judge_acceptance(case, seen, baseline)
    if ruling.verdict is BrokerVerdict.NO_ANSWER and seen.needs_authentication:
        return excuse(ruling, "it demands more authentication than was recorded")
    if demand is not Demand.ACCEPT:
        return ruling
    still_open = seen.ping_answered or (seen.missing and not seen.accepted)
    if ruling.verdict is BrokerVerdict.NO_ANSWER and baseline.missing.issuperset(seen.missing) and still_open:
        return excuse(ruling, "likewise without the mutation")
    if ruling.verdict is BrokerVerdict.REFUSED_LEGAL and baseline.ended:
        return excuse(ruling, "likewise without the mutation")
    return ruling


def _conforming(why: str) -> Ruling:
    return Ruling(BrokerVerdict.CONFORMING, why)


def excuse(ruling: Ruling, why: str) -> Ruling:
    return replace(ruling, verdict=BrokerVerdict.CONFORMING, why=f"{why} ({ruling.why})", statements=())


def _judge_close(case: MutationCase, seen: Observation) -> Ruling:
    demanded = case.mutation.demanded_by(case.version, case.flow.sender)
    closing = [(kind, code) for kind, code in seen.codes if kind in (PacketType.CONNACK, PacketType.DISCONNECT)]
    if seen.ended:
        return _judge_reason(case, closing, seen)
    if case.reaction.demand is Demand.REFUSE and seen.codes:
        return _conforming(f"refused with {_code_text(case, seen.codes)}")
    if seen.client_left:
        return _conforming("the client had already left the connection")
    if seen.ping_answered:
        refused = f"it refuses with {_code_text(case, seen.codes)}, but " if seen.codes else ""
        return Ruling(BrokerVerdict.TOLERATED, f"{refused}the connection stays open, and PINGREQ is answered", demanded)
    if closing:
        reason = _code_text(case, closing)
        return Ruling(BrokerVerdict.TOLERATED, f"{reason} was sent, but the connection stays open", demanded)
    if seen.accepted and any(isinstance(packet, Connack) for packet in seen.answers):
        return Ruling(BrokerVerdict.TOLERATED, "the connection was accepted and stays open", demanded)
    return Ruling(BrokerVerdict.NO_ANSWER, f"no close and no answer within {seen.waited_s:g} s", demanded)


def _judge_reason(case: MutationCase, closing: Sequence[tuple[PacketType, int]], seen: Observation) -> Ruling:
    """The ruling on a closed connection, by its reason code."""
    good_bye = next((packet for packet in seen.answers if isinstance(packet, Disconnect)), None)
    if case.version == V5 and good_bye is not None and (good_bye.reason_code or 0) in CLIENTS_CODES:
        reason = _code_text(case, [(good_bye.packet_type, good_bye.reason_code or 0)])
        return Ruling(BrokerVerdict.WRONG_REASON, f"closed with {reason}, which only clients may send", OF_A_CLIENT)
    foreign = _judge_foreign_code(case, seen.answers)
    if foreign is not None:
        return foreign
    if not closing:
        return _conforming(f"closed ({seen.ended})")
    kind, code = closing[-1]
    reason = _code_text(case, closing[-1:])
    if case.version == V5:
        fitting = case.reaction.reason_codes
        if fitting and code in BLAMES and code not in fitting and code not in GENERAL:
            due = " or ".join(f"0x{code:02x}" for code in fitting)
            demanded = case.mutation.demanded_by(case.version, case.flow.sender)
            return Ruling(BrokerVerdict.WRONG_REASON, f"closed with {reason} instead of {due}", demanded)
    elif kind is PacketType.CONNACK and case.version == V3_1_1:
        return Ruling(BrokerVerdict.WRONG_REASON, f"closed with {reason} instead of without an answer", _SILENTLY)
    return _conforming(f"closed with {reason}")


def _judge_foreign_code(case: MutationCase, answers: Iterable[ControlPacket | Malformed]) -> Ruling | None:
    """The ruling on a close with a reason code outside the table of its packet, or ``None``."""
    if case.version != V5:
        return None
    for packet in answers:
        if not isinstance(packet, Malformed) or packet.reason is not MalformedReason.REASON_CODE_INVALID:
            continue
        kind, code = PacketType(packet.packet_type or 0), getattr(packet.packet, "reason_code", None)
        if kind is PacketType.CONNACK and code in RETURN_CODES:
            # The broker may have assumed an earlier version, or may not support the version.
            continue
        if kind in NOT_OF_TABLE and code is not None:
            reason = f"closed with {kind.name} 0x{code:02x}, which is not a reason code of {kind.name}"
            return Ruling(BrokerVerdict.WRONG_REASON, reason, NOT_OF_TABLE[kind])
    return None


def _judge_acceptance(case: MutationCase, seen: Observation, baseline: Baseline) -> Ruling:
    own = OWN_REASONS_5 if case.version == V5 else OWN_REASONS_BEFORE_5 | {_FAILED}
    known = seen.recorded_codes | baseline.codes
    codes = [(kind, code) for kind, code in seen.codes if code not in known]
    blaming = [(kind, code) for kind, code in codes if code not in own]
    if blaming:
        return Ruling(BrokerVerdict.REFUSED_LEGAL, f"refused with {_code_text(case, blaming)}", ())
    if codes:
        return _conforming(f"refused with {_code_text(case, codes)}, and a broker may have its own reasons for that")
    if seen.ended and seen.uses_login and not seen.accepted:
        return _conforming(f"closed ({seen.ended}) before CONNACK, as a broker that demands a login may")
    if seen.ended and not seen.client_left:
        return Ruling(BrokerVerdict.REFUSED_LEGAL, f"closed ({seen.ended}) without a reason", ())
    if seen.client_left:
        return _conforming("accepted")
    if seen.missing or seen.ping_answered is False:
        missing = tuple(dict.fromkeys(seen.missing)) or (PacketType.PINGRESP,)
        names = ", ".join(kind.name for kind in missing)
        demanded = [ANSWERED_BY[case.version, kind] for kind in missing if (case.version, kind) in ANSWERED_BY]
        malformed = any(isinstance(packet, Malformed) for packet in seen.answers)
        instead = ", but a malformed packet" if malformed else ""
        reason = f"no {names} within {seen.waited_s:g} s{instead}"
        return Ruling(BrokerVerdict.NO_ANSWER, reason, tuple(dict.fromkeys(demanded)))
    return _conforming("accepted")


def _code_text(case: MutationCase, codes: Sequence[tuple[PacketType, int]]) -> str:
    """Packets and reason codes as text: ``DISCONNECT 0x81 (Malformed Packet)``."""
    rows = dict.fromkeys(codes)
    return ", ".join(f"{kind.name} 0x{code:02x} ({reason_name(kind, code, case.version)})" for kind, code in rows)


MAX_PLAYINGS = 4
"""Maximum number of plays of a case that harmed the broker as a whole once."""


def decide(rulings: Sequence[Ruling | None]) -> tuple[int, Ruling] | None:
    """The ruling after the given plays, and the index of the play that shows it; ``None`` to play again.

    ``rulings`` has one ruling per play, ``None`` for a play that did not reach the mutation.
    A deviation counts if it occurs twice.  A single crash is proof.  Other harm to the broker as a whole may depend on
    the state that earlier plays left behind, so after one occurrence the case is played once more.
    """
    last, place = rulings[-1], len(rulings) - 1
    if last is not None and last.verdict is BrokerVerdict.CRASHED:
        return place, last
    if place == 0:
        return None if last is None or last.deviates else (place, last)
    times = Counter(ruling.verdict for ruling in rulings if ruling is not None and ruling.deviates)
    harm = [verdict for verdict in times if verdict in BROKER_WIDE]
    twice = next((verdict for verdict in (*harm, *times) if times[verdict] > 1), None)
    if twice not in harm and harm and len(rulings) < MAX_PLAYINGS:
        return None
    if twice is not None:
        numbered = reversed(list(enumerate(rulings)))
        return next((number, ruling) for number, ruling in numbered if ruling and ruling.verdict is twice)
    first = next(ruling for ruling in rulings if ruling is not None)
    return place, excuse(last or first, f"not repeated: {first.verdict} at first")


def unconfirmed(rulings: Sequence[Ruling | None], accepted: Ruling) -> list[Ruling]:
    """Rulings of harm to the broker as a whole that differ from the accepted verdict."""
    return [ruling for ruling in rulings if ruling is not None and ruling.verdict in BROKER_WIDE - {accepted.verdict}]


ANSWERED_BY = {
    (V3_1, PacketType.CONNACK): "3.1 V31-CONNACK-first",
    (V3_1, PacketType.PUBACK): "3.1 V31-PUBLISH-response",
    (V3_1, PacketType.PUBREC): "3.1 V31-PUBLISH-response",
    (V3_1, PacketType.SUBACK): "3.1 V31-SUBACK-answer",
    (V3_1, PacketType.UNSUBACK): "3.1 V31-UNSUBACK-answer",
    (V3_1, PacketType.PINGRESP): "3.1 V31-PINGREQ-answer",
    (V3_1_1, PacketType.CONNACK): "3.1.1 MQTT-3.1.4-4",
    (V3_1_1, PacketType.PUBACK): "3.1.1 MQTT-4.3.2-2",
    (V3_1_1, PacketType.PUBREC): "3.1.1 MQTT-4.3.3-2",
    (V3_1_1, PacketType.PUBCOMP): "3.1.1 MQTT-4.3.3-2",
    (V3_1_1, PacketType.SUBACK): "3.1.1 MQTT-3.8.4-1",
    (V3_1_1, PacketType.UNSUBACK): "3.1.1 MQTT-3.10.4-4",
    (V3_1_1, PacketType.PINGRESP): "3.1.1 MQTT-3.12.4-1",
    (V5, PacketType.CONNACK): "5.0 MQTT-3.1.4-5",
    (V5, PacketType.PUBACK): "5.0 MQTT-4.3.2-4",
    (V5, PacketType.PUBREC): "5.0 MQTT-4.3.3-8",
    (V5, PacketType.PUBCOMP): "5.0 MQTT-4.3.3-11",
    (V5, PacketType.SUBACK): "5.0 MQTT-3.8.4-1",
    (V5, PacketType.UNSUBACK): "5.0 MQTT-3.10.4-4",
    (V5, PacketType.PINGRESP): "5.0 MQTT-3.12.4-1",
}
"""Statement that demands an answer, by version and packet type of the answer."""
ANSWERS = {kind for _, kind in ANSWERED_BY}
"""Packet types that a broker owes as answers; all others are optional."""


def expected_responses(packet: ControlPacket | Malformed) -> frozenset[PacketType]:
    """Packet types of the answers that a packet demands; empty for a malformed packet."""
    if isinstance(packet, packets.Connect):
        return frozenset({PacketType.CONNACK})
    if isinstance(packet, packets.Publish):
        by_qos = {1: {PacketType.PUBACK}, 2: {PacketType.PUBREC, PacketType.PUBCOMP}}
        return frozenset(by_qos.get(packet.qos, ()))
    by_type = {
        PacketType.SUBSCRIBE: PacketType.SUBACK,
        PacketType.UNSUBSCRIBE: PacketType.UNSUBACK,
        PacketType.PINGREQ: PacketType.PINGRESP,
        PacketType.PUBREL: PacketType.PUBCOMP,
    }
    answer = None if isinstance(packet, Malformed) else by_type.get(packet.packet_type)
    return frozenset() if answer is None else frozenset({answer})


NOTHING = Mutation(
    "flow:as-recorded",
    MutationKind.FLOW,
    "No change: the connection is played as recorded.",
    legal_in=tuple(ProtocolVersion),
    reaction=ACCEPT,
)
"""Mutation without a change, outside the catalogue."""
AS_RECORDED = -1
"""Case number of a connection without a mutation."""


def unmutated(flow: RecordedFlow) -> MutationCase:
    """The flow as a case without a mutation."""
    steps = recorded_steps(flow, CLIENT)
    # The observation starts with CONNECT.
    steps[0] = replace(steps[0], mutated=True)
    mutated = MutatedFlow(NOTHING.name, CLIENT, flow.version, steps)
    return MutationCase(0, 0, flow.capture_hash, flow.connection, NOTHING, mutated)
