from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt.packets import Connack, Connect


class ReceiveMaximumOne(Rule):
    """A side announces Receive Maximum 1.

    Messages with QoS 1 and 2 are then strictly ordered, but each one waits for the previous acknowledgement: at most
    one message per round trip, however fast the link is.  The finding shows the round trip of the TCP handshake, or the
    time between CONNECT and CONNACK.

    Instead, announce the number of messages that you can handle; a larger number keeps the order too.
    """

    code = "OPS110"
    severity = Severity.INFO
    versions = (V5,)

    good = examples("""
        20
            opened receive_maximum=20
        2
            opened < receive_maximum=2
        not announced
            opened
    """)
    bad = examples("""
        by the client
            opened receive_maximum=1 !properties.receive_maximum
        by the server
            opened < receive_maximum=1 !properties.receive_maximum
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Check the property in either packet."""
        block = packet.properties
        if block is None or block.receive_maximum != 1:
            return None
        connection = at.connection
        if isinstance(packet, Connack):
            began, interval = connection.connect_timestamp_ns, "from CONNECT to CONNACK"
        else:
            began, interval = connection.opened_ns if connection.handshake_seen else None, "from SYN to CONNECT"
        trip = "" if began is None else f" (measured: {duration(at.timestamp_ns - began)} {interval})"
        return self.report(
            "properties.receive_maximum",
            f"{packet_name(packet)}: Receive Maximum 1, one message in flight per round trip{trip}",
        )
