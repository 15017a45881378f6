from dataclasses import dataclass

from mqttscope.lint.rules import C2S, S2C, Connection, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Pingreq
from mqttscope.session.connection import DISCONNECTED


@dataclass(slots=True)
class PingCounts:
    """Number and times of PINGREQ packets on a connection."""

    number: int = 0
    """Unnecessary pings."""
    all: int = 0
    first_ns: int = 0
    last_ns: int = 0
    """Times of the first and the last ping."""


class PingWithoutIdle(Rule):
    """A client pings although it has just sent another packet.

    Every packet from the client restarts the Keep Alive, so these pings are useless to the server and cost data volume
    and battery.  Pings that test a silent server are intended and are not counted.

    Instead, restart the ping timer with every packet that you send.
    """

    code = "OPS212"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING
    settings = {
        # Share of the Keep Alive: a ping is unnecessary if both sides sent something more recently than this.
        "share": 0.5,
        # Minimum number of unnecessary pings on a connection.
        "pings": 3,
    }
    Memory = PingCounts

    good = examples("""
        pings after idle time
            opened
            for 1..4: > publish a; +55 > pingreq; < pingresp
            > disconnect; > fin
        half of the Keep Alive is idle enough
            opened
            for 1..4: +30.5 > pingreq; < pingresp
            > disconnect; > fin
        nothing received from the server
            opened
            for 1..4: +28 > publish a; +28 > publish a; +3 > pingreq; < pingresp
            > disconnect; > fin
        only twice
            opened; +1 > pingreq; < pingresp; +1 > pingreq; < pingresp; > disconnect; > fin
    """)
    bad = examples("""
        one second after a PUBLISH
            opened; +1 > publish a; +1 > pingreq; < pingresp; +1 > publish a; +1 > pingreq; < pingresp; +1 > publish a
            +1 > pingreq; < pingresp; > disconnect; > fin !
        every second, in MQTT 3.1.1
            opened 3.1.1; +1 > pingreq; < pingresp; +1 > pingreq; < pingresp; +1 > pingreq; < pingresp; > disconnect
            > fin !
    """)

    def check(self, packet: Pingreq, at: RuleContext) -> Findings:
        """Count the ping."""
        keep_alive = at.connection.keep_alive
        if keep_alive:
            memory: PingCounts = at.memory(self)
            memory.first_ns = memory.first_ns if memory.all else at.timestamp_ns
            memory.last_ns = at.timestamp_ns
            memory.all += 1
            limit = keep_alive * self.set["share"] * 1_000_000_000
            own, other = at.silence_ns(C2S), at.silence_ns(S2C)
            if own is not None and own < limit and other is not None and other < limit:
                memory.number += 1
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report the number of unnecessary pings."""
        if self.code not in at.history.memories:
            return None
        memory: PingCounts = at.memory(self)
        if memory.number < self.set["pings"]:
            return None
        text = f"{memory.number} of {memory.all} PINGREQ of {at.client_name!r} were sent while the connection was busy"
        keep_alive = f"Keep Alive {connection.keep_alive} s"
        every = (memory.last_ns - memory.first_ns) / max(1, memory.all - 1) / 1_000_000_000
        if _idle(connection, memory.all):
            text = f"{at.client_name!r} pings every {every:.3g} s with a {keep_alive.replace('Alive', 'Alive of')}"
            keep_alive = f"{memory.all} PINGREQ and no other packet"
        return self.report("", f"{text} ({keep_alive})", sender=C2S)


def _idle(connection: Connection, pings: int) -> bool:
    """Whether the connection had only pings and their answers between CONNECT and its end."""
    ended = connection.phase is DISCONNECTED
    client = connection.client_side.packets - 1 - (ended and connection.disconnect_by == "client")
    server = connection.server_side.packets - 1 - (ended and connection.disconnect_by == "server")
    # One surplus answer may cross the client's DISCONNECT.
    return client == pings and server <= pings + 1
