"""Recordings for tests: from captures of the repository, and made of packets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.replay.script import Entry, Script, ScriptReader, read_scripts
from mqttscope.session.connection import Connection
from tests.conftest import ROOT

SECOND = 1_000_000_000
NAMES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))
"""Captures of the repository."""
V3_1, V3_1_1, V5 = ProtocolVersion


@cache
def captured(name: str) -> list[Script]:
    """Scripts of a capture.  They are shared by all tests: nothing may change them."""
    return read_scripts(dissect(open_capture([str(ROOT / "captures" / name / "capture.pcapng")])))


class Recorder:
    """Makes recordings of packets, one second apart."""

    def __init__(self) -> None:
        self.reader = ScriptReader()
        self.number = 0
        self.connections = 0

    def connection(
        self,
        *said: tuple[str, ControlPacket],
        version: ProtocolVersion = V5,
        client: str | None = "c1",
        how: str = "fin",
    ) -> Script:
        """One connection: ``>`` is what the client says, ``<`` the server.  CONNECT and CONNACK come of themselves.

        Without ``client`` they do not.
        """
        number = self.connections
        self.connections += 1
        connection = Connection(number, f"10.0.0.1:{5000 + number}", "10.0.0.2:1883", "test", 0, 0, version=version)
        if client is not None:
            level, name = int(version), "MQIsdp" if version == V3_1 else "MQTT"
            hello = Connect(name, level, client_identifier=client, keep_alive=60)
            said = ((">", hello), ("<", Connack(session_present=None if version == V3_1 else False)), *said)
        now = 0
        for arrow, packet in said:
            self.number += 1
            now = self.number * SECOND
            direction = Direction.CLIENT_TO_SERVER if arrow == ">" else Direction.SERVER_TO_CLIENT
            packet = replace(packet, raw=encode(packet, version))
            connection.identify(packet)
            topic = connection.resolve_topic(packet, direction) if isinstance(packet, Publish) else None
            self.reader.feed(PacketEvent(connection, direction, self.number, self.number, now, "test", packet, topic))
            connection.apply(packet, direction, self.number, self.number, now)
        connection.closed_how, connection.closed_by = how, "client"
        self.reader.feed(ConnectionClosed(connection, self.number, now, "test"))
        return self.reader.scripts[-1]

    @property
    def scripts(self) -> list[Script]:
        """All connections so far."""
        return self.reader.scripts


def certain(script: Script) -> bool:
    """Whether all packets were read in the version that the script has: without a CONNECT it is guessed at first."""
    return script.connection.version_evidence == "CONNECT"


def recorded(
    *said: tuple[str, ControlPacket], version: ProtocolVersion = V5, client: str | None = "c1"
) -> list[Script]:
    """A recording of one connection."""
    recorder = Recorder()
    recorder.connection(*said, version=version, client=client)
    return recorder.scripts


def packets(script: Script) -> list[ControlPacket | Malformed]:
    """What was said."""
    return [entry.packet for entry in script.entries]


def told(script: Script) -> list[str]:
    """Types and directions: ``>publish``."""
    return [f"{'>' if entry.from_client else '<'}{entry.type}" for entry in script.entries]


def links(scripts: list[Script]) -> list[tuple[int, int | None, int | None]]:
    """Which place answers which, and which sends which again."""
    return [
        (
            entry.place,
            None if entry.answers is None else entry.answers.place,
            None if entry.resends is None else entry.resends.place,
        )
        for script in scripts
        for entry in script.entries
    ]


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


def snapshot(scripts: list[Script]) -> list[object]:
    """Everything of a recording that a change might touch by mistake."""
    found: list[object] = []
    for script in scripts:
        found += [script.connection.client_identifier, script.version, script.opened_ns, script.opened_place]
        found += [replace(script.ending), script.ended_place]
        found += [
            (id(one), id(one.packet), _words(one), one.raw, one.topic, one.timestamp_ns) for one in script.entries
        ]
    return [*found, links(scripts)]


def _words(entry: Entry) -> str:
    return repr(entry.packet)
