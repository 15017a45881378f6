"""Redacts a capture: reads frames, and returns frames of equal lengths with equal findings.

`Redaction` takes the frames of a capture.  Each frame is rewritten at once, with filler for its payload (`frames`), and
the payload waits (`pieces`).  The dissector reads the original.  Everything that it understands is replaced value by
value (`packets`, `http`, `tls`, `websockets`) and written into the frames.  The rest stays filler.

Memory is bounded like the dissector's: a payload is kept as long as the dissector keeps it, and about 32 segments
longer, in each direction.  Frames beyond `pieces.MEMORY_BYTES` are in a file.
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
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.foreign import MAX_SIGNATURE, foreign_protocol
from mqttscope.mqtt.stream import Unparsed
from mqttscope.net.flow import StreamData, StreamGap
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.http_upgrade import Upgrade
from mqttscope.net.segment import SYN, Fragment, NotSegment, Segment, group_key, plain_key, reverse_key
from mqttscope.net.websocket import Inflater, LostBytes, MessageData, MessageGap
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.frames import BuildFrame, DatagramPart, FrameRedactor, MovedFragment, MovedFrame
from mqttscope.redact.http import HeadRedactor
from mqttscope.redact.kinds import NOT_UNDERSTOOD, Treatment, TreatmentChoice, Value, filler
from mqttscope.redact.packets import PacketRedactor
from mqttscope.redact.pieces import DirectionPieces, FrameSpool
from mqttscope.redact.pseudonyms import Pseudonyms
from mqttscope.redact.tls import TlsStream, TlsValues
from mqttscope.redact.websockets import Learn, WebStream

_GROUP_BYTES: Final = {4: 12, 16: 36}
"""Size of a connection key, by the size of an address."""
_IN_HEADERS: Final = (Value.ADDRESSES, Value.MACS)
"""Kinds counted in `MovedFrame.replaced`."""
MIN_CHECKED: Final = 1_000
"""Minimum number of WebSocket and TLS flows before flows without MQTT are dropped."""
MAX_DIRECTIONS: Final = 200_000
"""Maximum number of directions with waiting payloads; for the one that was silent longest, they stay filler."""
S = TypeVar("S")


@dataclass(slots=True)
class _Sides(Generic[S]):
    """State of both directions of a flow."""

    dialogue: FlowState
    client: S
    server: S

    def of(self, from_client: bool) -> S:
        return self.client if from_client else self.server


class Redaction:
    """Redaction of one capture."""

    def __init__(
        self,
        key: bytes,
        choice: TreatmentChoice,
        file: BinaryIO,
        build: BuildFrame,
        options: Options | None = None,
    ) -> None:
        """``file`` is an empty, seekable file for waiting frames."""
        names = Pseudonyms(key)
        addresses = Addresses(names)
        self.choice = choice
        self.packets = PacketRedactor(names, choice)
        self._names = names
        self._addresses = addresses
        self._heads = HeadRedactor(names, addresses, self.packets)
        self.frames = FrameRedactor(addresses, choice, build)
        self.dropped: Counter[str] = Counter()
        """Number of frames that are not written, by reason."""
        self.read = self.written = 0
        """Number of frames read and written."""
        self.unfit = 0
        """Number of compressed messages that could not be redacted in unchanged length."""
        self._forgotten = 0
        self.dissector = Dissector(options)
        self.dissector.watch(self._watch, self._watch_frames)
        self._spool = FrameSpool(file)
        self._directions: OrderedDict[bytes, DirectionPieces] = OrderedDict()
        self._groups: set[bytes] = set()
        self._fragments = FragmentTable()
        self._parts: dict[bytes, list[MovedFragment]] = {}
        self._known: dict[int, FlowState] = {}
        self._shifts: dict[tuple[int, bool], int] = {}
        self._webs: dict[int, _Sides[WebStream]] = {}
        """WebSocket streams by the identity of their flow."""
        self._tls_values = TlsValues(names, self._heads, self.packets)
        self._secured: dict[int, _Sides[TlsStream]] = {}
        self._check_at = MIN_CHECKED

    def survey(self, frame: Frame) -> None:
        """Note the addresses in a frame, which must not become replacements; call for all frames before `feed`."""
        item = segment_of(frame)
        self.frames.survey(frame, item)
        text = item.payload if isinstance(item, Segment) else item.data if isinstance(item, Fragment) else b""
        if text:
            self._addresses.note_text(text)

    def feed(self, frame: Frame) -> None:
        """Take the next frame."""
        self.read += 1
        item = segment_of(frame)
        parts: list[MovedFragment] = []
        if isinstance(item, Fragment):
            whole, parts = self._fragment(frame, item)
            if whole is None:
                return
            item = whole
        if isinstance(item, NotSegment):
            self.dropped[item.reason] += 1
        elif parts:
            self._add_segment(self._joined(parts, item), item)
        else:
            self._add_segment(self.frames.rewrite(frame, item), item, append=True)

    def _fragment(self, frame: Frame, fragment: Fragment) -> tuple[Segment | NotSegment | None, list[MovedFragment]]:
        """The datagram that a fragment completes, with its frames; without frames if one of them is not plain."""
        moved = self.frames.fragment(frame, fragment)
        whole = self._fragments.feed(fragment)
        if isinstance(whole, NotSegment):
            self._parts.pop(fragment.key, None)
            return whole, []
        parts = self._parts.setdefault(fragment.key, [])
        if moved is None:
            self.dropped["fragments"] += whole is None
            parts.clear()
        else:
            moved.frame.group = bytes(_GROUP_BYTES[len(fragment.source)])
            self._spool.append(moved.frame)
            parts.append(moved)
        if len(self._parts) > 2 * self._fragments.max_datagrams:
            self._parts = {key: parts_ for key, parts_ in self._parts.items() if key in self._fragments.datagrams}
        if whole is not None:
            self._parts.pop(fragment.key, None)
            if moved is None or len(parts) < 2 or min(part.offset for part in parts):
                # The datagram is written as one frame instead of this frame.
                self.dropped["fragments"] -= moved is not None
                return whole, []
        return whole, parts

    def _joined(self, parts: list[MovedFragment], segment: Segment) -> MovedFrame:
        """A payload in several frames; the frame with the TCP header has the checksum."""
        first, *_ = parts = sorted(parts, key=lambda part: part.offset)
        header = first.frame.payload - first.place
        group = group_key(segment.key)
        joined = MovedFrame(segment.timestamp_ns, 0, 0, None, group)
        for part in parts:
            self._spool.adjust(first.frame, part.before, part.after)
            self._spool.assign_group(part.frame, group)
            skipped = max(0, header - part.offset)
            start = part.offset + skipped - header
            joined.parts.append(DatagramPart(start, part.length - skipped, part.frame, part.place + skipped))
        return joined

    def _add_segment(self, moved: MovedFrame, segment: Segment, *, append: bool = False) -> None:
        moved.group = group_key(segment.key)
        key = plain_key(segment.key)
        direction = self._directions.get(key)
        if direction is None:
            direction = self._directions[key] = DirectionPieces(self.choice.count_again)
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
            self._handle(event)
        entry = self.dissector.flows.entry(segment.key)
        if entry is not None and not entry[0].undecided and entry[0].context is None and not entry[0].closed:
            # The flow does not carry MQTT.
            direction.end(0)
            self._webs.pop(id(entry[0]), None)
            self._secured.pop(id(entry[0]), None)
        if len(self._webs) + len(self._secured) > self._check_at:
            self._forget()

    def _forget(self) -> None:
        """Drop flows that do not carry MQTT."""
        self._webs = {key: sides for key, sides in self._webs.items() if not _is_over(sides.dialogue)}
        self._secured = {key: sides for key, sides in self._secured.items() if not _is_over(sides.dialogue)}
        self._check_at = 2 * (len(self._webs) + len(self._secured)) + MIN_CHECKED

    @property
    def forgotten(self) -> int:
        """Number of segments dropped before they were understood, for lack of memory: they stay filler."""
        return self._forgotten + sum(direction.forgotten for direction in self._directions.values())

    def close(self) -> None:
        for event in self.dissector.close():
            self._handle(event)

    def results(self) -> Iterator[MovedFrame]:
        """The frames to write, in order; call after `close`."""
        for frame in self._spool.frames():
            if frame.group and frame.group not in self._groups:
                self.dropped["no_mqtt" if any(frame.group) else "fragments"] += 1
                continue
            self.written += 1
            for kind, values, size in zip(_IN_HEADERS, frame.replaced[::2], frame.replaced[1::2], strict=True):
                self.choice.count(kind, size, values)
            yield frame

    def _watch(self, dialogue: FlowState, event: StreamData | StreamGap) -> None:
        """Observe bytes before the dissector reads them."""
        connection = dialogue.connection
        from_client = event.from_initiator is dialogue.client_is_initiator
        if dialogue.web is not None:
            web = self._web(dialogue, from_client)
            if isinstance(event, StreamData):
                web.feed(event.offset, event.data)
        elif dialogue.tls is not None:
            secured = self._tls(dialogue, from_client)
            if isinstance(event, StreamData):
                secured.feed(event.offset, event.data)
            else:
                secured.gap(event.length)
        elif connection is not None and connection.transport == "tcp":
            self._known[connection.number] = dialogue
            if (connection.number, from_client) not in self._shifts:
                side = connection.client_side if from_client else connection.server_side
                self._shifts[connection.number, from_client] = side.stream_offset - event.offset

    def _web(self, dialogue: FlowState, from_client: bool) -> WebStream:
        known = self._webs.get(id(dialogue.flow))
        if known is None:
            sides = (WebStream(self._names, self._heads, learn) for learn in self._learners(dialogue))
            known = self._webs[id(dialogue.flow)] = _Sides(dialogue, *sides)
        return known.of(from_client)

    def _tls(self, dialogue: FlowState, from_client: bool) -> TlsStream:
        known = self._secured.get(id(dialogue.flow))
        if known is None:
            sides = (TlsStream(self._tls_values, learn) for learn in self._learners(dialogue))
            known = self._secured[id(dialogue.flow)] = _Sides(dialogue, *sides)
        return known.of(from_client)

    def _learners(self, dialogue: FlowState) -> Iterator[Learn]:
        return (partial(self._learn_tcp, dialogue, from_client) for from_client in (True, False))

    def _watch_frames(self, dialogue: FlowState, item: object) -> None:
        """Observe the frames of a WebSocket before its packets are read."""
        if dialogue.web is None or dialogue.inside:
            return
        for from_client, side in ((True, dialogue.web.client), (False, dialogue.web.server)):
            stream = self._web(dialogue, from_client)
            if stream.inflater is None and side.inflater is not None:
                stream.inflater = Inflater(side.inflater.context_takeover)
            if isinstance(item, Upgrade):
                stream.note(item)
        if isinstance(item, MessageData | MessageGap | LostBytes):
            self._web(dialogue, item.from_client).note(item)

    def _handle(self, event: Event) -> None:
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

    def _unparsed(self, event: UnparsedEvent, unparsed: Unparsed) -> None:
        raw = unparsed.raw
        if unparsed.reason == "proxy_header":
            new = self._proxied(raw)
        elif unparsed.packet_type is not None:
            new = self.packets.beginning(raw, event.connection.version)
        else:
            new = filler(len(raw))
            self.choice.value(NOT_UNDERSTOOD, unparsed.length - unparsed.missing)
        self._learn(event, raw, new)

    def _proxied(self, header: bytes) -> bytes:
        """A header of the PROXY protocol, by the treatment of addresses."""
        treatment = self.choice.treatment_of(Value.ADDRESSES)
        new, sizes = self._addresses.proxy_header(
            header, blank=treatment is Treatment.BLANK, keep=treatment is Treatment.KEEP
        )
        for size in sizes:
            self.choice.value(Value.ADDRESSES, size)
        return new

    def _learn(self, event: PacketEvent | MalformedEvent | UnparsedEvent, raw: bytes, new: bytes) -> None:
        """Write replaced bytes of an event into the frames."""
        connection = event.connection
        assert len(raw) == len(new)
        if not event.stream_offset:
            # The first bytes of a foreign protocol stay, because the dissector names it by them.
            size = _signature(raw, is_answer=event.direction is Direction.SERVER_TO_CLIENT)
            new = raw[:size] + new[size:]
        from_client = event.direction is Direction.CLIENT_TO_SERVER
        if connection.transport == "tcp":
            offset = event.stream_offset - self._shifts.get((connection.number, from_client), 0)
            dialogue = self._known.get(connection.number) or self._dialogue(event)
            if dialogue is not None:
                self._learn_tcp(dialogue, from_client, offset, raw, new, in_order=True)
        elif connection.transport == "websocket":
            entry = self.dissector.flows.entry(connection.flow_key)
            sides = None if entry is None else self._webs.get(id(entry[0]))
            if sides is None or sides.dialogue.connection is not connection:
                # At the end of the capture, flows are gone before unfinished packets are reported.
                sides = next((sides for sides in self._webs.values() if sides.dialogue.connection is connection), None)
            if sides is not None:
                sides.of(from_client).put(event.stream_offset, raw, new)

    def _dialogue(self, event: PacketEvent | MalformedEvent | UnparsedEvent) -> FlowState | None:
        """The state of a flow that was not observed before this event."""
        entry = self.dissector.flows.entry(event.connection.flow_key)
        state = None if entry is None else entry[0].context
        return state if isinstance(state, FlowState) and state.connection is event.connection else None

    def _learn_tcp(
        self, dialogue: FlowState, from_client: bool, offset: int, raw: bytes, new: bytes, *, in_order: bool = False
    ) -> None:
        """Write replaced bytes by their offset in the TCP stream; ``in_order`` if no earlier bytes follow."""
        flow = dialogue.flow
        initiates = from_client is dialogue.client_is_initiator
        half = flow.initiator if initiates else flow.responder
        key = plain_key(flow.key if initiates else reverse_key(flow.key))
        direction = self._directions.get(key)
        values = self.choice.take_fresh()
        if direction is None:
            return
        start = (half.sequence + offset - half.offset) & 0xFFFFFFFF
        direction.learn(start, raw, new, self._spool.put, values)
        if in_order:
            direction.release_until((start + len(raw)) & 0xFFFFFFFF)

    def _closed(self, event: ConnectionClosed) -> None:
        number, key = event.connection.number, plain_key(event.connection.flow_key)
        for place, web in list(self._webs.items()):
            if web.dialogue.connection is event.connection:
                for stream in (web.client, web.server):
                    stream.close()
                    self.unfit += stream.unfit
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
    """Number of first bytes that identify a foreign protocol; 0 without one."""
    name = foreign_protocol(raw[:MAX_SIGNATURE], is_answer=is_answer)
    if not name:
        return 0
    sizes = range(1, MAX_SIGNATURE + 1)
    return next(size for size in sizes if foreign_protocol(raw[:size], is_answer=is_answer) == name)


def _is_over(dialogue: FlowState) -> bool:
    return dialogue.is_ignored or (bool(dialogue.flow.closed) and dialogue.flow.context is None)
