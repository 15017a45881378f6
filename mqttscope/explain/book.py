"""Relations between the connections of a server: clients that came back, common ends, published wills.

Every table is bounded; ``dropped`` counts discarded entries.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mqttscope.explain import describe
from mqttscope.explain.hushes import Voices
from mqttscope.explain.model import Evidence
from mqttscope.explain.segments import LATELY_NS, FlowFacts, SegmentWatch
from mqttscope.explain.story import ALIKE, WILL_OF_USER, LastPublish, Story
from mqttscope.lint.shared_checks import problems
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Publish
from mqttscope.net.segment import FIN, RST
from mqttscope.session.connection import Connection, host_of
from mqttscope.session.history import NEVER_NS

MAX_CLIENTS = 50_000
"""Maximum number of clients with remembered connections."""
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
MAX_WEB_PATHS = 16
"""Maximum number of paths of WebSockets that are remembered of a server."""
MAX_LOGINS = 16
"""Maximum number of kinds of login that are remembered of a server."""
MAX_GRANTED = 4_096
"""Maximum number of remembered Topic Filters that a server granted."""
SECOND = 1_000_000_000
WILL_NS = 10 * SECOND
"""Timeout of a will after its delay."""
DISORDER_NS = 200_000
"""Maximum disorder of the frames of a capture in time: a cause must come before its effect."""
MAX_READERS = 64
"""Maximum number of connections per will with separately counted deliveries."""
MOMENT_NS = 2 * SECOND
"""Connections that end within this time end together."""

T = TypeVar("T", "Arrival", "End", "Hello")


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
    """As in `Login`."""
    client_identifier: str = ""


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
    """Host of the server, and Client Identifier or host of the client."""
    keep_alive: int = 0
    silent_ns: int | None = None
    """As in `Story`."""
    quiet_ns: int | None = None
    """As in `Story`."""
    forgotten_ns: int = 0
    """As in `Story`."""
    is_begun: bool = False
    """Whether the capture has its beginning."""


@dataclass(slots=True)
class Hello:
    """A ClientHello of TLS."""

    connection: int
    client: str
    """Host."""
    timestamp_ns: int
    frame: int
    capture: str
    time: int
    """As in `FlowFacts.hello_time`."""
    server_name: str
    is_served: bool
    """Whether data came after the handshake, and no fatal alert."""
    certificate: str = ""
    """As `Flights.certificate`."""
    has_alpn: bool = False
    lasted_ns: int = 0
    """Time from the beginning of the connection to its last data."""


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
    """Facts about the endpoint of a server."""

    name: str = ""
    """Host name, if known."""
    ends: deque[End] = field(default_factory=deque)
    accepted: deque[Arrival] = field(default_factory=deque)
    answered_syns: deque[Arrival] = field(default_factory=deque)
    """Connections with a SYN that its host has answered."""
    bears_silence: bool = False
    """As `Story.is_borne`, of a connection that has ended."""
    counts_publish: bool = False
    """As in `Story`."""
    idle: deque[tuple[int, int]] = field(default_factory=deque)
    """Connections that it ended in silence, and how long nothing had been sent."""
    closed_on_connect: deque[Arrival] = field(default_factory=deque)
    """CONNECT packets that it answered by closing only."""
    turned_away: deque[Arrival] = field(default_factory=deque)
    """Connections that it ended before it can have read anything (`causes.unread`)."""
    answers: dict[str, tuple[tuple[int, ...], object]] = field(default_factory=dict)
    """The last answers to costly questions, each with the second of the capture and the times of the question."""
    unanswered: deque[Arrival] = field(default_factory=deque)
    """Requests that TCP acknowledged, and that had no answer when their connections ended (`causes.hangs`)."""
    idle_resets: deque[tuple[int, int]] = field(default_factory=deque)
    """Connections that ended with an RST from the client's side, and the time since the last byte before it."""
    pause_ns: int = 0
    """Longest silence on a connection that stayed open."""
    pauses: dict[str, int] = field(default_factory=dict)
    """Longest silence that a connection survived, of each host with connections that have ended."""
    client_pause_ns: int = 0
    """As `Story.pause_ns`, the longest of connections that have ended."""
    borne: set[str] = field(default_factory=set)
    """Acknowledged features, as in `story.LastPublish.features`."""
    granted: set[str] = field(default_factory=set)
    """Topic Filters that it granted to a client, as on the wire; not all of them if there are `MAX_GRANTED`."""
    most_filters: int = 0
    """As in `Story`."""
    borne_faults: set[str] = field(default_factory=set)
    """WebSocket faults of clients that did not keep it from sending more."""
    borne_bytes: int = 0
    borne_levels: int = 0
    """Size of the largest message that it has acknowledged, and the most levels of a topic."""
    plain: Arrival | None = None
    """The first CONNECT without TLS that it accepted."""
    secure: Arrival | None = None
    """First connection with an answer in TLS."""
    web: Arrival | None = None
    """The first CONNECT over WebSocket that it accepted."""
    web_paths: dict[str, Arrival] = field(default_factory=dict)
    """The first accepted CONNECT of each path of a WebSocket, without its query."""
    logins: dict[str, Arrival] = field(default_factory=dict)
    """The first CONNECT of each kind of login (`Login.kinds`) that it accepted."""
    headed: Arrival | None = None
    """First answered connection with a PROXY protocol header; the three above have no such header."""
    versions: dict[ProtocolVersion, Arrival] = field(default_factory=dict)
    """The first CONNECT of each version that it accepted."""
    credentials: OrderedDict[int, Arrival] = field(default_factory=OrderedDict)
    """Last accepted CONNECT with each user name and password, by `Login.credentials`."""
    longest_keep_alive: int | None = None
    """Longest Keep Alive that it accepted, in seconds; 0 if it accepted 0, ``None`` if it accepted nothing."""
    unheard: bool = False
    """Whether a connection had packets of its client, and the capture lacks all that the server sent on it."""
    hellos: deque[Hello] = field(default_factory=deque)
    """ClientHello packets of connections that have ended."""
    witnesses: Witnesses | None = None
    """Evidence of its open connections at the time of the last query."""


