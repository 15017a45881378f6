"""One event of each sort, by a short name; what the filter tests ask about."""

from __future__ import annotations

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Direction,
    Disconnect,
    Malformed,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unparsed,
    Unsuback,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets
from mqttscope.session import Connection

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
V3_1_1, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z."""
SECOND = 1_000_000_000

five = Connection(
    0, "10.0.0.4:51234", "10.0.0.2:1883", "a.pcap", 1, START_NS,
    handshake_seen=True, version=V5, version_known=True, client_identifier="dev1",
)  # fmt: skip
old = Connection(
    1, "[2001:db8::1]:40000", "[2001:db8::2]:8080", "b.pcap", 9, START_NS, transport="websocket", version=V3_1_1
)
closed = Connection(
    2, "10.0.0.9:1", "10.0.0.2:8883", "a.pcap", 30, START_NS, transport="tls",
    closed_how="reset", closed_by="server", disconnect_by="client", disconnect_reason=4, gaps=2, gap_bytes=5000,
    resolved_name="broker.example",
)  # fmt: skip


class _Numbers:
    packets = 0


def _place() -> tuple[int, int, int]:
    number = _Numbers.packets
    _Numbers.packets += 1
    return number, number + 10, START_NS + number * SECOND


def packet(
    control_packet: ControlPacket, *, on: Connection = five, direction: Direction = C2S, topic: str | None = None
) -> PacketEvent:
    """The event of a packet, which goes through encoder and decoder first."""
    read = decode(encode(control_packet, on.version), on.version)
    assert isinstance(read, ControlPacket), read
    number, frame, timestamp_ns = _place()
    return PacketEvent(on, direction, number, frame, timestamp_ns, on.capture, read, topic)


def malformed(raw: str, *, on: Connection = five, topic: str | None = None) -> MalformedEvent:
    """The event of a malformed packet."""
    actual_packet = decode(bytes.fromhex(raw), on.version)
    assert isinstance(actual_packet, Malformed), actual_packet
    number, frame, timestamp_ns = _place()
    return MalformedEvent(on, C2S, number, frame, timestamp_ns, on.capture, actual_packet, topic)


will = Will("state/dev1", b"gone", 1, True, Properties(message_expiry_interval=60, user_property=[("w", "1")]))
SAMPLES: dict[str, Event] = {
    "opened": ConnectionOpened(five, 1, START_NS, "a.pcap"),
    "connect": packet(
        Connect(
            protocol_level=5, clean_start=True, keep_alive=300, client_identifier="dev1", will=will,
            user_name="anna", password=b"geheim",
            properties=Properties(session_expiry_interval=7200, receive_maximum=20, user_property=[("os", "linux")]),
        )
    ),
    "connect-old": packet(Connect(clean_start=False, keep_alive=0, client_identifier=""), on=old),
    "connack": packet(
        Connack(session_present=True, reason_code=0, properties=Properties(maximum_qos=1, topic_alias_maximum=10)),
        direction=S2C,
    ),
    "refused-old": packet(Connack(session_present=False, reason_code=5), on=old, direction=S2C),
    "publish": packet(
        Publish(
            dup=True, qos=1, topic_name="plant/line4/temp", packet_identifier=10, payload=b"21.5 \xc2\xb0C",
            properties=Properties(
                topic_alias=1, message_expiry_interval=120, content_type="text/plain", response_topic="reply/dev1",
                correlation_data=b"\x00\xff\x10",
                user_property=[("trace", "abc"), ("unit", "C"), ("trace", "def")],
            ),
        ),
        topic="plant/line4/temp",
    ),
    "alias": packet(
        Publish(qos=0, topic_name="", payload=b"\x00\x01\xfe\xff", properties=Properties(topic_alias=1)),
        topic="plant/line4/temp",
    ),
    "retained": packet(
        Publish(retain=True, topic_name="$SYS/uptime", properties=Properties(subscription_identifier=[3, 4])),
        direction=S2C, topic="$SYS/uptime",
    ),
    "big": packet(
        Publish(qos=2, topic_name="plant/é", packet_identifier=77, payload=b"error " * 2_000), on=old, topic="plant/é"
    ),
    "puback": packet(Puback(10), direction=S2C),
    "puback-refused": packet(Puback(11, 0x87, Properties(reason_string="no")), direction=S2C),
    "puback-old": packet(Puback(12), on=old, direction=S2C),
    "pubrec": packet(Pubrec(77), on=old, direction=S2C),
    "pubrel": packet(Pubrel(77), on=old),
    "pubcomp": packet(Pubcomp(77), on=old, direction=S2C),
    "subscribe": packet(
        Subscribe(
            20, Properties(subscription_identifier=[9]),
            [Subscription("plant/#", 1, no_local=True), Subscription("$share/g/site/+/x", 2, retain_handling=2)],
        )
    ),
    "subscribe-old": packet(Subscribe(21, None, [Subscription("news/+", 0)]), on=old),
    "subscribe-nothing": packet(Subscribe(22, Properties(), [])),
    "suback": packet(Suback(20, Properties(), [1, 0x87]), direction=S2C),
    "suback-old": packet(Suback(21, None, [0x80]), on=old, direction=S2C),
    "unsubscribe": packet(Unsubscribe(23, Properties(), ["plant/#", "other"])),
    "unsuback": packet(Unsuback(23, Properties(), [0, 0x11]), direction=S2C),
    "pingreq": packet(Pingreq()),
    "pingresp": packet(Pingresp(), direction=S2C),
    "auth": packet(Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"n,,n=user"))),
    "disconnect": packet(Disconnect()),
    "disconnect-old": packet(Disconnect(), on=old),
    "qos3": malformed("36 08 00 03 61 2f 62 00 01 00", topic="a/b"),
    "cut": malformed("32 20 00 03 61 2f 62"),
    "type0": malformed("00 00"),
    "puback-unread": malformed("40 02 00"),
    "gap": GapEvent(five, C2S, 40, START_NS + 100 * SECOND, "a.pcap", 1448, "not_captured"),
    "unparsed": UnparsedEvent(old, S2C, 41, START_NS + 101 * SECOND, "b.pcap", Unparsed("gap", 20_000, b"abc", 50, 3)),
    "closed": ConnectionClosed(closed, 42, START_NS + 102 * SECOND, "a.pcap"),
    "error": CaptureError("c.pcap", "the file ends inside a frame", 1000, 12),
    "drops": CaptureDrops("a.pcap", 0, 100, 3),
    "secrets": CaptureSecrets("a.pcap", 0x544C534B, b"CLIENT_RANDOM"),
    "json": packet(
        Publish(
            topic_name="plant/pump",
            payload=b'{"temperature": 41, "sensor": {"unit": "C"}, "on": true, "error code": 8, "values": [2, 4], '
            b'"alarm": null, "metrics": [{"name": "Pump/Speed", "value": 1200}]}',
        ),
        topic="plant/pump",
    ),
}  # fmt: skip
