"""One direction of a realistic connection, to be joined, cut and damaged."""

from __future__ import annotations

from mqttscope.mqtt import (
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode,
)
from tests.mqtt.case import V3_1, V5

JSON = b'{"sensor":"t-17","value":21.5,"unit":"C","ok":true}'


def conversation(version: ProtocolVersion) -> list[bytes]:
    """One direction of a busy connection, all packet types in it."""
    five = version == V5
    name = "MQIsdp" if version == V3_1 else "MQTT"
    block = Properties() if five else None
    packets: list[ControlPacket] = [
        Connect(
            protocol_name=name,
            protocol_level=version,
            client_identifier="gateway-7",
            keep_alive=60,
            will=Will("lwt/gateway-7", b"gone"),
        ),
        Subscribe(1, block, [Subscription("cmd/gateway-7/#", 1), Subscription("time", 0)]),
        Publish(topic_name="plant/1/line/4/temperature", payload=JSON),
        Publish(qos=1, topic_name="plant/1/line/4/state", packet_identifier=2, payload=b"running"),
        Pingreq(),
        Publish(qos=2, retain=True, topic_name="plant/1/config", packet_identifier=3, payload=bytes(range(256))),
        Puback(9),
        Pubrec(10),
        Pubrel(3),
        Publish(topic_name="plant/1/line/4/humidity", payload=b""),
        Unsubscribe(4, block, ["time"]),
        Publish(dup=True, qos=1, topic_name="plant/1/line/4/state", packet_identifier=2, payload=b"running"),
        Pingreq(),
        Publish(topic_name="plant/1/image", payload=b"\xff\xd8\xff\xe0" + bytes(range(256)) * 2),
        Publish(topic_name="plant/1/line/4/temperature", payload=JSON),
        Disconnect(),
    ]
    if five:
        extra = Properties(
            topic_alias=3, content_type="application/json", user_property=[("trace", "0af7651916cd43dd")]
        )
        packets[2] = Publish(topic_name="plant/1/line/4/temperature", properties=extra, payload=JSON)
        packets[9] = Publish(topic_name="", properties=Properties(topic_alias=3), payload=JSON)
        packets[-1] = Disconnect(0x04, Properties(reason_string="maintenance"))
    return [encode(packet, version) for packet in packets]


CLEAN = [encode(Publish(topic_name=f"a/{n}", properties=Properties(), payload=b"text"), V5) for n in range(3)]


def following(version: ProtocolVersion) -> list[bytes]:
    """Some clean packets of this version."""
    publishes = [Publish(topic_name=f"a/{n}", payload=b"some text %d" % n) for n in range(4)]
    return [encode(publish, version) for publish in publishes]
