"""The server side of recorded connections, played without I/O and without a clock: in the place of the broker."""

from mqttscope.replay.stand_in.connection import ServerOptions, Unexpected, live_connection
from mqttscope.replay.stand_in.matching import ConnectionMatcher
from mqttscope.replay.stand_in.player import ServerPlayer
from mqttscope.replay.stand_in.sessions import ServerSessions

__all__ = [
    "ConnectionMatcher",
    "ServerOptions",
    "ServerPlayer",
    "ServerSessions",
    "Unexpected",
    "live_connection",
]
