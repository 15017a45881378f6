"""Players in the hands of a test: what the server says goes in, what the client does comes out."""

from __future__ import annotations

from mqttscope.mqtt import Connect, ControlPacket, Disconnect
from mqttscope.mqtt.codec import encode
from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import Action, ClientOptions, ClientPlayer
from mqttscope.replay.live import LiveConnection, Room, Send
from mqttscope.replay.script import Script
from mqttscope.session.connection import Connection
from tests.replay.recordings import connack

BYE = (">", Disconnect())


def player(
    script: Script,
    options: ClientOptions | None = None,
    sessions: ClientSessions | None = None,
    room: Room | None = None,
) -> ClientPlayer:
    live = Script(Connection(0, "", "", "live", 0, 0, handshake_seen=True))
    connection = LiveConnection(live, plays_client=True, room=room or Room())
    return ClientPlayer(script, connection, sessions or ClientSessions(), options or ClientOptions())


def say(one: ClientPlayer, *answers: ControlPacket, now: int = 0) -> list[ControlPacket]:
    """Let the server say this; returns the acknowledgements of the client."""
    for packet in answers:
        packet.raw = encode(packet, one.version)
        one.receive(packet, now)
    return [send.entry.packet for send in one.react(now)]  # type: ignore[misc]


def sent(action: Action) -> ControlPacket:
    assert isinstance(action, Send), action
    assert isinstance(action.entry.packet, ControlPacket)
    return action.entry.packet


def begun(script: Script, answer: ControlPacket | None = None, **more: object) -> ClientPlayer:
    """A player that is connected."""
    one = player(script, **more)  # type: ignore[arg-type]
    assert isinstance(sent(one.perform(0)), Connect)
    say(one, answer or connack())
    return one


def texts(one: ClientPlayer) -> set[str]:
    return {note.text for note in one.live.notes}
