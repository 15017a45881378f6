from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.rules import Connection, Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import DurationHistogram, duration
from mqttscope.mqtt import Connack, ControlPacket, Direction, PacketType, Pingresp, Puback, Pubcomp, Pubrec
from mqttscope.session.inflight import SENT


@dataclass(slots=True)
class Latencies:
    """Response times of both sides, by packet type."""

    client: dict[int, DurationHistogram] = field(default_factory=dict)
    """Answers from the client."""
    server: dict[int, DurationHistogram] = field(default_factory=dict)


class AckLatency(Rule):
    """One side answers slowly.

    Each message waits that long for its acknowledgement, and with a small send window so does everything after it.  The
    duration of the TCP handshake, if captured, separates the network delay from the delay of the answering side.
    Reported once for each side when the connection ends; a very late answer is a warning.

    Instead, acknowledge before slow processing, and check the load of the answering side.
    """

    code = "OPS213"
    severity = Severity.INFO
    severities = (Severity.WARNING, Severity.INFO)
    looks_at = (Connack, Puback, Pubrec, Pubcomp, Pingresp)
    settings = {
        # Seconds: longest response time that is not reported.
        "slow": 1.0,
        # Seconds: longest response time that is not a warning.
        "very_slow": 5.0,
    }
    Memory = Latencies

    good = examples("""
        40 milliseconds
            opened; > publish a qos=1 id=7; +0.04 < puback 7; > pingreq; +0.04 < pingresp; > disconnect; > fin
        nine tenths of a second
            opened; > publish a qos=1 id=7; +0.9 < puback 7; > disconnect; > fin
        below the configured limit
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
        by the client
            opened; > subscribe 1 a:1; < suback 1 1; < publish a qos=1 id=1; +2 > puback 1; > disconnect; > fin !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Record one response time."""
        kind, owner = packet.packet_type, 0
        if kind == PacketType.PINGRESP:
            began = None if at.client.ping_packet is None else at.client.ping_timestamp_ns
        elif kind == PacketType.CONNACK:
            # An AUTH exchange may wait for people or other servers.
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
            spread = table[kind] = DurationHistogram()
        spread.add(at.timestamp_ns - began, owner)
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the slow answers of each side, slowest type first."""
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
                    "; ".join(_summary(kind, spread) for kind, spread in rows) + _handshake(connection),
                    severity=Severity.WARNING if rows[0][1].worst_ns > very_slow else None,
                    sender=sender,
                )


def _summary(kind: int, spread: DurationHistogram) -> str:
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
