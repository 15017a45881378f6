from mqttscope.lint.rules import V5, Confidence, Connection, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.keep_alive.keepalive_exceeded import (
    SECOND,
    allowed_ns,
    end_ns,
    quiet_ns,
    server_value_ignored,
)
from mqttscope.mqtt import ControlPacket, Direction


class ServerKeepaliveIgnored(Rule):
    """A client keeps to its own Keep Alive although the server has set a shorter one.

    Server Keep Alive in CONNACK takes the place of the value in CONNECT.  The server closes the connection after one
    and a half times its own value, so that such a client is cut off again and again.

    Instead, take Server Keep Alive from CONNACK where it is there, before the ping timer starts.
    """

    code = "KAL202"
    severity = Severity.ERROR
    reason_code = 0x8D
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-21": "", "MQTT-3.2.2-21": ""}}
    signs = ("silent",)
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    settings = {"tolerance_percent": 10}

    good = examples("""
        followed
            opened < server_keep_alive=10; +9 > pingreq; < pingresp; +10.9 > pingreq; < pingresp
        the server switches it off
            opened < server_keep_alive=0; +600 > pingreq; < pingresp
    """)
    bad = examples("""
        its own value is longer
            opened < server_keep_alive=10; +40 > pingreq !; < pingresp
        its own value is off
            opened keep_alive=0 < server_keep_alive=10; +15 < reset !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Measure from the packet before."""
        limit, last = at.connection.keep_alive, at.sender.last_timestamp_ns
        if not limit or last is None or at.timestamp_ns - last <= limit * SECOND:
            return None
        return self._judge(at, quiet_ns(at, packet), limit, sure=at.party.acknowledged >= 0)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Measure until the end of the connection."""
        if not connection.keep_alive or at.client.last_timestamp_ns is None:
            return None
        until, sure = end_ns(connection, at)
        return self._judge(at, quiet_ns(at, None, until), connection.keep_alive, sure=sure)

    def _judge(self, at: RuleContext, quiet: int, limit: int, *, sure: bool) -> Findings:
        percent = self.set["tolerance_percent"]
        if quiet <= allowed_ns(at, limit, percent) or not server_value_ignored(at, quiet, percent):
            return None
        connect = at.history.connect
        own = connect.keep_alive if connect is not None else 0
        return self.report(
            "",
            f"client was silent for {quiet / SECOND:.1f} s, CONNACK set Server Keep Alive {limit} s "
            f"(the client had asked for {own} s)",
            sender=Direction.CLIENT_TO_SERVER,
            confidence=None if sure else Confidence.LIKELY,
        )
