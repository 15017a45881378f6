"""Turns frames and segments into events: orders each flow, and routes its streams through its `FlowState`.

`dissect` takes frames and walks them down to segments (`segments`); `dissect_segments` takes segments.  Most segments
contain complete packets of a known connection in order: `dissect_segments` handles these itself, and leaves all others
to `Dissector`.  `tcp_counters` returns the TCP counters of a flow, for consumers that see only the connection.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from mqttscope.dissect.clock_watch import ClockWatch
from mqttscope.dissect.flow_state import (
    IGNORED,
    MQTT,
    SEARCHING,
    TLS,
    UNDECIDED,
    WEBSOCKET,
    EndedFlow,
    FlowState,
    FlowTrigger,
)
from mqttscope.dissect.options import Options
from mqttscope.dissect.transports import C2S, S2C, PacketEvents, Transports, cut_off
from mqttscope.events import (
    ConnectionClosed,
    ConnectionDue,
    ConnectionEnding,
    DiscardedEvent,
    Event,
    GapEvent,
    PacketEvent,
)
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.stream import StreamItem
from mqttscope.net.flow import (
    NOT_BEGUN,
    Flow,
    FlowAlarm,
    FlowClosed,
    FlowEvent,
    FlowOpened,
    SegmentDiscarded,
    StreamClosed,
    StreamData,
    StreamGap,
    StreamOverlap,
    WindowClosed,
)
from mqttscope.net.flows import FlowTable, acknowledged_offset, delivery
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import (
    CaptureError,
    CaptureNotice,
    CaptureSecrets,
    Decrypted,
    FlowIdentity,
    Frame,
    Plaintext,
    SegmentItem,
    UndecryptedSession,
)
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.host_names import HostNames
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import RST, DnsMessage, Fragment, NoteSkipped, NotSegment, Segment, endpoints, plain_key
from mqttscope.session.capture_time import shift_of, shifted
from mqttscope.session.connection import Connection

MAX_RESETS: Final = 1_024
"""Maximum number of resets with a remembered sender; fewer segments than this arrive before one is judged."""
MAX_NAMED: Final = 5
"""Maximum number of connections named per reason for undecrypted TLS."""
_END: Final = 1 << 62
"""After all stream offsets."""
_MISSING: Final = frozenset(("before_start", "out_of_window"))
"""Reasons of discarded bytes that both sides may have read."""


class Dissector:
    """All flows of one run.  Feed it segments, then close it.

    Its parts: ``flows`` orders the bytes of each flow, a `FlowState` per flow identifies its protocol, `Transports`
    unwraps MQTT, and `PacketEvents` makes events of packets.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.flows = FlowTable(verify_checksums=self.options.verify_checksums)
        self.clock = ClockWatch(self.flows)
        self.cut_bytes = 0
        """Payload bytes of all flows that the snap length cut off."""
        self.closed_bytes = 0
        """Payload bytes of ended flows."""
        self.overlaps = 0
        """Places with repeated bytes of other content, or with bytes that were accepted with a wrong checksum."""
        self.damaged_segments = 0
        """Damaged segments with data, of MQTT connections and of connections that never began."""
        self.discarded_segments = 0
        """Segments with data that no connection took, of open and ended MQTT connections."""
        self.discarded_bytes = 0
        self.closed_copies = 0
        """Segments that were captured twice, of closed MQTT connections until their end."""
        self.one_sided = 0
        """Closed MQTT connections with only one direction in the capture."""
        self.packet_events = PacketEvents()
        self._transports = Transports(self.options, self.packet_events, self.alarm, self.flows.budget)
        self.named_otherwise, self.other_tls = self._transports.named_otherwise, self._transports.other_tls
        self._resets: dict[tuple[str, int], bytes] = {}
        """Senders of the latest resets, by capture and frame."""
        self.undecrypted: Counter[str] = Counter()
        """Number of connections with TLS that was not, or only partly, decrypted, by reason."""
        self.undecrypted_names: dict[str, list[str]] = {}
        """The first of these connections, by reason."""
        self._plaintexts: dict[FlowIdentity, deque[Plaintext]] = {}
        """Decrypted content that waits for the bytes that completed it."""
        self._reasons: dict[FlowIdentity, UndecryptedSession] = {}
        """Reasons for undecrypted sessions, of flows that have not ended yet."""
        self.names = HostNames()
        """Names of addresses, from DNS answers."""
        self.close_beside: Callable[[], Iterator[Event]] | None = None
        """Replaces `close` if another reader has flows of the capture: the ends of all flows come in one order."""
        self._watcher: Callable[[FlowState, StreamData | StreamGap], None] | None = None

    def watch(
        self,
        streams: Callable[[FlowState, StreamData | StreamGap], None],
        frames: Callable[[FlowState, object], None],
    ) -> None:
        """Register functions that see bytes before they are read.

        ``streams`` gets the bytes and gaps of all flows with a known protocol, ``frames`` the events of WebSockets
        (`net.websocket.WebSocketEvent`).
        """
        self._watcher, self._transports.watcher = streams, frames

    def feed(self, segment: Segment) -> Iterator[Event]:
        """Events of one segment, and of all time-outs before it."""
        # Earlier time-outs are independent of this segment, so they run before its flow changes.
        yield from self.advance(segment.timestamp_ns)
        if segment.flags & RST:
            self.note_reset(segment.capture, segment.frame, plain_key(segment.key))
        for event in self.flows.feed(segment):
            yield from self.handle(event)

    def adopt(self, flow: Flow) -> None:
        """Continue a flow that another dissector remembered."""
        self.flows.adopt(flow)
        dialogue = flow.context
        while isinstance(dialogue, FlowState):
            for stream in (dialogue.client_stream, dialogue.server_stream):
                stream.budget = self.flows.budget
                stream.budget.take(stream.held + len(stream.before))
            dialogue = dialogue.inner

    def take(self, item: SegmentItem | Decrypted | Event) -> Iterator[Event]:
        """Events of the next item; events pass through."""
        if type(item) is Segment:
            yield from self.feed(item)
        elif type(item) is Plaintext:
            yield from self.plaintext(item)
        elif type(item) is UndecryptedSession:
            self._reasons[item.flow] = item
        elif type(item) is DnsMessage:
            self.names.feed(item)
        else:
            # Events are not notices, but only keys matter here.
            if isinstance(item, CaptureSecrets):
                self.take_note(item)
            yield item  # type: ignore[misc]

    def plaintext(self, plaintext: Plaintext) -> Iterator[Event]:
        """Take decrypted content: its events come with the events of the bytes that completed it.

        If these bytes have already passed, the events come at once: in a live capture decryption may take longer.
        """
        self._plaintexts.setdefault(plaintext.flow, deque()).append(plaintext)
        known = self.flows.entry(plaintext.flow[0])
        if known is not None and known[0].identity == plaintext.flow:
            flow = known[0]
            half = flow.initiator if plaintext.from_initiator else flow.responder
            yield from self._inside(flow, (plaintext.from_initiator,), half.offset - 1)

    def _inside(self, flow: Flow, directions: tuple[bool, ...], offset: int) -> Iterator[Event]:
        """Events of the decrypted content of a flow up to a stream offset, from a `FlowState` of its own."""
        plaintexts = self._plaintexts.get(flow.identity)
        while plaintexts and plaintexts[0].from_initiator in directions and plaintexts[0].offset <= offset:
            plaintext = plaintexts.popleft()
            outer = flow.context
            if isinstance(outer, EndedFlow):
                continue
            if not isinstance(outer, FlowState):
                # Its TLS did not show a sign of MQTT.
                outer = self._new_dialogue(flow)
                outer.move(FlowTrigger.SPEAKS_TLS)
            inner = self._transports.inside(outer)
            place = (plaintext.frame, self._time_of(flow, plaintext), plaintext.capture)
            data = StreamData(flow, plaintext.from_initiator, plaintext.data, plaintext.offset, *place)
            yield from self._data(inner, data)
            outer.connection = inner.connection
        if not plaintexts:
            self._plaintexts.pop(flow.identity, None)

    def _time_of(self, flow: Flow, plaintext: Plaintext) -> int:
        """Time of plaintext without steps of the clock: the time of its segment, which passes the watch."""
        if (flow.last_frame, flow.last_capture) == (plaintext.frame, plaintext.capture):
            return flow.last_timestamp_ns
        shift_ns = self.clock.shift_ns
        return shifted(plaintext.timestamp_ns - shift_ns, shift_ns)

    def take_note(self, notice: CaptureNotice) -> None:
        """Take a notice of the capture: if it contains keys, TLS may be decrypted."""
        if isinstance(notice, CaptureSecrets):
            self.options.decrypting = True

    def advance(self, timestamp_ns: int) -> Iterator[Event]:
        """Events of elapsed time without segments: also on a silent interface, time passes."""
        flows = self.flows
        while (due_ns := flows.next_due_ns) is not None and due_ns < timestamp_ns:
            # Time by time, since a handler may schedule the next alarm.
            for event in flows.advance(due_ns):
                yield from self.handle(event)
        for event in flows.advance(timestamp_ns):
            yield from self.handle(event)

    def alarm(self, flow: Flow) -> Callable[[int], None]:
        """A function that schedules a `ConnectionDue` of the flow's connection at a capture time."""
        return partial(self.flows.alarm, flow)

    def close(self) -> Iterator[Event]:
        """End the capture: events of the ends of all flows."""
        if self.close_beside is not None:
            yield from self.close_beside()
            return
        for event in self.flows.close():
            yield from self.handle(event)

    @property
    def packets(self) -> int:
        """Number of packets reported, malformed ones included; 0 if each connection counts its own."""
        return self.packet_events.counting.packets

    @property
    def connections(self) -> int:
        """Number of connections reported; the number of the next connection."""
        return self._transports.connections

    @connections.setter
    def connections(self, count: int) -> None:
        self._transports.connections = count

    @property
    def other_flows(self) -> int:
        """Number of flows that do not speak MQTT."""
        return self._transports.other_flows

    @property
    def copied_segments(self) -> int:
        """Segments of closed MQTT connections that were captured twice, even after the end."""
        return self.closed_copies + self.flows.late_copies

    @copied_segments.setter
    def copied_segments(self, count: int) -> None:
        self.closed_copies = count - self.flows.late_copies

    @property
    def kept_bytes(self) -> int:
        """Captured payload bytes of all flows."""
        running = sum(_delivered(flow) for flow in self.flows.flows.values() if not flow.closed)
        return self.closed_bytes + running

    def handle(self, event: FlowEvent) -> Iterator[Event]:
        """Events that result from one event of a flow."""
        if type(event) is StreamData:
            dialogue = event.flow.context
            if type(dialogue) is FlowState:
                yield from self._data(dialogue, event)
            if self._plaintexts:
                yield from self._inside(event.flow, (event.from_initiator,), event.offset)
            return
        if isinstance(event, FlowOpened):
            before = event.flow.context
            dialogue = self._new_dialogue(event.flow)
            if self.names:
                dialogue.names = self.names.of_flow(event.flow.key)
            if isinstance(before, EndedFlow):
                yield from self._transports.resume(dialogue, before)
            return
        if isinstance(event, SegmentDiscarded):
            yield from self._discarded(event)
            return
        if isinstance(event, StreamGap):
            if event.reason == "cut":
                self.cut_bytes += event.length
        elif isinstance(event, FlowClosed):
            self.closed_bytes += _delivered(event.flow)
            if self._plaintexts:
                yield from self._inside(event.flow, (True, False), _END)
            if self._reasons:
                self._note_undecrypted(event.flow)
        dialogue = event.flow.context
        if not isinstance(dialogue, FlowState):
            return
        if isinstance(event, StreamGap):
            yield from self._gap(dialogue, event)
        elif isinstance(event, StreamClosed):
            yield from self._end_of_stream(dialogue, event)
        elif isinstance(event, StreamOverlap):
            self.overlaps += 1
            if dialogue.connection is not None:
                # It is unknown which bytes the receiver has read.
                dialogue.connection.side(
                    C2S if event.from_initiator is dialogue.client_is_initiator else S2C
                ).gapped = True
        elif isinstance(event, WindowClosed):
            if dialogue.connection is not None and dialogue.connection.history is not None:
                from_client = event.from_initiator is dialogue.client_is_initiator
                dialogue.connection.history.window_closed(C2S if from_client else S2C, event.timestamp_ns)
        elif isinstance(event, FlowAlarm):
            if dialogue.connection is not None:
                _note_standing(dialogue)
                due_ns = shifted(event.due_ns, shift_of(event.timestamp_ns))
                yield ConnectionDue(dialogue.connection, event.frame, due_ns, event.capture)
        elif isinstance(event, FlowClosed):
            yield from self._end_of_flow(dialogue, event)

    def _new_dialogue(self, flow: Flow) -> FlowState:
        dialogue = flow.context = FlowState(flow)
        if not self.options.count_by_connection:
            dialogue.counting = self.packet_events.counting
        return dialogue

    def _data(self, dialogue: FlowState, event: StreamData) -> Iterator[Event]:
        """Events of the next bytes of a flow, by its protocol as far as known."""
        if self._watcher is not None and dialogue.phase is not UNDECIDED and not dialogue.inside:
            self._watcher(dialogue, event)
        if dialogue.connection is not None and dialogue.connection.history is not None and not dialogue.inside:
            _note_segment(dialogue, event)
        phase = dialogue.phase
        if phase is WEBSOCKET:
            yield from self._transports.websocket(dialogue, event)
        elif phase is MQTT or phase is SEARCHING:
            from_client = event.from_initiator is dialogue.client_is_initiator
            yield from self.packet_events.feed(dialogue, from_client, event.data, event)
        elif phase is UNDECIDED:
            if dialogue.hold(event, self.options):
                yield from self._begin(dialogue)
        elif phase is TLS:
            yield from self._transports.tls(dialogue, event)

    def _begin(self, dialogue: FlowState) -> Iterator[Event]:
        """The protocol was decided: report the connection and process the waiting bytes."""
        waiting = dialogue.without_preface()
        if dialogue.is_ignored:
            self._transports.ignore(dialogue)
            return
        if dialogue.phase is MQTT:
            yield from self._transports.open(dialogue, "tcp")
        dialogue.replaying = dialogue.phase is MQTT
        for event in waiting:
            if dialogue.is_ignored:
                return
            if isinstance(event, StreamGap):
                yield from self._gap(dialogue, event)
            else:
                yield from self._data(dialogue, event)
        dialogue.replaying = False
        yield from self._late_discards(dialogue)

    def _late_discards(self, dialogue: FlowState) -> Iterator[Event]:
        """Events of segments discarded before there was a connection."""
        if dialogue.connection is not None:
            before, dialogue.discarded = dialogue.discarded, []
            more, dialogue.discarded_more = dialogue.discarded_more, {}
            for index, event in enumerate(before):
                yield from self._discarded(event, 1 + more.get(index, 0))

    def _gap(self, dialogue: FlowState, event: StreamGap) -> Iterator[Event]:
        if dialogue.phase is UNDECIDED:
            if dialogue.hold(event, self.options):
                yield from self._begin(dialogue)
            return
        if self._watcher is not None:
            self._watcher(dialogue, event)
        from_client = event.from_initiator is dialogue.client_is_initiator
        connection = dialogue.connection
        if connection is not None:
            connection.gaps += 1
            connection.gap_bytes += event.length
            direction = C2S if from_client else S2C
            connection.side(direction).gapped = True
            if connection.history is not None:
                connection.history.party(direction).position = event.offset + event.length
            place = (event.frame, event.timestamp_ns, event.capture)
            yield GapEvent(connection, direction, *place, event.length, event.reason, event.offset)
        if dialogue.speaks_mqtt:
            yield from self.packet_events.gap(dialogue, from_client, event.length, event)
        elif dialogue.web is not None:
            yield from self._transports.unwrapped(dialogue, dialogue.web.gap(from_client, event.length), event)
        elif dialogue.tls is not None:
            dialogue.tls.gap(from_client, event.length)
            if dialogue.inner is not None:
                yield from self._transports.lost_inside(dialogue.inner, from_client, event)

    def _note_undecrypted(self, flow: Flow) -> None:
        """Note why the TLS of an ending flow was not decrypted, if it carries MQTT or keys were given for it."""
        undecrypted = self._reasons.pop(flow.identity, None)
        if undecrypted is None:
            return
        dialogue = flow.context
        state = dialogue if isinstance(dialogue, FlowState) else FlowState(flow)
        connection = state.connection
        if connection is not None and state.tls is not None:
            connection.details["undecrypted"] = undecrypted.reason
            name = f"connection {connection.number} ({connection.client} to {connection.server})"
        elif undecrypted.has_keys:
            name = " to ".join(endpoints(flow.key)[:: 1 if state.client_is_initiator else -1])
        else:
            return
        self.undecrypted[undecrypted.reason] += 1
        names = self.undecrypted_names.setdefault(undecrypted.reason, [])
        if len(names) < MAX_NAMED:
            names.append(name)

    def _discarded(self, event: SegmentDiscarded, count: int = 1) -> Iterator[Event]:
        """Data of ``count`` segments that is not part of any stream; only MQTT connections report it."""
        spoken = event.flow.context
        if not isinstance(spoken, FlowState | EndedFlow):
            return
        if spoken.connection is None:
            if isinstance(spoken, FlowState) and spoken.phase is not IGNORED:
                spoken.note_discarded(event)
            return
        connection = spoken.connection
        direction = C2S if event.from_initiator is spoken.client_is_initiator else S2C
        if event.reason == "damaged":
            self.damaged_segments += count
        else:
            connection.discarded_segments += count
            connection.discarded_bytes += event.length
            self.discarded_segments += count
            self.discarded_bytes += event.length
        if event.reason in _MISSING:
            if isinstance(spoken, EndedFlow):
                spoken.part_sides()
            connection.side(direction).gapped = True
        place = (event.frame, event.timestamp_ns, event.capture)
        yield DiscardedEvent(connection, direction, *place, event.length, event.reason)

    def _end_of_stream(self, dialogue: FlowState, event: StreamClosed) -> Iterator[Event]:
        place = (event.frame, event.timestamp_ns, event.capture)
        if dialogue.phase is UNDECIDED:
            if not event.from_initiator or event.how == "reset":
                by_client = event.from_initiator is dialogue.client_is_initiator
                dialogue.end(by_client, event.how, place, self._reset_by(dialogue, event))
                return
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        from_client = event.from_initiator is dialogue.client_is_initiator
        dialogue.end(from_client, event.how, place, self._reset_by(dialogue, event))
        if event.how == "reset" and dialogue.closed_how == "fin" and dialogue.connection is not None:
            dialogue.connection.reset_after_fin = True
        self._note_close(dialogue)
        if dialogue.inner is not None and dialogue.inner.phase not in (UNDECIDED, IGNORED):
            yield from self._last_items(dialogue.inner, from_client, event)
        yield from self._last_items(dialogue, from_client, event)
        if dialogue.ending_due:
            # Otherwise more bytes from before the end will follow.
            yield from self._report_ending(dialogue)

    def note_reset(self, capture: str, frame: int, sender: bytes) -> None:
        """Remember the sender of a reset: a reset ends both streams, and does not reveal a sender that had sent FIN."""
        resets = self._resets
        if len(resets) >= MAX_RESETS:
            del resets[next(iter(resets))]
        resets[capture, frame] = sender

    def _reset_by(self, dialogue: FlowState, event: StreamClosed) -> str:
        """``client`` or ``server``: the sender of the reset that ended a stream; empty if unknown."""
        key = self._resets.get((event.capture, event.frame)) if event.how == "reset" else None
        if key is None:
            return ""
        by_initiator = key == plain_key(dialogue.flow.key)
        return "client" if by_initiator is dialogue.client_is_initiator else "server"

    def _report_ending(self, dialogue: FlowState) -> Iterator[Event]:
        """Report the first FIN or RST once, as soon as there is a connection."""
        if dialogue.connection is not None and dialogue.closed_place[0] and not dialogue.ending_reported:
            dialogue.ending_reported = True
            if dialogue.tls is not None:
                self._transports.note_tls(dialogue)
            yield ConnectionEnding(dialogue.connection, *dialogue.closed_place)

    def _last_items(self, dialogue: FlowState, from_client: bool, at: StreamClosed | FlowClosed) -> Iterator[Event]:
        """The rest of a stream.  Only a sender that closes properly inside a packet is to blame for it."""
        if dialogue.web is not None and not dialogue.stream(from_client).closed:
            yield from self._transports.unwrapped(dialogue, dialogue.web.close(from_client), at)
        stream = dialogue.stream(from_client)
        items = stream.close()
        if at.how != "fin":
            items = [cut_off(item, at.how, stream) for item in items]
        if items and dialogue.connection is not None:
            yield from self.packet_events.late_items(dialogue, from_client, items, at)

    def _end_of_flow(self, dialogue: FlowState, event: FlowClosed) -> Iterator[Event]:
        if event.flow.first_frame == NOT_BEGUN:
            self.damaged_segments += len(dialogue.discarded) + sum(dialogue.discarded_more.values())
            event.flow.context = None
            return
        if dialogue.phase is UNDECIDED:
            dialogue.give_up(self.options)
            yield from self._begin(dialogue)
        if dialogue.inner is not None:
            yield from self._end_inside(dialogue.inner, event)
            dialogue.connection = dialogue.inner.connection
        if dialogue.phase is not IGNORED:
            for from_client in (True, False):
                yield from self._last_items(dialogue, from_client, event)
        event.flow.context = None
        place = (event.frame, event.timestamp_ns, event.capture)
        for spoken in filter(None, (dialogue.inner, dialogue)):
            if spoken.held:
                yield from self.packet_events.release(spoken, final=True)
        connection = dialogue.connection
        if connection is None:
            if dialogue.phase is not IGNORED:
                self._transports.ignore(dialogue)
            return
        if dialogue.tls is not None:
            self._transports.note_tls(dialogue)
        dialogue.closed_how = dialogue.closed_how or event.how
        self._note_close(dialogue)
        yield from self._late_discards(dialogue)
        self._sum_up(dialogue, connection)
        yield from self._report_ending(dialogue)
        yield ConnectionClosed(connection, *(dialogue.closed_place if dialogue.closed_place[0] else place))
        if event.flow.closed:
            event.flow.context = dialogue.remember()

    def _sum_up(self, dialogue: FlowState, connection: Connection) -> None:
        """Add the TCP results of a whole connection to it."""
        flow = dialogue.flow
        connection.details["tcp"] = tcp_counters(flow, client_is_initiator=dialogue.client_is_initiator)
        connection.copied_segments = flow.initiator.copied_segments + flow.responder.copied_segments
        first = flow.initiator if (connection.closed_by == "client") is dialogue.client_is_initiator else flow.responder
        connection.end_acknowledged = 0 <= first.fin_offset < first.acknowledged
        asked, served = flow.initiator, flow.responder
        if not dialogue.client_is_initiator:
            asked, served = served, asked
        connection.client_unacknowledged = max(0, asked.offset - asked.acknowledged)
        connection.server_unacknowledged = max(0, served.offset - served.acknowledged)
        # A FIN counts one, whether or not it was captured.
        beyond = (half.acknowledged - half.offset for half in (flow.initiator, flow.responder))
        connection.unseen_bytes = sum(more for more in beyond if more > 1)
        connection.end_disowned = flow.disowned
        both = flow.initiator.segments and flow.responder.segments
        # A SYN on a port in use may be answered with an acknowledgment for the connection before (RFC 5961 section 4).
        if not both and not any(ended.initiator.segments and ended.responder.segments for ended in flow.past):
            of_client = bool(flow.initiator.segments) is dialogue.client_is_initiator
            connection.one_sided = str(C2S if of_client else S2C)
            self.one_sided += 1
        self.closed_copies += connection.copied_segments

    def _end_inside(self, inner: FlowState, event: FlowClosed) -> Iterator[Event]:
        if inner.phase is UNDECIDED:
            inner.give_up(self.options)
            yield from self._begin(inner)
        if inner.phase is not IGNORED:
            for from_client in (True, False):
                yield from self._last_items(inner, from_client, event)

    def _note_close(self, dialogue: FlowState) -> None:
        connection = dialogue.connection
        if connection is not None:
            connection.closed_by, connection.closed_how = dialogue.closed_by, dialogue.closed_how
            connection.closed_frame, connection.closed_ns, connection.closed_capture = dialogue.closed_place
            connection.also_closed = dialogue.also_closed


