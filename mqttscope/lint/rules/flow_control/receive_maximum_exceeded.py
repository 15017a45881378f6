from itertools import islice

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction, Publish
from mqttscope.session.inflight import ConnectionSide

MAX_SHOWN = 5
"""Maximum number of packet identifiers in a finding."""


class ReceiveMaximumExceeded(Rule):
    """A side has more unacknowledged QoS 1 and 2 messages than the other side's Receive Maximum.

    The receiver has room for that number of messages only.  It may close the connection with 0x93 (Receive Maximum
    exceeded), and small devices run out of memory.  The client's limit is in CONNECT and applies to the server; the
    server's limit is in CONNACK and applies to the client; the default is 65,535.  A client that sends before the
    CONNACK reaches it does not have the limit yet, so then the finding is at most likely.

    Instead, hold QoS 1 and 2 messages back until PUBACK, PUBCOMP or a refusing PUBREC frees a slot; QoS 0 may continue.
    """

    code = "FLW201"
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x93
    versions = (V5,)
    statements = {
        V5: {
            "MQTT-3.3.4-7": "client",
            "MQTT-3.3.4-9": "server",
            "MQTT-4.9.0-2": "",
        }
    }
    also = {V5: ("MQTT-4.9.0-1", "V5-PUBLISH-alias-receive-max-disconnect", "V5-QUOTA-per-connection")}
    when = "qos"
    always = (Connack,)
    signs = {Publish: ("window_full",)}
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        exactly the limit, and again after a PUBACK
            opened < receive_maximum=2; > publish a qos=1 id=1 & publish a qos=1 id=2 & publish a; < puback 1
            > publish a qos=1 id=3; < puback 2 & puback 3
        a refusing PUBREC frees a slot; no other PUBREC needs to
            opened receive_maximum=1; < publish a qos=2 id=1; > pubrec 1 code=0x83; < publish a qos=2 id=2; > pubrec 2
            < pubrel 2; > pubcomp 2; < publish a qos=1 id=3; > puback 3
        each side has its own limit
            opened receive_maximum=1; > publish a qos=1 id=1 & publish a qos=1 id=2; < puback 1 & puback 2
        a PUBCOMP for an earlier connection's PUBREL frees a slot
            opened resume session_expiry_interval=60 < present receive_maximum=1; > pubrel 7 & publish a qos=1 id=1
            < pubcomp 7; > publish a qos=1 id=2; < puback 1 & puback 2
        the PUBACK is not in the capture
            opened < receive_maximum=1; > publish a qos=1 id=1; lost < puback 1; > publish a qos=1 id=2; < puback 2
    """)
    bad = examples("""
        one too many from the client
            opened < receive_maximum=2
            > publish a qos=1 id=1 & publish a qos=2 id=2 & publish a qos=1 id=3 !packet_identifier
        one too many from the server
            opened receive_maximum=1; < publish a qos=2 id=1; > pubrec 1; < publish a qos=1 id=2 !packet_identifier
        sent before the CONNACK arrived
            opened < receive_maximum=1; crossing > publish a qos=1 id=1 & publish a qos=1 id=2 !packet_identifier
        sent together with the CONNECT
            > connect; > publish a qos=1 id=1 & publish a qos=1 id=2
            < connack receive_maximum=1 !properties.receive_maximum
    """)

    def check(self, packet: Publish | Connack, at: RuleContext) -> Findings:
        """Compare the number of messages in flight with the receiver's limit."""
        if isinstance(packet, Connack):
            return self._before_connack(packet, at)
        limit = at.receiver.receive_maximum
        if at.sender.in_flight < limit or not limit or packet.qos > 2:
            return None
        # The receiver's answers pass the capture point before they reach the sender, so the count is never too high,
        # unless the sender received packets that the capture has not shown yet.
        count = at.sender.in_flight - at.party.surplus
        count -= sum(exchange.qos == 3 for exchange in at.sender.exchanges.values())
        if count < limit or not at.party.in_step():
            return None
        if at.sender.running(packet.packet_identifier or 0, "publish") is not None:
            return None
        severity, confidence = at.awareness()
        sender, receiver = ("client", "server") if at.from_client else ("server", "client")
        return self.report(
            "packet_identifier",
            f"{sender} has {count + 1:,} QoS 1 and 2 messages unacknowledged, the {receiver}'s Receive Maximum is "
            f"{limit:,} (before this one: {_identifiers(at.sender)})",
            severity=severity,
            confidence=confidence,
        )

    def _before_connack(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare the number of messages that the client sent early with the limit in the CONNACK."""
        limit = packet.properties.receive_maximum if packet.properties is not None else None
        count = at.receiver.in_flight
        if at.from_client or not limit or count <= limit or packet.reason_code or at.history.connack is not None:
            return None
        return self.report(
            "properties.receive_maximum",
            f"client has sent {count:,} QoS 1 and 2 messages before the CONNACK, "
            f"which announces Receive Maximum {limit:,} (unacknowledged: {_identifiers(at.receiver)})",
            sender=Direction.CLIENT_TO_SERVER,
            confidence=Confidence.LIKELY,
        )


def _identifiers(side: ConnectionSide) -> str:
    identifiers = (str(row.packet_identifier) for row in side.exchanges.values() if row.kind == "publish")
    shown = list(islice(identifiers, MAX_SHOWN + 1))
    return ", ".join(shown[:MAX_SHOWN]) + (", …" if len(shown) > MAX_SHOWN else "")
