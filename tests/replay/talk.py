"""Recordings and their replays written as lines, and read as those of captures are.

    dev > connect keep_alive=60
    dev < connack code=0x87
    dev > publish a/b on qos=1 id=3 user_property=k:v
    dev < puback 3
    dev > fin

A line is a connection, who sends (``>`` the client), and a packet in the words of the examples of rules
(`lint.conversation_text`); ``+2.5`` lets seconds pass before.  ``fin`` and ``reset`` end the connection,
``half-fin`` is a first FIN, after which the other side may go on, and ``lost 10`` are bytes that the capture lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Properties,
    ProtocolVersion,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    encode,
)
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.difference import Difference
from tests.replay.recordings import Builder, conversation

START_NS = 1_767_323_045_000_000_000
MS = 1_000_000
V5 = ProtocolVersion.V5

OPENED = """
    sub > connect
    sub < connack
    sub > subscribe 1 t/#:2
    sub < suback 1 2
    pub > connect
    pub < connack
"""

Found = tuple[str, str, int]
"""Kind, field, and how many packets follow."""


def compare(pairs: Iterable[tuple[Script, Script | None]], **settings: Any) -> list[Difference]:
    """What differs between recorded connections and their replay."""
    return verify(pairs, **settings).differences


def told(differences: list[Difference]) -> list[Found]:
    return [(str(difference.kind), difference.field, difference.follows) for difference in differences]


def connack(line: str) -> str:
    return f"dev > connect\ndev < connack {line}"


def asked(*answers: str) -> str:
    """A connection whose client is answered so."""
    return "\n".join(("dev > connect", "dev < connack", *answers, "dev > disconnect", "dev > fin"))


def delivered(*deliveries: str) -> str:
    """Three messages, and what a subscriber gets."""
    published = ["pub > publish t/a one", "pub > publish t/b two", "pub > publish t/a three"]
    return OPENED + "\n".join(
        (*published, *(f"sub < {delivery}" for delivery in deliveries), "sub > pingreq", "sub < pingresp")
    )


ALL = ("publish t/a one", "publish t/b two", "publish t/a three")

_WITH_BLOCKS = (Connect, Connack, Publish, Subscribe, Suback, Unsubscribe, Unsuback)


def record(text: str, version: ProtocolVersion = V5) -> list[Script]:
    """Scripts of a conversation."""
    return speak(Builder(START_NS), text, version)


def replay(recorded: list[Script], text: str, version: ProtocolVersion = V5) -> list[tuple[Script, Script | None]]:
    """Pairs of recorded and live scripts; connections of the same name belong together, in their order."""
    left = record(text, version)
    pairs: list[tuple[Script, Script | None]] = []
    for script in recorded:
        live = next(
            (other_script for other_script in left if other_script.connection.client == script.connection.client), None
        )
        if live is not None:
            left.remove(live)
            _attribute(script, live)
        pairs.append((script, live))
    return pairs


def pairs(recorded: str, live: str, version: ProtocolVersion = V5) -> list[tuple[Script, Script | None]]:
    """Both at once."""
    return replay(record(recorded, version), live, version)


def copied(scripts: Iterable[Script]) -> list[tuple[Script, Script | None]]:
    """Scripts with replays in which everything was said again."""
    scripts = list(scripts)
    copies: dict[int, ScriptEntry] = {}
    for script in scripts:
        for entry in script.entries:
            copies[id(entry)] = replace(entry, source=entry)
    for copy in copies.values():
        copy.answers = None if copy.answers is None else copies[id(copy.answers)]
        copy.resends = None if copy.resends is None else copies[id(copy.resends)]
    return [(script, replace(script, entries=[copies[id(entry)] for entry in script.entries])) for script in scripts]


def _attribute(recorded: Script, live: Script) -> None:
    """Name the recorded packets that those of the client perform, and the answers to them, as a replay does it."""
    for entry in live.entries:
        # A replay follows its own packets alone, and notes what it answers itself.
        if isinstance(entry.packet, Publish) and not entry.from_client:
            entry.resends = None
        elif isinstance(entry.packet, Pubrel):
            answered = [
                script_entry
                for script_entry in live.entries
                if isinstance(script_entry.packet, Pubrec) and script_entry.answers is entry.answers
            ]
            entry.answers = answered[0] if answered and entry.from_client else None
    waiting = [script_entry for script_entry in recorded.entries if script_entry.from_client]
    for entry in live.entries:
        if entry.from_client:
            entry.source = next((script_entry for script_entry in waiting if _same(script_entry, entry)), None)
            if entry.source is not None:
                waiting.remove(entry.source)
        elif entry.answers is not None and entry.answers.source is not None:
            request = entry.answers.source
            entry.source = next(
                (
                    script_entry
                    for script_entry in recorded.entries
                    if script_entry.answers is request and script_entry.type == entry.type
                ),
                None,
            )


def _same(recorded: ScriptEntry, live: ScriptEntry) -> bool:
    before, now = recorded.packet, live.packet
    if isinstance(before, Publish) and isinstance(now, Publish):
        return (recorded.topic, before.payload, before.dup) == (live.topic, now.payload, now.dup)
    if isinstance(before, Subscribe) and isinstance(now, Subscribe):
        return before.subscriptions == now.subscriptions
    return recorded.type == live.type


def speak(builder: Builder, text: str, version: ProtocolVersion = V5) -> list[Script]:
    """Have a builder hold a conversation."""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        builder.wait(MS)
        if words[0].startswith("+"):
            builder.wait(int(float(words.pop(0)) * 1_000_000_000))
        name, arrow, kind, *rest = words
        if name not in builder.connections:
            builder.open(name, name, "broker:1883", version=version).version_known = True
        if kind in ("fin", "reset"):
            builder.close(name, kind, "client" if arrow == ">" else "server")
        elif kind == "half-fin":
            builder.end(name, "fin", "client" if arrow == ">" else "server")
        elif kind == "lost":
            builder.lose(name, arrow, int(rest[0]))
        else:
            builder.say(name, arrow, bytes.fromhex(rest[0]) if kind == "raw" else packet(name, kind, rest, version))
    return builder.finish()


def packet(name: str, kind: str, words: list[str], version: ProtocolVersion = V5) -> ControlPacket:
    """The packet that a line describes."""
    control_packet = parse_packet((kind, *words), version, client_identifier=name, keep_alive=0)
    if isinstance(control_packet, Connect) and control_packet.password is not None and control_packet.user_name is None:
        control_packet.user_name = "user"
    # Packets of captures have property blocks where their version has them, also empty ones.
    if version == V5 and isinstance(control_packet, _WITH_BLOCKS) and control_packet.properties is None:
        control_packet.properties = Properties()
    if (
        version == V5
        and isinstance(control_packet, Connect)
        and control_packet.will is not None
        and control_packet.will.properties is None
    ):
        control_packet.will.properties = Properties()
    return control_packet


def read(words: str, version: ProtocolVersion = V5, name: str = "dev") -> ControlPacket:
    """The packet that words describe."""
    kind, *rest = words.split()
    return packet(name, kind, rest, version)


def whole(*lines: str, version: ProtocolVersion = V5, ended: tuple[str, str] = ("fin", "client")) -> Script:
    """A connection in words: ``> publish a qos=1 id=1``."""
    text_lists = (line.split(" ", 1) for line in lines)
    return conversation(*((arrow, read(words, version)) for arrow, words in text_lists), ended=ended)


def session(*lines: str, hello: str = "connect", ended: tuple[str, str] = ("fin", "client")) -> Script:
    """As `whole`, but CONNECT, CONNACK, and the DISCONNECT of a client that ends it come of themselves."""
    leave = ["> disconnect"] if ended == ("fin", "client") else []
    return whole(f"> {hello}", "< connack", *lines, *leave, ended=ended)


def said_bytes(name: str, line: str, version: ProtocolVersion = V5) -> bytes:
    """The bytes of the packet that a line describes."""
    return encode(read(line, version, name), version)


Different = dict[str, tuple[str, str, list[Found]]]
"""A recording, its replay, and what is found."""
Equal = dict[str, tuple[str, str]]
"""A recording and a replay that mean the same."""


def check(recorded: str, live: str, expected: list[Found]) -> None:
    """What is found, and that the recording does not differ from itself."""
    differences = compare(pairs(recorded, live))

    assert told(differences) == expected
    assert all(difference.message.endswith(".") for difference in differences)
    assert told(compare(copied(record(recorded)))) == []
