"""A broker and a replay without sockets: players against a small server, in one loop, as soon as possible."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mqttscope.events import ConnectionOpened, Event, PacketEvent
from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    decode,
    encode,
)
from mqttscope.mqtt.topics import matches, parse_shared
from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import AwaitedEvent, ClientOptions, ClientPlayer, ClientWait
from mqttscope.replay.live import Close, LiveConnection, Send
from mqttscope.replay.order import ConnectionEnd, ConnectionOpening, Gates, Step, make_order
from mqttscope.replay.script import C2S, S2C, Ending, Script
from mqttscope.session.connection import Connection

STEP_NS = 1_000_000


@dataclass
class Client:
    """One connection as the server sees it."""

    version: ProtocolVersion = ProtocolVersion.V3_1_1
    identifier: str = ""
    subscriptions: dict[str, int] = field(default_factory=dict)
    aliases: dict[int, str] = field(default_factory=dict)
    to_client: list[bytes] = field(default_factory=list)
    closed: bool = False
    identifiers: itertools.count[int] = field(default_factory=lambda: itertools.count(100))
    """Other ones than a recorded server is likely to choose."""


@dataclass
class Broker:
    """A server that does what the specification asks for, with the limits that a test wants."""

    limits: Properties | None = None
    refuse: int = 0
    clients: list[Client] = field(default_factory=list)
    retained: dict[str, Publish] = field(default_factory=dict)
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)

    def connect(self) -> Client:
        client = Client()
        self.clients.append(client)
        return client

    def take(self, client: Client, data: bytes) -> None:
        packet = decode(data, client.version)
        assert not isinstance(packet, Malformed), packet
        if isinstance(packet, Connect):
            self._connect(client, packet)
        elif isinstance(packet, Publish):
            self._publish(client, packet)
        elif isinstance(packet, Pubrel):
            self._say(client, Pubcomp(packet_identifier=packet.packet_identifier))
        elif isinstance(packet, Pubrec):
            self._say(client, Pubrel(packet_identifier=packet.packet_identifier))
        elif isinstance(packet, Subscribe):
            codes = [subscription.maximum_qos for subscription in packet.subscriptions]
            self._say(client, Suback(packet_identifier=packet.packet_identifier, reason_codes=codes))
            for subscription in packet.subscriptions:
                client.subscriptions[subscription.topic_filter] = subscription.maximum_qos
                for topic, message in self.retained.items():
                    if matches(subscription.topic_filter, topic):
                        self._deliver(client, message, topic, subscription.maximum_qos, retain=True)
        elif isinstance(packet, Unsubscribe):
            for name in packet.topic_filters:
                client.subscriptions.pop(name, None)
            done = [0] * len(packet.topic_filters) if client.version == 5 else None
            self._say(client, Unsuback(packet_identifier=packet.packet_identifier, reason_codes=done))
        elif isinstance(packet, Pingreq):
            self._say(client, Pingresp())
        elif isinstance(packet, Disconnect):
            client.closed = True

    def _connect(self, client: Client, packet: Connect) -> None:
        client.version, client.identifier = packet.version, packet.client_identifier
        for other in self.clients:
            if other is not client and other.identifier == client.identifier:
                other.closed = True
        if packet.clean_start:
            self.sessions.pop(client.identifier, None)
        present = client.identifier in self.sessions
        client.subscriptions = self.sessions.setdefault(client.identifier, {})
        limits = self.limits if packet.version == 5 else None
        code = self.refuse if packet.version == 5 else min(self.refuse, 5)
        self._say(client, Connack(session_present=present, reason_code=code, properties=limits or _none(packet)))
        client.closed = bool(self.refuse)

    def _publish(self, client: Client, packet: Publish) -> None:
        topic = packet.topic_name
        if packet.properties is not None and packet.properties.topic_alias is not None:
            topic = topic or client.aliases[packet.properties.topic_alias]
            client.aliases[packet.properties.topic_alias] = topic
        if packet.packet_identifier is not None:
            answer = Puback if packet.qos == 1 else Pubrec
            self._say(client, answer(packet_identifier=packet.packet_identifier))
        if packet.retain:
            self.retained[topic] = packet
        for other in self.clients:
            granted = [
                qos for name, qos in other.subscriptions.items() if matches(_plain(name), topic) and not other.closed
            ]
            if granted:
                self._deliver(other, packet, topic, max(granted), retain=False)

    def _deliver(self, client: Client, message: Publish, topic: str, granted: int, *, retain: bool) -> None:
        qos = min(granted, message.qos)
        identifier = next(client.identifiers) if qos else None
        publish = Publish(
            qos=qos, retain=retain, topic_name=topic, packet_identifier=identifier, payload=message.payload
        )
        if client.version == 5:
            publish.properties = Properties()
        self._say(client, publish)

    def _say(self, client: Client, packet: ControlPacket) -> None:
        client.to_client.append(encode(packet, client.version))


def _none(packet: Connect) -> Properties | None:
    return Properties() if packet.version == 5 else None


def _plain(name: str) -> str:
    shared = parse_shared(name)
    return shared[1] if shared else name


@dataclass
class Simulation:
    """A replay against a broker."""

    scripts: Sequence[Script]
    broker: Broker = field(default_factory=Broker)
    options: ClientOptions = field(default_factory=ClientOptions)
    causal: bool = False
    players: list[ClientPlayer] = field(default_factory=list)
    waited: list[AwaitedEvent] = field(default_factory=list)
    """What was waited for in vain."""
    stalled: int = 0
    now: int = STEP_NS

    def run(self) -> list[ClientPlayer]:
        order = make_order(self.scripts, causal=self.causal)
        gates, sessions = Gates(order), ClientSessions()
        clients: dict[int, Client] = {}
        places = itertools.count()
        for index, script in enumerate(self.scripts):
            live = Script(Connection(script.connection.number, "", "", "live", 0, 0, handshake_seen=True))
            connection = LiveConnection(live, plays_client=True, next_place=places.__next__)
            player = ClientPlayer(script, connection, sessions, self.options, order.fences[index])
            self.players.append(player)
        ended: set[int] = set()
        while len(ended) < len(self.players):
            progress = False
            for index, player in enumerate(self.players):
                if index in ended:
                    continue
                if index not in clients:
                    if gates.open_for(ConnectionOpening(index)):
                        clients[index] = self.broker.connect()
                        progress = True
                    continue
                progress |= self._turn(index, player, clients[index], gates, ended)
            if not progress:
                self._stall(gates, clients, ended)
        return self.players

    def _turn(self, index: int, player: ClientPlayer, client: Client, gates: Gates, ended: set[int]) -> bool:
        progress = False
        while client.to_client:
            self.now += STEP_NS
            packet = decode(client.to_client.pop(0), client.version)
            player.receive(packet, self.now)
            progress = True
        if client.closed:
            self._end(index, player, gates, ended, Ending("fin", "server"))
            return True
        for send in player.react(self.now):
            self.broker.take(client, send.data)
            progress = True
        entry = player.peek()
        if player.urgent or gates.open_for(ConnectionEnd(index) if entry is None else entry):
            self.now += STEP_NS
            action = player.perform(self.now)
            progress |= not isinstance(action, ClientWait)
            if isinstance(action, Send):
                self.broker.take(client, action.data)
                if action.entry.source is not None:
                    self._elapse(gates, action.entry.source)
            elif isinstance(action, Close):
                client.closed = True
                self._end(index, player, gates, ended, Ending(action.how, "client"))
        self._reach(gates, player)
        return progress

    def _end(self, index: int, player: ClientPlayer, gates: Gates, ended: set[int], ending: Ending) -> None:
        ended.add(index)
        player.ended(ending)
        self._reach(gates, player)
        gates.reach(ConnectionEnd(index))
        self._elapse(gates, ConnectionEnd(index))
        for skipped in player.skipped:
            self._elapse(gates, skipped)

    def _reach(self, gates: Gates, player: ClientPlayer) -> None:
        for reached in player.correspondence.done:
            gates.reach(reached)
        player.correspondence.done.clear()

    def _elapse(self, gates: Gates, step: Step) -> None:
        """Time passes at once."""
        for timer in gates.order.timers.get(step, ()):
            gates.reach(timer)

    def _stall(self, gates: Gates, clients: dict[int, Client], ended: set[int]) -> None:
        """Nothing moves: what is waited for does not come."""
        self.stalled += 1
        for index, player in enumerate(self.players):
            if index in ended or index not in clients:
                continue
            entry = player.peek()
            if player.urgent or gates.open_for(ConnectionEnd(index) if entry is None else entry):
                action = player.perform(self.now)
                assert isinstance(action, ClientWait), action
                self.waited.append(action.until)
                gave_up = player.give_up()
                if isinstance(gave_up, Close):
                    clients[index].closed = True
                    self._end(index, player, gates, ended, Ending("fin", "client"))
                self._reach(gates, player)
                return
        # Whoever waits at a gate does so for something recorded earlier.
        for index in range(len(self.players)):
            for step in (ConnectionOpening(index), ConnectionEnd(index)):
                if index not in ended and not gates.open_for(step):
                    gates.when_open(step, lambda: None)
            entry = self.players[index].peek()
            if entry is not None and not gates.open_for(entry):
                gates.when_open(entry, lambda: None)
        assert gates.give_up(), "nothing can continue"


def events(player: ClientPlayer) -> Iterator[Event]:
    """What happened on a live connection, as a linter takes it: each packet in the state before it.

    Packets are read from the bytes that were sent.
    """
    connection = Connection(0, "192.0.2.1:50000", "192.0.2.2:1883", "live", 1, 0, handshake_seen=True)
    yield ConnectionOpened(connection, 1, 0, "live")
    version = player.script.version
    for number, entry in enumerate(player.live.script.entries):
        packet = decode(entry.raw, version)
        assert isinstance(packet, ControlPacket), packet
        direction, now = C2S if entry.from_client else S2C, entry.timestamp_ns
        connection.identify(packet)
        topic = connection.resolve_topic(packet, direction) if isinstance(packet, Publish) else None
        yield PacketEvent(connection, direction, number, number + 1, now, "live", packet, topic)
        connection.apply(packet, direction, number, number + 1, now)
