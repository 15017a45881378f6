"""A capture that may leave the house: frames in, frames out, with the same lengths and the same findings.

`Redaction` takes the frames of a capture.  Each is rewritten at once, with filler for its payload (`frames`), and its
payload waits (`pieces`).  The dissector reads the original; what it understands is replaced value by value (`packets`,
`http`, `tls`, `websockets`) and put where the bytes lie.  What it does not understand stays filler.

Memory is bounded by that of the dissector: a payload is held as long as the dissector holds it, and some 32 segments
longer, in each direction.  Frames beyond `pieces.MEMORY_BYTES` lie in a file.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import FlowState
from mqttscope.dissect.options import TLS, WEBSOCKET
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.constants import Direction as Way
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.stream import Unparsed
from mqttscope.net.flow import StreamData, StreamGap
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.http_upgrade import Upgrade
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.websocket import Inflater, Lost, MessageData, MessageGap
from mqttscope.net.segment import Fragment, NotSegment, Segment, group_key, plain_key, reverse_key
from mqttscope.sanitise.addresses import Addresses
from mqttscope.sanitise.frames import BuildFrame, Frames, MovedFrame
from mqttscope.sanitise.http import Heads
from mqttscope.sanitise.kinds import NOT_UNDERSTOOD, Choice, Value, filler
from mqttscope.sanitise.packets import Packets
from mqttscope.sanitise.pieces import Direction, Spool
from mqttscope.sanitise.pseudonyms import Pseudonyms
from mqttscope.sanitise.tls import TlsStream, TlsValues
from mqttscope.sanitise.websockets import WebStream

MAX_DIRECTIONS: Final = 200_000
"""Directions whose payloads are remembered; of the one that was silent longest, what waits stays filler."""


class Redaction:
    """One run."""

    def __init__(
        self,
        key: bytes,
        choice: Choice,
        file: BinaryIO,
        build: BuildFrame,
        options: Options | None = None,
        *,
        keep_others: bool = False,
    ) -> None:
        """``file``: for the frames meanwhile; empty and seekable.  ``keep_others``: frames without MQTT stay."""
        names = Pseudonyms(key)
        addresses = Addresses(names)
        self.choice = choice
        self.packets = Packets(names, choice)
        self._names = names
        self._heads = Heads(names, addresses, self.packets)
        self.frames = Frames(addresses, choice, build)
        self.dropped: Counter[str] = Counter()
        """Frames that are not written, by reason."""
        self.read = self.written = 0
        """Frames."""
        self.unfit = 0
        """Compressed messages that could not be made as long as they were."""
        self.dissector = Dissector(options)
        self.dissector.watch(self._watch, self._watch_frames)
        self._keep_others = keep_others
        self._spool = Spool(file)
        self._directions: OrderedDict[bytes, Direction] = OrderedDict()
        self._groups: set[bytes] = set()
        self._fragments = FragmentTable()
        self._known: dict[int, FlowState] = {}
        self._shifts: dict[tuple[int, bool], int] = {}
        self._webs: dict[int, tuple[FlowState, WebStream, WebStream]] = {}
        """By the identity of their flow: the dialogue, what the client sent, what the server sent."""
        self._tls_values = TlsValues(names, self._heads, self.packets)
        self._secured: dict[int, tuple[FlowState, TlsStream, TlsStream]] = {}

    def feed(self, frame: Frame) -> None:
        """Take the next frame."""
        self.read += 1
        found = segment_of(frame)
        if isinstance(found, Fragment):
            self.dropped["fragments"] += 1
            whole = self._fragments.feed(found)
            if whole is None:
                return
            self.dropped["fragments"] -= 1
            found = whole
        if isinstance(found, NotSegment):
            self._other(frame, found.reason)
            return
        self._take(frame, found)

    def _other(self, frame: Frame, reason: str) -> None:
        if self._keep_others:
            self._spool.append(self.frames.other(frame))
        else:
            self.dropped[reason] += 1

    def _take(self, frame: Frame, segment: Segment) -> None:
        moved = self.frames.moved(frame, segment)
        moved.group = group_key(segment.key)
        key = plain_key(segment.key)
        direction = self._directions.get(key)
        if direction is None:
            direction = self._directions[key] = Direction()
            if len(self._directions) > MAX_DIRECTIONS:
                self._directions.popitem(last=False)
        else:
            self._directions.move_to_end(key)
        if segment.payload:
            start = segment.sequence + (1 if segment.flags & 0x02 else 0)
            direction.add(moved, start & 0xFFFFFFFF, segment.payload, self._spool.put)
        self._spool.append(moved)
        for event in self.dissector.feed(segment):
            self._see(event)
        entry = self.dissector.flows.direction(segment.key)
        if entry is not None and not entry[0].kept and entry[0].context is None and not entry[0].closed:
            direction.end(0)

    def close(self) -> None:
        """The capture has ended."""
        for event in self.dissector.close():
            self._see(event)

    def results(self) -> Iterator[MovedFrame]:
        """The frames to be written, in their order; after `close`."""
        for frame in self._spool.frames():
            if frame.group and frame.group not in self._groups:
                if not self._keep_others:
                    self.dropped["no_mqtt"] += 1
                    continue
            self.written += 1
            yield frame

    def _watch(self, dialogue: FlowState, event: StreamData | StreamGap) -> None:
        """See bytes before the dissector reads them."""
        connection = dialogue.connection
        from_client = event.from_initiator is dialogue.client_is_initiator
        if dialogue.web is not None:
            web = self._web(dialogue, from_client)
            if isinstance(event, StreamData):
                web.take(event.offset, event.data)
        elif dialogue.tls is not None:
            secured = self._tls(dialogue, from_client)
            if isinstance(event, StreamData):
                secured.take(event.offset, event.data)
            else:
                secured.gap(event.length)
        elif connection is not None and connection.transport == "tcp":
            self._known[connection.number] = dialogue
            if (connection.number, from_client) not in self._shifts:
                side = connection.client_side if from_client else connection.server_side
                self._shifts[connection.number, from_client] = side.stream_offset - event.offset

    def _web(self, dialogue: FlowState, from_client: bool) -> WebStream:
        """What goes along one direction of a WebSocket."""
        known = self._webs.get(id(dialogue.flow))
        if known is None:
            known = self._webs[id(dialogue.flow)] = (
                dialogue,
                WebStream(self._names, self._heads, partial(self._learn_tcp, dialogue, True)),
                WebStream(self._names, self._heads, partial(self._learn_tcp, dialogue, False)),
            )
        return known[1 if from_client else 2]

    def _tls(self, dialogue: FlowState, from_client: bool) -> TlsStream:
        """What goes along one direction of TLS."""
        known = self._secured.get(id(dialogue.flow))
        if known is None:
            known = self._secured[id(dialogue.flow)] = (
                dialogue,
                TlsStream(self._tls_values, partial(self._learn_tcp, dialogue, True)),
                TlsStream(self._tls_values, partial(self._learn_tcp, dialogue, False)),
            )
        return known[1 if from_client else 2]

    def _watch_frames(self, dialogue: FlowState, one: object) -> None:
        """See what a WebSocket gives before its packets are read."""
        if dialogue.web is None or dialogue.inside:
            return
        for from_client, side in ((True, dialogue.web.client), (False, dialogue.web.server)):
            stream = self._web(dialogue, from_client)
            if stream.inflater is None and side.inflater is not None:
                stream.inflater = Inflater(side.inflater.context_takeover)
            if isinstance(one, Upgrade):
                stream.see(one)
        if isinstance(one, MessageData | MessageGap | Lost):
            self._web(dialogue, one.from_client).see(one)

    def _see(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            self._groups.add(group_key(event.connection.flow_key))
        elif isinstance(event, PacketEvent):
            self._learn(event, event.packet.raw, self.packets.replaced(event.packet, event.connection.version))
        elif isinstance(event, MalformedEvent):
            self._learn(event, event.malformed.raw, self.packets.replaced(event.malformed, event.connection.version))
        elif isinstance(event, UnparsedEvent):
            self._unparsed(event, event.unparsed)
        elif isinstance(event, ConnectionClosed):
            self._closed(event)

    def _unparsed(self, event: UnparsedEvent, found: Unparsed) -> None:
        raw = found.raw
        if found.packet_type is not None:
            made = self.packets.beginning(raw, event.connection.version)
        else:
            made = filler(len(raw))
            self.choice.count(NOT_UNDERSTOOD, found.length - found.missing)
        self._learn(event, raw, made)

    def _learn(self, event: PacketEvent | MalformedEvent | UnparsedEvent, raw: bytes, made: bytes) -> None:
        """Put replaced bytes where they lie in the frames."""
        connection = event.connection
        assert len(raw) == len(made)
        from_client = event.direction is Way.CLIENT_TO_SERVER
        if connection.transport == "tcp":
            offset = event.stream_offset - self._shifts.get((connection.number, from_client), 0)
            dialogue = self._known.get(connection.number)
            if dialogue is not None:
                self._learn_tcp(dialogue, from_client, offset, raw, made, in_order=True)
        elif connection.transport == "websocket":
            entry = self.dissector.flows.direction(connection.flow_key)
            found = None if entry is None else self._webs.get(id(entry[0]))
            if found is not None and found[0].connection is connection:
                found[1 if from_client else 2].put(event.stream_offset, raw, made)

    def _learn_tcp(
        self, dialogue: FlowState, from_client: bool, offset: int, raw: bytes, made: bytes, *, in_order: bool = False
    ) -> None:
        """The same by the offset in the stream of TCP; ``in_order``: nothing before these bytes is learned later."""
        flow = dialogue.flow
        initiates = from_client is dialogue.client_is_initiator
        half = flow.initiator if initiates else flow.responder
        key = plain_key(flow.key if initiates else reverse_key(flow.key))
        direction = self._directions.get(key)
        if direction is None:
            return
        start = (half.sequence + offset - half.offset) & 0xFFFFFFFF
        direction.learn(start, raw, made, self._spool.put)
        if in_order:
            direction.pass_by((start + len(raw)) & 0xFFFFFFFF)

    def _closed(self, event: ConnectionClosed) -> None:
        number, key = event.connection.number, plain_key(event.connection.flow_key)
        for wrapped in (self._webs, self._secured):
            for place, (dialogue, client, server) in list(wrapped.items()):
                if dialogue.connection is event.connection:
                    client.close()
                    server.close()
                    self.unfit += getattr(client, "unfit", 0) + getattr(server, "unfit", 0)
                    del wrapped[place]
        self._known.pop(number, None)
        for from_client in (True, False):
            self._shifts.pop((number, from_client), None)
        for one in (key, reverse_key(key)):
            direction = self._directions.get(one)
            if direction is not None:
                direction.end()
