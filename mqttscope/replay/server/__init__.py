"""The server side of recorded connections, played in place of the broker, without I/O and without a clock."""

from mqttscope.replay.server.connection import ServerOptions, ServerSessions, live_connection
from mqttscope.replay.server.player import ServerPlayer
from mqttscope.replay.server.recorded import ConnectionMatcher

__all__ = [
    "ConnectionMatcher",
    "ServerOptions",
    "ServerPlayer",
    "ServerSessions",
    "live_connection",
]
