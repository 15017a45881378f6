"""How the connections of a server relate: which clients came back, which ended together, whose will was published.

Every table is bounded; what had to make room is counted in ``dropped``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TypeVar

from mqttscope.explain import describe
from mqttscope.explain.model import Evidence
from mqttscope.explain.segments import LATELY_NS, SegmentWatch
from mqttscope.explain.story import LastPublish, Story
from mqttscope.lint.shared_checks import problems
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.net.segment import FIN, RST
from mqttscope.session.connection import Connection

MAX_CLIENTS = 50_000
"""Clients whose connections are remembered."""
MAX_CONNECTS = 16
"""Maximum number of CONNECT packets of a client that are remembered longer than `LATELY_NS`."""
MAX_LATELY = 1_000
"""Maximum number of CONNECT packets of a client that are remembered at all."""
MAX_SERVERS = 256
MAX_ENDS = 1_024
"""Maximum number of ends, and of accepted CONNECT packets, that are remembered of a server."""
MAX_WILLS = 1_000
"""Maximum number of topics with wills that may still be published."""
MAX_WILLS_ALIKE = 8
"""Maximum number of wills of one topic that may still be published."""
SECOND = 1_000_000_000
WILL_NS = 10 * SECOND
"""Timeout of a will after its delay."""
MOMENT_NS = 2 * SECOND
"""Connections that end within this time end together."""

T = TypeVar("T", "Arrival", "End")


@dataclass(slots=True)
class Arrival:
    """A CONNECT."""

    connection: int
    client: str
    server: str
    timestamp_ns: int
    frame: int
    capture: str
    accepted: bool | None = None
    """``None`` while it is not answered."""
    version: ProtocolVersion | None = None
    """That it asked for, once it is accepted."""
    credentials: int = 0
    """As in `Story`."""


@dataclass(slots=True)
class End:
    """The end of a connection."""

    connection: int
    client: str
    client_identifier: str | None
    timestamp_ns: int
    frame: int
    by: str | None
    explained: bool
    """Whether it has a reason of its own: a packet, a Keep Alive, a takeover, a violation, a lost path."""
    opened_ns: int
    life: Life | None = None
    took: int = 0
    """As in `Story.took`."""
    key: tuple[str, str] = "", ""
    """Of the client."""
    keep_alive: int = 0
    silent_ns: int | None = None
    """As in `Story`."""
    quiet_ns: int | None = None
    """As in `Story`."""


@dataclass(slots=True)
class Life:
    """How long a connection was open, and when its server last sent a packet on it."""

    connection: int
    opened_ns: int
    heard_ns: int
    frame: int
    capture: str


@dataclass(slots=True)
class ServerTimes:
    """What happened at the endpoint of a server."""

    ends: deque[End] = field(default_factory=deque)
    accepted: deque[Arrival] = field(default_factory=deque)
    answered_syns: deque[Arrival] = field(default_factory=deque)
    """Connections whose SYN its host has answered."""
    bears_silence: bool = False
    """As `Story.is_borne`, of a connection that has ended."""
    counts_publish: bool = False
    """As in `Story`."""
    idle: deque[tuple[int, int]] = field(default_factory=deque)
    """Connections that it ended in silence, and how long nothing had been sent."""
    pause_ns: int = 0
    """The longest time in which nothing was sent on a connection that stayed open."""
    client_pause_ns: int = 0
    """As `Story.pause_ns`, the longest of connections that have ended."""
    borne: set[str] = field(default_factory=set)
    """What it has acknowledged, as in `story.LastPublish.features`."""
    borne_faults: set[str] = field(default_factory=set)
    """Faults of clients in WebSockets after which it sent more."""
    borne_bytes: int = 0
    borne_levels: int = 0
    """Size of the largest message that it has acknowledged, and the most levels of a topic."""
    plain: Arrival | None = None
    """The first CONNECT without TLS that it accepted."""
    secure: Arrival | None = None
    """The first connection on which it answered in TLS."""
    web: Arrival | None = None
    """The first CONNECT over WebSocket that it accepted."""
    headed: Arrival | None = None
    """The first connection with a PROXY protocol header on which it answered; the three above have none."""
    versions: dict[ProtocolVersion, Arrival] = field(default_factory=dict)
    """The first CONNECT of each version that it accepted."""
    unheard: bool = False
    """Whether a connection had packets of its client, and the capture lacks all that the server sent on it."""
    witnesses: Witnesses | None = None
    """What its open connections showed when somebody last asked."""


@dataclass(slots=True)
class Witnesses:
    """The open connections of a server, in the order of their beginning; made at most once for each second.

    Thousands of ends at one time ask the same: each looks its answer up.
    """

    second: int
    opened: list[int] = field(default_factory=list)
    heard: list[Life | None] = field(default_factory=list)
    """The life of the connection up to here whose server sent a packet last."""
    segments: list[tuple[int, Life | None]] = field(default_factory=list)
    """When the host of the server sent its last segment on the connections up to here, and on which."""
    quiet_since_ns: int = 1 << 63
    """When the last packet came on the connection that is silent for longest."""
    unheard: bool = False
    """As in `ServerTimes`."""

    def add(self, story: Story, watch: SegmentWatch) -> None:
        """The next connection."""
        connection = story.connection
        life, best = _life(story), self.heard[-1] if self.heard else None
        self.opened.append(connection.opened_ns)
        self.heard.append(best if life is None or (best is not None and best.heard_ns >= life.heard_ns) else life)
        seen = watch.last_of(connection.flow_key, (connection.frame, connection.capture), connection.server)
        latest = self.segments[-1] if self.segments else (-1, None)
        if seen is not None and seen.timestamp_ns > latest[0] and not seen.flags & (FIN | RST):
            last = Life(connection.number, connection.opened_ns, seen.timestamp_ns, seen.frame, seen.capture)
            latest = seen.timestamp_ns, last
        self.segments.append(latest)
        self.quiet_since_ns = min(self.quiet_since_ns, story.last_ns or self.quiet_since_ns)
        self.unheard = self.unheard or _is_unheard(story)

    def before(self, opened_ns: int) -> tuple[Life | None, Life | None]:
        """Of the connections that began before a time: the last packet of the server, and its last segment."""
        at = bisect_left(self.opened, opened_ns) - 1
        return (None, None) if at < 0 else (self.heard[at], self.segments[at][1])


@dataclass(slots=True)
class _Awaited:
    """A will that may be published."""

    story: Story
    from_ns: int
    until_ns: int


@dataclass(slots=True)
class Book:
    """The connections of all servers."""

    arrivals: OrderedDict[tuple[str, str], list[Arrival]] = field(default_factory=OrderedDict)
    """By the host of the server and the Client Identifier."""
    servers: OrderedDict[str, ServerTimes] = field(default_factory=OrderedDict)
    """By endpoint."""
    last_messages: OrderedDict[tuple[str, str, str], list[tuple[int, LastPublish]]] = field(default_factory=OrderedDict)
    """The last message before connections ended, with their numbers, by server, client, and the side that closed."""
    triggers: OrderedDict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=OrderedDict)
    """The last connections of a client, by server and client: number, and the packet right after which it ended."""
    open: dict[str, dict[int, Story]] = field(default_factory=dict)
    """Open connections of a server in the order of their beginning, those that are open where the capture ends too."""
    wills: dict[int, Evidence] = field(default_factory=dict)
    """Published wills by the number of their connection."""
    _armed: OrderedDict[str, deque[tuple[int, int, int, str]]] = field(default_factory=OrderedDict)
    """Deliveries to the topics of wills, which may be noticed before the end: connection, time, frame, capture."""
    dropped: Counter[str] = field(default_factory=Counter)
    _awaited: OrderedDict[str, list[_Awaited]] = field(default_factory=OrderedDict)
    """By topic."""

    def arrived(self, story: Story, client_identifier: str, timestamp_ns: int, frame: int, capture: str) -> None:
        """A client has sent CONNECT."""
        connection = story.connection
        key = host(connection.server), client_identifier
        known = self.arrivals.get(key)
        if known is None:
            if len(self.arrivals) >= MAX_CLIENTS:
                self.arrivals.popitem(last=False)
                self.dropped["clients"] += 1
            known = self.arrivals[key] = []
        self.arrivals.move_to_end(key)
        known.append(
            Arrival(
                connection.number, connection.client, connection.server, timestamp_ns, frame, capture,
                credentials=story.credentials,
            )
        )  # fmt: skip
        lately_ns = timestamp_ns - LATELY_NS
        while len(known) > MAX_CONNECTS and known[0].timestamp_ns < lately_ns:
            del known[0]
        if len(known) > MAX_LATELY:
            del known[0]
            self.dropped["CONNECT packets"] += 1

    def answered(self, story: Story, client_identifier: str | None, accepted: bool) -> None:
        """The server has answered with CONNACK."""
        connection = story.connection
        for one in self.arrivals.get((host(connection.server), client_identifier or ""), ()):
            if one.connection == connection.number:
                one.accepted = accepted
        if accepted:
            said = story.connack or story.connect
            frame, now = (said.frame, said.timestamp_ns) if said is not None else (0, connection.opened_ns)
            made = Arrival(
                connection.number, connection.client, connection.server, now, frame, connection.capture, True,
                story.version,
            )  # fmt: skip
            server = self._server(connection.server)
            self._remember(server.accepted, made, "accepted connections")
            if story.header is not None:
                server.headed = server.headed or made
            elif connection.transport == "tcp":
                server.plain = server.plain or made
            elif connection.transport == "tls":
                server.secure = server.secure or made
            elif connection.transport == "websocket":
                server.web = server.web or made
            if story.version is not None:
                server.versions.setdefault(story.version, made)

    def opened(self, story: Story) -> None:
        """A connection has begun."""
        connection = story.connection
        self.open.setdefault(connection.server, {})[connection.number] = story
        if connection.handshake_seen:
            self._remember(self._server(connection.server).answered_syns, _beginning(connection), "answered SYNs")

    def ended(self, story: Story, by: str | None, message: LastPublish | None, *, explained: bool) -> None:
        """A connection has ended on a message; ``explained``: something of its own is known that ended it."""
        connection = story.connection
        server = self._server(connection.server)
        if connection.details.get("server_hello") and story.header is not None:
            server.headed = server.headed or _beginning(connection)
        elif connection.details.get("server_hello"):
            server.secure = server.secure or _beginning(connection)
        server.borne_faults |= _borne_faults(story)
        server.bears_silence |= story.is_borne
        server.counts_publish |= story.counts_publish
        server.client_pause_ns = max(server.client_pause_ns, story.pause_ns)
        server.unheard = server.unheard or _is_unheard(story)
        if story.finished:
            return
        if message is not None and by is not None:
            self._ended_on(_client(connection), by, connection.number, message)
        self._triggered(_client(connection), connection.number, story.trigger)
        known = self.open.get(connection.server, {})
        known.pop(connection.number, None)
        if not known:
            self.open.pop(connection.server, None)
        said = bool(story.disconnects) or story.refusal is not None
        # A DISCONNECT may be among the missing bytes, and a silence of unknown length may have ended it.
        said = said or connection.client_side.gapped or story.is_silence_unclear
        end = End(
            connection.number, connection.client, connection.client_identifier, story.ended_ns, story.ended_frame,
            by, said or explained, connection.opened_ns, _life(story), story.took, _client(connection),
            connection.keep_alive or 0, story.silent_ns, story.quiet_ns,
        )  # fmt: skip
        self._note_silence(server, story, by, explained=end.explained)
        self._remember(server.ends, end, "ends")
        normal = story.disconnects.get("client")
        if story.will_topic and (normal is None or normal.code):
            self._await(story)

    def _note_silence(self, server: ServerTimes, story: Story, by: str | None, *, explained: bool) -> None:
        if story.facts is not None:
            server.pause_ns = max(server.pause_ns, story.facts.pause_ns)
        if story.idle_ns is not None and by == "server" and not explained:
            server.idle.append((story.connection.number, story.idle_ns))
            if len(server.idle) > MAX_ENDS:
                server.idle.popleft()
                self.dropped["ends"] += 1

    def _ended_on(self, client: tuple[str, str], by: str, number: int, message: LastPublish) -> None:
        key = (*client, by)
        if key not in self.last_messages and len(self.last_messages) >= MAX_CLIENTS:
            self.last_messages.popitem(last=False)
            self.dropped["clients"] += 1
        known = self.last_messages.setdefault(key, [])
        known.append((number, message))
        del known[:-MAX_CONNECTS]

    def same_again(self, story: Story, by: str | None, message: LastPublish | None) -> list[int]:
        """Numbers of the connections of the client that a side ended on this message."""
        known = self.last_messages.get((*_client(story.connection), by or ""), ())
        return [number for number, other in known if other == message]

    def took(self, story: Story) -> int:
        """Bytes of the largest packet that the client took on other connections."""
        server, number, client = story.connection.server, story.connection.number, _client(story.connection)
        others = [other.took for other in self.open.get(server, {}).values()
                  if other is not story and _client(other.connection) == client]  # fmt: skip
        ended = [end.took for end in self.of(server).ends if end.key == client and end.connection != number]
        return max(others + ended, default=0)

    def _triggered(self, client: tuple[str, str], number: int, trigger: str) -> None:
        if client not in self.triggers and len(self.triggers) >= MAX_CLIENTS:
            self.triggers.popitem(last=False)
            self.dropped["clients"] += 1
        known = self.triggers.setdefault(client, [])
        known.append((number, trigger))
        del known[:-MAX_CONNECTS]

    def triggered_again(self, story: Story) -> list[int]:
        """Numbers of the client's connections, one after the other, that ended right after the same packet."""
        connection, run = story.connection, list[int]()
        for number, trigger in self.triggers.get(_client(connection), ()):
            if trigger != story.trigger:
                if connection.number in run:
                    break
                run = []
            elif trigger:
                run.append(number)
        return run if connection.number in run else []

    def acknowledged(self, story: Story) -> None:
        """The server has answered a message of the client."""
        server = self._server(story.connection.server)
        server.borne |= story.borne
        server.borne_bytes = max(server.borne_bytes, story.borne_bytes)
        server.borne_levels = max(server.borne_levels, story.borne_levels)

    def borne_faults(self, server: str) -> set[str]:
        """Faults of clients in WebSockets after which a server sent more, by the words of `net.websocket.Problem`."""
        return self.of(server).borne_faults.union(*map(_borne_faults, self.open.get(server, {}).values()))

    def witnesses(self, server: str, watch: SegmentWatch) -> Witnesses:
        """What the open connections of a server show now."""
        known, second = self._server(server), watch.now_ns // SECOND
        if known.witnesses is None or known.witnesses.second != second:
            known.witnesses = Witnesses(second)
            for story in sorted(self.open.get(server, {}).values(), key=lambda one: one.connection.opened_ns):
                known.witnesses.add(story, watch)
        return known.witnesses

    def longest_of_client(self, server: str, watch: SegmentWatch) -> int:
        """The longest time in which a client sent nothing on a connection to a server that stayed open."""
        pauses = [self.of(server).client_pause_ns]
        for story in self.open.get(server, {}).values():
            last = story.last_of("client")
            pauses += [story.pause_ns, watch.now_ns - last.timestamp_ns if last is not None else 0]
        return max(pauses)

    def close(self) -> None:
        """The capture has ended: open connections have shown more since somebody asked."""
        for server in self.servers.values():
            server.witnesses = None

    def published(self, topic: str | None, connection: int, timestamp_ns: int, frame: int, capture: str) -> None:
        """A server has delivered a message: it may be the will of a client."""
        if not topic:
            return
        armed = self._armed.get(topic)
        if armed is not None:
            armed.append((connection, timestamp_ns, frame, capture))
        self._match(topic, connection, timestamp_ns, frame, capture)

    def _match(self, topic: str, connection: int, timestamp_ns: int, frame: int, capture: str) -> None:
        """Look whether a delivery is a will that is waited for."""
        found = self._awaited.get(topic)
        if not found:
            return
        # The last one that ended: a client that comes and goes has the same will each time.
        for one in reversed(found):
            number = one.story.connection.number
            if number != connection and one.from_ns <= timestamp_ns <= one.until_ns and number not in self.wills:
                shown = describe.name(topic)
                self.wills[number] = Evidence(
                    f"the will was published: {shown}, as connection #{connection} received it"
                    f" {describe.span(timestamp_ns - one.story.ended_ns)} after the end",
                    frame, timestamp_ns, capture,
                )  # fmt: skip

    def other_arrivals(self, story: Story, start_ns: int, end_ns: int) -> list[Arrival]:
        """CONNECT packets with the same Client Identifier on other connections in a time, in order."""
        identifier = story.connection.client_identifier
        if not identifier:
            return []
        known = self.arrivals.get((host(story.connection.server), identifier), ())
        number = story.connection.number
        return [one for one in known if one.connection != number and start_ns <= one.timestamp_ns <= end_ns]

    def ends_near(self, server: str, at_ns: int, before_ns: int, after_ns: int) -> list[End]:
        """Ends of the connections of a server around a time."""
        return [end for end in self.of(server).ends if -before_ns <= end.timestamp_ns - at_ns <= after_ns]

    def survivor(self, server: str, watch: SegmentWatch, first_ns: int, last_ns: int, ended: set[int]) -> Life | None:
        """A connection on which a server sends after ends of others, and which was open before them.

        Connections of ``ended`` are those that ended then.  One that ends soon after them as well has to be heard of
        after the last of them: a server that stops may send until it closes.
        """
        life, _ = self.witnesses(server, watch).before(first_ns)
        if life is not None and life.heard_ns > first_ns:
            return life
        for end in self.of(server).ends:
            life = end.life
            if life is None or end.connection in ended or life.opened_ns >= first_ns:
                continue
            if life.heard_ns > (first_ns if end.timestamp_ns > last_ns + MOMENT_NS else last_ns):
                return life
        return None

    def begun_in(self, server: str, start_ns: int, end_ns: int) -> list[Arrival]:
        """Connections that a server accepted in a time."""
        return [arrival for arrival in self.of(server).accepted if start_ns <= arrival.timestamp_ns <= end_ns]

    def of(self, server: str) -> ServerTimes:
        """What is remembered of a server, by its endpoint."""
        return self.servers.get(server) or ServerTimes()

    def _server(self, endpoint: str) -> ServerTimes:
        known = self.servers.get(endpoint)
        if known is None:
            if len(self.servers) >= MAX_SERVERS:
                self.servers.popitem(last=False)
                self.dropped["servers"] += 1
            known = self.servers[endpoint] = ServerTimes()
        self.servers.move_to_end(endpoint)
        return known

    def _remember(self, times: deque[T], latest: T, name: str) -> None:
        """Add what happened; what makes room for it counts as dropped if explanations may still look for it."""
        times.append(latest)
        if len(times) > MAX_ENDS and times.popleft().timestamp_ns > latest.timestamp_ns - LATELY_NS:
            self.dropped[name] += 1

    def answered_in(self, server: str, start_ns: int, end_ns: int) -> list[Arrival]:
        """Connections whose SYN the host of a server answered in a time, which proves that it listened."""
        return [one for one in self.of(server).answered_syns if start_ns < one.timestamp_ns < end_ns]

    def _await(self, story: Story) -> None:
        """Wait for the will of a connection; a will that makes room for it counts as dropped before its timeout."""
        topic = story.will_topic or ""
        forgotten: list[_Awaited] = []
        if topic not in self._awaited and len(self._awaited) >= MAX_WILLS:
            forgotten = self._awaited.popitem(last=False)[1]
        delay = story.will_delay * SECOND
        waiting = self._awaited.setdefault(topic, [])
        waiting.append(_Awaited(story, story.ended_ns - SECOND, story.ended_ns + delay + WILL_NS))
        self._awaited.move_to_end(topic)
        if len(waiting) > MAX_WILLS_ALIKE:
            forgotten.append(waiting.pop(0))
        due = sum(will.until_ns >= story.ended_ns for will in forgotten)
        if due:
            self.dropped["wills"] += due
        for before in self._armed.get(topic, ()):
            if before[1] >= story.ended_ns:
                self._match(topic, *before)

    def arm(self, topic: str) -> None:
        """A CONNECT has a will to a topic."""
        if topic not in self._armed and len(self._armed) >= MAX_WILLS:
            self._armed.popitem(last=False)
            self.dropped["topics of wills"] += 1
        self._armed.setdefault(topic, deque(maxlen=MAX_WILLS_ALIKE))
        self._armed.move_to_end(topic)


def _is_unheard(story: Story) -> bool:
    return story.connection.one_sided == "client_to_server" and story.counts["client"] > 0


def _life(story: Story) -> Life | None:
    last = story.last_of("server")
    if last is None:
        return None
    return Life(story.connection.number, story.connection.opened_ns, last.timestamp_ns, last.frame, last.capture)


def _client(connection: Connection) -> tuple[str, str]:
    """Host of the server, and Client Identifier or host of the client."""
    return host(connection.server), connection.client_identifier or host(connection.client)


def _borne_faults(story: Story) -> set[str]:
    last = story.last_of("server")
    found = problems(story.connection) if last is not None else ()
    return {fault["reason"] for fault in found if last and fault["from_client"] and last.frame > fault["frame"]}


def _beginning(connection: Connection) -> Arrival:
    """The first segment of a connection."""
    return Arrival(
        connection.number, connection.client, connection.server, connection.opened_ns, connection.frame,
        connection.capture,
    )  # fmt: skip


def host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
