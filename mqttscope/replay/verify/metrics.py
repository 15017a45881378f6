"""Compares payloads of Sparkplug B by meaning: metrics that only one has, other data types, values and properties.

Names and data types of metrics come from the births of each recording, so equal bytes may mean different metrics.
Timestamps, ``seq``, the value of ``bdSeq``, aliases and the order of metrics are not differences.  Nothing is concluded
from a birth that a recording lacks: a metric without a name is compared with the metric of its alias, and a data type
only with another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from mqttscope.events import PacketEvent
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.view import utf8
from mqttscope.payloads.sparkplug import INTEGER_BITS, Births, decode
from mqttscope.payloads.sparkplug_topics import host_of_state, read_topic
from mqttscope.payloads.values import CUT, Pairs, UndecodableError, compact, simplified

MAX_SERVERS = 1_000
"""Maximum number of servers of a recording with births that are remembered."""
Change = tuple[str, Any, Any]
"""Path and both values; ``None`` for a metric that is missing."""
_UNSTABLE = ("timestamp", "seq", "metrics")
"""Fields of payloads that are not compared, or by metric."""
_PARTS = ("datatype", "is_historical", "is_transient", "is_null", "metadata", "properties", "value")


@dataclass(slots=True, frozen=True)
class NamedValue:
    """A value with the name that decides whether it is a secret."""

    name: str
    value: Any

    def shown(self, *, show_secrets: bool) -> str:
        """The value as text."""
        row = simplified(Pairs([("name", self.name), ("value", self.value)]), show_secrets=show_secrets).value
        return compact(dict(row)["value"])


@dataclass(slots=True)
class MessageContent:
    """Meaning of a payload of Sparkplug."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields besides metrics; of a STATE, all keys but the timestamp."""
    metrics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Metrics by name; by ``alias 7`` if the name is unknown."""

    @property
    def key(self) -> str:
        """Equal for equal contents."""
        metrics = {
            name: [{part: row.get(part) for part in _PARTS if (part, name) != ("value", "bdSeq")} for row in rows]
            for name, rows in sorted(self.metrics.items())
        }
        return repr((sorted(self.fields.items()), metrics))

    def changes(self, other: MessageContent) -> Iterator[Change]:
        """Differences of two payloads of one topic."""
        for name in dict.fromkeys((*self.fields, *other.fields)):
            old, new = self.fields.get(name), other.fields.get(name)
            if repr(old) != repr(new):
                first, second = (None if part is None else NamedValue(name, part) for part in (old, new))
                yield f"payload.{utf8(name)}", first, second
        others = dict(other.metrics)
        for name, rows in self.metrics.items():
            match = name if name in others else _same_alias(rows[0], others)
            shown = name if match is None or "name" in rows[0] else match
            yield from _metric_changes(shown, rows, [] if match is None else others.pop(match))
        for name, rows in others.items():
            yield from _metric_changes(name, [], rows)


def _same_alias(metric: dict[str, Any], others: dict[str, list[dict[str, Any]]]) -> str | None:
    """The name of the metric with the alias of another one, if one of the two has no known name."""
    alias = metric.get("alias")
    for name, rows in others.items() if alias is not None else ():
        if rows[0].get("alias") == alias and not ("name" in metric and "name" in rows[0]):
            return name
    return None


def _metric_changes(name: str, before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[Change]:
    path = f"payload.metrics[{utf8(name)}]"
    for old, new in zip_longest(before, now):
        if old is None or new is None:
            kinds = [None if row is None else str(row.get("datatype", "no data type")) for row in (old, new)]
            yield path, kinds[0], kinds[1]
            continue
        types = old.get("datatype"), new.get("datatype")
        for part in _PARTS:
            first, other = old.get(part), new.get(part)
            if part == "datatype":
                if None not in types and first != other:
                    yield f"{path}.datatype", str(first), str(other)
            elif not (part == "value" and (name == "bdSeq" or _is_equal(first, other, types))) and (
                repr(first) != repr(other)
            ):
                yield f"{path}.{part}", NamedValue(name, first), NamedValue(name, other)


def _is_equal(first: Any, other: Any, types: tuple[Any, Any]) -> bool:
    """Whether two integers are equal, if only one of them has a data type, which may make it negative."""
    bits = INTEGER_BITS.get(types[0] or types[1])
    is_integer = type(first) is int and type(other) is int
    return bits is not None and None in types and is_integer and (first - other) % (1 << bits) == 0


class RecordedMetrics:
    """Reads the payloads of Sparkplug of one recording, in their order."""

    def __init__(self) -> None:
        self._births: dict[str, Births] = {}

    def read(self, event: PacketEvent) -> MessageContent | None:
        """The content of a message, or of a will; ``None`` if it is not Sparkplug, or cannot be read."""
        packet, topic, payload = event.packet, event.topic, b""
        if isinstance(packet, Connect) and packet.will is not None:
            topic, payload = packet.will.will_topic, packet.will.will_payload
        elif isinstance(packet, Publish):
            payload = packet.payload
        if packet.missing or (host_of_state(topic) is None and read_topic(topic) is None):
            return None
        births = self._births.get(event.connection.server)
        if births is None:
            births = Births()
            if len(self._births) < MAX_SERVERS:
                self._births[event.connection.server] = births
        try:
            content = decode(topic, payload, births)[0]
        except UndecodableError:
            return None
        if isinstance(content, dict):  # a STATE
            return MessageContent({name: part for name, part in content.items() if name != "timestamp"})
        return _content(content) if isinstance(content, Pairs) else None


def _content(payload: Pairs) -> MessageContent:
    fields = dict(payload)
    content = MessageContent({name: part for name, part in fields.items() if name not in _UNSTABLE})
    for metric in fields["metrics"]:
        if metric is CUT:
            content.fields["metrics"] = f"more than {len(fields['metrics']) - 1:,}"
            break
        row = {name: _stable(part) for name, part in metric if name != "timestamp"}
        content.metrics.setdefault(row.get("name", f"alias {row.get('alias', '')}"), []).append(row)
    return content


def _stable(value: Any) -> Any:
    """A value without the timestamps, the aliases and the order of metrics in templates."""
    if isinstance(value, Pairs):
        return Pairs((name, _members(part) if name == "metrics" else _stable(part)) for name, part in value)
    return [_stable(part) for part in value] if isinstance(value, list) else value


def _members(metrics: Any) -> Any:
    if not isinstance(metrics, list):
        return _stable(metrics)
    rows = (
        row if row is CUT else Pairs(pair for pair in row if pair[0] not in ("timestamp", "alias")) for row in metrics
    )
    return sorted(map(_stable, rows), key=lambda row: "" if row is CUT else str(dict(row).get("name", "")))
