"""The end of a connection and of the statistics: what is read off the connection's state, and the sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.report import statistics_rows as at
from mqttscope.report.statistics_rows import CaptureRow, ConnectionRow, Outcomes, Window
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import Side

if TYPE_CHECKING:
    from mqttscope.report.statistics import Statistics


def summarise(row: ConnectionRow, connection: Connection, now: int) -> Outcomes:
    """Take over into its row what a connection that has ended says of itself; returns that as counts."""
    row.client, row.server, row.capture = connection.client, connection.server, connection.capture
    row.frame, row.opened_ns, row.ended_ns = connection.frame, connection.opened_ns, max(now, connection.opened_ns)
    row.transport, row.client_identifier = connection.transport, connection.client_identifier
    row.outcome = _outcome(row, connection)
    row.version = "" if row.outcome == "unread" else connection.version.text
    row.version_known = connection.version_known
    row.keep_alive = connection.keep_alive
    row.closed_how, row.closed_by = connection.closed_how, connection.closed_by
    if connection.also_closed is not None:
        row.also_closed, row.also_closed_ns = connection.also_closed.how, connection.also_closed.timestamp_ns
    row.one_sided = connection.one_sided
    row.discarded_segments, row.discarded_bytes = connection.discarded_segments, connection.discarded_bytes
    row.disconnect_by = connection.disconnect_by
    if connection.version >= ProtocolVersion.V5:
        row.disconnect_reason = connection.disconnect_reason
    row.ending = _ending(row, connection)
    _silence(row, connection)
    client, server = connection.client_side, connection.server_side
    row.in_flight_peak = client.in_flight_peak, server.in_flight_peak
    row.receive_maximum = _receive_maximum(connection, server), _receive_maximum(connection, client)
    _unanswered(row, connection)
    _tcp(row, connection)
    return _outcomes(row, connection)


def _outcome(row: ConnectionRow, connection: Connection) -> str:
    if connection.connect_packet is None:
        seen = connection.client_side.packets or connection.server_side.packets
        return "joined" if seen else "unread"
    if connection.connack_packet is None:
        return "unanswered"
    return "refused" if row.connack_reason_code or connection.phase == "refused" else "accepted"


def _ending(row: ConnectionRow, connection: Connection) -> str:
    if row.outcome == "refused":
        return "refused"
    if connection.disconnect_by is not None:
        return "broken" if (connection.disconnect_reason or 0) >= 0x80 else "disconnected"
    if connection.closed_how not in ("fin", "reset"):
        return "open"
    # Of what was lost or not read nobody can say that it was no DISCONNECT.
    return "unknown" if connection.gaps or row.outcome == "unread" else "broken"


def _receive_maximum(connection: Connection, side: Side) -> int | None:
    known = side.limits_known and connection.version >= ProtocolVersion.V5
    return side.receive_maximum if known else None


def _silence(row: ConnectionRow, connection: Connection) -> None:
    """Silence counts from CONNECT to DISCONNECT, or to the end of the transport."""
    last = connection.client_side.last_timestamp_ns
    if connection.connect_packet is None:
        row.longest_silence_ns = 0
    elif last is not None and connection.disconnect_by is None:
        row.longest_silence_ns = max(row.longest_silence_ns, row.ended_ns - last)


def _unanswered(row: ConnectionRow, connection: Connection) -> None:
    """What waits for an answer at the end, unless the answer may be among bytes that were lost."""
    found = row.traffic.unanswered
    sides = connection.client_side, connection.server_side

    def add(handshake: int, from_server: int) -> None:
        if not sides[1 - from_server].gapped:
            key = 2 * handshake + from_server
            found[key] = found.get(key, 0) + 1

    for from_server, side in enumerate(sides):
        for exchange in side.exchanges.values():
            if exchange.kind == "subscribe":
                add(at.SUBSCRIBE_SUBACK, from_server)
            elif exchange.kind == "unsubscribe":
                add(at.UNSUBSCRIBE_UNSUBACK, from_server)
            elif exchange.qos == 1:
                add(at.PUBLISH_PUBACK, from_server)
            elif exchange.qos == 2:
                add(at.PUBLISH_PUBCOMP, from_server)
                if exchange.phase == "sent":
                    add(at.PUBLISH_PUBREC, from_server)
        if side.ping_packet is not None:
            add(at.PINGREQ_PINGRESP, from_server)
    for key in row.releases:
        add(at.PUBREL_PUBCOMP, key & 1)
    if row.outcome == "unanswered":
        add(at.CONNECT_CONNACK, 0)


def _tcp(row: ConnectionRow, connection: Connection) -> None:
    said = connection.details.get("tcp")
    if not isinstance(said, dict):
        return
    counts = row.traffic.counts
    for from_server, direction in enumerate(("client_to_server", "server_to_client")):
        for number, name in enumerate(at.TCP_COUNTERS):
            counts[at.TCP + from_server * len(at.TCP_COUNTERS) + number] = said[direction].get(name, 0)


def _outcomes(row: ConnectionRow, connection: Connection) -> Outcomes:
    found = Outcomes(1)
    found.outcomes[row.outcome] = 1
    found.versions[connection.version.text if connection.version_known else "unknown"] = 1
    found.transports[row.transport] = 1
    if row.outcome == "refused" and row.connack_reason_code is not None:
        found.refusals[int(connection.version), row.connack_reason_code] = 1
    found.closed[row.closed_how or "unknown", row.closed_by or "unknown"] = 1
    found.endings[row.ending] = 1
    if row.disconnect_by is not None:
        found.disconnects[row.disconnect_by, row.disconnect_reason] = 1
    else:
        found.silent[row.ending, row.closed_how or "unknown", row.closed_by or "unknown"] = 1
    return found


def add_up(statistics: Statistics, window: Window) -> None:
    """Durations, totals, and which client has to do with which topics."""
    rows = [*statistics.captures.values(), statistics.other_capture]
    _durations(statistics, rows)
    totals = statistics.totals
    for row in rows:
        totals.traffic.merge(row.traffic)
        totals.outcomes.merge(row.outcomes)
        totals.frames += row.frames
        totals.frame_bytes += row.frame_bytes
        totals.captured_bytes += row.captured_bytes
        totals.dropped += row.dropped
        totals.discarded_segments += row.discarded_segments
        totals.discarded_bytes += row.discarded_bytes
        totals.error_count += row.error_count
        totals.duration_ns += row.duration_ns
        if row.first_ns is not None and row.last_ns is not None:
            totals.first_ns = row.first_ns if totals.first_ns is None else min(totals.first_ns, row.first_ns)
            totals.last_ns = row.last_ns if totals.last_ns is None else max(totals.last_ns, row.last_ns)
    totals.traffic.window = window
    statistics.clients = {key: row for key, row in statistics.clients.items() if row.connections}
    _topics_of_clients(statistics)


def _durations(statistics: Statistics, rows: list[CaptureRow]) -> None:
    """Captures last from the first to the last frame; where no frames were counted, as long as their connections."""
    unframed = {row.capture: row for row in rows if not row.frames}
    for connection in statistics.connections:
        row = unframed.get(connection.capture)
        if row is not None:
            first_ns, last_ns = connection.opened_ns, connection.ended_ns
            row.first_ns = first_ns if row.first_ns is None else min(row.first_ns, first_ns)
            row.last_ns = last_ns if row.last_ns is None else max(row.last_ns, last_ns)
    for row in rows:
        if row.first_ns is not None and row.last_ns is not None:
            row.duration_ns = row.last_ns - row.first_ns


def _topics_of_clients(statistics: Statistics) -> None:
    from mqttscope.report.statistics import NAMED_TOPICS

    clients = {row.number: row for row in statistics.clients.values()}
    complete = not any(statistics.other_topic.messages)
    for topic in sorted(statistics.topics.values(), key=lambda row: -sum(row.messages)):
        complete = complete and all(topic.complete)
        for from_server, numbers in enumerate(topic.clients):
            for number in numbers:
                client = clients.get(number)
                if client is None:
                    continue
                if from_server:
                    client.topics_received += 1
                else:
                    client.topics_published += 1
                if topic.topic is not None and len(client.named[from_server]) < NAMED_TOPICS:
                    client.named[from_server].append(topic)
    for client in clients.values():
        client.topics_complete = complete
