"""Laws that hold for any bytes in any version; the tables and the generated tests assert the same ones."""

from __future__ import annotations

from collections.abc import Iterable

from mqttscope.mqtt import ControlPacket, Malformed, ProtocolVersion, decode, trace
from mqttscope.mqtt.codec import DECODERS, connect_version, examine, packet_end
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.mqtt.wire import Fault


def assert_partition(raw: bytes, version: ProtocolVersion) -> None:
    """The spans of a packet cover every byte exactly once, in order."""
    at = 0
    for span in trace(raw, version):
        assert span.field
        assert span.start == at, f"{span} begins elsewhere than at {at}"
        assert span.end >= span.start
        at = span.end
    assert at == len(raw)


def assert_malformed(found: Malformed, raw: bytes) -> None:
    """What every `Malformed` value promises."""
    assert found.raw == raw
    assert found.reason_code == 0x81
    assert found.detail
    assert 0 <= found.offset <= len(raw)
    assert found.packet_type == (raw[0] >> 4 if raw else None)
    assert [one.offset for one in found.faults] == sorted(one.offset for one in found.faults)
    assert len({(one.reason, one.offset, one.field) for one in found.faults}) == len(found.faults)
    assert any(
        (one.reason, one.offset, one.field, one.detail) == (found.reason, found.offset, found.field, found.detail)
        for one in found.faults
    )
    if found.packet is None:
        assert found.fields_read == ()
        assert not found.complete
    else:
        assert found.packet.raw == raw
        names = {row.name for row in found.packet.declaration}
        assert names.issuperset(found.fields_read)
        for name in names.difference(found.fields_read):
            assert getattr(found.packet, name) in (None, []) or name in ("will", "subscriptions", "topic_filters")


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
    except Fault:
        assert isinstance(slow, Malformed)
        return
    assert not isinstance(slow, Malformed)
    assert fast == slow
    assert fast.raw == slow.raw == raw


def assert_sound(raw: bytes, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Everything that holds for one packet, whatever it is; returns what it was decoded to."""
    found = decode(raw, version)
    if isinstance(found, Malformed):
        assert_malformed(found, raw)
    else:
        assert found.raw == raw
    assert_partition(raw, version)
    assert_decoders_agree(raw, version)
    return found


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
    assert sum(length_of(one) for one in items) == total
    assert stream.close() == []
    return items


def facts(items: Iterable[StreamItem]) -> list[tuple[object, ...]]:
    """Items with everything in them, to be compared."""
    return [
        (
            type(one).__name__,
            repr(one),
            getattr(one, "raw", b""),
            getattr(one, "missing", 0),
            getattr(one, "header_flags", 0),
        )
        for one in items
    ]
