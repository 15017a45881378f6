"""The entrance for segments, and the short way of most of all traffic through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqttscope.dissect.dialogue import Dialogue
from mqttscope.dissect.dissector import Dissector
from mqttscope.dissect.items import C2S, S2C
from mqttscope.dissect.options import MQTT, Options
from mqttscope.events import Event, PacketEvent
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.stream import StreamItem
from mqttscope.net.flows import acknowledged, delivered
from mqttscope.net.frame import CaptureNotice
from mqttscope.net.plaintext import Plaintext
from mqttscope.net.segment import Segment

_new = object.__new__
_SAYS_NO_VERSION = frozenset(PACKETS.values()) - {Connect, Connack}


def dissect_segments(
    source: Iterable[Segment | CaptureNotice | Plaintext],
    options: Options | None = None,
    dissector: Dissector | None = None,
    *,
    more: bool = False,
) -> Iterator[Event]:
    """Events of TCP segments in capture order; capture notices among them pass through.

    ``more``: the capture goes on elsewhere, so that flows are left open at the end.

    What somebody has decrypted of a TLS flow comes behind the segment that completed it.

    Whole packets that arrive in order on a connection already known are most of all traffic: they are handled right
    here, everything else by the dissector's methods.
    """
    running = dissector or Dissector(options)
    take_in_order, feed, handle = running.flows.take_in_order, running.feed, running.handle
    for segment in source:
        if type(segment) is not Segment:
            yield from running.take(segment)
            continue
        entry = take_in_order(segment)
        if entry is None:
            yield from feed(segment)
            continue
        payload = segment.payload
        if not payload:
            continue
        dialogue = entry[0].context
        if type(dialogue) is not Dialogue or dialogue.phase is not MQTT:
            yield from handle(delivered(entry, segment))
            continue
        from_client = entry[3] is dialogue.client_is_initiator
        stream = dialogue.client_stream if from_client else dialogue.server_stream
        connection = dialogue.connection
        assert connection is not None
        history = connection.history
        if history is not None:
            history.segment(
                from_client,
                entry[1].offset,
                acknowledged(entry, segment),
                entry[2].offset,
                segment.timestamp_ns,
                stream.held,
            )
        item: StreamItem | None = stream.whole(payload)
        items = stream.feed(payload) if item is None else (item,)
        if not items:
            continue
        if not connection.version_known:
            yield from running.items(dialogue, from_client, list(items), segment)
            continue
        direction, side = (C2S, connection.client_side) if from_client else (S2C, connection.server_side)
        counting = dialogue.counting
        left = iter(items)
        for item in left:
            if type(item) is Publish:
                topic = item.topic_name or connection.resolve_topic(item, direction)
            elif type(item) in _SAYS_NO_VERSION:
                topic = None
            else:
                # With all that came at once: what it does to the version holds from the next bytes on.
                yield from running.items(dialogue, from_client, [item, *left], segment)
                break
            number = counting.packets
            counting.packets = number + 1
            offset = side.stream_offset
            # Bytes are missing of packets behind a gap alone, and a gap does not come this way.
            side.stream_offset = offset + len(item.raw)
            # Without __init__: there is one for each packet.
            event = _new(PacketEvent)
            event.connection = connection
            event.direction = direction
            event.number = number
            event.frame = segment.frame
            event.timestamp_ns = segment.timestamp_ns
            event.capture = segment.capture
            event.packet = item  # type: ignore[assignment]
            event.topic = topic
            event.stream_offset = offset
            yield event
            connection.apply(item, direction, number, segment.frame, segment.timestamp_ns)  # type: ignore[arg-type]
    if not more:
        yield from running.close()
