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
    """A client uses its own Keep Alive although the server has set a shorter one.

    Server Keep Alive in CONNACK replaces the value in CONNECT.  The server closes the connection after one and a half
    times its own value, so such a client is disconnected again and again.

    Instead, use the Server Keep Alive of the CONNACK, if present, before you start the ping timer.
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
        the server disables Keep Alive
            opened < server_keep_alive=0; +600 > pingreq; < pingresp
    """)
    bad = examples("""
        the client's own value is longer
            opened < server_keep_alive=10; +40 > pingreq !; < pingresp
        the client's own value is 0
            opened keep_alive=0 < server_keep_alive=10; +15 < reset !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Measure the time since the client's last packet."""
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
            f"client was silent for {quiet / SECOND:.1f} s, but CONNACK set Server Keep Alive {limit} s "
            f"(the client had asked for {own} s)",
            sender=Direction.CLIENT_TO_SERVER,
            confidence=None if sure else Confidence.LIKELY,
        )
