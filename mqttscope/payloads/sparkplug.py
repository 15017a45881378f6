"""Decodes Sparkplug B: payloads of the namespace ``spBv1.0``, with names and data types from births.

BIRTH messages give a metric a name, a data type, and perhaps an alias.  DATA and CMD messages contain the name or the
alias alone (Sparkplug 3.0, 6.4.6): `Births` remembers them by edge node.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mqttscope.mqtt.wire import counted
from mqttscope.payloads import values
from mqttscope.payloads.sparkplug_topics import SparkplugTopic, is_state, read_topic
from mqttscope.payloads.sparkplug_wire import DATATYPES, META_DATA, VALUES, Message, open_payload
from mqttscope.payloads.values import CUT, Pairs, UndecodableError

BIRTHS: Final = ("NBIRTH", "DBIRTH")
MAX_NODES: Final = 10_000
"""Maximum number of edge nodes with remembered aliases; the one unheard for longest is dropped first."""
MAX_ALIASES: Final = 20_000
"""Maximum number of aliases remembered per edge node."""
MAX_NAMES: Final = 20_000
"""Maximum number of names with data types remembered per edge node."""
MAX_ALL_METRICS: Final = 500_000
"""Maximum number of aliases and names remembered for all edge nodes."""
MAX_METRICS: Final = 20_000
"""Maximum number of decoded metrics, properties and items per payload."""
_DEPTH: Final = 16
"""Maximum nesting of templates and property sets."""

INTEGER_BITS: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
"""Signed integers, sent in unsigned fields as two's complement."""
_ARRAYS: Final = {
    "Int8Array": "b", "Int16Array": "h", "Int32Array": "i", "Int64Array": "q", "UInt8Array": "B", "UInt16Array": "H",
    "UInt32Array": "I", "UInt64Array": "Q", "FloatArray": "f", "DoubleArray": "d", "DateTimeArray": "q",
}  # fmt: skip
"""Arrays of little-endian numbers, with their `struct` formats."""


