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
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final, Generic, TypeVar

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import FlowState
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.constants import Direction as Way
from mqttscope.mqtt.foreign import MAX_SIGNATURE, foreign_protocol
from mqttscope.mqtt.stream import Unparsed
from mqttscope.net.flow import StreamData, StreamGap
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.http_upgrade import Upgrade
from mqttscope.net.segment import SYN, Fragment, NotSegment, Segment, group_key, plain_key, reverse_key
from mqttscope.net.websocket import Inflater, Lost, MessageData, MessageGap
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.frames import BuildFrame, Frames, MovedFragment, MovedFrame, Part
from mqttscope.redact.http import Heads
from mqttscope.redact.kinds import NOT_UNDERSTOOD, Choice, Treatment, Value, filler
from mqttscope.redact.packets import Packets
from mqttscope.redact.pieces import Direction, Spool
from mqttscope.redact.pseudonyms import Pseudonyms
from mqttscope.redact.tls import TlsStream, TlsValues
from mqttscope.redact.websockets import Learn, WebStream

_GROUP_BYTES: Final = {4: 12, 16: 36}
"""Bytes of the name of a connection, by those of an address."""
_IN_HEADERS: Final = (Value.ADDRESSES, Value.MACS)
"""The kinds that `MovedFrame.replaced` counts."""
MIN_CHECKED: Final = 1_000
"""Wrapped flows up to which none is looked for that carries no MQTT."""
MAX_DIRECTIONS: Final = 200_000
"""Directions whose payloads are remembered; of the one that was silent longest, what waits stays filler."""


S = TypeVar("S")


@dataclass(slots=True)
class _Sides(Generic[S]):
    """What goes along both directions of a flow."""

    dialogue: FlowState
    client: S
    server: S

    def of(self, from_client: bool) -> S:
        return self.client if from_client else self.server


