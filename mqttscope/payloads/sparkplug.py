"""Decodes Sparkplug B: payloads of the namespace ``spBv1.0``, with the names of metrics that are sent by their alias.

The schema is that of the Sparkplug specification 3.0 (6.4), as a descriptor built here; the wire does not depend on the
names of its messages.  BIRTH messages give metrics a name and an alias, DATA messages may send the alias alone:
`Births` remembers it by edge node.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from mqttscope.mqtt.wire import counted
from mqttscope.payloads.protobuf import parsed, unknown_told
from mqttscope.payloads.values import CUT, Pairs, UndecodableError

NAMESPACE: Final = "spBv1.0"
BIRTHS: Final = ("NBIRTH", "DBIRTH")
MAX_NODES: Final = 10_000
"""Edge nodes whose aliases are remembered; of more, those that were not heard of longest are forgotten."""
MAX_ALIASES: Final = 20_000
"""Aliases of one edge node; further ones are not remembered."""
MAX_ALL_ALIASES: Final = 500_000
"""Aliases of all edge nodes."""
MAX_METRICS: Final = 20_000
"""Metrics, properties and items of one payload that are decoded."""
_DEPTH: Final = 16
"""Levels of templates and property sets within each other."""

DATATYPES: Final = (
    "Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean",
    "String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList",
    "Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array", "UInt32Array", "UInt64Array",
    "FloatArray", "DoubleArray", "BooleanArray", "StringArray", "DateTimeArray",
)  # fmt: skip
"""Names of data types, by their number."""
_BITS: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
"""Signed integers, which are sent in unsigned fields as the complement of two."""
_ARRAYS: Final = {
    "Int8Array": "b", "Int16Array": "h", "Int32Array": "i", "Int64Array": "q", "UInt8Array": "B", "UInt16Array": "H",
    "UInt32Array": "I", "UInt64Array": "Q", "FloatArray": "f", "DoubleArray": "d", "DateTimeArray": "q",
}  # fmt: skip
"""Arrays of numbers, little-endian one after the other, with their form for `struct`."""

_SCALARS: Final = ("int_value uint32", "long_value uint64", "float_value float", "double_value double",
                   "boolean_value bool", "string_value string")  # fmt: skip


def _values(first: int, *more: str) -> tuple[str, ...]:
    """Fields of which one holds the value, numbered from ``first`` on."""
    return tuple(f"{number} {one}" for number, one in enumerate((*_SCALARS, *more), first))


_SCHEMA: Final[dict[str, tuple[str, ...]]] = {
    "Payload": ("1 timestamp uint64", "2 metrics *Metric", "3 seq uint64", "4 uuid string", "5 body bytes"),
    "Metric": (
        "1 name string", "2 alias uint64", "3 timestamp uint64", "4 datatype uint32", "5 is_historical bool",
        "6 is_transient bool", "7 is_null bool", "8 metadata MetaData", "9 properties PropertySet",
        *_values(10, "bytes_value bytes", "dataset_value DataSet", "template_value Template"),
    ),
    "MetaData": (
        "1 is_multi_part bool", "2 content_type string", "3 size uint64", "4 seq uint64", "5 file_name string",
        "6 file_type string", "7 md5 string", "8 description string",
    ),
    "PropertySet": ("1 keys *string", "2 values *PropertyValue"),
    "PropertySetList": ("1 propertyset *PropertySet",),
    "PropertyValue": (
        "1 type uint32", "2 is_null bool",
        *_values(3, "propertyset_value PropertySet", "propertysets_value PropertySetList"),
    ),
    "DataSet": ("1 num_of_columns uint64", "2 columns *string", "3 types *uint32", "4 rows *Row"),
    "Row": ("1 elements *Element",),
    "Element": _values(1),
    "Template": (
        "1 version string", "2 metrics *Metric", "3 parameters *Parameter", "4 template_ref string",
        "5 is_definition bool",
    ),
    "Parameter": ("1 name string", "2 type uint32", *_values(3)),
}  # fmt: skip
"""Messages, and of each field its number, name and type; an asterisk marks one that may be repeated."""


@cache
def _payload_class() -> Any:
    """The class of payloads; `UndecodableError` where protobuf is not installed."""
    try:
        from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
    except ImportError:
        raise UndecodableError("protobuf is not installed (pip install protobuf)") from None
    file = FileDescriptorProto(name="sparkplug_b.proto", package="sparkplug", syntax="proto2")
    for name, rows in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for row in rows:
            number, field, kind = row.split()
            made = message.field.add(name=field, number=int(number))
            made.label = made.LABEL_REPEATED if kind[0] == "*" else made.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in _SCHEMA:
                made.type, made.type_name = made.TYPE_MESSAGE, f".sparkplug.{kind}"
            else:
                made.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            if field.endswith("_value"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("sparkplug.Payload"))


@dataclass(frozen=True, slots=True)
class SparkplugTopic:
    """What a topic of the namespace says."""

    group: str
    kind: str
    """``NBIRTH``, ``DDATA`` ..."""
    node: str
    device: str | None = None


def read_topic(topic: str | None) -> SparkplugTopic | None:
    """The parts of a topic; ``None`` where it is none of an edge node or device."""
    levels = (topic or "").split("/", 5)
    if levels[0] != NAMESPACE or not 4 <= len(levels) <= 5 or levels[2][:1] not in ("N", "D"):
        return None
    return SparkplugTopic(levels[1], levels[2], levels[3], levels[4] if len(levels) == 5 else None)


class Births:
    """Names and data types of metrics by their alias, for each edge node of which a BIRTH was seen."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[tuple[str, str], dict[int, tuple[str, int]]] = OrderedDict()
        self._count = 0

    def of(self, topic: SparkplugTopic | None) -> dict[int, tuple[str, int]]:
        """The aliases of the edge node that a topic is of."""
        return {} if topic is None else self._nodes.get((topic.group, topic.node), {})

    def observe(self, topic: str | None, payload: bytes) -> None:
        """Take the aliases of a BIRTH; whatever else a topic is of is passed over."""
        place = read_topic(topic)
        if place is not None and place.kind in BIRTHS:
            with suppress(UndecodableError, ValueError):  # names that are no UTF-8
                self.take(place, parsed(_payload_class(), payload))

    def take(self, topic: SparkplugTopic, message: Any) -> None:
        """Take the aliases of a BIRTH that is decoded: that of a node is the beginning of all of them."""
        key = topic.group, topic.node
        if topic.kind == "NBIRTH":
            self._count -= len(self._nodes.pop(key, ()))
        known = self._nodes.setdefault(key, {})
        self._nodes.move_to_end(key)
        before = len(known)
        for one in message.metrics:
            if len(known) >= MAX_ALIASES:
                break
            if one.HasField("alias") and one.HasField("name"):
                known[one.alias] = one.name, one.datatype
        self._count += len(known) - before
        while len(self._nodes) > MAX_NODES or (self._count > MAX_ALL_ALIASES and len(self._nodes) > 1):
            self._count -= len(self._nodes.popitem(last=False)[1])


