"""The client side of a recorded connection, played without I/O and without a clock."""

from mqttscope.replay.player.actions import Sessions
from mqttscope.replay.player.live import Manner
from mqttscope.replay.player.player import Player

__all__ = ["Manner", "Player", "Sessions"]
