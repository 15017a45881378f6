"""Edge nodes of Sparkplug B over time, from the rows of ``sparkplug_metrics``, and gaps in their sequence numbers.

A message is counted where a client published it.  Deliveries to a subscriber count if they are more: for example the
NDEATH that a server publishes as a will.
"""

from __future__ import annotations

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import OWN, Relations

MESSAGES = "select * from {} where metric_in_message = 0 and not dup"


def nodes(words: Dialect, relations: Relations) -> str:
    """Edge nodes with their births and deaths, their state and their last message."""
    metrics = relations["sparkplug_metrics"]
    return f"""
    with messages as ({MESSAGES.format(metrics)} and message_type not in ('NCMD', 'DCMD') and not retain),
    counted as (
        select server, node, direction, connection_id,
            count(*) filter (where message_type = 'NBIRTH') as births,
            count(*) filter (where message_type = 'NDEATH') as deaths,
            count(*) filter (where message_type in ('NDATA', 'DDATA')) as data,
            count(distinct device) as devices
        from messages group by server, node, direction, connection_id
    ),
    summed as (
        select server, node,
            greatest(coalesce(sum(case when {OWN} then births end), 0),
                coalesce(max(case when not ({OWN}) then births end), 0)) as births,
            greatest(coalesce(sum(case when {OWN} then deaths end), 0),
                coalesce(max(case when not ({OWN}) then deaths end), 0)) as deaths,
            greatest(coalesce(sum(case when {OWN} then data end), 0),
                coalesce(max(case when not ({OWN}) then data end), 0)) as data,
            max(devices) as devices
        from counted group by server, node
    ),
    turns as (
        select server, node, message_type, bdseq, timestamp_ns, row_number() over
            (partition by server, node, message_type order by timestamp_ns desc, connection_id) as age
        from messages where message_type in ('NBIRTH', 'NDEATH')
    ),
    born as (select server, node, bdseq, timestamp_ns as born_ns from turns where message_type = 'NBIRTH' and age = 1),
    died as (
        select server, node, bdseq as death_bdseq, timestamp_ns as died_ns from turns
        where message_type = 'NDEATH' and age = 1
    ),
    seen as (
        select server, node, min(timestamp_ns) as first_ns, max(timestamp_ns) as last_ns from messages
        where message_type != 'NDEATH' group by server, node
    )
    select server, node, cast(births as bigint) as births, cast(deaths as bigint) as deaths,
        cast(data as bigint) as data, devices, bdseq,
        case when died_ns > coalesce(born_ns, -1) and coalesce(bdseq = death_bdseq, true) then 'offline'
            when born_ns is not null then 'online' else 'unknown' end as state,
        born_ns, died_ns, first_ns, last_ns, end_ns - last_ns as silent_ns
    from summed left join born using (server, node) left join died using (server, node)
    left join seen using (server, node)
    cross join (select max(timestamp_ns) as end_ns from {relations["packets"]})
    """


def gaps(words: Dialect, relations: Relations) -> str:
    """Places where the sequence number of an edge node is not one more than before, on one connection.

    Where the capture lacks bytes between the two messages, nothing is concluded.
    """
    return f"""
    with numbered as (
        select *, lag(seq) over in_order as previous_seq, lag(timestamp_ns) over in_order as previous_ns
        from ({MESSAGES.format(relations["sparkplug_metrics"])} and seq is not null)
        window in_order as (partition by connection_id, direction, node order by packet_in_connection)
    )
    select server, node, device, message_type, previous_seq, seq,
        cast((seq - previous_seq + 511) % 256 as bigint) as missing, previous_ns, timestamp_ns, direction,
        client_identifier, connection_id, capture, frame
    from numbered where message_type != 'NBIRTH' and seq != (previous_seq + 1) % 256 and not exists (
        select 1 from {relations["gaps"]} as lost
        where lost.connection_id = numbered.connection_id and lost.direction = numbered.direction
            and lost.timestamp_ns between numbered.previous_ns and numbered.timestamp_ns
    )
    """
