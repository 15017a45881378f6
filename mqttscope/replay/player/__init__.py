"""The client side of a recorded connection, played without I/O and without a clock."""

from mqttscope.replay.player.acknowledger import ClientSessions
from mqttscope.replay.player.player import ClientOptions, ClientPlayer

__all__ = ["ClientOptions", "ClientPlayer", "ClientSessions"]