def _note_segment(dialogue: FlowState, event: StreamData) -> None:
    """Report the progress of both sides to the history of the connection."""
    connection = dialogue.connection
    history = None if connection is None else connection.history
    if history is None:
        return
    from_client = event.from_initiator is dialogue.client_is_initiator
    spoken = dialogue.inner or dialogue
    stream, answers = spoken.stream(from_client), spoken.stream(not from_client)
    # Not the current position of the other stream: bytes of the same segment may have moved it already.
    shown = history.party(S2C if from_client else C2S).position if dialogue.replaying else event.shown
    history.segment(
        from_client,
        event.offset + len(event.data),
        event.acknowledged,
        shown,
        event.timestamp_ns,
        stream.held,
        answers.held if answers.searching else 0,
    )


def _note_standing(dialogue: FlowState) -> None:
    """Report the TCP state of both streams to the history of the connection."""
    connection, flow = dialogue.connection, dialogue.flow
    history = None if connection is None else connection.history
    if history is None:
        return
    for half, peer, from_initiator in ((flow.initiator, flow.responder, True), (flow.responder, flow.initiator, False)):
        party = history.party(C2S if from_initiator is dialogue.client_is_initiator else S2C)
        party.confirmed = half.acknowledged if peer.segments else -1
        party.unread = not half.ended and (
            bool(half.buffer) or half.fin_offset >= 0 or max(half.acknowledged, half.sent) > half.offset
        )


