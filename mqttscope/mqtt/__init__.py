"""The shared MQTT decoder: 3.1, 3.1.1 and 5.0, sans-IO, standard library only.

===========  ========================================================================================
packet       an MQTT Control Packet, never anything else
property     one of the 27 properties of MQTT 5.0
Malformed    a packet that breaks the layout of the specification: a value, never an exception
Unparsed     bytes of a stream that belong to no readable packet
===========  ========================================================================================

``wire`` holds the data types, ``declare`` turns one declaration per packet into decoder, byte spans and encoder,
``packets`` has these declarations, ``fields`` the catalogue of all fields in them, ``codec`` decodes and encodes
single packets, ``stream`` for streams of them, ``view`` makes plain JSON values, ``topics`` checks topic names and
filters, and matches them.
"""

from mqttscope.mqtt.codec import decode, encode, trace
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, FieldSpan, Malformed
from mqttscope.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.stream import PacketStream, Unparsed

__all__ = [
    "Auth",
    "Connack",
    "Connect",
    "ControlPacket",
    "Direction",
    "Disconnect",
    "FieldSpan",
    "Malformed",
    "MalformedReason",
    "PacketStream",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Properties",
    "ProtocolVersion",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Suback",
    "Subscribe",
    "Subscription",
    "Unparsed",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "decode",
    "encode",
    "trace",
]