@dataclass(slots=True)
class Witnesses:
    """The open connections of a server, in the order of their beginning; made at most once for each second.

    Thousands of ends at one time need one answer, so it is looked up.
    """

    second: int
    opened: list[int] = field(default_factory=list)
    heard: list[Life | None] = field(default_factory=list)
    """The life of the connection up to here with the server's latest packet."""
    segments: list[tuple[int, Life | None]] = field(default_factory=list)
    """Time of the last segment from the host of the server on the connections up to here, and its connection."""
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
class _Likeness:
    """Connections of one host with the same will topic, or with the same subscriptions."""

    arrivals: list[Arrival] = field(default_factory=list)
    is_shared: bool = False
    """Whether two clients of the host were there at the same time."""


@dataclass(slots=True)
class _Awaited:
    """A will that may be published."""

    story: Story
    from_ns: int
    """Time of the CONNECT that took the session over, or of the end."""
    until_ns: int
    readers: set[int] = field(default_factory=set)
    """Connections that have received it."""


@dataclass(slots=True)
class _Delivery:
    """A message to the topic of a will, as a server sent it on a connection."""

    connection: int
    timestamp_ns: int
    frame: int
    capture: str
    checksum: int
    """CRC-32 of its payload."""


@dataclass(slots=True)
class Book:
    """The connections of all servers."""

    arrivals: OrderedDict[tuple[str, str], list[Arrival]] = field(default_factory=OrderedDict)
    """CONNECT packets by host of the server and Client Identifier."""
    servers: OrderedDict[str, ServerTimes] = field(default_factory=OrderedDict)
    """Servers by endpoint."""
    last_messages: OrderedDict[tuple[str, str, str], list[tuple[int, LastPublish]]] = field(default_factory=OrderedDict)
    """The last message before connections ended, with their numbers, by server, client, and the side that closed."""
    triggers: OrderedDict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=OrderedDict)
    """Last connections of a client, by server and client: number, and the packet right before the end."""
    open: dict[str, dict[int, Story]] = field(default_factory=dict)
    """Open connections of a server in the order of their beginning, including connections still open at the end."""
    wills: dict[int, Evidence] = field(default_factory=dict)
    """Published wills by the number of their connection."""
    _armed: OrderedDict[str, deque[_Delivery]] = field(default_factory=OrderedDict)
    """The last deliveries to the topics of wills, which may come before the end is seen."""
    _alike: OrderedDict[tuple[str, str, int], _Likeness] = field(default_factory=OrderedDict)
    """Stories by the hosts of server and client, and a value of `Story.likenesses`."""
    dropped: Counter[str] = field(default_factory=Counter)
    voices: Voices = field(default_factory=Voices)
    _awaited: OrderedDict[str, list[_Awaited]] = field(default_factory=OrderedDict)
    """Awaited wills by topic."""

    def arrived(self, story: Story, client_identifier: str, timestamp_ns: int, frame: int, capture: str) -> None:
        """A client has sent CONNECT."""
        connection = story.connection
        key = host_of(connection.server), client_identifier
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
                credentials=story.login.credentials,
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
        for arrival in self.arrivals.get((host_of(connection.server), client_identifier or ""), ()):
            if arrival.connection == connection.number:
                arrival.accepted = accepted
                arrival.version = story.version if accepted else None
        if accepted:
            stated = story.connack or story.connect
            frame, now = (stated.frame, stated.timestamp_ns) if stated is not None else (0, connection.opened_ns)
            arrival = Arrival(
                connection.number, connection.client, connection.server, now, frame, connection.capture, True,
                story.version,
            )  # fmt: skip
            server = self._server(connection.server)
            self._remember(server.accepted, arrival, "accepted connections")
            if story.header is not None:
                server.headed = server.headed or arrival
            elif connection.transport == "tcp":
                server.plain = server.plain or arrival
            elif connection.transport == "tls":
                server.secure = server.secure or arrival
            elif connection.transport == "websocket":
                server.web = server.web or arrival
                if (path := web_path(connection)) and len(server.web_paths) < MAX_WEB_PATHS:
                    server.web_paths.setdefault(path, arrival)
            if story.version is not None:
                server.versions.setdefault(story.version, arrival)
            longest, keep_alive = server.longest_keep_alive, story.announced_keep_alive
            if keep_alive is not None and longest != 0:
                server.longest_keep_alive = max(longest or 0, keep_alive) if keep_alive else 0
            login = story.login
            if login.has_user_name:
                if login.credentials not in server.credentials and len(server.credentials) >= MAX_ENDS:
                    server.credentials.popitem(last=False)
                server.credentials[login.credentials] = arrival
            for kind in login.kinds:
                if len(server.logins) < MAX_LOGINS:
                    server.logins.setdefault(kind, arrival)

    def hellos(self, server: str, watch: SegmentWatch) -> list[Hello]:
        """The ClientHello packets of connections to a server: ended ones, then open ones."""
        hellos = list(self.of(server).hellos)
        ended = {hello.connection for hello in hellos}
        for story in self.open.get(server, {}).values():
            connection = story.connection
            facts = watch.open_facts(connection.flow_key, (connection.frame, connection.capture))
            hello = None if connection.number in ended else _hello(story, facts)
            if hello is not None:
                hellos.append(hello)
        return hellos

    def opened(self, story: Story, *, is_answered: bool) -> None:
        """A connection has begun; its SYN had an answer, or not."""
        connection = story.connection
        self.open.setdefault(connection.server, {})[connection.number] = story
        if connection.handshake_seen and is_answered:
            self._remember(self._server(connection.server).answered_syns, _beginning(connection), "answered SYNs")

    def ended(self, story: Story, by: str | None, message: LastPublish | None, *, explained: bool) -> None:
        """A connection has ended on a message; ``explained``: something of its own is known that ended it."""
        connection = story.connection
        server = self._server(connection.server)
        if connection.details.get("server_hello") and story.header is not None:
            server.headed = server.headed or _beginning(connection)
        elif connection.details.get("server_hello"):
            server.secure = server.secure or _beginning(connection)
        server.name = server.name or connection.server_name or ""
        server.borne_faults |= _borne_faults(story)
        server.bears_silence |= story.is_borne
        server.borne |= story.borne
        server.counts_publish |= story.counts_publish
        server.client_pause_ns = max(server.client_pause_ns, story.pause_ns)
        server.unheard = server.unheard or _is_unheard(story)
        hello = _hello(story, story.facts)
        client = host_of(connection.client)
        if client in server.pauses or len(server.pauses) < MAX_ENDS:
            server.pauses[client] = max(server.pauses.get(client, 0), _borne_pause(story))
        if hello is not None:
            self._remember(server.hellos, hello, "TLS handshakes")
        if story.finished:
            return
        if by == "server":
            self._note_return(story)
        if message is not None and by is not None:
            self._note_message(client_key(connection), by, connection.number, message)
        self._triggered(client_key(connection), connection.number, story.trigger)
        known = self.open.get(connection.server, {})
        known.pop(connection.number, None)
        if not known:
            self.open.pop(connection.server, None)
        is_stated = bool(story.disconnects) or story.refusal is not None
        # A DISCONNECT may be among the missing bytes, and a silence of unknown length may have ended it.
        is_stated = is_stated or connection.client_side.gapped or story.is_silence_unclear
        end = End(
            connection.number, connection.client, connection.client_identifier, story.ended_ns, story.ended_frame,
            by, is_stated or explained, connection.opened_ns, _life(story), story.took, client_key(connection),
            connection.keep_alive or 0, story.silent_ns, story.quiet_ns, story.forgotten_ns,
            connection.handshake_seen,
        )  # fmt: skip
        self._note_silence(server, story, by, explained=end.explained)
        if story.connect is not None and by == "server" and not story.counts["server"]:
            connect = story.connect
            self._remember(
                server.closed_on_connect,
                Arrival(connection.number, connection.client_identifier or connection.client, connection.server,
                        connect.timestamp_ns, connect.frame, connection.capture), "CONNECT packets",
            )  # fmt: skip
        if story.unread:
            turned_away = replace(_beginning(connection), timestamp_ns=story.ended_ns)
            self._remember(server.turned_away, turned_away, "ends")
        self._remember(server.ends, end, "ends")
        normal = story.disconnects.get("client")
        if story.will_topic and (normal is None or normal.code):
            self._await(story)

    def _note_silence(self, server: ServerTimes, story: Story, by: str | None, *, explained: bool) -> None:
        if story.facts is not None:
            server.pause_ns = max(server.pause_ns, _borne_pause(story))
        if story.idle_ns is None or explained:
            return
        is_reset = by == "client" and story.connection.closed_how == "reset"
        silences = server.idle if by == "server" else server.idle_resets if is_reset else None
        if silences is not None:
            silences.append((story.connection.number, story.idle_ns))
            if len(silences) > MAX_ENDS:
                silences.popleft()
                self.dropped["ends"] += 1

    def _note_message(self, client: tuple[str, str], by: str, number: int, message: LastPublish) -> None:
        key = (*client, by)
        if key not in self.last_messages and len(self.last_messages) >= MAX_CLIENTS:
            self.last_messages.popitem(last=False)
            self.dropped["clients"] += 1
        known = self.last_messages.setdefault(key, [])
        known.append((number, message))
        del known[:-MAX_CONNECTS]

    def ended_on(self, story: Story, by: str | None) -> list[tuple[int, LastPublish]]:
        """Connections of the client that a side ended on a message: numbers and messages."""
        return self.last_messages.get((*client_key(story.connection), by or ""), [])

    def noted(self, story: Story, client_identifier: str, timestamp_ns: int, frame: int, capture: str) -> None:
        """A client has sent CONNECT or SUBSCRIBE: it may be one that was there under another Client Identifier."""
        connection = story.connection
        for name, value in story.likenesses.items():
            key = _likeness_key(connection, name, value)
            known = self._alike.setdefault(key, _Likeness())
            self._alike.move_to_end(key)
            if all(other.connection != connection.number for other in known.arrivals):
                known.arrivals.append(
                    Arrival(
                        connection.number, connection.client, connection.server, timestamp_ns, frame, capture,
                        client_identifier=client_identifier,
                    )
                )  # fmt: skip
                del known.arrivals[:-MAX_CONNECTS]
        while len(self._alike) > MAX_CLIENTS:
            self._alike.popitem(last=False)
            self.dropped["clients"] += 1

    def _note_return(self, story: Story) -> None:
        """Note the other Client Identifier of a client that returned before the server ended its connection.

        The new connection has the same will topic or the same subscriptions and came from the same host, or has the
        same will, user name and password.  It came after the last packet of the old one, and is open at its end.
        Nothing is noted if two clients with this likeness were there at the same time: then it shows no client.
        """
        connection, last = story.connection, story.last_of("client")
        name = connection.client_identifier
        if not name or last is None or story.clock_set or connection.client_side.gapped:
            return
        for likeness, value in story.likenesses.items():
            known = self._alike.get(_likeness_key(connection, likeness, value))
            others = [] if known is None else [other for other in known.arrivals if other.client_identifier != name]
            if known is None or not others:
                continue
            before = [other for other in others if other.timestamp_ns < connection.opened_ns]
            after = [other for other in others if other.timestamp_ns >= connection.opened_ns]
            known.is_shared |= any(other.timestamp_ns < last.timestamp_ns for other in after)
            known.is_shared |= any(self._stayed(other)[0] > connection.opened_ns for other in before)
            back = [other for other in after if other.timestamp_ns < story.ended_ns <= self._stayed(other)[1]]
            if back and not known.is_shared:
                story.back_as = describe.name(back[0].client_identifier)
                story.back_story = self.open.get(back[0].server, {}).get(back[0].connection)
                is_host = host_of(back[0].client) == host_of(connection.client)
                story.back_who = "the same host" if is_host else "most probably the same device"
                story.back = Evidence.at(
                    f"{story.back_who} was back as {story.back_as} (#{back[0].connection}, {back[0].client})"
                    f" {describe.span(back[0].timestamp_ns - last.timestamp_ns)} after its last packet, with an"
                    f" equal {likeness}, while the broker held this connection for open",
                    back[0],
                )  # fmt: skip
                return

    def _stayed(self, arrival: Arrival) -> tuple[int, int]:
        """Time of the client's last packet on a connection, and of the end.

        A dead connection is reported to be over late, often after its successors.
        """
        story = self.open.get(arrival.server, {}).get(arrival.connection)
        if story is not None:
            last = story.last_of("client")
            return arrival.timestamp_ns if last is None else last.timestamp_ns, NEVER_NS
        for end in reversed(self.of(arrival.server).ends):
            if end.connection == arrival.connection:
                return end.timestamp_ns - (end.silent_ns or 0), end.timestamp_ns
        return arrival.timestamp_ns, arrival.timestamp_ns

    def took(self, story: Story) -> int:
        """Bytes of the largest packet that the client took on other connections."""
        server, number, client = story.connection.server, story.connection.number, client_key(story.connection)
        others = [other.took for other in self.open.get(server, {}).values()
                  if other is not story and client_key(other.connection) == client]  # fmt: skip
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
        for number, trigger in self.triggers.get(client_key(connection), ()):
            if trigger != story.trigger:
                if connection.number in run:
                    break
                run = []
            elif trigger:
                run.append(number)
        return run if connection.number in run else []

    def left_unanswered(self, request: Arrival) -> None:
        """A connection, or the capture, has ended without an answer to a request of the client."""
        self._remember(self._server(request.server).unanswered, request, "requests")

    def acknowledged(self, story: Story) -> None:
        """The server has answered a packet of the client."""
        server = self._server(story.connection.server)
        server.borne |= story.borne
        if story.granted:
            server.most_filters = max(server.most_filters, story.most_filters)
            if len(server.granted) < MAX_GRANTED:
                server.granted |= story.granted
            story.granted = set()
        server.borne_bytes = max(server.borne_bytes, story.borne_bytes)
        server.borne_levels = max(server.borne_levels, story.borne_levels)

    def borne_faults(self, server: str) -> set[str]:
        """Faults of clients in WebSockets that a server accepted, by the words of `net.websocket.Problem`."""
        return self.of(server).borne_faults.union(*map(_borne_faults, self.open.get(server, {}).values()))

    def witnesses(self, server: str, watch: SegmentWatch) -> Witnesses:
        """Evidence of the open connections of a server now."""
        known, second = self._server(server), watch.now_ns // SECOND
        if known.witnesses is None or known.witnesses.second != second:
            known.witnesses = Witnesses(second)
            for story in sorted(self.open.get(server, {}).values(), key=lambda other: other.connection.opened_ns):
                known.witnesses.add(story, watch)
        return known.witnesses

    def longest_of_client(self, server: str, watch: SegmentWatch) -> int:
        """The longest silence of a client on a connection that its server left open."""
        pauses = [self.of(server).client_pause_ns]
        for story in self.open.get(server, {}).values():
            last = story.last_of("client")
            pauses += [story.pause_ns, watch.now_ns - last.timestamp_ns if last is not None else 0]
        return max(pauses)

    def close(self) -> None:
        """End the capture: discard earlier answers about open connections."""
        for server in self.servers.values():
            server.witnesses = None

    def published(
        self, story: Story, topic: str, message: Publish, timestamp_ns: int, frame: int, capture: str
    ) -> None:
        """Note a delivery by a server, which may be the will of a client; a stored message is not such a delivery."""
        armed = self._armed.get(topic)
        if (armed is None and topic not in self._awaited) or message.retain or message.missing:
            return
        checksum = zlib.crc32(message.payload)
        delivery = _Delivery(story.connection.number, timestamp_ns, frame, capture, checksum)
        if armed is not None:
            armed.append(delivery)
        self._match(topic, delivery)

    def _match(self, topic: str, delivery: _Delivery) -> None:
        """Find the will that a delivery is: with equal content, due, and not delivered on that connection before.

        Clients that come and go repeat their will: the connection that ended last comes first.  A message
        that the client itself published with this content shortly before does not prove that it is the will.
        """
        number, now_ns = delivery.connection, delivery.timestamp_ns
        for will in reversed(self._awaited.get(topic, ())):
            story = will.story
            is_due = will.from_ns <= now_ns <= will.until_ns and story.will_checksum == delivery.checksum
            is_written = story.wrote_will_ns and now_ns - story.wrote_will_ns <= WILL_NS
            if not is_due or is_written or number in will.readers or story.connection.number == number:
                continue
            if len(will.readers) < MAX_READERS:
                will.readers.add(number)
            apart, order = now_ns - story.ended_ns, "after" if now_ns >= story.ended_ns else "before"
            text = f"the will was published: {describe.name(topic)}, as connection #{number} received it"
            text += f" {describe.span(abs(apart))} {order} the end"
            self.wills.setdefault(story.connection.number, Evidence.at(text, delivery))
            return

    def other_arrivals(self, story: Story, start_ns: int, end_ns: int) -> list[Arrival]:
        """CONNECT packets with the same Client Identifier on other connections in a time, in order."""
        identifier = story.connection.client_identifier
        if not identifier:
            return []
        known = self.arrivals.get((host_of(story.connection.server), identifier), ())
        number = story.connection.number
        return [
            arrival for arrival in known if arrival.connection != number and start_ns <= arrival.timestamp_ns <= end_ns
        ]

    def ends_near(self, server: str, at_ns: int, before_ns: int, after_ns: int) -> list[End]:
        """Ends of the connections of a server around a time."""
        return [end for end in self.of(server).ends if -before_ns <= end.timestamp_ns - at_ns <= after_ns]

    def survivor(self, server: str, watch: SegmentWatch, first_ns: int, last_ns: int, ended: set[int]) -> Life | None:
        """An older connection that the server still serves after the ends of others.

        ``ended``: the connections that ended then.  A connection that ends soon after them must also have data after
        the last of their ends: a server that stops may send until it closes.
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

    def lives(self, server: str, after_ns: int, before_ns: int) -> list[Life | None]:
        """Open connections of a server that began in a time."""
        stories = self.open.get(server, {}).values()
        return [_life(story) for story in stories if after_ns < story.connection.opened_ns < before_ns]

    def begun_in(self, server: str, start_ns: int, end_ns: int) -> list[Arrival]:
        """Connections that a server accepted in a time."""
        return [arrival for arrival in self.of(server).accepted if start_ns <= arrival.timestamp_ns <= end_ns]

    def of(self, server: str) -> ServerTimes:
        """Facts about a server, by its endpoint."""
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
        """Add an event; an event that it displaces counts as dropped if explanations may still look for it."""
        times.append(latest)
        if len(times) > MAX_ENDS and times.popleft().timestamp_ns > latest.timestamp_ns - LATELY_NS:
            self.dropped[name] += 1

    def answered_in(self, server: str, start_ns: int, end_ns: int) -> list[Arrival]:
        """Connections with a SYN that the server's host answered in a period: this proves that it listened."""
        return [arrival for arrival in self.of(server).answered_syns if start_ns < arrival.timestamp_ns < end_ns]

    def _await(self, story: Story) -> None:
        """Wait for the will of a connection; a will that makes room for it counts as dropped before its timeout."""
        topic = story.will_topic or ""
        forgotten: list[_Awaited] = []
        if topic not in self._awaited and len(self._awaited) >= MAX_WILLS:
            forgotten = self._awaited.popitem(last=False)[1]
        delay = story.will_delay * SECOND
        waiting = self._awaited.setdefault(topic, [])
        successors = self.other_arrivals(story, story.ended_ns - SECOND, story.ended_ns)
        from_ns = min((other.timestamp_ns for other in successors), default=story.ended_ns - DISORDER_NS)
        waiting.append(_Awaited(story, from_ns, story.ended_ns + delay + WILL_NS))
        self._awaited.move_to_end(topic)
        if len(waiting) > MAX_WILLS_ALIKE:
            forgotten.append(waiting.pop(0))
        due = sum(will.until_ns >= story.ended_ns for will in forgotten)
        if due:
            self.dropped["wills"] += due
        for delivery in self._armed.get(topic, ()):
            if delivery.timestamp_ns >= from_ns:
                self._match(topic, delivery)

    def arm(self, topic: str) -> None:
        """A CONNECT has a will to a topic."""
        if topic not in self._armed and len(self._armed) >= MAX_WILLS:
            self._armed.popitem(last=False)
            self.dropped["topics of wills"] += 1
        self._armed.setdefault(topic, deque(maxlen=MAX_WILLS_ALIKE))
        self._armed.move_to_end(topic)


