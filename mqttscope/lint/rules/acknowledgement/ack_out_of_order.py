from dataclasses import dataclass, field
from itertools import islice

from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules import RuleContext, Severity, examples, may_be_3_1, roles_guessed
from mqttscope.mqtt import PacketType, Puback, Pubrec, Pubrel
from mqttscope.session.inflight import RECEIVED, SENT

MAX_LOOKED_AT = 64
"""Maximum number of unanswered packets to search, oldest first."""


@dataclass(slots=True)
class ReportedSkips:
    """Packets already reported as acknowledged too late."""

    skipped: dict[str, int] = field(default_factory=dict)
    """Number of the packet that was skipped, by direction and packet type."""


class AckOutOfOrder(Rule):
    """A client acknowledges messages in a different order than it received them.

    The server may rely on the order: after a reconnect it resends unacknowledged messages, and a message that was
    acknowledged too early then changes places with the others.  PUBACK, PUBREC and PUBREL each have an order of their
    own.  Servers are not bound to an order, nor is any side in MQTT 3.1: there the finding has severity info.

    Instead, acknowledge in the order of arrival, even if several threads handle the messages.
    """

    code = "ACK205"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {"MQTT-4.6.0-2": "client puback", "MQTT-4.6.0-3": "client pubrec", "MQTT-4.6.0-4": "client pubrel"},
        V3_1_1: {"MQTT-4.6.0-2": "client puback", "MQTT-4.6.0-3": "client pubrec", "MQTT-4.6.0-4": "client pubrel"},
    }
    also = {V3_1_1: ("MQTT-4.6.0-6",)}
    signs = ("out_of_order",)
    needs = Needs.WHOLE
    Memory = ReportedSkips

    good = examples("""
        in order
            opened; < publish a qos=1 id=1; < publish a qos=1 id=2; > puback 1; > puback 2
        QoS 1 and QoS 2 have orders of their own
            opened 3.1.1; < publish a qos=2 id=1; < publish a qos=1 id=2; > puback 2; > pubrec 1; < pubrel 1
            > pubcomp 1
        a second PUBREC keeps the place of the first
            opened 3.1.1; > publish a qos=2 id=1; > publish a qos=2 id=2; +20 > publish a dup qos=2 id=1
            < pubrec 1 & pubrec 2 & pubrec 1; > pubrel 1 & pubrel 2; < pubcomp 1 & pubcomp 2
        the first PUBACK is not in the capture
            opened; < publish a qos=1 id=1; < publish a qos=1 id=2; lost > puback 1; > puback 2
    """)
    bad = examples("""
        PUBACK
            opened; < publish a qos=1 id=1; < publish a qos=1 id=2; > puback 2 !packet_identifier; > puback 1
        PUBREC, in MQTT 3.1.1
            opened 3.1.1; < publish a qos=2 id=1; < publish a qos=2 id=2; > pubrec 2 !packet_identifier; > pubrec 1
        PUBREL
            opened; > publish a qos=2 id=3; > publish a qos=2 id=4; < pubrec 3 & pubrec 4; > pubrel 4 !packet_identifier
            > pubrel 3
        PUBREC of the server, for information
            opened 3.1; > publish a qos=2 id=1; > publish a qos=2 id=2; < pubrec 2 !packet_identifier & pubrec 1
            > pubrel 2 & pubrel 1
        one finding for each skipped message
            opened 3.1; < publish a qos=1 id=1 & publish a qos=1 id=2 & publish a qos=1 id=3
            > puback 2 !packet_identifier; > puback 3; > puback 1
    """)

    def check(self, packet: Puback | Pubrec | Pubrel, at: RuleContext) -> Findings:
        """Compare with the oldest packet that waits for this kind of answer."""
        kind, party, identifier = packet.packet_type, at.party, packet.packet_identifier
        if kind == PacketType.PUBACK:
            waiting = party.owes_puback
        elif kind == PacketType.PUBREC:
            waiting = party.owes_pubrec
        else:
            waiting = party.owes_pubrel
        shared = (party if kind == PacketType.PUBREL else at.other).shared
        if identifier not in waiting or identifier in shared:
            return None
        first = next(iter(waiting))
        if first == identifier:
            return None
        for first in islice(waiting, MAX_LOOKED_AT):
            if first == identifier:
                return None
            if first not in shared and _is_unanswered(kind, first, at):
                break
        else:
            return None
        skipped = at.memory(self).skipped
        key = f"{at.direction} {int(kind)}"
        if skipped.get(key) == waiting[first]:
            return None
        skipped[key] = waiting[first]
        unsure = may_be_3_1(at) or roles_guessed(at)
        name, cause = packet_name(packet), "PUBREC" if kind == PacketType.PUBREL else "PUBLISH"
        return self.report(
            "packet_identifier",
            f"{name} with identifier {identifier} comes before {name} {first}, but the {cause} of {first} came first",
            severity=None if at.from_client and not (at.version is V3_1 or unsure) else Severity.INFO,
        )


def _is_unanswered(kind: int, identifier: int, at: RuleContext) -> bool:
    """Whether the exchange still waits: a wrong answer may have ended it, or another packet may use its identifier."""
    if kind == PacketType.PUBREL:
        running = at.sender.running(identifier, "publish")
        return running is not None and running.phase is RECEIVED and running.released_by is None
    running = at.receiver.running(identifier, "publish")
    if running is None or running.phase is not SENT:
        return False
    return running.qos == (1 if kind == PacketType.PUBACK else 2)
