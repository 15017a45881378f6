from dataclasses import dataclass

from mqttscope.lint.rules import Confidence, Connection, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt import ControlPacket, Direction, Disconnect, PacketType, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.constants import reason_name


@dataclass(slots=True)
class RefusedFilters:
    """Filters that were refused since the client's last reaction."""

    number: int = 0
    """Number of refused filters."""
    topic_filter: str = ""
    """The first refused filter."""
    code: int = 0
    position: int = 0
    """Stream position of the server after the last SUBACK with a refusal."""
    timestamp_ns: int = 0


class SubscribeFailureIgnored(Rule):
    """A client ignores a failed subscription.

    It waits for messages that will never arrive.  Many applications wait for a SUBACK but do not check its codes.
    Another SUBSCRIBE, an UNSUBSCRIBE, a DISCONNECT or the end of the connection counts as a reaction.

    Instead, check each code in the SUBACK; subscribe to a permitted topic, or report an error.
    """

    code = "OPS220"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    looks_at = (Suback, Subscribe, Unsubscribe, Disconnect)
    needs = Needs.WHOLE_SENDER
    Memory = RefusedFilters

    good = examples("""
        another filter
            opened; > subscribe 1 a:1; < suback 1 0x87; > subscribe 2 permitted/a:1; < suback 2 1; > publish b
            > disconnect; > fin
        unsubscribed
            opened 3.1.1; > subscribe 1 a:1; < suback 1 0x80; > unsubscribe 2 a; < unsuback 2; > publish b
        the client disconnects
            opened; > subscribe 1 a:1; < suback 1 0x87; > disconnect; > fin
        the client closes the connection
            opened; > subscribe 1 a:1; < suback 1 0x87; > fin
        the capture lost bytes
            opened; > subscribe 1 a:1; < suback 1 0x87; lost > disconnect; > publish b; > fin
        granted
            opened; > subscribe 1 a:1; < suback 1 1; > publish b
    """)
    bad = examples("""
        the client continues
            opened; > subscribe 1 a:1; < suback 1 0x87; > publish b; > fin !
        one of two filters refused, in MQTT 3.1.1
            opened 3.1.1; > subscribe 1 a:0 b:0; < suback 1 0 0x80; +20 > pingreq; < pingresp; < fin !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Store failures until the client reacts."""
        if at.from_client:
            if self.code in at.history.memories:
                at.memory(self).number = 0
            return None
        if not isinstance(packet, Suback) or not any(code >= 0x80 for code in packet.reason_codes or ()):
            return None
        request = at.history.subscriptions.request_for(packet.packet_identifier, "subscribe")
        codes = packet.reason_codes
        if request is None or len(request.topic_filters) != len(codes):
            return None
        memory: RefusedFilters = at.memory(self)
        failed = [(name, code) for name, code in zip(request.topic_filters, codes, strict=True) if code >= 0x80]
        if not memory.number:
            memory.topic_filter, memory.code = failed[0]
        memory.number += len(failed)
        memory.position, memory.timestamp_ns = at.party.position, at.timestamp_ns
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report failures if the client sent packets after it had received the SUBACK."""
        if self.code not in at.history.memories:
            return None
        memory: RefusedFilters = at.memory(self)
        last_ns = at.client.last_timestamp_ns
        if not memory.number or last_ns is None or last_ns <= memory.timestamp_ns:
            return None
        if at.history.client.acknowledged < memory.position:
            return None
        name, code = memory.topic_filter, memory.code
        more = f", and {memory.number - 1:,} more" if memory.number > 1 else ""
        reason = reason_name(PacketType.SUBACK, code, at.version)
        return self.report(
            "",
            f"{at.client_name!r} never reacted to SUBACK failure 0x{code:02x} ({reason}) for {shown(name)}{more}",
            sender=Direction.CLIENT_TO_SERVER,
        )