def _delivered(flow: Flow) -> int:
    return flow.initiator.delivered_bytes + flow.responder.delivered_bytes


_new = PacketEvent.__new__
SAYS_NO_VERSION: Final = frozenset(PACKETS.values()) - {Connect, Connack}
"""Packets that do not change the version of their connection."""


def dissect_segments(
    source: Iterable[SegmentItem | Decrypted | Event],
    options: Options | None = None,
    dissector: Dissector | None = None,
    *,
    more: bool = False,
) -> Iterator[Event]:
    """Events of TCP segments in capture order; capture notices among them pass through.

    ``more``: the capture continues elsewhere, so that flows stay open at the end.

    Decrypted TLS content comes after the segment that completed it.

    Complete packets that arrive in order on a known connection are most of all traffic: they are handled right
    here, everything else by the dissector's methods.
    """
    running = dissector or Dissector(options)
    take_in_order, feed, handle = running.flows.take_in_order, running.feed, running.handle
    for segment in running.clock.follow(source):
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
        if type(dialogue) is not FlowState or dialogue.phase is not MQTT:
            yield from handle(delivery(entry, segment))
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
                acknowledged_offset(entry, segment.acknowledgment),
                entry[2].offset,
                segment.timestamp_ns,
                stream.held,
            )
        item: StreamItem | None = stream.whole(payload)
        if item is None and not from_client and not connection.server_side.stream_offset:
            yield from running.packet_events.feed(dialogue, from_client, payload, segment)
            continue
        items = stream.feed(payload) if item is None else (item,)
        if not items:
            continue
        if not connection.version_known:
            yield from running.packet_events.items(dialogue, from_client, list(items), segment)
            continue
        direction, side = (C2S, connection.client_side) if from_client else (S2C, connection.server_side)
        counting = dialogue.counting
        left = iter(items)
        for item in left:
            if type(item) is Publish:
                topic = item.topic_name or connection.resolve_topic(item, direction)
            elif type(item) in SAYS_NO_VERSION:
                topic = None
            else:
                # With the rest of the segment: a new version only applies to the next segment.
                yield from running.packet_events.items(dialogue, from_client, [item, *left], segment)
                break
            number = counting.packets
            counting.packets = number + 1
            offset = side.stream_offset
            # Only packets after a gap lack bytes, and gaps do not come this way.
            side.stream_offset = offset + len(item.raw)
            # Without __init__, for speed: there is one event for each packet.
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


