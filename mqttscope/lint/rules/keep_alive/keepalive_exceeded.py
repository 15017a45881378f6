from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Findings, Needs, Rule, RuleContext, examples, packet_name
from mqttscope.mqtt import ControlPacket, Direction
from mqttscope.session.connection import REFUSED

SECOND = 1_000_000_000


class KeepaliveExceeded(Rule):
    """A client is silent for longer than its Keep Alive.

    The server may consider the client dead: after one and a half times the Keep Alive it has to close the connection,
    and it publishes the will.  The time runs from the end of one packet to the beginning of the next, as captured, with
    a tolerance of a tenth (``tolerance_percent``) and one round trip.  Silence before the server's DISCONNECT, the
    first FIN or the first RST also counts if the client was still reachable: it acknowledges the server's last bytes,
    or sends FIN.  A device without power or network breaks no rule.  If the server never acknowledged the client's
    last bytes, later packets may have had to wait, and nothing is reported.  A reset in answer to unacknowledged bytes
    proves nothing, since a restarted device sends it too.

    Instead, send PINGREQ if you have sent nothing else for almost the Keep Alive, even while you receive messages.
    """

    code = "KAL201"
    severity = Severity.ERROR
    reason_code = 0x8D
    statements = {
        V5: {"MQTT-3.1.2-20": ""},
        V3_1_1: {"MQTT-3.1.2-23": ""},
        V3_1: {"V31-KEEPALIVE-client": ""},
    }
    signs = ("silent",)
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    settings = {"tolerance_percent": 10}

    good = examples("""
        in time, and just within the tolerance
            opened keep_alive=10; +9 > pingreq; < pingresp; +10.9 > pingreq; < pingresp
        any packet counts
            opened 3.1.1 keep_alive=10; +8 > publish a; +8 > publish a; +8 > fin
        0 disables Keep Alive
            opened keep_alive=0; +4000 > pingreq; < pingresp
        the server's value applies
            opened keep_alive=10 < server_keep_alive=60; +50 > pingreq; < pingresp
        the server was slow to accept
            > connect keep_alive=10; +14 < connack; > pingreq; < pingresp
        the capture lacks a packet in between
            opened 3.1 keep_alive=10; +9 lost > pingreq; < pingresp; +9 > publish a
        the server never acknowledged the client's last bytes: more packets may have had to wait
            opened keep_alive=10; > publish a; +15 crossing < reset
        nothing is required after DISCONNECT
            opened keep_alive=10; > disconnect; +30 < fin
    """)
    bad = examples("""
        PINGREQ too late
            opened keep_alive=10; +14 > pingreq !; < pingresp
        received packets do not count, in MQTT 3.1.1
            opened 3.1.1 keep_alive=10; +6 < publish a; +6 > publish a !
        until the server closes, in MQTT 3.1
            opened 3.1 keep_alive=10; +15 < reset !
        until the server sends DISCONNECT
            opened keep_alive=10; +15 < disconnect code=0x8d; < fin !
        a lower tolerance
            settings tolerance_percent=2; opened keep_alive=10; +10.5 > pingreq !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Measure the time since the client's last packet."""
        limit, last = at.connection.keep_alive, at.sender.last_timestamp_ns
        if not limit or last is None or at.timestamp_ns - last <= limit * SECOND or at.history.clock_back:
            return None
        quiet = quiet_ns(at, packet)
        percent = self.set["tolerance_percent"]
        if quiet <= allowed_ns(at, limit, percent) or server_value_ignored(at, quiet, percent):
            return None
        # Bytes that waited after a hole were sent before they could be decoded.  On a dead path the client's packets
        # are lost, and TCP shows that the client did not receive the server's bytes either.
        heard, server = at.party.acknowledged, at.history.server
        is_dead = 0 <= heard < server.position and at.begun_ns - server.segment_ns > SECOND
        sure = heard >= 0 and not is_dead
        text = f"client was silent for {quiet / SECOND:.1f} s before {packet_name(packet)}, its Keep Alive is {limit} s"
        return self.report("", text, confidence=None if sure else Confidence.LIKELY)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Measure until the end of the connection."""
        limit = connection.keep_alive
        if not limit or at.client.last_timestamp_ns is None or at.history.clock_back:
            return None
        if connection.client_unacknowledged:
            return None  # its later packets had to wait: earlier bytes never arrived
        until, sure = end_ns(connection, at)
        quiet = quiet_ns(at, None, until)
        percent = self.set["tolerance_percent"]
        if quiet <= allowed_ns(at, limit, percent) or server_value_ignored(at, quiet, percent):
            return None
        text = f"client was silent for {quiet / SECOND:.1f} s until the connection ended, its Keep Alive is {limit} s"
        return self.report("", text, sender=Direction.CLIENT_TO_SERVER, confidence=None if sure else Confidence.LIKELY)


def quiet_ns(at: RuleContext, packet: ControlPacket | None, until_ns: int = 0) -> int:
    """Nanoseconds between the client's last packet and the beginning of this one, or a point in time."""
    history, connack = at.history, at.history.connack_sent
    if connack is None:
        return 0
    since = max(at.client.last_timestamp_ns or 0, connack.timestamp_ns, history.client.malformed_ns)
    if packet is None:
        return until_ns - since
    return at.begun_ns - since


def allowed_ns(at: RuleContext, seconds: int, percent: float) -> int:
    """Maximum silence for a Keep Alive: with tolerance, and the time between CONNECT and CONNACK."""
    connect, connack = at.history.connect_sent, at.history.connack_sent
    trip = 0 if connect is None or connack is None else connack.timestamp_ns - connect.timestamp_ns
    return int(seconds * SECOND * (1 + percent / 100)) + min(max(trip, 0), seconds * SECOND)


def server_value_ignored(at: RuleContext, quiet: int, percent: float) -> bool:
    """Whether a silence exceeds Server Keep Alive, but not the value that the client asked for."""
    connect, connack = at.history.connect, at.history.connack
    if connect is None or connack is None or connack.properties is None:
        return False
    if connack.properties.server_keep_alive is None:
        return False
    return not connect.keep_alive or quiet <= allowed_ns(at, connect.keep_alive, percent)


def end_ns(connection: Connection, at: RuleContext) -> tuple[int, bool]:
    """Time until which a client had to send something, and whether that is certain; 0 if unknown."""
    if at.history.client.disconnect is not None or connection.phase is REFUSED:
        return 0, False
    how, by, disconnect = connection.closed_how, connection.closed_by, at.history.server.disconnect
    if how not in ("fin", "reset") and (how not in ("capture_end", "idle") and disconnect is None):
        return 0, False
    if how == "reset" and by == "client" and connection.end_disowned:
        return 0, False  # the silent client no longer exists: its device has restarted
    other = connection.also_closed
    finished = (how == "fin" and by == "client") or (other is not None and other.how == "fin" and by == "server")
    if not finished and not connection.end_acknowledged:
        # The only sign of the client is its TCP acknowledgement of the server's last bytes.  A reset proves nothing: it
        # also comes from a restarted device that has no record of the connection.
        if how == "reset" and by == "server" and quiet_ns(at, None, at.server.last_timestamp_ns or 0) <= 0:
            return connection.closed_ns, False  # the server sent nothing that needed an answer
        if connection.server_unacknowledged or (how == "fin" and disconnect is None):
            return 0, False
        if how == "reset" and by == "server" and disconnect is None:
            return connection.closed_ns, False
    if disconnect is not None:
        return disconnect.timestamp_ns, True
    return (connection.closed_ns if how in ("fin", "reset") else at.timestamp_ns), True
