from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.rules import Connection, Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import Spread, duration
from mqttscope.mqtt import Connack, ControlPacket, Direction, PacketType, Pingresp, Puback, Pubcomp, Pubrec
from mqttscope.session.inflight import SENT


@dataclass(slots=True)
class Latencies:
    """How long answers took, by packet type."""

    client: dict[int, Spread] = field(default_factory=dict)
    """Answers of the client."""
    server: dict[int, Spread] = field(default_factory=dict)


class AckLatency(Rule):
    """Answers of one side come late.

    Each message waits that long for its acknowledgment, and with a small window so does everything after it.  The
    time of the TCP handshake, where it was captured, tells the network's share from that of the side that answers.
    Reported once for each side when the connection ends; a very late answer is a warning.

    Instead, acknowledge before slow work is done, and look at the load of the side that answers.
    """

    code = "OPS213"
    severity = Severity.INFO
    severities = (Severity.WARNING, Severity.INFO)
    looks_at = (Connack, Puback, Pubrec, Pubcomp, Pingresp)
    settings = {
        # Seconds, the longest time to an answer that is not reported.
        "slow": 1.0,
        # Seconds from which on it is a warning.
        "very_slow": 5.0,
    }
    Memory = Latencies

    good = examples("""
        40 milliseconds
            opened; > publish a qos=1 id=7; +0.04 < puback 7; > pingreq; +0.04 < pingresp; > disconnect; > fin
        nine tenths of a second
            opened; > publish a qos=1 id=7; +0.9 < puback 7; > disconnect; > fin
        as configured
            settings slow=4.5; opened; > publish a qos=1 id=7; +4 < puback 7; > disconnect; > fin
    """)
    bad = examples("""
        4.2 seconds to a PUBACK
            opened; > publish a qos=1 id=7; +4.2 < puback 7; > disconnect; > fin !
        QoS 2 and a ping, in one finding
            opened 3.1.1; > publish a qos=2 id=7; +2 < pubrec 7; > pubrel 7; +2 < pubcomp 7; > pingreq; +6 < pingresp
            > disconnect; > fin !
        the CONNACK
            > connect; +3 < connack; > disconnect; > fin !
        the client is late
            opened; > subscribe 1 a:1; < suback 1 1; < publish a qos=1 id=1; +2 > puback 1; > disconnect; > fin !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Measure and count."""
        kind, owner = packet.packet_type, 0
        if kind == PacketType.PINGRESP:
            began = None if at.client.ping_packet is None else at.client.ping_timestamp_ns
        elif kind == PacketType.CONNACK:
            # An exchange of AUTH packets takes the time that people or other servers take.
            exchanged = at.party.counts[PacketType.AUTH] or at.history.connack is not None
            began = None if exchanged else at.connection.connect_timestamp_ns
        else:
            owner = packet.packet_identifier  # type: ignore[attr-defined]
            running = at.receiver.running(owner, "publish")
            if running is None or (kind == PacketType.PUBREC and running.phase is not SENT):
                return None
            began = running.timestamp_ns
        if began is None:
            return None
        memory: Latencies = at.memory(self)
        table = memory.client if at.from_client else memory.server
        spread = table.get(kind)
        if spread is None:
            spread = table[kind] = Spread()
        spread.add(at.timestamp_ns - began, owner)
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """The slow kinds of answers of each side, the slowest first."""
        if self.code not in at.history.memories:
            return
        memory: Latencies = at.memory(self)
        slow, very_slow = (self.set[name] * 1_000_000_000 for name in ("slow", "very_slow"))
        for sender, table in (
            (Direction.CLIENT_TO_SERVER, memory.client),
            (Direction.SERVER_TO_CLIENT, memory.server),
        ):
            rows = sorted((row for row in table.items() if row[1].worst_ns > slow), key=lambda row: -row[1].worst_ns)
            if rows:
                yield self.report(
                    "",
                    "; ".join(_told(kind, spread) for kind, spread in rows) + _handshake(connection),
                    severity=Severity.WARNING if rows[0][1].worst_ns > very_slow else None,
                    sender=sender,
                )


def _told(kind: int, spread: Spread) -> str:
    owner = f" (id {spread.worst})" if spread.worst else ""
    return (
        f"{PacketType(kind).name} latency: median {duration(spread.percentile(0.5))}, "
        f"99 % {duration(spread.percentile(0.99))}, worst {duration(spread.worst_ns)}{owner}"
    )


def _handshake(connection: Connection) -> str:
    connect_ns = connection.connect_timestamp_ns
    if not connection.handshake_seen or connect_ns is None:
        return ""
    return f"; TCP handshake and CONNECT: {duration(connect_ns - connection.opened_ns)}"