class Redaction:
    """One run."""

    def __init__(
        self,
        key: bytes,
        choice: Choice,
        file: BinaryIO,
        build: BuildFrame,
        options: Options | None = None,
    ) -> None:
        """``file``: for the frames meanwhile; empty and seekable."""
        names = Pseudonyms(key)
        addresses = Addresses(names)
        self.choice = choice
        self.packets = Packets(names, choice)
        self._names = names
        self._addresses = addresses
        self._heads = Heads(names, addresses, self.packets)
        self.frames = Frames(addresses, choice, build)
        self.dropped: Counter[str] = Counter()
        """Frames that are not written, by reason."""
        self.read = self.written = 0
        """Frames."""
        self.unfit = 0
        """Compressed messages that could not be made as long as they were."""
        self._forgotten = 0
        self.dissector = Dissector(options)
        self.dissector.watch(self._watch, self._watch_frames)
        self._spool = Spool(file)
        self._directions: OrderedDict[bytes, Direction] = OrderedDict()
        self._groups: set[bytes] = set()
        self._fragments = FragmentTable()
        self._parts: dict[bytes, list[MovedFragment]] = {}
        self._known: dict[int, FlowState] = {}
        self._shifts: dict[tuple[int, bool], int] = {}
        self._webs: dict[int, _Sides[WebStream]] = {}
        """By the identity of their flow."""
        self._tls_values = TlsValues(names, self._heads, self.packets)
        self._secured: dict[int, _Sides[TlsStream]] = {}
        self._check_at = MIN_CHECKED

    def survey(self, frame: Frame) -> None:
        """Note the addresses in a frame, which no other may become; for all frames, before the first one is fed."""
        found = segment_of(frame)
        self.frames.survey(frame, found)
        text = found.payload if isinstance(found, Segment) else found.data if isinstance(found, Fragment) else b""
        if text:
            self._addresses.know_text(text)

    def feed(self, frame: Frame) -> None:
        """Take the next frame."""
        self.read += 1
        found = segment_of(frame)
        parts: list[MovedFragment] = []
        if isinstance(found, Fragment):
            whole, parts = self._fragment(frame, found)
            if whole is None:
                return
            found = whole
        if isinstance(found, NotSegment):
            self.dropped[found.reason] += 1
        elif parts:
            self._take(self._joined(parts, found), found)
        else:
            self._take(self.frames.moved(frame, found), found, append=True)

    def _fragment(self, frame: Frame, found: Fragment) -> tuple[Segment | NotSegment | None, list[MovedFragment]]:
        """What a fragment completes, with the frames in which all of it lies; without those where one is not plain."""
        moved = self.frames.fragment(frame, found)
        whole = self._fragments.feed(found)
        if isinstance(whole, NotSegment):
            self._parts.pop(found.key, None)
            return whole, []
        parts = self._parts.setdefault(found.key, [])
        if moved is None:
            self.dropped["fragments"] += whole is None
            parts.clear()
        else:
            moved.frame.group = bytes(_GROUP_BYTES[len(found.source)])
            self._spool.append(moved.frame)
            parts.append(moved)
        if len(self._parts) > 2 * self._fragments.max_datagrams:
            self._parts = {key: one for key, one in self._parts.items() if key in self._fragments.datagrams}
        if whole is not None:
            self._parts.pop(found.key, None)
            if moved is None or len(parts) < 2 or min(one.offset for one in parts):
                # It is written as one frame, in the place of this one.
                self.dropped["fragments"] -= moved is not None
                return whole, []
        return whole, parts

    def _joined(self, parts: list[MovedFragment], segment: Segment) -> MovedFrame:
        """A payload that lies in several frames, of which the one with the header has the checksum."""
        first, *_ = parts = sorted(parts, key=lambda one: one.offset)
        header = first.frame.payload - first.place
        group = group_key(segment.key)
        joined = MovedFrame(segment.timestamp_ns, 0, 0, None, group)
        for one in parts:
            self._spool.adjust(first.frame, one.before, one.after)
            self._spool.belongs(one.frame, group)
            skipped = max(0, header - one.offset)
            start = one.offset + skipped - header
            joined.parts.append(Part(start, one.length - skipped, one.frame, one.place + skipped))
        return joined

    def _take(self, moved: MovedFrame, segment: Segment, *, append: bool = False) -> None:
        moved.group = group_key(segment.key)
        key = plain_key(segment.key)
        direction = self._directions.get(key)
        if direction is None:
            direction = self._directions[key] = Direction(self.choice.count_again)
            if len(self._directions) > MAX_DIRECTIONS:
                _, silent = self._directions.popitem(last=False)
                self._forgotten += silent.forgotten + (0 if silent.ended else len(silent.waiting))
        else:
            self._directions.move_to_end(key)
        if segment.payload:
            start = segment.sequence + (1 if segment.flags & SYN else 0)
            direction.add(moved, start & 0xFFFFFFFF, segment.payload, self._spool.put)
        if append:
            self._spool.append(moved)
        for event in self.dissector.feed(segment):
            self._see(event)
        entry = self.dissector.flows.entry(segment.key)
        if entry is not None and not entry[0].kept and entry[0].context is None and not entry[0].closed:
            # No MQTT.
            direction.end(0)
            self._webs.pop(id(entry[0]), None)
            self._secured.pop(id(entry[0]), None)
        if len(self._webs) + len(self._secured) > self._check_at:
            self._forget()

    def _forget(self) -> None:
        """Let go of flows that turned out to carry no MQTT."""
        self._webs = {key: one for key, one in self._webs.items() if not _is_over(one.dialogue)}
        self._secured = {key: one for key, one in self._secured.items() if not _is_over(one.dialogue)}
        self._check_at = 2 * (len(self._webs) + len(self._secured)) + MIN_CHECKED

    @property
    def forgotten(self) -> int:
        """Segments that did not wait until they were understood, for lack of room: they stay filler."""
        return self._forgotten + sum(direction.forgotten for direction in self._directions.values())

    def close(self) -> None:
        for event in self.dissector.close():
            self._see(event)

    def results(self) -> Iterator[MovedFrame]:
        """The frames to be written, in their order; after `close`."""
        for frame in self._spool.frames():
            if frame.group and frame.group not in self._groups:
                self.dropped["no_mqtt" if any(frame.group) else "fragments"] += 1
                continue
            self.written += 1
            for kind, values, size in zip(_IN_HEADERS, frame.replaced[::2], frame.replaced[1::2], strict=True):
                self.choice.count(kind, size, values)
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
            sides = (WebStream(self._names, self._heads, learn) for learn in self._learners(dialogue))
            known = self._webs[id(dialogue.flow)] = _Sides(dialogue, *sides)
        return known.of(from_client)

    def _tls(self, dialogue: FlowState, from_client: bool) -> TlsStream:
        """What goes along one direction of TLS."""
        known = self._secured.get(id(dialogue.flow))
        if known is None:
            sides = (TlsStream(self._tls_values, learn) for learn in self._learners(dialogue))
            known = self._secured[id(dialogue.flow)] = _Sides(dialogue, *sides)
        return known.of(from_client)

    def _learners(self, dialogue: FlowState) -> Iterator[Learn]:
        return (partial(self._learn_tcp, dialogue, from_client) for from_client in (True, False))

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
        if found.reason == "proxy_header":
            made = self._proxied(raw)
        elif found.packet_type is not None:
            made = self.packets.beginning(raw, event.connection.version)
        else:
            made = filler(len(raw))
            self.choice.value(NOT_UNDERSTOOD, found.length - found.missing)
        self._learn(event, raw, made)

    def _proxied(self, header: bytes) -> bytes:
        """A header of the PROXY protocol, as the user wants its addresses."""
        treatment = self.choice.of_kind(Value.ADDRESSES)
        made, sizes = self._addresses.proxied(
            header, blank=treatment is Treatment.BLANK, keep=treatment is Treatment.KEEP
        )
        for size in sizes:
            self.choice.value(Value.ADDRESSES, size)
        return made

    def _learn(self, event: PacketEvent | MalformedEvent | UnparsedEvent, raw: bytes, made: bytes) -> None:
        """Put replaced bytes where they lie in the frames."""
        connection = event.connection
        assert len(raw) == len(made)
        if not event.stream_offset:
            # What is no MQTT is named by how it begins.
            kept = _signature(raw, is_answer=event.direction is Way.SERVER_TO_CLIENT)
            made = raw[:kept] + made[kept:]
        from_client = event.direction is Way.CLIENT_TO_SERVER
        if connection.transport == "tcp":
            offset = event.stream_offset - self._shifts.get((connection.number, from_client), 0)
            dialogue = self._known.get(connection.number) or self._dialogue(event)
            if dialogue is not None:
                self._learn_tcp(dialogue, from_client, offset, raw, made, in_order=True)
        elif connection.transport == "websocket":
            entry = self.dissector.flows.entry(connection.flow_key)
            found = None if entry is None else self._webs.get(id(entry[0]))
            if found is None or found.dialogue.connection is not connection:
                # At the end of the captures flows are gone before what was unfinished is reported.
                found = next((one for one in self._webs.values() if one.dialogue.connection is connection), None)
            if found is not None:
                found.of(from_client).put(event.stream_offset, raw, made)

    def _dialogue(self, event: PacketEvent | MalformedEvent | UnparsedEvent) -> FlowState | None:
        """The dialogue of a connection of which nothing was seen yet but what it was told by."""
        entry = self.dissector.flows.entry(event.connection.flow_key)
        found = None if entry is None else entry[0].context
        return found if isinstance(found, FlowState) and found.connection is event.connection else None

    def _learn_tcp(
        self, dialogue: FlowState, from_client: bool, offset: int, raw: bytes, made: bytes, *, in_order: bool = False
    ) -> None:
        """The same by the offset in the stream of TCP; ``in_order``: nothing before these bytes is learned later."""
        flow = dialogue.flow
        initiates = from_client is dialogue.client_is_initiator
        half = flow.initiator if initiates else flow.responder
        key = plain_key(flow.key if initiates else reverse_key(flow.key))
        direction = self._directions.get(key)
        values = self.choice.take_fresh()
        if direction is None:
            return
        start = (half.sequence + offset - half.offset) & 0xFFFFFFFF
        direction.learn(start, raw, made, self._spool.put, values)
        if in_order:
            direction.pass_by((start + len(raw)) & 0xFFFFFFFF)

    def _closed(self, event: ConnectionClosed) -> None:
        number, key = event.connection.number, plain_key(event.connection.flow_key)
        for place, web in list(self._webs.items()):
            if web.dialogue.connection is event.connection:
                for one in (web.client, web.server):
                    one.close()
                    self.unfit += one.unfit
                del self._webs[place]
        for place, secured in list(self._secured.items()):
            if secured.dialogue.connection is event.connection:
                secured.client.close()
                secured.server.close()
                del self._secured[place]
        self._known.pop(number, None)
        for from_client in (True, False):
            self._shifts.pop((number, from_client), None)
        for end in (key, reverse_key(key)):
            direction = self._directions.get(end)
            if direction is not None:
                direction.end()


def _signature(raw: bytes, *, is_answer: bool) -> int:
    """Number of bytes that show that a stream speaks another protocol; 0 where none does."""
    name = foreign_protocol(raw[:MAX_SIGNATURE], is_answer=is_answer)
    if not name:
        return 0
    sizes = range(1, MAX_SIGNATURE + 1)
    return next(size for size in sizes if foreign_protocol(raw[:size], is_answer=is_answer) == name)


def _is_over(dialogue: FlowState) -> bool:
    return dialogue.is_ignored or (bool(dialogue.flow.closed) and dialogue.flow.context is None)
