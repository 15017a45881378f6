"""From what the streams of packets give to events: numbers, topics, the version, and the frame of each packet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from mqttscope.dissect.dialogue import SEARCHING, Arrival, Counting, Dialogue, Held
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.stream import StreamItem, Unparsed
from mqttscope.session.connection import Connection

C2S = Direction.CLIENT_TO_SERVER
S2C = Direction.SERVER_TO_CLIENT
MAX_HELD_ITEMS = 64
"""Of one connection, packets that are held back until it is known whether others come before them."""


class Place(Protocol):
    """What an event takes frame, time and capture from."""

    frame: int
    timestamp_ns: int
    capture: str


class PacketEvents:
    """The lower half of the dissector: dialogues that are known to speak MQTT."""

    def __init__(self) -> None:
        self.counting = Counting()
        """Packets reported so far, malformed ones included, unless each connection counts its own."""

    @property
    def packets(self) -> int:
        """Packets reported so far, malformed ones included; 0 where each connection counts its own."""
        return self.counting.packets

    def feed_stream(self, dialogue: Dialogue, from_client: bool, data: bytes, at: Place) -> Iterator[Event]:
        """Events of the next bytes of one direction."""
        stream = dialogue.stream(from_client)
        if stream.searching:
            dialogue.arrivals(from_client).append(Arrival(len(data), at.frame, at.timestamp_ns, at.capture))
            yield from self.late_items(dialogue, from_client, stream.feed(data), at)
        else:
            yield from self.items(dialogue, from_client, stream.feed(data), at)
            if dialogue.held:
                yield from self._release(dialogue)

    def gap_in_stream(self, dialogue: Dialogue, from_client: bool, length: int, at: Place) -> Iterator[Event]:
        """Events of bytes of one direction that the capture lost."""
        stream = dialogue.stream(from_client)
        arrivals = dialogue.arrivals(from_client)
        if stream.searching or arrivals:
            arrivals.append(Arrival(length, at.frame, at.timestamp_ns, at.capture))
            yield from self.late_items(dialogue, from_client, stream.gap(length), at)
        else:
            yield from self.items(dialogue, from_client, stream.gap(length), at)
            self._note_search(dialogue, from_client, at)
            if dialogue.held:
                yield from self._release(dialogue)

    def late_items(self, dialogue: Dialogue, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """Events of a stream that looked for packets: each belongs to the frame that brought its last byte.

        The lengths of the items add up to the bytes that arrived, so that counting finds the frame.
        """
        arrivals = dialogue.arrivals(from_client)
        index = 0
        for item in items:
            left = _length(item)
            while index < len(arrivals) and left > arrivals[index].length:
                left -= arrivals[index].length
                index += 1
            place: Place = at
            if index < len(arrivals):
                arrivals[index].length -= left
                place = arrivals[index]
            history = None if dialogue.connection is None else dialogue.connection.history
            if history is not None and place.frame != at.frame:
                history.late(C2S if from_client else S2C)
            yield from self.items(dialogue, from_client, [item], place)
        del arrivals[:index]
        dialogue.settle()
        if dialogue.held:
            yield from self._release(dialogue)

    def _release(self, dialogue: Dialogue, *, final: bool = False) -> Iterator[Event]:
        """Events of what was held back, in the order of the frames, once nothing can come before it."""
        if dialogue.holding and len(dialogue.held) <= MAX_HELD_ITEMS and not final:
            return
        held, dialogue.held = dialogue.held, []
        # Frames count anew in each capture.
        one_capture = all(one.capture == held[0].capture for one in held)
        held.sort(key=lambda one: one.frame if one_capture else one.timestamp_ns)
        for one in held:
            yield from self._events_of(dialogue, one.from_client, [one.item], one)

    def items(self, dialogue: Dialogue, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """Events of what one direction's stream gave.

        While the other stream of a joined connection holds earlier bytes and looks for packets in them, they are held
        back: an answer would come before what it answers.
        """
        if dialogue.phase is SEARCHING and items and dialogue.joined and (dialogue.held or dialogue.holding):
            dialogue.held += [Held(from_client, item, at.frame, at.timestamp_ns, at.capture) for item in items]
        elif items:
            yield from self._events_of(dialogue, from_client, items, at)

    def _events_of(self, dialogue: Dialogue, from_client: bool, items: list[StreamItem], at: Place) -> Iterator[Event]:
        """The events; each packet is applied when its reader comes back for the next."""
        connection = dialogue.connection
        assert connection is not None
        direction = C2S if from_client else S2C
        if not connection.version_known:
            self._learn_version(dialogue, connection, from_client)
        frame, timestamp_ns, capture = at.frame, at.timestamp_ns, at.capture
        side, counting = connection.side(direction), dialogue.counting
        for item in items:
            offset = side.stream_offset
            side.stream_offset = offset + _length(item)
            if isinstance(item, ControlPacket):
                number = counting.packets
                counting.packets = number + 1
                kind = item.packet_type
                topic = None
                if kind == 3:
                    topic = connection.resolve_topic(item, direction)  # type: ignore[arg-type]
                elif kind <= 2:
                    connection.identify(item)
                    self._share_version(dialogue, connection)
                yield PacketEvent(connection, direction, number, frame, timestamp_ns, capture, item, topic, offset)
                connection.apply(item, direction, number, frame, timestamp_ns)
                if kind == 2 and connection.client_side.doubt and not dialogue.client_stream.busy:
                    connection.answered()
                continue
            if isinstance(item, Malformed):
                yield from self._malformed(dialogue, connection, direction, item, at, offset)
            else:
                connection.side(direction).gapped = True
                if item.packet_type == PacketType.CONNECT:
                    self._identify_by_head(dialogue, connection, item)
                # Lost bytes alone say nothing new: the gap itself was reported.
                if item.raw or item.reason != "gap":
                    yield UnparsedEvent(connection, direction, frame, timestamp_ns, capture, item, offset)
                if item.raw:
                    connection.distrust(item, direction)
            self._note_search(dialogue, from_client, at)

    def _malformed(
        self,
        dialogue: Dialogue,
        connection: Connection,
        direction: Direction,
        item: Malformed,
        at: Place,
        offset: int,
    ) -> Iterator[Event]:
        number = dialogue.counting.packets
        dialogue.counting.packets = number + 1
        topic = None
        made, side = item.packet, connection.side(direction)
        doubt = side.doubt
        if made is not None and (item.complete or isinstance(made, Connect)):
            # A CONNECT that cannot be read to its end has said all the same which version is spoken.
            connection.identify(made, item.raw)
            self._share_version(dialogue, connection)
            if isinstance(made, Publish):
                topic = connection.resolve_topic(made, direction)
        yield MalformedEvent(connection, direction, number, at.frame, at.timestamp_ns, at.capture, item, topic, offset)
        if made is not None and item.complete:
            # The fault was in a value, so the peer may well have taken the packet: its answer will name it.
            connection.apply(made, direction, number, at.frame, at.timestamp_ns)
        side.doubt = doubt
        connection.distrust(item, direction)

    def _identify_by_head(self, dialogue: Dialogue, connection: Connection, item: Unparsed) -> None:
        """Take what the captured beginning of a CONNECT says of who speaks which version."""
        found = decode(item.raw)
        if isinstance(found, Malformed) and found.packet is not None:
            connection.identify(found.packet, item.raw)
            self._share_version(dialogue, connection)

    def _note_search(self, dialogue: Dialogue, from_client: bool, at: Place) -> None:
        """Remember where the bytes came from that a stream begins to search."""
        stream, arrivals = dialogue.stream(from_client), dialogue.arrivals(from_client)
        if stream.searching and not arrivals:
            waiting = stream.held + stream.passed + stream.lost
            arrivals.append(Arrival(waiting, at.frame, at.timestamp_ns, at.capture))
            dialogue.settle()

    def _learn_version(self, dialogue: Dialogue, connection: Connection, from_client: bool) -> None:
        """Take over what the streams found out about the version of a connection without CONNECT."""
        stream = dialogue.stream(from_client)
        source = stream.version_source
        if source and source not in ("CONNECT", connection.version_evidence):
            connection.assume_version(stream.version, source)
            for other in (dialogue.client_stream, dialogue.server_stream):
                other.version, other.version_source = stream.version, source

    def _share_version(self, dialogue: Dialogue, connection: Connection) -> None:
        if connection.version_known:
            for stream in (dialogue.client_stream, dialogue.server_stream):
                stream.version, stream.version_source = connection.version, "CONNECT"


def _length(item: StreamItem) -> int:
    """How many bytes of its stream an item stands for."""
    if isinstance(item, ControlPacket):
        return len(item.raw) + item.missing
    return len(item.raw) if isinstance(item, Malformed) else item.length
