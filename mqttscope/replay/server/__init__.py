"""The server side of recorded connections, played without I/O and without a clock: in the place of the broker."""

from mqttscope.replay.server.connection import ServerOptions, Unexpected, live_connection
from mqttscope.replay.server.matching import ConnectionMatcher
from mqttscope.replay.server.player import ServerPlayer
from mqttscope.replay.server.sessions import ServerSessions

__all__ = [
    "ConnectionMatcher",
    "ServerOptions",
    "ServerPlayer",
    "ServerSessions",
    "Unexpected",
    "live_connection",
]
