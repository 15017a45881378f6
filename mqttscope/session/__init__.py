"""What both ends of an MQTT Network Connection know: version, limits, aliases, windows.  Sans-IO, plain data.

==========  ===========================================================================================
connection  an MQTT Network Connection
side        one end of it: the limits it announced, and what it sent that is not finished yet
exchange    a packet that waits for an answer, such as a QoS 1 PUBLISH for its PUBACK
session     an MQTT Session: survives connections, belongs to a Client Identifier on a server
==========  ===========================================================================================
"""

from mqttscope.session.connection import Connection, ConnectionPhase
from mqttscope.session.inflight import Exchange, Side

__all__ = ["Connection", "ConnectionPhase", "Exchange", "Side"]
