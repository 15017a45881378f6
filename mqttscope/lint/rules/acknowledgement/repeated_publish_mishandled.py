from collections.abc import Iterator
from typing import Any

from mqttscope.lint.rules import V3_1_1, V5, Findings, Related, Report, RuleContext, Severity, examples, packet_name
from mqttscope.lint.waiting import AnswerRule, OverduePacket
from mqttscope.mqtt import Direction, PacketType, Puback, Publish, Pubrec
from mqttscope.session.inflight import RECEIVED

IN_USE = 0x91
"""Reason code: Packet Identifier in use."""
AGAIN = "MQTT-4.3.3-10"
OVER = {PacketType.PUBACK: "MQTT-4.3.2-5", PacketType.PUBREC: "MQTT-4.3.3-9", PacketType.PUBCOMP: "MQTT-4.3.3-12"}
"""Statement that makes a PUBLISH a new message, by the packet that ended the previous exchange."""


class RepeatedPublishMishandled(AnswerRule):
    """A receiver refuses or ignores a PUBLISH because it has seen its packet identifier before.

    Until its PUBREL, a repeated QoS 2 PUBLISH is the same message, and is answered with PUBREC again.  After PUBACK,
    PUBCOMP or a refusing PUBREC the identifier is free, and a PUBLISH that uses it is a new message, whatever its DUP
    flag.  A receiver that answers 0x91 (Packet Identifier in use) makes the sender give up the message or the
    connection.  An unanswered repeat is reported after ``timeout`` seconds.

    Instead, answer a repeat like the first PUBLISH, and forget the identifier when its exchange has ended.
    """

    code = "ACK518"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-4.3.2-5": "puback", "MQTT-4.3.3-9": "pubrec", "MQTT-4.3.3-10": "", "MQTT-4.3.3-12": "pubrec"},
        V3_1_1: {"MQTT-4.3.3-2": ""},
    }
    also = {V3_1_1: ("MQTT-4.3.2-2",)}
    looks_at = (Publish, Puback, Pubrec)
    waits = False
    when = {Publish: "dup", Puback: "reason_code", Pubrec: "reason_code"}

    good = examples("""
        PUBREC for both
            opened 3.1; > publish a qos=2 id=7; < pubrec 7; > publish a dup qos=2 id=7; < pubrec 7
            > pubrel 7 & pubrel 7; < pubcomp 7 & pubcomp 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin
        a new message with an identifier that is free again
            opened; > publish a qos=1 id=7; < puback 7; > publish b qos=1 id=7; < puback 7 code=0x97; +20 > pingreq
            < pingresp; +20 > pingreq; < pingresp; > fin
        perhaps in use since before the reconnect
            opened resume < present; > publish a qos=1 id=7; < puback 7 code=0x91
    """)
    bad = examples("""
        0x91 for a repeat
            opened; > publish a qos=2 id=7; < pubrec 7; > publish a dup qos=2 id=7; < pubrec 7 code=0x91 !reason_code
        0x91 though the identifier is free again
            opened; > publish a qos=1 id=7; < puback 7; > publish b qos=1 id=7; < puback 7 code=0x91 !reason_code
        0x91 after PUBCOMP
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; > publish b qos=2 id=7
            < pubrec 7 code=0x91 !reason_code
        no answer in 3.1.1
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > publish a dup qos=2 id=7; < ack; +60 > fin !
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Wait for the answer to a repeat, and check acknowledgements that refuse one."""
        if isinstance(packet, Publish):
            return super().check(packet, at) if packet.qos == 2 else None
        if packet.reason_code != IN_USE or packet.packet_identifier in at.other.shared:
            return None
        before = at.other.ended.get(packet.packet_identifier)
        running = at.receiver.running(packet.packet_identifier, "publish")
        if running is None:
            return None
        if running.retransmissions:
            circumstance, exchange, broken = "that was resent before its PUBREL", running, AGAIN
        elif before is not None and before.packet < running.packet:
            circumstance, exchange = "after the exchange that had its identifier had ended", before.exchange
            broken = OVER[PacketType(before.by)]
        else:
            return None
        return self.report(
            "reason_code",
            f"{packet_name(packet)} refuses a PUBLISH {circumstance} with 0x91 (Packet Identifier in use), expected "
            f"{packet_name(packet)} as for {'the first one' if exchange is running else 'a new message'}",
            related=(Related.to("the PUBLISH before", exchange),),
            statements=(broken,),
        )

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """Repeats of a PUBLISH that was answered with PUBREC."""
        sender = at.connection.receiver(debtor)
        for identifier, number in at.history.party(debtor).owes_pubrec.items():
            exchange = sender.running(identifier, "publish")
            if exchange is not None and exchange.phase is RECEIVED and exchange.packet < number:
                yield identifier, number

    def describe(self, overdue: OverduePacket, at: RuleContext) -> Report | None:
        """Name the repeat and the answer that is missing."""
        text = (
            f"repeated PUBLISH with packet identifier {overdue.identifier} got no PUBREC in {self.set['timeout']} s, "
            "but the first one did"
        )
        return self.overdue(overdue, text, "the first PUBLISH")