@dataclass(slots=True)
class NodeMetrics:
    """Metrics of the births of an edge node and its devices."""

    aliases: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Name and data type by alias."""
    types: dict[tuple[str | None, str], int] = field(default_factory=dict)
    """Data type by device (``None`` for the edge node) and name."""

    def __len__(self) -> int:
        return len(self.aliases) + len(self.types)


@dataclass(slots=True)
class Births:
    """Metrics of each edge node with a captured BIRTH."""

    nodes: dict[tuple[str, str], NodeMetrics] = field(default_factory=dict)
    """Metrics by group and edge node, the latest born last."""
    count: int = 0
    """Number of aliases and names of all edge nodes."""

    def metrics_of(self, topic: SparkplugTopic | None) -> NodeMetrics:
        """The metrics of the edge node of a topic."""
        known = None if topic is None else self.nodes.get((topic.group, topic.node))
        return NodeMetrics() if known is None else known

    def observe(self, topic: str | None, payload: bytes) -> None:
        """Add the metrics of a BIRTH; ignore other payloads."""
        place = read_topic(topic)
        if place is not None and place.kind in BIRTHS:
            with suppress(UndecodableError):
                self.add(place, open_payload(payload)[0])

    def add(self, topic: SparkplugTopic, message: Message) -> None:
        """Add the metrics of a decoded BIRTH; the BIRTH of a node first removes its former metrics."""
        key = topic.group, topic.node
        known = self.nodes.pop(key, None) or NodeMetrics()
        if topic.kind == "NBIRTH":
            self.count -= len(known)
            known = NodeMetrics()
        self.nodes[key] = known
        before = len(known)
        for metric in message.get("metrics", ()):
            if "name" not in metric:
                continue
            name, datatype = metric["name"], metric.get("datatype", 0)
            if "alias" in metric and len(known.aliases) < MAX_ALIASES:
                known.aliases[metric["alias"]] = name, datatype
            if datatype and len(known.types) < MAX_NAMES:
                known.types[topic.device, name] = datatype
        self.count += len(known) - before
        while len(self.nodes) > MAX_NODES or (self.count > MAX_ALL_METRICS and len(self.nodes) > 1):
            self.count -= len(self.nodes.pop(next(iter(self.nodes))))


def decode(topic: str | None, payload: bytes, births: Births) -> tuple[Any, str]:
    """The value of a payload, and a remark on it; `UndecodableError` if it is invalid.

    A BIRTH adds its metrics to ``births``, which completes the metrics of other payloads.  A STATE is JSON, and before
    Sparkplug 3.0 text.
    """
    if is_state(topic):
        with suppress(UndecodableError):
            return values.from_json(payload), ""
        return values.from_text(payload), ""
    message, unknown, form = open_payload(payload)
    place = read_topic(topic)
    if place is not None and place.kind in BIRTHS:
        births.add(place, message)
    reader = _MetricReader(births.metrics_of(place), None if place is None else place.device)
    value = reader.payload(message)
    notes = [f"{counted(unknown, 'field')} that the schema does not have"] if unknown else []
    notes += [f"decompressed from {form}"] if form else []
    if reader.unresolved:
        metrics = counted(reader.unresolved, "metric")
        notes.append(f"{metrics} by alias alone, without a remembered BIRTH of the edge node that names them")
    if reader.unsigned:
        metrics = counted(reader.unsigned, "metric")
        notes.append(f"{metrics} without a data type, perhaps negative: no remembered BIRTH has their type")
    return value, "; ".join(notes)


def one_line(value: Any) -> str:
    """A simplified value on one line: ``seq 2, Temperature:Double=22.0, alias 7=1``."""
    if not isinstance(value, Pairs) or "metrics" not in (fields := dict(value)):
        return values.compact(value)
    parts = [f"seq {fields['seq']}"] if "seq" in fields else []
    for metric in fields["metrics"]:
        known = {"value": metric} if metric is CUT else dict(metric)
        name = known.get("name", f"alias {known['alias']}" if "alias" in known else "")
        datatype = f":{known['datatype']}" if "datatype" in known else ""
        parts.append(f"{name}{datatype}={values.compact(known['value'])}")
    return ", ".join(parts) or values.compact(value)


class _MetricReader:
    """Converts one payload to a value."""

    def __init__(self, known: NodeMetrics, device: str | None) -> None:
        self._known, self._device = known, device
        self._left = MAX_METRICS
        self.unresolved = 0
        """Number of metrics by alias without a name."""
        self.unsigned = 0
        """Number of large integers without a data type, which may be negative."""

    def payload(self, message: Message) -> Pairs:
        pairs = _present(message, "timestamp", "seq", "uuid", "body")
        metrics = self._all(message.get("metrics", ()), lambda metric: self._metric(metric, 0))
        pairs.insert(_before_seq(pairs), ("metrics", metrics))
        return pairs

    def _all(self, held: Any, read: Any) -> list[Any]:
        values: list[Any] = []
        for element in held:
            self._left -= 1
            if self._left < 0:
                values.append(CUT)
                break
            values.append(read(element))
        return values

    def _metric(self, metric: Message, depth: int) -> Pairs:
        datatype, name = metric.get("datatype", 0), metric.get("name")
        if name is not None:
            # Members of a template have names of their own.
            datatype = datatype or (0 if depth else self._known.types.get((self._device, name), 0))
        elif "alias" in metric:
            known = self._known.aliases.get(metric["alias"])
            if known is None:
                self.unresolved += 1
            else:
                name, datatype = known[0], datatype or known[1]
        pairs = Pairs() if name is None else Pairs([("name", name)])
        pairs += _present(metric, "alias", "timestamp")
        if datatype:
            pairs.append(("datatype", _datatype(datatype)))
        elif metric.get("int_value", 0) >> 31 or metric.get("long_value", 0) >> 63:
            self.unsigned += 1
        pairs += _present(metric, "is_historical", "is_transient", "is_null")
        if "metadata" in metric:
            pairs.append(("metadata", _present(metric["metadata"], *META_DATA)))
        if "properties" in metric:
            pairs.append(("properties", self._properties(metric["properties"], depth + 1)))
        pairs.append(("value", self._value(metric, datatype, depth)))
        return pairs

    def _value(self, holder: Message, datatype: int, depth: int) -> Any:
        """The value of a metric, a property, a parameter or an element of a data set."""
        which = next((name for name in VALUES if name in holder), None)
        if which is None:
            return None
        value = holder[which]
        if depth >= _DEPTH and which in ("dataset_value", "template_value", "propertyset_value", "propertysets_value"):
            return CUT
        if which == "dataset_value":
            return self._data_set(value, depth + 1)
        if which == "template_value":
            return self._template(value, depth + 1)
        if which == "propertyset_value":
            return self._properties(value, depth + 1)
        if which == "propertysets_value":
            return self._all(value.get("propertyset", ()), lambda held: self._properties(held, depth + 1))
        return _scalar(value, _datatype(datatype))

    def _properties(self, held: Message, depth: int) -> Pairs:
        pairs = Pairs()
        for key, element in zip(held.get("keys", ()), held.get("values", ()), strict=False):
            self._left -= 1
            if self._left < 0:
                pairs.append((CUT, CUT))
                break
            pairs.append((key, self._value(element, element.get("type", 0), depth)))
        return pairs

    def _data_set(self, held: Message, depth: int) -> Pairs:
        types = held.get("types", [])

        def row(row_: Message) -> list[Any]:
            numbered = iter(range(len(row_.get("elements", ()))))
            return self._all(
                row_.get("elements", ()), lambda each: self._value(each, _at(types, next(numbered)), depth)
            )

        return Pairs([
            ("columns", held.get("columns", [])), ("types", [_datatype(number) for number in types]),
            ("rows", self._all(held.get("rows", ()), row)),
        ])  # fmt: skip

    def _template(self, held: Message, depth: int) -> Pairs:
        pairs = _present(held, "template_ref", "version", "is_definition")

        def parameter(sent: Message) -> Pairs:
            datatype = sent.get("type", 0)
            rows = [("name", sent.get("name", "")), ("type", _datatype(datatype))]
            return Pairs([*rows, ("value", self._value(sent, datatype, depth))])

        if "parameters" in held:
            pairs.append(("parameters", self._all(held["parameters"], parameter)))
        pairs.append(("metrics", self._all(held.get("metrics", ()), lambda metric: self._metric(metric, depth))))
        return pairs


def _present(message: Message, *names: str) -> Pairs:
    return Pairs([(name, message[name]) for name in names if name in message])


def _before_seq(pairs: Pairs) -> int:
    return next((at for at, (name, _) in enumerate(pairs) if name != "timestamp"), len(pairs))


def _at(types: list[int], index: int) -> int:
    return types[index] if index < len(types) else 0


def _datatype(number: int) -> Any:
    """The name of a data type, or its number if the specification does not define it."""
    return DATATYPES[number] if number < len(DATATYPES) else number


def _scalar(value: Any, datatype: Any) -> Any:
    bits = INTEGER_BITS.get(datatype)
    if bits is not None and isinstance(value, int) and not isinstance(value, bool):
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value
    return _array(value, datatype) if isinstance(value, bytes) else value


def _array(value: bytes, datatype: Any) -> Any:
    """The items of an array, or its bytes if they are invalid."""
    form = _ARRAYS.get(datatype)
    if form is not None:
        size = struct.calcsize(f"<{form}")
        return list(struct.unpack(f"<{len(value) // size}{form}", value)) if len(value) % size == 0 else value
    if datatype == "StringArray" and (not value or value[-1] == 0):
        return [part.decode("utf-8", "surrogateescape") for part in value.split(b"\0")[:-1]]
    if datatype == "BooleanArray" and len(value) >= 4:
        count = int.from_bytes(value[:4], "little")
        if len(value) - 4 == (count + 7) // 8:
            return [bool(value[4 + at // 8] >> (7 - at % 8) & 1) for at in range(count)]
    return value
