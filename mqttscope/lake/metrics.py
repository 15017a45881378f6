"""Messages of Sparkplug B as rows of ``sparkplug_metrics``, with names and data types from births of the connection."""

from __future__ import annotations

from typing import Any, Final

import orjson

from mqttscope.events import PacketEvent
from mqttscope.lake.rows import MOST, RowPrefix, Values, place_of
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import utf8
from mqttscope.payloads import values
from mqttscope.payloads.sparkplug import Births, decode
from mqttscope.payloads.sparkplug_topics import DEVICE_TYPES, NODE_TYPES, read_topic
from mqttscope.payloads.values import CUT, UndecodableError
from mqttscope.secrets.packets import DISGUISED, hides_payload

BDSEQ: Final = "bdSeq"


def metric_rows(event: PacketEvent, intro: RowPrefix, births: Births, limit: int) -> list[Values]:
    """The rows of a PUBLISH; empty for messages that are not of an edge node or device, and for possible secrets.

    ``births`` gets the metrics of a birth.  Values are kept if payloads of this length are kept completely.
    """
    packet, connection = event.packet, event.connection
    place = read_topic(event.topic)
    if not isinstance(packet, Publish) or place is None:
        return []
    if (place.device is None) != (place.kind in NODE_TYPES) or place.kind not in (*NODE_TYPES, *DEVICE_TYPES):
        return []
    may_be_secret = connection.doubtful or packet.topic_name in DISGUISED
    if may_be_secret and hides_payload(packet, connection.side(event.direction).doubt):
        return []
    message, problem = dict[str, Any](), None
    if packet.missing:
        problem = f"{packet.missing} bytes of the payload were not captured"
    else:
        try:
            message = dict(decode(event.topic, packet.payload, births)[0])
        except UndecodableError as error:
            problem = utf8(str(error))
    who, _ = intro.who(connection, event.direction)
    device = None if place.device is None else utf8(place.device)
    metrics = [dict(values.simplified(metric).value) for metric in message.get("metrics", ()) if metric is not CUT]
    bdseq = next((_number(metric.get("value")) for metric in metrics if metric.get("name") == BDSEQ), None)
    head = (
        intro.connection_id, *place_of(event), *who, event.number, event.stream_offset, packet.dup, packet.retain,
        utf8(f"{place.group}/{place.node}"), device, place.kind, _number(message.get("seq")), bdseq,
    )  # fmt: skip
    keeps = bool(metrics) and len(packet.payload) <= limit
    rows = [_metric(metric, message.get("timestamp"), keeps=keeps) for metric in metrics] or [
        (None, None, None, _number(message.get("timestamp")), None, None, None, None)
    ]
    return [(*head, number, *row, problem) for number, row in enumerate(rows)]


def _metric(metric: dict[str, Any], timestamp: Any, *, keeps: bool) -> Values:
    """The columns of one metric."""
    name, datatype, value = metric.get("name"), metric.get("datatype"), metric.get("value") if keeps else None
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return (
        None if name is None else utf8(name), _number(metric.get("alias")), None if datatype is None else str(datatype),
        _number(metric.get("timestamp", timestamp)), metric.get("is_historical", False), metric.get("is_null", False),
        None if value is None else utf8(value) if isinstance(value, str) else _json(value),
        number,
    )  # fmt: skip


def _number(value: Any) -> int | None:
    """A number of 64 bits for a column; larger ones become the largest."""
    return min(value, MOST) if isinstance(value, int) and not isinstance(value, bool) else None


def _json(value: Any) -> str:
    return orjson.dumps(values.as_json(value)).decode()
