"""What TCP did to a flow, as plain numbers for those who only see the connection."""

from __future__ import annotations

from mqttscope.net.flows import Flow
from mqttscope.net.reassembly import HalfStream

COUNTERS = (
    "data_segments",
    "empty_segments",
    "retransmitted_segments",
    "retransmitted_bytes",
    "duplicate_segments",
    "copied_segments",
    "out_of_order_segments",
    "overlaps",
    "zero_windows",
    "keep_alive_probes",
)
"""Counters of `net.reassembly.HalfStream` that `tcp_counters` hands on, in this order."""


def tcp_counters(flow: Flow, *, client_is_initiator: bool) -> dict[str, dict[str, int]]:
    """Counters of both directions of a flow, by the direction of MQTT and the counter's name."""
    client, server = (flow.initiator, flow.responder) if client_is_initiator else (flow.responder, flow.initiator)
    return {"client_to_server": _counters(client), "server_to_client": _counters(server)}


def _counters(half: HalfStream) -> dict[str, int]:
    return {name: getattr(half, name) for name in COUNTERS}
