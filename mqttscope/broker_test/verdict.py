"""Judges what a broker did in a case by what the specification demands.

The text of a statement decides, never what other brokers do.  Where the broker may have had a reason of its own, or
cannot have seen the violation, the verdict is ``conforming``.

`judge` compares an observation with the answers that the broker owes (`expected_responses`, 5.0 3.1 to 3.12) and with
its `Baseline`: answers that it withholds from, or refuses to, the unmutated connection say nothing about a mutation.
One observation proves nothing, so `decided` combines several playings of the same case.
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
from mqttscope.mutate import Case, Demand, MutatedFlow, Mutation, RecordedFlow
from mqttscope.mutate.flow import CLIENT, recorded_steps
from mqttscope.mutate.mutation import ACCEPT, MutationKind

V3_1, V3_1_1, V5 = ProtocolVersion


@dataclass(slots=True, frozen=True)
class Baseline:
    """How a broker took a connection as it was recorded."""

    missing: frozenset[PacketType] = frozenset()
    """Answers that it owed and did not give."""
    codes: frozenset[int] = frozenset()
    """Reason codes of failures."""
    ended: bool = False
    """It ended the connection."""

    def told(self) -> str:
        """For people, what is not as it has to be; empty where nothing is."""
        parts = []
        if self.missing:
            parts.append(f"gives no {', '.join(sorted(one.name for one in self.missing))}")
        if self.codes:
            parts.append(f"refuses with {', '.join(f'0x{code:02x}' for code in sorted(self.codes))}")
        if self.ended:
            parts.append("ends the connection")
        return " and ".join(parts)


NO_BASELINE = Baseline()
CLIENTS_CODES = frozenset({0x00, 0x04})
"""Codes of a DISCONNECT that clients may send and servers may not (5.0 3.14.2.1): good-bye, with a Will and without."""
OF_A_CLIENT = ("5.0 V5-DISCONNECT-sender",)
"""Each DISCONNECT code is used by the side that the table names."""
NOT_OF_TABLE = {
    PacketType.CONNACK: ("5.0 MQTT-3.2.2-8",),
    PacketType.DISCONNECT: ("5.0 MQTT-3.14.2-1",),
}
"""Reason codes are those of the table of the packet that has them."""
_SILENTLY = ("3.1.1 MQTT-3.1.4-1",)
"""A malformed CONNECT gets no CONNACK in 3.1.1."""
BLAMES = frozenset({0x81, 0x82, 0x90, 0x93, 0x94, 0x95, 0x9A, 0x9B, 0x9E, 0xA1, 0xA2})
"""Reason codes of 5.0 that blame the client for a packet; all others may have reasons of their own (5.0 4.13.2)."""
GENERAL = frozenset({0x81, 0x82})
"""Malformed Packet and Protocol Error: no statement demands one of them rather than the other, or a closer one."""
OWN_REASONS_5 = frozenset(range(0x83, 0xA3)) - {0x84, 0x8D, 0x92, 0x93, 0x94}
"""Reason codes of 5.0 with which a broker may refuse what is legal: who may do what, limits, its own state.

