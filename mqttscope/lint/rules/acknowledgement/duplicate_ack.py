from mqttscope.lint.rules import Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import ControlPacket, PacketType, Puback, Pubcomp, Pubrec
from mqttscope.session.inflight import SENT


class DuplicateAck(Rule):
    """A PUBLISH or PUBREL is acknowledged twice although it was sent once.

    The identifier may be in use again by then, and the second acknowledgement ends the wrong exchange.  Each
    transmission of a packet is acknowledged exactly once.

    Instead, acknowledge each packet once, from one place in the program.
    """

    code = "ACK210"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    looks_at = (Puback, Pubrec, Pubcomp)
    signs = ("odd_answer",)
    needs = Needs.WHOLE

    good = examples("""
        one acknowledgement for each packet
            opened; > publish a qos=1 id=7; < puback 7; > publish a qos=1 id=7; < puback 7
        a repeated PUBLISH is acknowledged again
            opened 3.1.1; > publish a qos=1 id=7; +20 > publish a dup qos=1 id=7; < puback 7 & puback 7
        every step of QoS 2 repeated
            opened 3.1; > publish a qos=2 id=7; +20 > publish a dup qos=2 id=7; < pubrec 7 & pubrec 7
            > pubrel 7 & pubrel 7; < pubcomp 7 & pubcomp 7
        the repeated PUBLISH is not in the capture
            opened 3.1.1; > publish a qos=1 id=7; +20 lost > publish a dup qos=1 id=7; < puback 7 & puback 7
    """)
    bad = examples("""
        PUBACK
            opened; > publish a qos=1 id=7; < puback 7; < puback 7 !packet_identifier
        PUBREC, at once and after the PUBCOMP
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; > pubrec 7 !packet_identifier; < pubrel 7; > pubcomp 7
            > pubrec 7 !packet_identifier
        PUBCOMP
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; < pubcomp 7 !packet_identifier
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Look for an exchange that already has one acknowledgement for each transmission of its packet."""
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        kind = packet.packet_type
        running = at.receiver.exchanges.get(identifier)
        if kind == PacketType.PUBREC:
            again = _pubrec_again(identifier, at)
        elif running is not None:
            return None
        else:
            again = _answered(kind, identifier, at)
        if not again or identifier in at.other.shared or not at.party.in_step():
            return None
        asked = "PUBREL" if kind == PacketType.PUBCOMP else "PUBLISH"
        return self.report(
            "packet_identifier", f"second {packet_name(packet)} with identifier {identifier} for one {asked}"
        )


def _answered(kind: int, identifier: int, at: RuleContext) -> bool:
    """Whether the exchange already ended with one PUBACK or PUBCOMP for each transmission."""
    ended = at.other.ended.get(identifier)
    if ended is None or ended.by != kind:
        return False
    if kind == PacketType.PUBCOMP:
        return identifier not in at.party.owes_pubcomp and identifier not in at.party.pubrels_again
    return ended.answers > ended.retransmissions


def _pubrec_again(identifier: int, at: RuleContext) -> bool:
    """Whether a PUBREC was already sent for a PUBLISH that was sent once."""
    if identifier in at.party.owes_pubrec:
        return False
    running = at.receiver.exchanges.get(identifier)
    if running is None:
        ended = at.other.ended.get(identifier)
        return ended is not None and ended.qos == 2 and ended.retransmissions == 0
    return running.qos == 2 and running.phase is not SENT and running.retransmissions == 0
