from mqttscope.lint.context import RuleContext
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples, packet_name
from mqttscope.mqtt import ControlPacket, Direction, PacketType, Puback, Pubcomp, Publish, Pubrec, Pubrel


class StaleStateAfterSessionLoss(Rule):
    """A client continues with exchanges of a session that the server no longer has.

    CONNACK had Session Present 0, so the server has no record of the packet identifiers.  It answers 0x92, closes the
    connection, or misinterprets the repeat.  MQTT 3.1.1 allows a client that kept its session to continue, so there the
    finding is only info.

    Instead, discard the old session on Session Present 0, and publish unfinished messages as new ones.
    """

    code = "SES201"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-5": ""}}
    also = {V5: ("MQTT-3.1.2-4",)}
    looks_at = (Publish, Puback, Pubrec, Pubrel, Pubcomp)
    sender = Direction.CLIENT_TO_SERVER
    when = "qos"
    always = (Puback, Pubrec, Pubrel, Pubcomp)
    signs = ("state_lost",)
    needs = Needs.OPENING | Needs.WHOLE

    good = examples("""
        published as a new message
            opened resume; > publish a qos=1 id=1; < puback 1
        the session continues
            opened resume < present; > publish a dup qos=1 id=1 & pubrel 2; < puback 1 & pubcomp 2
        sent before the CONNACK arrived
            opened 3.1.1 resume; crossing > pubrel 7; < pubcomp 7
        exchanges of this connection
            opened resume; > publish a qos=2 id=1; < pubrec 1; > pubrel 1; < pubcomp 1 & publish b qos=1 id=9
            > puback 9
    """)
    bad = examples("""
        PUBREL
            opened resume; > pubrel 7 !packet_identifier
        PUBLISH with DUP 1
            opened resume; > publish a dup qos=1 id=7 !dup
        acknowledgements of messages on the last connection
            opened resume; > puback 7 !packet_identifier; > pubrec 8 !packet_identifier; > pubcomp 9 !packet_identifier
        info in MQTT 3.1.1
            opened 3.1.1 resume; > pubrel 7 !packet_identifier; < pubcomp 7
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Look for packets without a matching exchange on this connection."""
        connection = at.connection
        if connection.session_present is not False or connection.clean_start:
            return None  # PUB208 and ACK203 check clients that asked for a new session
        kind = packet.packet_type
        if isinstance(packet, Publish):
            identifier = packet.packet_identifier
            if not packet.dup or not packet.qos or identifier is None or at.party.has_sent(identifier):
                return None
            field, name = "dup", f"PUBLISH {at.topic!r} with DUP 1"
        else:
            identifier = packet.packet_identifier  # type: ignore[attr-defined]
            assert identifier is not None
            if (at.party if kind == PacketType.PUBREL else at.other).has_sent(identifier):
                return None
            if identifier in at.party.owes_pubrel or identifier in at.party.owes_pubcomp:
                return None
            if kind != PacketType.PUBREL and at.version is not V5:
                return None  # in 3.1.1 only PUBLISH and PUBREL may be resent: ACK203
            if identifier in at.receiver.exchanges or identifier in at.party.pubrels_again:
                return None
            field, name = "packet_identifier", packet_name(packet)
        connack = at.history.connack_sent
        if connack is None or not at.knew(connack) or not at.party.in_step():
            return None
        return self.report(
            field,
            f"client sends {name} with identifier {identifier} although CONNACK had Session Present 0",
            severity=Severity.INFO if at.version is V3_1_1 else None,
            related=(Related.to("the CONNACK", connack),),
        )
