"""The client side of a recorded connection, played without I/O and without a clock."""

from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import ClientOptions, ClientPlayer

__all__ = ["ClientOptions", "ClientPlayer", "ClientSessions"]
