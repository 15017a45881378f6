from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import ControlPacket, Direction, Pingreq, Publish, Subscribe, Unsubscribe


class PublishBeforeConnack(Rule):
    """A client sends further packets before the CONNACK has reached it.

    That is allowed and saves a round trip, but the client does not have the result, the limits and the session state
    yet.  With QoS above 0, Topic Aliases or resumed sessions this goes wrong sooner or later.  Reported once per
    connection.

    Instead, wait for the CONNACK.
    """

    code = "OPS217"
    severity = Severity.INFO
    looks_at = (Publish, Subscribe, Unsubscribe, Pingreq)
    sender = Direction.CLIENT_TO_SERVER
    Memory = ReportedTexts

    good = examples("""
        after the CONNACK
            opened; > publish a qos=1 id=1; < puback 1
        the start was not captured
            midstream; version 3.1.1; > publish a/b 1 & publish a/b 2; < publish a/b 3
    """)
    bad = examples("""
        before the server answered, reported once
            > connect; > publish a qos=1 id=1 !; > publish a; < connack; < puback 1
        the CONNACK was in flight
            opened 3.1.1; crossing > subscribe 1 a:0 !; < suback 1 0
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Use TCP acknowledgements to find out what the client had received."""
        history, had = at.history, at.party.acknowledged
        connack, connect = history.connack_sent, history.connect_sent
        if had < 0 or connect is None or (connack is not None and had >= connack.position):
            return None
        # Without a CONNACK: everything that the client had received must be in the capture.
        if connack is None and (had > at.other.position or at.server.gapped or history.connack_malformed is not None):
            return None
        if not at.memory(self).first(""):
            return None
        return self.report(
            "",
            f"{at.client_name!r} sent {packet_name(packet)} before CONNACK, so limits and session state were unknown",
        )