def decode(topic: str | None, payload: bytes, births: Births) -> tuple[Any, str]:
    """The value of a payload, and what has to be said of it; `UndecodableError` where it is none.

    A BIRTH is taken into ``births``, which resolves the aliases of others.
    """
    message = parsed(_payload_class(), payload)
    place = read_topic(topic)
    if place is not None and place.kind in BIRTHS:
        births.take(place, message)
    reader = _Reader(births.of(place))
    value = reader.payload(message)
    notes = [unknown_told(message).replace("descriptor", "schema")]
    if reader.unresolved:
        metrics = counted(reader.unresolved, "metric")
        notes.append(f"{metrics} by alias alone, which no remembered BIRTH of the edge node names")
    return value, "; ".join(filter(None, notes))


class _Reader:
    """Makes a value of one payload."""

    def __init__(self, aliases: dict[int, tuple[str, int]]) -> None:
        self._aliases = aliases
        self._left = MAX_METRICS
        self.unresolved = 0

    def payload(self, message: Any) -> Pairs:
        made = _present(message, "timestamp", "seq", "uuid", "body")
        made.insert(_before_seq(made), ("metrics", self._all(message.metrics, lambda one: self._metric(one, 0))))
        return made

    def _all(self, held: Any, read: Any) -> list[Any]:
        made: list[Any] = []
        for one in held:
            self._left -= 1
            if self._left < 0:
                made.append(CUT)
                break
            made.append(read(one))
        return made

    def _metric(self, metric: Any, depth: int) -> Pairs:
        datatype, made = metric.datatype, Pairs()
        if metric.HasField("name"):
            made.append(("name", metric.name))
        elif metric.HasField("alias"):
            known = self._aliases.get(metric.alias)
            if known is None:
                self.unresolved += 1
            else:
                made.append(("name", known[0]))
                datatype = datatype or known[1]
        made += _present(metric, "alias", "timestamp")
        if datatype:
            made.append(("datatype", _datatype(datatype)))
        made += _present(metric, "is_historical", "is_transient", "is_null")
        if metric.HasField("metadata"):
            made.append(("metadata", _present(metric.metadata, *(row.split()[1] for row in _SCHEMA["MetaData"]))))
        if metric.HasField("properties"):
            made.append(("properties", self._properties(metric.properties, depth + 1)))
        made.append(("value", self._value(metric, datatype, depth)))
        return made

    def _value(self, holder: Any, datatype: int, depth: int) -> Any:
        """The value of a metric, a property, a parameter or an element of a data set."""
        which = holder.WhichOneof("value")
        if which is None:
            return None
        value = getattr(holder, which)
        if depth >= _DEPTH and which in ("dataset_value", "template_value", "propertyset_value", "propertysets_value"):
            return CUT
        if which == "dataset_value":
            return self._data_set(value, depth + 1)
        if which == "template_value":
            return self._template(value, depth + 1)
        if which == "propertyset_value":
            return self._properties(value, depth + 1)
        if which == "propertysets_value":
            return self._all(value.propertyset, lambda one: self._properties(one, depth + 1))
        return _scalar(value, _datatype(datatype))

    def _properties(self, held: Any, depth: int) -> Pairs:
        made = Pairs()
        for key, one in zip(held.keys, held.values, strict=False):
            self._left -= 1
            if self._left < 0:
                made.append((CUT, CUT))
                break
            made.append((key, self._value(one, one.type, depth)))
        return made

    def _data_set(self, held: Any, depth: int) -> Pairs:
        types = list(held.types)

        def row(one: Any) -> list[Any]:
            numbered = iter(range(len(one.elements)))
            return self._all(one.elements, lambda each: self._value(each, _at(types, next(numbered)), depth))

        return Pairs([
            ("columns", list(held.columns)), ("types", [_datatype(one) for one in types]),
            ("rows", self._all(held.rows, row)),
        ])  # fmt: skip

    def _template(self, held: Any, depth: int) -> Pairs:
        made = _present(held, "template_ref", "version", "is_definition")

        def parameter(one: Any) -> Pairs:
            rows = [("name", one.name), ("type", _datatype(one.type)), ("value", self._value(one, one.type, depth))]
            return Pairs(rows)

        if held.parameters:
            made.append(("parameters", self._all(held.parameters, parameter)))
        made.append(("metrics", self._all(held.metrics, lambda one: self._metric(one, depth))))
        return made


