"""Players in the hands of a test: what the server says goes in, what the client does comes out."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt import Connect, ControlPacket
from mqttscope.mqtt.codec import decode, encode
from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import Action, ClientOptions, ClientPlayer
from mqttscope.replay.live import LiveConnection, PacketBudget, Send
from mqttscope.replay.script import Ending, Script
from mqttscope.session.connection import Connection
from tests.replay.recordings import recordings
from tests.replay.talk import read


def resumed(*lines: str) -> list[Script]:
    """A connection that is reset when its message is on the way, and another one of the session."""
    first = "> connect session_expiry_interval=100", "< connack", "> publish a qos=1 id=1"
    second = "> connect resume session_expiry_interval=100", *lines, "> disconnect"
    pairs = [(number, line) for number, part in enumerate((first, second)) for line in part]
    rows = [(number, line[0], read(line[2:])) for number, line in pairs]
    return recordings(*rows, ended={0: ("reset", "client")})


def player(
    script: Script,
    options: ClientOptions | None = None,
    sessions: ClientSessions | None = None,
    room: PacketBudget | None = None,
) -> ClientPlayer:
    live = Script(Connection(0, "", "", "live", 0, 0, handshake_seen=True))
    connection = LiveConnection(live, plays_client=True, budget=room or PacketBudget())
    return ClientPlayer(script, connection, sessions or ClientSessions(), options or ClientOptions())


def say(client_player: ClientPlayer, *answers: str, now: int = 0) -> list[Any]:
    """Let the server say this; returns the acknowledgements of the client."""
    for words in answers:
        client_player.receive(
            decode(encode(read(words, client_player.version), client_player.version), client_player.version), now
        )
    return [send.entry.packet for send in client_player.react(now)]


def sent(action: Action) -> Any:
    """The packet that a player sends."""
    assert isinstance(action, Send), action
    assert isinstance(action.entry.packet, ControlPacket)
    return action.entry.packet


def begun(script: Script, answer: str = "connack", **more: object) -> ClientPlayer:
    """A player that is connected."""
    client_player = player(script, **more)  # type: ignore[arg-type]
    assert isinstance(sent(client_player.perform(0)), Connect)
    say(client_player, answer)
    return client_player


def interrupted(script: Script, *answers: str) -> ClientSessions:
    """The sessions after a connection that sends its message, and is reset after these answers."""
    sessions = ClientSessions()
    client_player = begun(script, sessions=sessions)
    sent(client_player.perform(0))
    say(client_player, *answers)
    client_player.ended(Ending("reset", "client"))
    return sessions


def texts(client_player: ClientPlayer) -> set[str]:
    return {note.text for note in client_player.live.notes}
