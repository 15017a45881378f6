"""Compares births and deaths of Sparkplug B by meaning: metrics that only one has, other data types and properties.

Values, timestamps, ``seq``, ``bdSeq`` and aliases change from birth to birth, and are not differences.
"""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.view import utf8
from mqttscope.payloads.sparkplug import BIRTHS, Births, decode
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.payloads.values import CUT, UndecodableError, compact, simplified
from mqttscope.replay.script import ScriptEntry

DEATHS = ("NDEATH", "DDEATH")
Change = tuple[str, Any, Any]
"""Path and both values; ``None`` for a metric that is missing."""


def by_metrics(change: Change, before: ScriptEntry, now: ScriptEntry) -> list[Change]:
    """A changed field of two packets; for the payload of a birth or death, its changes by metric."""
    first, other, metrics = before.packet, now.packet, None
    if change[0] == "payload" and isinstance(first, Publish) and isinstance(other, Publish):
        metrics = metric_changes(before.topic, first.payload, other.payload)
    elif change[0] == "will.will_payload":
        wills = [packet.will for packet in (first, other) if isinstance(packet, Connect) and packet.will is not None]
        if len(wills) == 2:
            metrics = metric_changes(wills[0].will_topic, wills[0].will_payload, wills[1].will_payload)
    return [change] if metrics is None else metrics


def metric_changes(topic: str | None, first: bytes, other: bytes) -> list[Change] | None:
    """Differences of two payloads of one topic; ``None`` if they are not births or deaths, or cannot be read."""
    place = read_topic(topic)
    if place is None or place.kind not in (*BIRTHS, *DEATHS):
        return None
    try:
        before, now = _described(topic, first), _described(topic, other)
    except UndecodableError:
        return None
    changes: list[Change] = []
    for name in dict.fromkeys((*before, *now)):
        path, (old, new) = f"payload.metrics[{utf8(name)}]", (before.get(name), now.get(name))
        if old is None or new is None:
            changes.append((path, old and old["datatype"], new and new["datatype"]))
        else:
            changes += [(f"{path}.{part}", old[part], new[part]) for part in old if old[part] != new[part]]
    return changes


def _described(topic: str | None, payload: bytes) -> dict[str, dict[str, str]]:
    """Data type, properties and structure of each metric with a name."""
    metrics: dict[str, dict[str, str]] = {}
    for metric in dict(decode(topic, payload, Births())[0])["metrics"]:
        fields = {} if metric is CUT else dict(metric)
        if "name" in fields:
            properties = simplified(fields.get("properties")).value
            metrics[fields["name"]] = {
                "datatype": str(fields.get("datatype", "no data type")),
                "properties": "none" if properties is None else compact(properties),
            }
    return metrics
