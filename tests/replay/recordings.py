"""Recordings for tests: from captures of the repository, and made of what is said, read as captures are.

Tests write recordings down as packets (`recordings`) or as lines of text (`talk`); one `Builder` makes both.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cache

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionEnding, ConnectionOpened, GapEvent, MalformedEvent, PacketEvent
from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt import Connack, Connect, ControlPacket, Malformed, ProtocolVersion, Publish, decode, encode
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.rewrite.links import Changes, copy_scripts
from mqttscope.replay.script import C2S, S2C, Script, ScriptEntry, ScriptReader, read_scripts
from mqttscope.session.connection import Connection
from tests.conftest import ROOT

CAPTURE, SERVER = "a.pcap", "10.0.0.2:1883"


@dataclass
class Builder:
    """Connections by any key."""

    now_ns: int = 0
    number: int = 0
    """Of the next packet, of all connections."""
    as_written: bool = False
    """Keep packets as the test wrote them, instead of reading them from their bytes."""
    reader: ScriptReader = field(default_factory=ScriptReader)
    connections: dict[Hashable, Connection] = field(default_factory=dict)
    """Those that are open."""
    opened: int = 0

    def open(
        self, key: Hashable, client: str = "", server: str = SERVER, *, version: ProtocolVersion | None = None
    ) -> Connection:
        """Begin a connection at the next packet; without ``version`` its CONNECT will tell, or a guess."""
        client = client or f"10.0.0.1:{5000 + self.opened}"
        connection = Connection(self.opened, client, server, CAPTURE, self.number, self.now_ns, handshake_seen=True)
        if version is not None:
            connection.version = version
        self.opened += 1
        self.connections[key] = connection
        self.reader.feed(ConnectionOpened(connection, self.number + 1, self.now_ns, CAPTURE))
        return connection

    def wait(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns

    def say(self, key: Hashable, arrow: str, result: ControlPacket | bytes) -> None:
        """One packet: ``>`` of the client, ``<`` of the server."""
        connection, direction = self.connections[key], C2S if arrow == ">" else S2C
        version = result.version if isinstance(result, Connect) else connection.version
        raw = result if isinstance(result, bytes) else encode(result, version)
        as_written = self.as_written and isinstance(result, ControlPacket)
        packet = replace(result, raw=raw) if as_written else decode(raw, version)  # type: ignore[type-var]
        place = (direction, self.number, self.number + 1, self.now_ns, CAPTURE)
        self.number += 1
        if isinstance(packet, Malformed):
            self.reader.feed(MalformedEvent(connection, *place, packet, None))
            return
        assert isinstance(packet, ControlPacket), packet
        connection.identify(packet)
        topic = connection.resolve_topic(packet, direction) if isinstance(packet, Publish) else None
        self.reader.feed(PacketEvent(connection, *place, packet, topic))
        connection.apply(packet, direction, place[1], place[2], self.now_ns)

    def lose(self, key: Hashable, arrow: str, length: int) -> None:
        """Bytes that the capture lacks."""
        direction = C2S if arrow == ">" else S2C
        gap = GapEvent(self.connections[key], direction, self.number + 1, self.now_ns, CAPTURE, length, "not_captured")
        self.reader.feed(gap)

    def end(self, key: Hashable, how: str, by: str) -> None:
        """The first FIN or RST of a connection, after which the other side may continue."""
        connection = self.connections[key]
        connection.closed_how, connection.closed_by = how, by
        connection.closed_frame, connection.closed_ns, connection.closed_capture = self.number + 1, self.now_ns, CAPTURE
        self.number += 1
        self.reader.feed(ConnectionEnding(connection, self.number, self.now_ns, CAPTURE))

    def close(self, key: Hashable, how: str, by: str | None) -> None:
        """The end of a connection."""
        connection = self.connections.pop(key)
        connection.closed_how, connection.closed_by = how, by
        self.reader.feed(ConnectionClosed(connection, self.number + 1, self.now_ns, CAPTURE))

    def finish(self) -> list[Script]:
        """All scripts; connections that are open stay so."""
        for key in list(self.connections):
            self.close(key, "capture_end", None)
        return self.reader.finish()


EXHAUSTIVE = bool(os.environ.get("MQTTSCOPE_EXHAUSTIVE"))
"""Whether to try every capture at every pace and with every client, and many more examples: that takes minutes."""
SECOND = 1_000_000_000
STEP_NS = 10_000_000
NAMES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))
"""Captures of the repository."""
OTHERS = re.compile(r"tamper\.py|^(amqtt|Aedes|ejabberd|RabbitMQ)")
MISBEHAVING = {
    name
    for name in NAMES
    if OTHERS.search(tomllib.loads((ROOT / "captures" / name / "about.toml").read_text("utf-8"))["tool"])
}
"""Captures in which the server misbehaves: another one than mosquitto, or one whose words a proxy changed."""
V3_1, V3_1_1, V5 = ProtocolVersion


@cache
def captured(name: str) -> list[Script]:
    """Scripts of a capture.  They are shared by all tests: nothing may change them."""
    return read_scripts(dissect(open_capture([str(ROOT / "captures" / name / "capture.pcapng")])))


Said = tuple[str, ControlPacket] | str
"""What one side says (``>`` the client): a packet, or words without the property blocks that captures have."""


def as_packet(result: Said) -> tuple[str, ControlPacket]:
    """Who says what."""
    if isinstance(result, tuple):
        return result
    arrow, words = result.split(" ", 1)
    return arrow, parse_packet(words.split(), V5, client_identifier="", keep_alive=0)


class Recorder:
    """Makes recordings of packets, one second apart, one connection after the other."""

    def __init__(self) -> None:
        self.builder = Builder(as_written=True)

    def connection(
        self,
        *lines: Said,
        version: ProtocolVersion = V5,
        client: str | None = "c1",
        how: str = "fin",
    ) -> Script:
        """One connection: ``>`` is what the client says, ``<`` the server.  CONNECT and CONNACK come of themselves.

        Without ``client`` they do not.
        """
        pairs = tuple(map(as_packet, lines))
        if client is not None:
            level, name = int(version), "MQIsdp" if version == V3_1 else "MQTT"
            hello = Connect(name, level, client_identifier=client, keep_alive=60)
            pairs = ((">", hello), ("<", Connack(session_present=None if version == V3_1 else False)), *pairs)
        key = self.builder.opened
        for arrow, packet in pairs:
            self.builder.wait(SECOND)
            if key not in self.builder.connections:
                self.builder.open(key, version=version)
            self.builder.say(key, arrow, packet)
        self.builder.close(key, how, "client")
        return self.scripts[-1]

    @property
    def scripts(self) -> list[Script]:
        """All connections so far."""
        return self.builder.reader.scripts


Line = tuple[int, str, ControlPacket]
"""Number of the connection, ``>`` or ``<``, packet."""


def connect(identifier: str = "dev", version: ProtocolVersion = V5, **fields: object) -> Connect:
    """A CONNECT of this version."""
    name = "MQIsdp" if version == 3 else "MQTT"
    if version == 5:
        fields.setdefault("properties", Properties())
    return Connect(protocol_name=name, protocol_level=int(version), client_identifier=identifier, **fields)  # type: ignore[arg-type]


def connack(**fields: object) -> Connack:
    """A CONNACK; its properties count in 5.0 only."""
    fields.setdefault("properties", Properties())
    return Connack(**fields)  # type: ignore[arg-type]


def publish(topic: str = "a", **fields: object) -> Publish:
    """A PUBLISH; its properties count in 5.0 only."""
    fields.setdefault("properties", Properties())
    return Publish(topic_name=topic, **fields)  # type: ignore[arg-type]


def recordings(*lines: Line, ended: dict[int, tuple[str, str]] | None = None) -> list[Script]:
    """Scripts of connections, in the order of the lines.

    A connection opens with its first line and ends after its last one, as ``ended`` says (``fin`` by the client
    otherwise).
    """
    builder = Builder()
    last = {number: at for at, (number, _, _) in enumerate(lines)}
    for at, (number, arrow, packet) in enumerate(lines):
        builder.wait(STEP_NS)
        if number not in builder.connections:
            builder.open(number)
        builder.say(number, arrow, packet)
        if last[number] == at:
            builder.wait(STEP_NS)
            builder.close(number, *(ended or {}).get(number, ("fin", "client")))
    return builder.reader.scripts


def conversation(*lines: tuple[str, ControlPacket], ended: tuple[str, str] = ("fin", "client")) -> Script:
    """One connection, with all that it says."""
    return recordings(*((0, arrow, packet) for arrow, packet in lines), ended={0: ended})[0]


def certain(script: Script) -> bool:
    """Whether all packets were read in the version that the script has: without a CONNECT it is guessed at first."""
    return script.connection.version_evidence == "CONNECT"


def recorded(*arguments: Said, version: ProtocolVersion = V5, client: str | None = "c1") -> list[Script]:
    """A recording of one connection."""
    recorder = Recorder()
    recorder.connection(*arguments, version=version, client=client)
    return recorder.scripts


def packets(script: Script) -> list[ControlPacket | Malformed]:
    """What was said."""
    return [entry.packet for entry in script.entries]


def told(script: Script) -> str:
    """Directions and types: ``>publish <puback``."""
    return " ".join(f"{'>' if entry.from_client else '<'}{entry.type}" for entry in script.entries)


def links(scripts: list[Script]) -> list[tuple[int, int | None, int | None]]:
    """Which place answers which, and which sends which again."""
    entries = [entry for script in scripts for entry in script.entries]
    return [(script_entry.place, place(script_entry.answers), place(script_entry.resends)) for script_entry in entries]


def place(entry: ScriptEntry | None) -> int | None:
    return None if entry is None else entry.place


def check_untouched(scripts: list[Script], copies: list[Script]) -> None:
    """Copies have entries of their own, with the bytes and the links of the others."""
    assert links(copies) == links(scripts)
    for script, copy in zip(scripts, copies, strict=True):
        for entry, other in zip(script.entries, copy.entries, strict=True):
            assert other is not entry
            assert other.packet is entry.packet
            assert other.raw is entry.raw


def check_links(scripts: list[Script]) -> None:
    """Links lead to entries of the same recording, and places are numbered through."""
    mine = {entry for script in scripts for entry in script.entries}
    assert sorted(entry.place for entry in mine) == list(range(len(mine)))
    for entry in mine:
        assert entry.answers is None or entry.answers in mine
        assert entry.resends is None or entry.resends in mine
    for script in scripts:
        places = [entry.place for entry in script.entries]
        assert places == sorted(places)
        if places:
            assert script.opened_place <= places[0]
            assert places[-1] < script.ended_place


def changed(scripts: list[Script], change: Callable[[list[Script], Changes], object]) -> tuple[list[Script], Changes]:
    """What a change makes of copies; the recording stays as it was."""
    before, changes, copies = snapshot(scripts), Changes(), copy_scripts(scripts)
    change(copies, changes)
    assert snapshot(scripts) == before
    return copies, changes


def snapshot(scripts: list[Script]) -> list[object]:
    """Everything of a recording that a change might touch by mistake."""
    result: list[object] = []
    for script in scripts:
        result += [script.connection.client_identifier, script.version, script.opened_ns, script.opened_place]
        result += [replace(script.ending), script.ended_place]
        result += [
            (
                id(script_entry),
                id(script_entry.packet),
                _words(script_entry),
                script_entry.raw,
                script_entry.topic,
                script_entry.timestamp_ns,
            )
            for script_entry in script.entries
        ]
    return [*result, links(scripts)]


def _words(entry: ScriptEntry) -> str:
    return repr(entry.packet)
