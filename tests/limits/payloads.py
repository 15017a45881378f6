"""Inputs at the limits of the package payloads."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from tests import tools

tools.package("google.protobuf")

from mqttscope.payloads.protobuf import MessageType, from_wire
from mqttscope.payloads.settings import PayloadConfigError, payload_tables
from mqttscope.payloads.sparkplug import Births, decode
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.payloads.sparkplug_wire import parse_message
from mqttscope.payloads.values import CUT, UndecodableError, compact, from_json, from_msgpack, simplified
from tests.payloads.samples import NBIRTH_TOPIC, NDATA_TOPIC, decoders, descriptors, metric, part, published
from tests.payloads.test_protobuf import within

__all__ = ["CUT", "compact", "descriptors", "metric", "part", "within", "zlib"]
JSON = {"topic": "a", "format": "json"}


def outcome(read: Callable[..., Any], *inputs: Any) -> Any:
    """What a function returns, or the message of its error."""
    try:
        return read(*inputs)
    except (UndecodableError, PayloadConfigError) as error:
        return str(error)


def json(data: bytes) -> Any:
    return outcome(from_json, data)


def msgpack(size: int) -> Any:
    """The length of bytes in MessagePack of this size."""
    value = outcome(from_msgpack, b"\xc5" + (size - 3).to_bytes(2) + bytes(size - 3))
    return value if isinstance(value, str) else len(value) + 3


def wire(data: bytes) -> str:
    """A message of Protocol Buffers without a descriptor."""
    value = outcome(from_wire, data)
    return value if isinstance(value, str) else compact(value)


def vehicle(size: int) -> str:
    """The name in a message of this size by its descriptor, without what is usual in it."""
    value = outcome(MessageType(descriptors(), "fleet.Report").decode, part(1, b"x" * (size - 3)))
    return value if isinstance(value, str) else value[0][0][1].replace("x", "")


def descriptor(size: int) -> str:
    """What is wrong with a descriptor file of this size."""
    held = descriptors()
    value = outcome(MessageType, held + part(15, bytes(size - len(held) - 3)), "fleet.Report")
    return value if isinstance(value, str) else ""


def is_cut(value: Any) -> bool:
    return simplified(value).cut


def lists(depth: int) -> Any:
    """Lists within lists, so many in all, and a number in the innermost."""
    return [lists(depth - 1)] if depth > 1 else [0]


def settings(*rows: dict[str, Any]) -> str | int:
    """How many tables of a configuration are read, or what is wrong with them."""
    value = outcome(payload_tables, {"payload": list(rows)}, bytes)
    return value if isinstance(value, str) else len(value)


def unpacked(size: int) -> Any:
    """The number in JSON of this size that is compressed, or why it is not decoded."""
    decoded = decoders(("#", "json", ("zlib",))).decode(published(("a", zlib.compress(b"1".rjust(size))))[0])
    assert decoded is not None
    return decoded.problem or decoded.value


def reason(text: str) -> str:
    """The problem of a payload where the decoder of a package raises an error with a text."""

    def function(topic: str, payload: bytes) -> object:
        raise UndecodableError(text)

    own = decoders(("#", "", (), "", b"", "", "own"), functions=lambda name: function)
    decoded = own.decode(published(("a", b"x"))[0])
    assert decoded is not None
    return decoded.problem


def topics(count: int) -> int:
    """How many topics are remembered when decoders have met so many."""
    known = decoders(("#", "text"))
    for number in range(count):
        known.table(f"a/{number}")
    return len(known._topics)


def forgotten(*counts: int) -> list[int]:
    """Of edge nodes, each with so many aliases in its BIRTH, how many aliases are not remembered."""
    births = Births()
    for node, count in enumerate(counts):
        payload = b"".join(metric(part(1, b"m"), part(2, number)) for number in range(count))
        births.observe(f"spBv1.0/g/NBIRTH/{node}", payload)
    return [count - len(births.metrics_of(read_topic(f"spBv1.0/g/NDATA/{node}"))) for node, count in enumerate(counts)]


def untyped(count: int) -> int:
    """Number of metrics of a BIRTH without a remembered data type."""
    births = Births()
    births.observe(NBIRTH_TOPIC, b"".join(metric(part(1, b"m%d" % number), part(4, 3)) for number in range(count)))
    return count - len(births.metrics_of(read_topic(NDATA_TOPIC)).types)


def sparkplug(payload: bytes) -> str:
    return compact(decode(NDATA_TOPIC, payload, Births())[0])


def wire_payload(payload: bytes) -> str:
    """Why a payload of Sparkplug B is not read."""
    result = outcome(parse_message, payload)
    return result if isinstance(result, str) else ""


def empty_sets(levels: int, inner: bytes = b"") -> bytes:
    """A metric of Sparkplug B with property sets within each other that have nothing else."""
    for _ in range(levels):
        inner = part(2, part(9, inner))
    return metric(part(9, inner))


def property_sets(levels: int) -> bytes:
    """A metric of Sparkplug B with property sets within each other, so many in all."""
    inner = part(1, b"k") + part(2, part(8, b"v"))
    for _ in range(levels - 1):
        inner = part(1, b"k") + part(2, part(9, inner))
    return metric(part(9, inner))