0x8F and 0x90 are among them: "correctly formed but not allowed for this Client" (3.9.3), "not malformed, but not
accepted by this Client or Server" (3.4.2.1).
"""
OWN_REASONS_BEFORE_5 = frozenset({2, 3, 4, 5})
"""Return codes of CONNACK in 3.1 and 3.1.1 that are about who connects and not about the packet."""
_FAILED = 0x80


class Verdict(StrEnum):
    """What is said about a broker in one case."""

    CONFORMING = "conforming"
    TOLERATED = "tolerated"
    """The statement demands a close, and none came."""
    WRONG_REASON = "wrong-reason"
    """It closed, and gave another reason than the specification names."""
    REFUSED_LEGAL = "refused-legal"
    """It refused what has to be accepted."""
    NO_ANSWER = "no-answer"
    """It neither answers what it has to answer nor closes."""
    CRASHED = "crashed"
    HUNG = "hung"
    """It takes connections and serves nobody, or nobody who comes."""
    LEAKED = "leaked"
    """Its memory grows each time."""
    COLLATERAL = "collateral"
    """Another client suffered."""


BROKER_WIDE = frozenset({Verdict.CRASHED, Verdict.HUNG, Verdict.LEAKED, Verdict.COLLATERAL})
"""Verdicts about the broker as a whole, for which no statement is needed."""


@dataclass(slots=True, frozen=True)
class Ruling:
    """A verdict and its reason."""

    verdict: Verdict
    why: str
    """One sentence fragment."""
    statements: tuple[str, ...] = ()
    """Statements that the broker breaks; empty where it conforms."""

    @property
    def deviates(self) -> bool:
        return self.verdict is not Verdict.CONFORMING


@dataclass(slots=True)
class Observation:
    """What happened on the connection of a case, from the mutation's first byte on."""

    answers: list[ControlPacket | Malformed] = field(default_factory=list)
    """Packets of the broker since then."""
    accepted: bool = False
    """A CONNACK accepted the connection, before or since."""
    ended: str = ""
    """``fin``, ``reset`` or ``failed`` when the broker ended the connection."""
    left: bool = False
    """The client had said that it leaves: DISCONNECT, FIN or reset."""
    fenced: bool | None = None
    """Whether a PINGREQ after everything was answered; ``None`` where none could be sent."""
    missing: list[PacketType] = field(default_factory=list)
    """Answers that were waited for in vain."""
    asked: bool = False
    """Before it accepted the connection, the broker asked for more authentication than was recorded."""
    recorded_codes: frozenset[int] = frozenset()
    """Reason codes of failures in the recording: what was refused there may be refused here."""
    waited_s: float = 0.0
    """How long the broker had for its last reaction."""
    login: bool = False
    """The broker is used with a User Name of ours: it may be one that refuses others."""

    @property
    def codes(self) -> list[tuple[PacketType, int]]:
        return list(_codes(self.answers))


def _codes(answers: Iterable[ControlPacket | Malformed]) -> Iterable[tuple[PacketType, int]]:
    for one in answers:
        if isinstance(one, Connack):
            if one.reason_code:
                yield one.packet_type, one.reason_code
        elif isinstance(one, Disconnect | Puback | Pubrec | Pubcomp):
            if (one.reason_code or 0) >= _FAILED:
                yield one.packet_type, one.reason_code or 0
        elif isinstance(one, Suback | Unsuback):
            for code in one.reason_codes or ():
                if code >= _FAILED:
                    yield one.packet_type, code


def judge(case: Case, seen: Observation, baseline: Baseline = NO_BASELINE) -> Ruling:
    """What the specification says about a reaction; about this connection alone.

    ``baseline`` is how the broker took the connection without the mutation: what it lacked then proves nothing.
    """
    demand = case.reaction.demand
    if demand is Demand.ANY:
        return _conforming("nothing is demanded but to continue serving")
    ruling = _closing(case, seen) if demand is not Demand.ACCEPT else _accepting(case, seen, baseline)
    if ruling.verdict is Verdict.NO_ANSWER and seen.asked:
        return excused(ruling, "it asks for more authentication than was recorded")
    if demand is not Demand.ACCEPT:
        return ruling
    still_open = seen.fenced or (seen.missing and not seen.accepted)
    if ruling.verdict is Verdict.NO_ANSWER and baseline.missing.issuperset(seen.missing) and still_open:
        return excused(ruling, "so it is without the mutation")
    if ruling.verdict is Verdict.REFUSED_LEGAL and baseline.ended:
        return excused(ruling, "so it is without the mutation")
    return ruling


def _conforming(why: str) -> Ruling:
    return Ruling(Verdict.CONFORMING, why)


def excused(ruling: Ruling, why: str) -> Ruling:
    return replace(ruling, verdict=Verdict.CONFORMING, why=f"{why} ({ruling.why})", statements=())