def web_path(connection: Connection) -> str:
    """The path in the request for a WebSocket; a query may hold a token, and is left out."""
    path = (connection.websocket or {}).get("path")
    return path.partition("?")[0] if isinstance(path, str) else ""


def _is_unheard(story: Story) -> bool:
    return story.connection.one_sided == "client_to_server" and story.counts["client"] > 0


def _life(story: Story) -> Life | None:
    last = story.last_of("server")
    if last is None:
        return None
    return Life(story.connection.number, story.connection.opened_ns, last.timestamp_ns, last.frame, last.capture)


def _likeness_key(connection: Connection, name: str, value: int) -> tuple[str, str, int]:
    """Key of a likeness: the hosts that it is of, and its value."""
    return host_of(connection.server), "" if name == WILL_OF_USER else host_of(connection.client), value


def _borne_pause(story: Story) -> int:
    """Longest time without a byte that a connection survived."""
    pause_ns = 0 if story.facts is None else story.facts.pause_ns
    return 0 if (pause_ns - story.forgotten_ns) * ALIKE <= story.forgotten_ns else pause_ns


def client_key(connection: Connection) -> tuple[str, str]:
    """Host of the server, and Client Identifier or host of the client."""
    return host_of(connection.server), connection.client_identifier or host_of(connection.client)


