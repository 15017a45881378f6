from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt.packets import Connack, Connect


class ReceiveMaximumOne(Rule):
    """A side announces Receive Maximum 1.

    Messages with QoS 1 and 2 then come strictly in order, but each one waits for the acknowledgment of the one before:
    no more than one message per round trip gets through, however fast the link is.  The round trip is that of the TCP
    handshake, or from CONNECT to CONNACK.

    Instead, announce as many as can be handled; order is kept with more than one, too.
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
        the client
            opened receive_maximum=1 !properties.receive_maximum
        the server
            opened < receive_maximum=1 !properties.receive_maximum
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """The same property in both packets."""
        block = packet.properties
        if block is None or block.receive_maximum != 1:
            return None
        connection = at.connection
        if isinstance(packet, Connack):
            began, what = connection.connect_timestamp_ns, "from CONNECT to CONNACK"
        else:
            began, what = connection.opened_ns if connection.handshake_seen else None, "from SYN to CONNECT"
        trip = "" if began is None else f" (measured: {duration(at.timestamp_ns - began)} {what})"
        return self.report(
            "properties.receive_maximum",
            f"{packet_name(packet)}: Receive Maximum 1, one message in flight per round trip{trip}",
        )
