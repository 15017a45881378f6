from mqttscope.lint.rules import V3_1_1, Confidence, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.connect.password_without_username import lacks_user_name
from mqttscope.lint.rules.will.will_topic_invalid import PROBLEMS, will_topic_faults
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, reason_name
from mqttscope.mqtt.packets import LEVELS_3_1_1, Connack, Connect

_OWN_ANSWERS = (0x01, 0x02, 0x04, 0x05)
"""Return codes of faults with their own refusal: protocol level, Client Identifier, authorization."""
_OTHER_PROTOCOL = (MalformedReason.PROTOCOL_NAME_INVALID, MalformedReason.PROTOCOL_VERSION_UNKNOWN)
"""Faults that may make a server treat the connection as another protocol."""


class ConnackAfterMalformedConnect(Rule):
    """A server answers a CONNECT that violates MQTT 3.1.1 with a CONNACK.

    In 3.1.1 the server has to close the connection without an answer to such a CONNECT.  A server that accepts it
    guesses the client's intention, and the next server refuses the same client.  (MQTT 5.0 has reason codes for this
    and allows a CONNACK that refuses.)

    Instead, close the connection without a CONNACK.
    """

    code = "CON220"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V3_1_1,)
    statements = {V3_1_1: {"MQTT-3.1.4-1": ""}}
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        a correct CONNECT
            opened 3.1.1
        a refusal with a return code of its own
            opened 3.1.1 < code=0x05; < fin
    """)
    bad = examples("""
        the reserved flag, accepted
            > raw 10 0e 0004 "MQTT" 0403003c 0002 "c1"; < raw 20 02 0000 !reason_code
        bytes after the last field, refused with 0x03
            > connect 3.1.1 user_name=u connect_flags=0x02; < raw 20 02 0003 !reason_code
        a password without a user name, accepted
            opened 3.1.1 password=p < !reason_code
        a wildcard in the Will Topic, accepted
            opened 3.1.1 will=a/# will_payload=x < !reason_code
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Look for a fault in the CONNECT."""
        if packet.reason_code in _OWN_ANSWERS or at.history.connack is not None:
            return None
        why, sent = _problem(at), at.history.connect_sent
        if why is None or sent is None:
            return None
        name = reason_name(PacketType.CONNACK, packet.reason_code, V3_1_1)
        return self.report(
            "reason_code",
            f"malformed CONNECT ({why}) is answered with CONNACK 0x{packet.reason_code:02x} ({name}); "
            "MQTT 3.1.1 requires a close without CONNACK",
            related=(Related.to("the CONNECT", sent),),
        )


def _problem(at: RuleContext) -> str | None:
    """The fault in a CONNECT of MQTT 3.1.1, or ``None``."""
    malformed = at.history.connect_malformed
    connect = at.history.connect if malformed is None else malformed.packet
    if not isinstance(connect, Connect) or connect.protocol_level not in LEVELS_3_1_1:
        return None
    for fault in malformed.faults if malformed is not None else ():
        if fault.reason in _OTHER_PROTOCOL:
            return None
        return f"{fault.field}: {fault.detail}" if fault.field else fault.detail
    if lacks_user_name(connect):
        return "password without user name"
    return next((f"{name} {topic!r} {PROBLEMS[why]}" for _, name, topic, why in will_topic_faults(connect)), None)
