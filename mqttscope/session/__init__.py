"""State that both ends of an MQTT Network Connection share: version, limits, aliases, windows.  Sans-IO, plain data.

==========  ===========================================================================================
connection  an MQTT Network Connection
side        one end of a connection: the limits it announced, and its unfinished exchanges
exchange    a packet that waits for an answer, such as a QoS 1 PUBLISH that waits for its PUBACK
session     an MQTT Session, which survives connections and belongs to a Client Identifier on a server
==========  ===========================================================================================
"""

from mqttscope.session.connection import Connection, ConnectionPhase
from mqttscope.session.inflight import ConnectionSide, Exchange

__all__ = ["Connection", "ConnectionPhase", "ConnectionSide", "Exchange"]
