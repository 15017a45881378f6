"""Players in the hands of a test: what the server says goes in, what the client does comes out."""

from __future__ import annotations

from mqttscope.mqtt import Connect, ControlPacket, Disconnect
from mqttscope.mqtt.codec import encode
from mqttscope.replay.player.actions import Action, Send, Sessions
from mqttscope.replay.player.live import Manner
from mqttscope.replay.player.player import Player
from mqttscope.replay.script import Script
from mqttscope.session.connection import Connection
from tests.replay.recordings import connack

BYE = (">", Disconnect())


def player(script: Script, manner: Manner | None = None, sessions: Sessions | None = None) -> Player:
    live = Script(Connection(0, "", "", "live", 0, 0, handshake_seen=True))
    return Player(script, live, sessions or Sessions(), manner or Manner())


def say(one: Player, *answers: ControlPacket, now: int = 0) -> list[ControlPacket]:
    """Let the server say this; returns the acknowledgements of the client."""
    for packet in answers:
        packet.raw = encode(packet, one.version)
        one.receive(packet, now)
    return [send.entry.packet for send in one.react(now)]  # type: ignore[misc]


def sent(action: Action) -> ControlPacket:
    assert isinstance(action, Send), action
    assert isinstance(action.entry.packet, ControlPacket)
    return action.entry.packet


def begun(script: Script, answer: ControlPacket | None = None, **more: object) -> Player:
    """A player that is connected."""
    one = player(script, **more)  # type: ignore[arg-type]
    assert isinstance(sent(one.perform(0)), Connect)
    say(one, answer or connack())
    return one


def texts(one: Player) -> set[str]:
    return {note.text for note in one.notes}
