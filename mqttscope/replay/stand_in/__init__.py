"""The server side of recorded connections, played without I/O and without a clock: a stand-in for the broker."""

from mqttscope.replay.stand_in.actions import Close, Manner, Send, Unexpected, Wait
from mqttscope.replay.stand_in.connection_matching import Casting, Sessions
from mqttscope.replay.stand_in.stand_in import StandIn

__all__ = ["Casting", "Close", "Manner", "Send", "Sessions", "StandIn", "Unexpected", "Wait"]