def _closing(case: Case, seen: Observation) -> Ruling:
    demanded = case.mutation.demanded_by(case.version, case.flow.sender)
    closing = [(kind, code) for kind, code in seen.codes if kind in (PacketType.CONNACK, PacketType.DISCONNECT)]
    if seen.ended:
        return _reason(case, closing, seen)
    if case.reaction.demand is Demand.REFUSE and seen.codes:
        return _conforming(f"refused with {_told(case, seen.codes)}")
    if seen.left:
        return _conforming("the client had left, so that there was nothing to close")
    if seen.fenced:
        refused = f"it refuses with {_told(case, seen.codes)}, but " if seen.codes else ""
        return Ruling(Verdict.TOLERATED, f"{refused}the connection continues, PINGREQ is answered", demanded)
    if closing:
        told = _told(case, closing)
        return Ruling(Verdict.TOLERATED, f"{told} came, and the connection stays open", demanded)
    if seen.accepted and any(isinstance(one, Connack) for one in seen.answers):
        return Ruling(Verdict.TOLERATED, "the connection was accepted and stays open", demanded)
    return Ruling(Verdict.NO_ANSWER, f"neither a close nor an answer within {seen.waited_s:g} s", demanded)


def _reason(case: Case, closing: Sequence[tuple[PacketType, int]], seen: Observation) -> Ruling:
    """The connection was closed: whether the reason is the right one."""
    good_bye = next((one for one in seen.answers if isinstance(one, Disconnect)), None)
    if case.version == V5 and good_bye is not None and (good_bye.reason_code or 0) in CLIENTS_CODES:
        told = _told(case, [(good_bye.packet_type, good_bye.reason_code or 0)])
        return Ruling(Verdict.WRONG_REASON, f"closed with {told}, which only clients may send", OF_A_CLIENT)
    foreign = _of_no_table(case, seen.answers)
    if foreign is not None:
        return foreign
    if not closing:
        return _conforming(f"closed ({seen.ended})")
    kind, code = closing[-1]
    told = _told(case, closing[-1:])
    if case.version == V5:
        fitting = case.reaction.reason_codes
        if fitting and code in BLAMES and code not in fitting and code not in GENERAL:
            due = " or ".join(f"0x{one:02x}" for one in fitting)
            demanded = case.mutation.demanded_by(case.version, case.flow.sender)
            return Ruling(Verdict.WRONG_REASON, f"closed with {told}, due is {due}", demanded)
    elif kind is PacketType.CONNACK and case.version == V3_1_1:
        return Ruling(Verdict.WRONG_REASON, f"closed with {told} instead of without an answer", _SILENTLY)
    return _conforming(f"closed with {told}")


def _of_no_table(case: Case, answers: Iterable[ControlPacket | Malformed]) -> Ruling | None:
    """The ruling for a close with a reason code that its packet does not have; ``None`` where there is none."""
    if case.version != V5:
        return None
    for one in answers:
        if not isinstance(one, Malformed) or one.reason is not MalformedReason.REASON_CODE_INVALID:
            continue
        kind, code = PacketType(one.packet_type or 0), getattr(one.packet, "reason_code", None)
        if kind is PacketType.CONNACK and code in RETURN_CODES:
            # It may have taken the client for one of an earlier version, or of no version that it knows.
            continue
        if kind in NOT_OF_TABLE and code is not None:
            told = f"closed with {kind.name} 0x{code:02x}, a code that {kind.name} does not have"
            return Ruling(Verdict.WRONG_REASON, told, NOT_OF_TABLE[kind])
    return None


