from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Publish


class ResendAfterNegativeAck(Rule):
    """A PUBLISH is resent although an acknowledgement refused it.

    A PUBACK or PUBREC with 0x80 or more also ends the exchange: the receiver has decided, and will decide the same way
    again.  A sender that ignores this answer retries forever, usually after each reconnect.  A refusal on an earlier
    connection makes a warning: the capture may lack a connection in between.

    Instead, give the message up, or publish it later as a new message with DUP 0.
    """

    code = "ACK209"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {V5: {"MQTT-4.4.0-2": ""}}
    when = "dup"
    needs = Needs.WHOLE_SENDER
    models = (SessionModel,)

    good = examples("""
        given up
            opened; > publish a qos=1 id=7; < puback 7 code=0x87
        published as a new message
            opened; > publish a qos=1 id=7; < puback 7 code=0x97; +60 > publish a qos=1 id=7; < puback 7
        another message used the identifier on a connection in between
            opened resume session_expiry_interval=3600; > publish a qos=1 id=7; < puback 7 code=0x97; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish b qos=1 id=7; @1 < puback 7
            @1 > reset; @2 opened resume session_expiry_interval=3600 < present
            @2 > publish a dup qos=1 id=7; @2 < puback 7
        the session has ended in between
            opened resume session_expiry_interval=3600; > publish a qos=1 id=7; < puback 7 code=0x97; > reset
            @1 opened session_expiry_interval=3600; @1 > reset
            @2 opened resume session_expiry_interval=3600 < present; @2 > publish a dup qos=1 id=7; @2 < puback 7
    """)
    bad = examples("""
        after a PUBACK
            opened; > publish a qos=1 id=7; < puback 7 code=0x87; +20 > publish a dup qos=1 id=7 !dup
        after a PUBREC, by the server
            opened; < publish a qos=2 id=7; > pubrec 7 code=0x83; +20 < publish a dup qos=2 id=7 !dup
        on the next connection
            opened resume session_expiry_interval=3600; > publish a qos=1 id=7; < puback 7 code=0x97; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a dup qos=1 id=7 !dup
        on the next connection, by the server
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; < publish a qos=1 id=7
            > puback 7 code=0x83; > reset; @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a dup qos=1 id=7 !dup
        on a later connection
            opened resume session_expiry_interval=3600; > publish a qos=1 id=7; < puback 7 code=0x97; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pingreq; @1 < pingresp; @1 > reset
            @2 opened resume session_expiry_interval=3600 < present; @2 > publish a dup qos=1 id=7 !dup
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check how the exchange of this identifier ended."""
        identifier = packet.packet_identifier
        if not packet.qos or identifier is None:
            return None
        ended = at.party.ended.get(identifier)
        if ended is None and not at.party.has_sent(identifier):
            return self._after_reconnect(packet, identifier, at)
        if ended is None or ended.reason_code < 0x80 or identifier in at.sender.exchanges:
            return None
        if identifier in at.party.shared:
            return None  # the refusal may belong to the other packet with this identifier
        if not at.knew(ended.answer) or not at.party.repeats(packet, at.topic, ended.exchange):
            return None
        name, code = PacketType(ended.by).name, ended.reason_code
        return self.report(
            "dup",
            f"PUBLISH {at.topic!r} with identifier {identifier} is resent although {name} 0x{code:02x} "
            f"({reason_name(ended.by, code, V5)}) refused it",
            related=(Related.to(f"the {name}", ended.answer),),
        )

    def _after_reconnect(self, packet: Publish, identifier: int, at: RuleContext) -> Findings:
        """Look for a refusal on an earlier connection."""
        model = at.model(SessionModel)
        before = model.refused(at.direction, at).get(identifier)
        if before is None or before.refused is None or not before.is_message(packet, at.topic):
            return None
        return self.report(
            "dup",
            f"PUBLISH {at.topic!r} with identifier {identifier} is resent although {before.refused.message[4:]}"
            f" 0x{before.reason_code:02x} refused it on an earlier connection",
            related=(before.refused,),
            # A connection in between with a CONNECT that the capture lacks may have used the identifier.
            **{"severity": Severity.WARNING, **doubted(apart=model.apart)},
        )