def segments(
    frames: Iterable[Frame | CaptureNotice],
    skipped: Counter[str] | None = None,
    fragments: FragmentTable | None = None,
    note_skipped: NoteSkipped | None = None,
) -> Iterator[SegmentItem]:
    """Segments and DNS answers from frames; notices pass through.

    IP fragments are reassembled.  Frames without TCP are counted by reason in ``skipped``; an unsupported link type
    is a `CaptureError` once per capture.  ``fragments``: a table for callers that read its counts.
    ``note_skipped`` is called with the capture, the reason and the number of the frames that ``skipped`` counts.
    """
    table = FragmentTable() if fragments is None else fragments
    counted: Counter[str] = skipped if skipped is not None else Counter()
    reported: set[tuple[str, str]] = set()
    for frame in frames:
        if type(frame) is not Frame:
            yield frame  # type: ignore[misc]
            continue
        piece = segment_of(frame)
        if type(piece) is Segment:
            yield piece
            continue
        whole = table.feed(piece) if isinstance(piece, Fragment) else piece
        if isinstance(whole, Segment):
            yield whole
        elif isinstance(whole, NotSegment):
            counted[whole.reason] += 1
            if note_skipped is not None:
                note_skipped(frame.capture, whole.reason, 1)
            if whole.reason == "unsupported_link_type" and (frame.capture, whole.detail) not in reported:
                reported.add((frame.capture, whole.detail))
                yield CaptureError(frame.capture, whole.detail, None, frame.number - 1)
            elif type(whole) is DnsMessage:
                yield whole
    for capture, incomplete in table.incomplete_by_capture().items():
        counted["incomplete_fragments"] += incomplete
        if note_skipped is not None:
            note_skipped(capture, "incomplete_fragments", incomplete)


def dissect(
    frames: Iterable[Frame | CaptureNotice],
    options: Options | None = None,
    dissector: Dissector | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[Event]:
    """Events of captured frames in capture order."""
    return dissect_segments(segments(frames, skipped), options, dissector)


COUNTERS: Final = (
    "data_segments", "empty_segments", "retransmitted_segments", "retransmitted_bytes", "duplicate_segments",
    "copied_segments", "out_of_order_segments", "damaged_segments", "overlaps", "zero_windows",
    "keep_alive_probes",
)  # fmt: skip
"""Counters of `net.reassembly.HalfStream` that `tcp_counters` returns, in this order."""


def tcp_counters(flow: Flow, *, client_is_initiator: bool) -> dict[str, dict[str, int]]:
    """Counters of both directions of a flow, by the direction of MQTT and the counter's name."""
    client, server = (flow.initiator, flow.responder) if client_is_initiator else (flow.responder, flow.initiator)
    return {"client_to_server": _counters(client), "server_to_client": _counters(server)}


def _counters(half: HalfStream) -> dict[str, int]:
    return {name: getattr(half, name) for name in COUNTERS}
