"""Clients over time: devices and their usual period, takeovers of connections, refused CONNECTs, pings.

Each function returns a query in an engine's SQL over relations of tables, with the columns that `views` describes.
"""

from __future__ import annotations

import re

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import OWN, SECOND_NS, Relations
from mqttscope.analysis.reconnects import with_endings
from mqttscope.analysis.rules import property_of
from mqttscope.analysis.undelivered import client_timeline
from mqttscope.lake.manifest import Manifest
from mqttscope.report.fleet.model import PROPERTIES

KNOWN = "known_captures"
"""Relation of the captures in the manifest (`known_captures`); no table of the lake."""
TAKEN_OVER = 0x8E
"""Reason Code of a DISCONNECT: another connection has the same Client Identifier."""


def known_captures(words: Dialect, manifest: Manifest) -> str:
    """Rows of `KNOWN`."""
    # The first row gives columns their types.
    rows = [_known(words, "", "", None, None, "", "") + " where false"]
    for digest, name in manifest.captures.items():
        if re.fullmatch("[0-9a-f]+", digest):
            generation, ingested_ns, version = manifest.ingests.get(digest, (None, None, None))
            rows.append(_known(words, name, digest, generation, ingested_ns, version, manifest.group))
    return f"({' union all '.join(rows)})"


def _known(
    words: Dialect, name: str, digest: str, generation: int | None, ingested_ns: int | None, version: str | None,
    group: str,
) -> str:  # fmt: skip
    ingest = ", ".join(
        f"cast({'null' if number is None else number} as bigint) as {column}"
        for column, number in (("generation", generation), ("ingested_ns", ingested_ns))
    )
    made_by = "null" if version is None else words.text(version)
    return (
        f"select {words.text(name)} as capture, '{digest}' as sha256, {words.text(group)} as capture_group, {ingest}, "
        f"{made_by} as mqttscope_version"
    )


def devices(words: Dialect, relations: Relations) -> str:
    """Client Identifiers with their last packet, their usual period, and data of their last CONNECT."""
    packets, messages, connections = (relations[name] for name in ("packets", "messages", "connections"))
    return f"""
    with named as (
        select * from ({with_endings(connections)}) where client_identifier is not null and client_identifier != ''
    ),
    described as (
        select named.*, property as firmware, row_number() over
            (partition by server, client_identifier order by timestamp_ns desc, connection_id desc) as age
        from named left join ({property_of(words, packets, PROPERTIES)}) as described using (connection_id)
    ),
    ended as (
        select server, client_identifier, count(*) as connections, min(timestamp_ns) as first_ns,
            count(*) filter (where ended not in ('open', 'disconnect')) as broken_ends,
            max(case when age = 1 then version end) as version, max(case when age = 1 then firmware end) as firmware,
            max(case when age = 1 then keep_alive end) as keep_alive,
            max(case when age = 1 and ended = 'open' then 1 else 0 end) = 1 as connected
        from described group by server, client_identifier
    ),
    sent as (
        select server, client_identifier, max(timestamp_ns) as last_ns from {packets} where {OWN}
        group by server, client_identifier
    ),
    spaced as (
        select server, client_identifier, timestamp_ns - lag(timestamp_ns) over
            (partition by server, client_identifier order by timestamp_ns, packet_in_connection) as period_ns
        from {messages} where {OWN}
    ),
    usual as (
        select server, client_identifier, count(*) as messages,
            cast(floor(coalesce(median(case when period_ns >= {SECOND_NS} then period_ns end), median(period_ns)))
                as bigint) as usual_period_ns
        from spaced group by server, client_identifier
    )
    select server, client_identifier, first_ns, coalesce(last_ns, first_ns) as last_seen_ns,
        end_ns - coalesce(last_ns, first_ns) as silent_ns, usual_period_ns, coalesce(messages, 0) as messages,
        connections, broken_ends, connected, keep_alive, version, firmware
    from ended left join sent using (server, client_identifier) left join usual using (server, client_identifier)
    cross join (select max(timestamp_ns) as end_ns from {packets})
    """


def takeovers(words: Dialect, relations: Relations) -> str:
    """Connections that a later connection of their client ended or overlapped."""
    packets, connections = relations["packets"], relations["connections"]
    return f"""
    with ordered as (
        select *, lead(connection_id) over by_client as next_connection_id, lead(client) over by_client as next_client
        from ({client_timeline(packets, connections)})
        window by_client as (partition by host, who order by began_ns, connection_id)
    )
    select ordered.server, ordered.client_identifier, next_ns as taken_ns, ordered.client as from_client,
        next_client as to_client, end_ns as closed_ns, disconnect_reason, connection_id, next_connection_id
    from ordered join (select connection_id, disconnect_reason from {connections}) as ends using (connection_id)
    where next_ns is not null and (coalesce(end_ns > next_ns, true) or disconnect_reason = {TAKEN_OVER})
    """


def connect_refusals(words: Dialect, relations: Relations) -> str:
    """CONNACK packets that refuse a CONNECT."""
    return f"""
    select server, client_identifier, client, timestamp_ns, version, reason_code, reason, connection_id, capture, frame
    from {relations["packets"]} where type = 'connack' and reason_code != 0
    """


def pings(words: Dialect, relations: Relations) -> str:
    """PINGREQ packets with the PINGRESP that follows before the next PINGREQ."""
    return f"""
    with kinds as (
        select *, lead(type) over in_order as following, lead(timestamp_ns) over in_order as following_ns
        from {relations["packets"]} where type in ('pingreq', 'pingresp')
        window in_order as (partition by connection_id order by packet_in_connection)
    )
    select server, client_identifier, client, timestamp_ns,
        case when following = 'pingresp' then following_ns - timestamp_ns end as round_trip_ns, connection_id, capture,
        frame
    from kinds where type = 'pingreq'
    """


def captures(words: Dialect, relations: Relations) -> str:
    """Ingested captures: `KNOWN` has the names and ingests of the manifest."""
    tables = ("packets", "gaps", "connections", "ingest_errors")
    packets, gaps, connections, errors = (relations[name] for name in tables)
    return f"""
    with times as (
        select capture, timestamp_ns, 1 as packet from {packets} union all select capture, timestamp_ns, 0 from {gaps}
        union all select capture, timestamp_ns, 0 from {connections}
        union all select closed_capture, closed_ns, 0 from {connections} where closed_ns is not null
    ),
    spans as (
        select capture, min(timestamp_ns) as first_ns, max(timestamp_ns) as last_ns, sum(packet) as packets from times
        group by capture
    ),
    lost as (select capture, count(*) as gaps from {gaps} where event = 'gap' group by capture),
    faults as (
        select capture, count(*) as errors from {errors} where event = 'capture_error' group by capture
    )
    select capture, sha256, first_ns, last_ns, cast(coalesce(packets, 0) as bigint) as packets,
        coalesce(gaps, 0) as gaps, coalesce(errors, 0) as errors, capture_group, generation, ingested_ns,
        mqttscope_version
    from {relations[KNOWN]} left join spans using (capture) left join lost using (capture)
    left join faults using (capture)
    """
