"""Laws that hold for any bytes in any version; the tables and the generated tests assert the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from mqttscope.mqtt import ControlPacket, Malformed, ProtocolVersion, Publish, decode, trace
from mqttscope.mqtt.codec import DECODERS, connect_version, examine, packet_end
from mqttscope.mqtt.constants import type_name
from mqttscope.mqtt.stream import MAX_PACKET_BYTES, PacketStream, StreamItem, Unparsed
from mqttscope.mqtt.wire import LayoutFault
from tests.mqtt.case import V3_1_1, VERSIONS, parse
from tests.mqtt.conversation import CLEAN, following
from tests.packets import octets
from tests.tables import steps


def assert_partition(raw: bytes, version: ProtocolVersion) -> None:
    """The spans of a packet cover every byte exactly once, in order."""
    at = 0
    for span in trace(raw, version):
        assert span.field
        assert span.start == at, f"{span} begins elsewhere than at {at}"
        assert span.end >= span.start
        at = span.end
    assert at == len(raw)


def broken(text: str, version: ProtocolVersion = V3_1_1) -> Malformed:
    """The decoded value of a malformed packet in hexadecimal."""
    packet = decode(parse(text), version)
    assert isinstance(packet, Malformed)
    return packet


def assert_malformed(malformed: Malformed, raw: bytes) -> None:
    """Properties of every `Malformed` value."""
    assert malformed.raw == raw
    assert malformed.reason_code == 0x81
    assert malformed.detail
    assert 0 <= malformed.offset <= len(raw)
    assert malformed.packet_type == (raw[0] >> 4 if raw else None)
    assert [fault.offset for fault in malformed.faults] == sorted(fault.offset for fault in malformed.faults)
    assert len({(fault.reason, fault.offset, fault.field) for fault in malformed.faults}) == len(malformed.faults)
    assert any(
        (fault.reason, fault.offset, fault.field, fault.detail)
        == (malformed.reason, malformed.offset, malformed.field, malformed.detail)
        for fault in malformed.faults
    )
    if malformed.packet is None:
        assert malformed.fields_read == ()
        assert not malformed.complete
    else:
        assert malformed.packet.raw == raw
        names = {row.name for row in malformed.packet.declaration}
        assert names.issuperset(malformed.fields_read)
        for name in names.difference(malformed.fields_read):
            assert getattr(malformed.packet, name) in (None, []) or name in ("will", "subscriptions", "topic_filters")


def assert_decoders_agree(raw: bytes, version: ProtocolVersion) -> None:
    """The fast decoder takes a packet exactly when the slow examination finds no fault, and both read the same."""
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0 or end != len(raw):
        return
    if raw[0] >> 4 == 1:
        version = connect_version(raw, body)
    slow = examine(raw, version)
    decoder = DECODERS[version][raw[0] >> 4]
    if decoder is None or (version == 5 and body > 2 and raw[body - 1] == 0):
        assert isinstance(slow, Malformed)
        return
    try:
        fast = decoder(raw, body)
    except LayoutFault:
        assert isinstance(slow, Malformed)
        return
    assert not isinstance(slow, Malformed)
    assert fast == slow
    assert fast.raw == slow.raw == raw


def assert_sound(raw: bytes, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Everything that holds for one packet, whatever it is; returns what it was decoded to."""
    packet = decode(raw, version)
    if isinstance(packet, Malformed):
        assert_malformed(packet, raw)
    else:
        assert packet.raw == raw
    assert_partition(raw, version)
    assert_decoders_agree(raw, version)
    return packet


def length_of(item: StreamItem) -> int:
    """Bytes of the stream that one item stands for, lost ones included."""
    if isinstance(item, Unparsed):
        return item.length
    if isinstance(item, Malformed):
        return len(item.raw)
    return len(item.raw) + item.missing


def run(chunks: Iterable[bytes | int], stream: PacketStream) -> list[StreamItem]:
    """Everything that a stream gives for these chunks, a number being a gap; checks that no byte is left out."""
    items: list[StreamItem] = []
    total = 0
    for chunk in chunks:
        if isinstance(chunk, int):
            items += stream.gap(chunk)
            total += chunk
        else:
            items += stream.feed(chunk)
            total += len(chunk)
    if stream.skipped is None:
        total += stream.skip  # a PUBLISH that lost bytes was given with all that should have come
    items += stream.close()
    assert sum(length_of(packet) for packet in items) == total
    assert stream.close() == []
    return items


def facts(items: Iterable[StreamItem]) -> list[tuple[object, ...]]:
    """Items with everything in them, to be compared."""
    return [
        (
            type(packet).__name__,
            repr(packet),
            getattr(packet, "raw", b""),
            getattr(packet, "missing", 0),
            getattr(packet, "header_flags", 0),
        )
        for packet in items
    ]


def hexadecimal(raw: bytes) -> str:
    """Bytes as `octets` reads them: ``3064 00*48``."""
    runs = ((f"{byte:02x}", len(list(group))) for byte, group in groupby(raw))
    return "".join(f" {byte}*{count} " if count > 9 else byte * count for byte, count in runs).strip()


def render(item: StreamItem) -> str:
    """An item of a stream in words: its kind, its bytes, and the number of missing bytes."""
    missing = f" and {item.missing} missing" if item.missing else ""
    if isinstance(item, Unparsed):
        kind = "" if item.packet_type is None else f" in {type_name(item.packet_type)}"
        return f"{item.reason} {item.length}{kind}: {hexadecimal(item.raw)}{missing}"
    read = item.packet if isinstance(item, Malformed) else item
    identifier = getattr(read, "packet_identifier", None)
    number = "" if identifier is None else f" with id {identifier}"
    if isinstance(item, Malformed):
        return f"{item.reason}: {hexadecimal(item.raw)}{number}{missing}"
    if isinstance(item, Publish):
        return f"publish {item.topic_name or '-'} {hexadecimal(item.payload)}{number}{missing}"
    return f"{type_name(item.packet_type)}: {hexadecimal(item.raw)}{number}{missing}"


def items_of(setting: str, chunks: list[str]) -> list[str]:
    """Items of a stream, in words, for chunks: ``gap NUMBER``, or bytes.

    ``following`` and ``clean`` are packets of `tests.mqtt.conversation`.  The setting is a version, ``lost`` where
    framing was lost before, and ``limit NUMBER``.
    """
    version, *words = setting.split()
    limit = int(words[-1]) if "limit" in words else MAX_PACKET_BYTES
    stream = PacketStream(VERSIONS[version], max_packet_bytes=limit)
    if "lost" in words:
        stream.lose_framing()
    named = {f"clean{number}": raw.hex() for number, raw in enumerate(CLEAN)}
    named |= {f"next{number}": raw.hex() for number, raw in enumerate(following(VERSIONS[version]))}
    parts = [" ".join(named.get(word, word) for word in chunk.split()) for chunk in chunks]
    items = run((int(part[4:]) if part.startswith("gap ") else octets(part) for part in parts), stream)

    shown = {bytes.fromhex(raw): name for name, raw in named.items()}
    return [shown.get(getattr(item, "raw", b""), render(item)) for item in items]


STREAM = (str, steps, steps)
"""The columns of a table of streams: setting, chunks, items."""
