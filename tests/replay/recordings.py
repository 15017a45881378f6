"""Recordings for tests: from captures of the repository, and made of packets."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.script import Entry, Script, read_scripts
from tests.conftest import ROOT
from tests.replay.builder import Builder

EXHAUSTIVE = bool(os.environ.get("MQTTSCOPE_EXHAUSTIVE"))
"""Whether to try every capture at every pace and with every client, and many more examples: that takes minutes."""
SECOND = 1_000_000_000
STEP_NS = 10_000_000
NAMES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))
"""Captures of the repository."""
V3_1, V3_1_1, V5 = ProtocolVersion


@cache
def captured(name: str) -> list[Script]:
    """Scripts of a capture.  They are shared by all tests: nothing may change them."""
    return read_scripts(dissect(open_capture([str(ROOT / "captures" / name / "capture.pcapng")])))


class Recorder:
    """Makes recordings of packets, one second apart, one connection after the other."""

    def __init__(self) -> None:
        self.builder = Builder(as_written=True)

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
        if client is not None:
            level, name = int(version), "MQIsdp" if version == V3_1 else "MQTT"
            hello = Connect(name, level, client_identifier=client, keep_alive=60)
            said = ((">", hello), ("<", Connack(session_present=None if version == V3_1 else False)), *said)
        key = self.builder.opened
        for arrow, packet in said:
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