def _accepting(case: Case, seen: Observation, baseline: Baseline) -> Ruling:
    own = OWN_REASONS_5 if case.version == V5 else OWN_REASONS_BEFORE_5 | {_FAILED}
    known = seen.recorded_codes | baseline.codes
    codes = [(kind, code) for kind, code in seen.codes if code not in known]
    blaming = [(kind, code) for kind, code in codes if code not in own]
    if blaming:
        return Ruling(Verdict.REFUSED_LEGAL, f"refused with {_told(case, blaming)}", ())
    if codes:
        return _conforming(f"refused with {_told(case, codes)}, for which a broker may have reasons of its own")
    if seen.ended and seen.login and not seen.accepted:
        return _conforming(f"closed ({seen.ended}) before CONNACK, as who wants a login may")
    if seen.ended and not seen.left:
        return Ruling(Verdict.REFUSED_LEGAL, f"closed ({seen.ended}) without a reason", ())
    if seen.left:
        return _conforming("accepted")
    if seen.missing or seen.fenced is False:
        missing = tuple(dict.fromkeys(seen.missing)) or (PacketType.PINGRESP,)
        names = ", ".join(one.name for one in missing)
        demanded = [ANSWERED_BY[case.version, one] for one in missing if (case.version, one) in ANSWERED_BY]
        malformed = any(isinstance(one, Malformed) for one in seen.answers)
        what = ", but something malformed" if malformed else ""
        return Ruling(Verdict.NO_ANSWER, f"no {names} within {seen.waited_s:g} s{what}", tuple(dict.fromkeys(demanded)))
    return _conforming("accepted")


def _told(case: Case, codes: Sequence[tuple[PacketType, int]]) -> str:
    """``DISCONNECT 0x81 (Malformed Packet)``."""
    rows = dict.fromkeys(codes)
    return ", ".join(f"{kind.name} 0x{code:02x} ({reason_name(kind, code, case.version)})" for kind, code in rows)


MAX_PLAYINGS = 4
"""So often a case is played at most, where it harmed the broker as a whole once."""


def decided(rulings: Sequence[Ruling | None]) -> tuple[int, Ruling] | None:
    """What the playings so far come to, and the place of the one that shows it; ``None``: it is to be played again.

    ``rulings``: of each of them, ``None`` for one that did not come as far as its mutation.
    A deviation counts when it is seen twice.  A crash is proof as it is; other harm to the whole broker may need what
    an earlier playing has left there, so that it is looked for once more where it was seen once.
    """
    last, place = rulings[-1], len(rulings) - 1
    if last is not None and last.verdict is Verdict.CRASHED:
        return place, last
    if place == 0:
        return None if last is None or last.deviates else (place, last)
    times = Counter(one.verdict for one in rulings if one is not None and one.deviates)
    harm = [verdict for verdict in times if verdict in BROKER_WIDE]
    twice = next((verdict for verdict in (*harm, *times) if times[verdict] > 1), None)
    if twice not in harm and harm and len(rulings) < MAX_PLAYINGS:
        return None
    if twice is not None:
        return next((at, one) for at, one in reversed(list(enumerate(rulings))) if one and one.verdict is twice)
    first = next(one for one in rulings if one is not None)
    return place, excused(last or first, f"not the same twice: {first.verdict} first")


def unconfirmed(rulings: Sequence[Ruling | None], accepted: Ruling) -> list[Ruling]:
    """Harm to the whole broker that was seen and is not what the case comes to."""
    return [one for one in rulings if one is not None and one.verdict in BROKER_WIDE - {accepted.verdict}]


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
"""The statements that demand an answer, by version and the answer's type."""
ANSWERS = {kind for _, kind in ANSWERED_BY}
"""What a broker owes: everything else may stay away."""


def expected_responses(packet: ControlPacket | Malformed) -> frozenset[PacketType]:
    """Types of the answers that a packet asks for; none for one that is malformed."""
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
    found = None if isinstance(packet, Malformed) else by_type.get(packet.packet_type)
    return frozenset() if found is None else frozenset({found})


NOTHING = Mutation(
    "flow:as-recorded",
    MutationKind.FLOW,
    "Nothing is changed: this is the connection as it was recorded.",
    legal_in=tuple(ProtocolVersion),
    reaction=ACCEPT,
)
"""Not one of the catalogue: it tests nothing."""
AS_RECORDED = -1
"""In the place of a case's number."""


def unmutated(flow: RecordedFlow) -> Case:
    """The flow as a case in which everything is as recorded."""
    steps = recorded_steps(flow, CLIENT)
    # All of it is looked at, from the CONNECT on.
    steps[0] = replace(steps[0], mutated=True)
    mutated = MutatedFlow(NOTHING.name, CLIENT, flow.version, steps)
    return Case(0, 0, flow.capture_hash, flow.connection, NOTHING, mutated)
