from mqttscope.lint.rules import V3_1, V3_1_1, Connection, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.connect.empty_client_id_without_clean_session import keeps_nameless_session
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Connack

_REJECTED = 0x02


class EmptyClientIdNotRefused(Rule):
    """A server does not refuse an empty Client Identifier with CleanSession 0, although it must.

    MQTT 3.1.1 requires CONNACK 0x02 (identifier rejected) and a close.  A client that is accepted waits in vain for its
    session, and with any other answer, or without one, its developers look for the fault elsewhere.

    Instead, answer with 0x02 and close the connection.
    """

    code = "CON219"
    severity = Severity.ERROR
    versions = (V3_1_1,)
    statements = {V3_1_1: {"MQTT-3.1.3-8": ""}}
    also = {V3_1: ("V31-CONNECT-client-id-refused",)}
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        an empty identifier with CleanSession 1
            opened 3.1.1 client=-
        an identifier with CleanSession 0
            opened 3.1.1 resume
    """)
    bad = examples("""
        accepted
            opened 3.1.1 client=- resume < !reason_code
        refused with another code
            opened 3.1.1 client=- resume < code=0x05 !reason_code; < fin
        closed without CONNACK
            > connect 3.1.1 client=- resume; < fin !
        reset without CONNACK
            > connect 3.1.1 client=- resume; < reset !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Report any code but 0x02."""
        code = packet.reason_code
        if code == _REJECTED or not _is_nameless(at):
            return None
        did = (
            f"refuses it with 0x{code:02x} ({reason_name(PacketType.CONNACK, code, V3_1_1)})" if code else "accepts it"
        )
        message = f"empty Client Identifier with CleanSession 0: the server {did}, but must refuse it with 0x02"
        return self.report("reason_code", message, related=_request(at))

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a close without an answer."""
        history = at.history
        if history.connack is not None or history.connack_malformed is not None or not _is_nameless(at):
            return None
        if connection.closed_by != "server" or at.server.gapped or at.client.gapped or at.client.packets > 1:
            return None
        message = "empty Client Identifier with CleanSession 0: the server closed without CONNACK 0x02"
        return self.report("", message, related=_request(at), sender=Direction.SERVER_TO_CLIENT)


def _is_nameless(at: RuleContext) -> bool:
    """Whether a CONNECT without other faults has an empty identifier and CleanSession 0."""
    connect = at.history.connect
    return connect is not None and at.history.connect_malformed is None and keeps_nameless_session(connect)


def _request(at: RuleContext) -> tuple[Related, ...]:
    sent = at.history.connect_sent
    return () if sent is None else (Related.to("the CONNECT", sent),)