def _borne_faults(story: Story) -> set[str]:
    last = story.last_of("server")
    faults = problems(story.connection) if last is not None else ()
    return {fault["reason"] for fault in faults if last and fault["from_client"] and last.frame > fault["frame"]}


def _hello(story: Story, facts: FlowFacts | None) -> Hello | None:
    connection = story.connection
    details = connection.details
    if facts is None or facts.is_mixed or not details.get("client_hello"):
        return None
    client, server = facts.half(connection.client), facts.half(connection.server)
    # A refused client sends its hello and an alert.
    is_served = bool(details.get("server_hello")) and client.data >= 3 and server.data >= 2
    alerts, name = details.get("alerts"), details.get("server_name")
    is_refused = isinstance(alerts, list) and any(alert.get("level") == "fatal" for alert in alerts)
    return Hello(
        connection.number, host_of(connection.client), connection.opened_ns, connection.frame, connection.capture,
        facts.hello_time, name if isinstance(name, str) else "", is_served and not is_refused,
        "" if facts.flights is None else facts.flights.certificate, bool(details.get("alpn_offered")),
        facts.data_ns - connection.opened_ns,
    )  # fmt: skip


def _beginning(connection: Connection) -> Arrival:
    """The first segment of a connection."""
    return Arrival(
        connection.number, connection.client, connection.server, connection.opened_ns, connection.frame,
        connection.capture,
    )  # fmt: skip
