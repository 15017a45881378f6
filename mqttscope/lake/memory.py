"""What is remembered of a flow between two runs, and how a dissector and a collector take it up again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import FlowState, Over
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import Tracker
from mqttscope.net.flow import Flow
from mqttscope.net.flow_expiry import LINGER_NS
from mqttscope.net.segment import flow_key
from mqttscope.session.connection import Connection


@dataclass(slots=True)
class FlowMemory:
    """What is remembered of a flow between two runs.  Plain data."""

    flow: Flow
    tracker: Tracker | None = None
    parts: list[FlowMemory] = field(default_factory=list)
    """Earlier parts of it that came late (`lake.late`)."""
    holes: list[tuple[bool, int, int]] = field(default_factory=list)
    """What was given up of it, where it has ended (`Collector.holes`)."""


def connection_of(flow: Flow) -> Any:
    """The connection that a flow carries, once it is recognised and until it ends."""
    return flow.context.connection if isinstance(flow.context, FlowState) else None


def resume(memory: FlowMemory, dissector: Dissector, collector: Collector) -> None:
    """Continue a flow."""
    connection = connection_of(memory.flow)
    if connection is not None:
        # Numbers only have to be different.
        connection.number = dissector.connections
        dissector.connections += 1
        if memory.tracker is not None:
            collector.adopt(connection, memory.tracker)
    elif isinstance(memory.flow.context, Over):
        memory.flow.context.connection.number = dissector.connections
        dissector.connections += 1
    if memory.holes:
        collector.holes[flow_key(memory.flow.key)] = memory.holes
    dissector.flows.adopt(memory.flow)


def remembered(dissector: Dissector, collector: Collector, watermark_ns: int | None = None) -> list[FlowMemory]:
    """What is remembered of the flows of a dissector: those that are open, or so fresh that copies may still come."""
    found = []
    for flow in dissector.flows.flows.values():
        if flow.closed and watermark_ns is not None and watermark_ns - flow.closed_ns > LINGER_NS:
            continue
        connection = connection_of(flow)
        tracker = None if connection is None else collector.remember(connection)
        holes = collector.holes.pop(flow_key(flow.key), []) if flow.closed else []
        found.append(FlowMemory(flow, tracker, holes=holes))
    return found


def open_connections(memories: Iterable[FlowMemory]) -> Iterator[tuple[Connection, Tracker]]:
    """The connections that are open, in what is remembered of flows."""
    for memory in memories:
        connection = connection_of(memory.flow)
        if connection is not None and memory.tracker is not None:
            yield connection, memory.tracker