def _present(message: Any, *names: str) -> Pairs:
    return Pairs([(name, getattr(message, name)) for name in names if message.HasField(name)])


def _before_seq(made: Pairs) -> int:
    return next((at for at, (name, _) in enumerate(made) if name != "timestamp"), len(made))


def _at(types: list[int], index: int) -> int:
    return types[index] if index < len(types) else 0


def _datatype(number: int) -> Any:
    """The name of a data type, or the number of one that the specification does not have."""
    return DATATYPES[number] if number < len(DATATYPES) else number


def _scalar(value: Any, datatype: Any) -> Any:
    bits = _BITS.get(datatype)
    if bits is not None and isinstance(value, int) and not isinstance(value, bool):
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value
    return _array(value, datatype) if isinstance(value, bytes) else value


def _array(value: bytes, datatype: Any) -> Any:
    """The items of an array; its bytes where they are none."""
    form = _ARRAYS.get(datatype)
    if form is not None:
        size = struct.calcsize(f"<{form}")
        return list(struct.unpack(f"<{len(value) // size}{form}", value)) if len(value) % size == 0 else value
    if datatype == "StringArray" and (not value or value[-1] == 0):
        return [one.decode("utf-8", "surrogateescape") for one in value.split(b"\0")[:-1]]
    if datatype == "BooleanArray" and len(value) >= 4:
        count = int.from_bytes(value[:4], "little")
        if len(value) - 4 == (count + 7) // 8:
            return [bool(value[4 + at // 8] >> (7 - at % 8) & 1) for at in range(count)]
    return value
