"""Mutations of CONNECT and CONNACK, and packets in the layout of another version (3.1, 3.2).

Mutations of CONNACK test devices.  On a connection of 3.1 or 3.1.1, a packet in the layout of 5.0 has properties that
the receiver does not expect.  ``properties:missing`` is the opposite: on a connection of 5.0, a packet without the
properties that the receiver expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.wire import write_utf8
from mqttscope.mutate.fields import FIXED_BEFORE_5
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.layout import layout_of
from mqttscope.mutate.mutation import (
    ALL_VERSIONS,
    ANY,
    BEFORE_5,
    LATER,
    MALFORMED,
    ONLY_5,
    PROTOCOL_ERROR,
    V3_1,
    V5,
    Demand,
    Mutation,
    NotApplicableError,
    PacketTarget,
    Reaction,
    attributes,
    refuse,
    row,
)
from mqttscope.mutate.samples import PROPERTY_VALUES, ensure, ensure_will, with_property, without_properties

_LENGTH = "3.1.1 V311-LENGTH-fixed"
_BROKEN = dict.fromkeys((*FIXED_BEFORE_5, PacketType.DISCONNECT), _LENGTH) | {
    # A receiver reads the Property Length as the first return code.
    PacketType.SUBACK: "3.1.1 MQTT-3.8.4-5",
}
"""Statements of 3.1.1 that the layout of 5.0 breaks; for other packet types, that depends on their bytes."""
_SAME_IN_5 = (PacketType.CONNECT, PacketType.PINGREQ, PacketType.PINGRESP, PacketType.AUTH)
"""Packet types that contain their version, have no fields, or do not exist before 5.0."""


def version_mutations() -> Iterator[Mutation]:
    """Each packet type in the layout of 5.0, and CONNECT in the layout of each other version."""
    for kind in PacketType:
        if kind in _SAME_IN_5:
            continue
        statements = _BROKEN.get(kind, "")
        yield row(
            f"{kind.name.lower()}:layout-of-5.0",
            f"{kind.name} has the layout of MQTT 5.0, with a Property Length.",
            _as_in_5,
            statements,
            MALFORMED if statements == _LENGTH else ANY,
            BEFORE_5,
            (CLIENT,) if kind == PacketType.DISCONNECT else (),
        )
    for version in ProtocolVersion:
        others = tuple(other for other in ProtocolVersion if other != version)
        yield from (
            row(f"connect:of-{version.text}",
                f"CONNECT is entirely MQTT {version.text}; the packets after it are another version.",
                partial(_announce, version), versions=others, field="protocol_level"),
            row(f"connect:protocol-level-of-{version.text}",
                f"CONNECT has the protocol level of MQTT {version.text} and the layout of another version.",
                partial(_piece, "protocol_level", bytes((version.value,))), versions=others, field="protocol_level"),
        )  # fmt: skip


def _as_in_5(target: PacketTarget) -> bytes:
    packet = target.packet
    packet.properties = Properties()
    if getattr(packet, "reason_code", 0) is None:
        packet.reason_code = 0
    if packet.packet_type == PacketType.UNSUBACK:
        packet.reason_codes = [0]
    return encode(packet, V5)


def _announce(version: ProtocolVersion, target: PacketTarget) -> bytes:
    packet = target.packet
    is_5 = version == V5
    packet.protocol_name = "MQIsdp" if version == V3_1 else "MQTT"
    packet.protocol_level = version.value
    packet.properties = Properties() if is_5 else None
    if packet.will is not None:
        packet.will.properties = Properties() if is_5 else None
    if packet.user_name is None and not is_5:
        # Before 5.0 a password needs a user name (3.1.1 MQTT-3.1.2-22).
        packet.password = None
    return encode(packet, version)


def _piece(name: str, data: bytes, target: PacketTarget) -> bytes:
    layout = layout_of(target)
    layout.piece(name).data = data
    return layout.join(blocks=False)


def _acknowledge_flag(bit: int, target: PacketTarget) -> None:
    packet = target.packet
    packet.acknowledge_flags = int(bool(packet.session_present)) | 1 << bit


def _refuse_with_session(target: PacketTarget) -> None:
    target.packet.session_present, target.packet.reason_code = True, 0x88 if target.version == V5 else 3


def _server_reference(target: PacketTarget) -> None:
    packet = target.packet
    refuse(packet.reason_code in (0x9C, 0x9D), "the server refers the client to another server")
    packet.properties = with_property(packet.properties, "server_reference", "other.example")


def _session_present(target: PacketTarget) -> None:
    if target.connect is None or not target.connect.clean_start or target.packet.reason_code:
        raise NotApplicableError("the client did not request a new session, or the server refused it")
    target.packet.session_present = True


CONNACK = (
    *(row(f"connack:acknowledge-flag-{bit}", f"Bit {bit} of the acknowledge flags is set.",
          partial(_acknowledge_flag, bit),
          "3.1 V31-CONNACK-reserved-byte, 3.1.1 V311-CONNACK-reserved-bits, 5.0 MQTT-3.2.2-1", MALFORMED,
          field="acknowledge_flags") for bit in range(1, 8)),
    row("connack:session-present-on-refusal", "A refusing CONNACK has Session Present 1.", _refuse_with_session,
        "3.1.1 MQTT-3.2.2-4, 5.0 MQTT-3.2.2-6", PROTOCOL_ERROR, LATER, field="session_present"),
    row("connack:server-reference-on-success",
        "CONNACK has a Server Reference, and its reason code is neither 0x9C nor 0x9D.", _server_reference,
        "5.0 V5-SERVER-REFERENCE-codes", ANY, ONLY_5, field="properties.server_reference"),
    row("connack:session-present-with-clean-start",
        "CONNACK has Session Present 1 although the client requested a new session.", _session_present,
        "3.1.1 MQTT-3.2.2-1, 5.0 MQTT-3.2.2-2", Reaction(Demand.CLOSE, (0x82,)), LATER, field="session_present"),
)  # fmt: skip
"""Faulty answers of a server to CONNECT (5.0 3.2.2)."""


def _flags(value: int, mask: int, target: PacketTarget) -> None:
    target.packet.connect_flags = target.packet.derived_flags() & ~mask | value


def _will_flags(value: int, mask: int, target: PacketTarget) -> None:
    ensure_will(target.packet, target.version)
    _flags(value, mask, target)


def _no_will_flags(value: int, target: PacketTarget) -> None:
    target.packet.will = None
    _flags(value, 0x3C, target)


def _missing(field: str, bit: int, target: PacketTarget) -> None:
    """Set a flag, and omit its field and all later fields."""
    packet = target.packet
    if field == "will":
        packet.will = packet.user_name = packet.password = None
    elif field == "user_name":
        packet.user_name = packet.password = None
    else:
        ensure(packet, "user_name", target.version)
        packet.password = None
    packet.connect_flags = packet.derived_flags() | bit


def _unannounced(field: str, bit: int, target: PacketTarget) -> None:
    """Write a field, and clear its flag."""
    packet = target.packet
    ensure(packet, "will.will_topic" if field == "will" else field, target.version)
    flags = packet.derived_flags() & ~bit
    packet.connect_flags = flags & ~0x38 if field == "will" else flags


def _will_topic(text: str, target: PacketTarget) -> None:
    ensure_will(target.packet, target.version)
    target.packet.will.will_topic = text


def _data_alone(target: PacketTarget) -> None:
    packet = target.packet
    block = without_properties(packet.properties, "authentication_method")
    packet.properties = with_property(block, "authentication_data", PROPERTY_VALUES["authentication_data"])


def _will_payload_not_utf8(target: PacketTarget) -> None:
    ensure_will(target.packet, V5)
    will = target.packet.will
    will.will_payload = b"\xff\xfe\x80"
    will.properties = with_property(will.properties, "payload_format_indicator", 1)


def _every_field(target: PacketTarget) -> None:
    names = "user_name password will.will_topic"
    if target.version == V5:
        names += (
            " properties.session_expiry_interval properties.receive_maximum properties.topic_alias_maximum"
            " properties.request_problem_information properties.request_response_information properties.user_property"
            " will.properties.will_delay_interval will.properties.payload_format_indicator"
            " will.properties.message_expiry_interval will.properties.content_type will.properties.response_topic"
            " will.properties.correlation_data will.properties.user_property"
        )
    for path in names.split():
        ensure(target.packet, path, target.version)


_UNSUPPORTED = Reaction(Demand.CLOSE, (0x84, 0x81))
CONNECT = (
    *(row(f"connect:protocol-name-{slug}", f"The protocol name of CONNECT {words}.",
          partial(_piece, "protocol_name", write_utf8(text)),
          "3.1 V31-CONNECT-protocol-name, 3.1.1 V311-CONNECT-protocol-name, 5.0 MQTT-3.1.2-1", _UNSUPPORTED,
          field="protocol_name")
      for slug, text, words in (
          ("lower-case", "mqtt", "is mqtt in lower case"),
          ("longer", "MQTTX", "is MQTTX"),
          ("shorter", "MQT", "is MQT"),
          ("empty", "", "is empty"),
          ("other", "HTTP", "is HTTP"),
          ("long", "MQTT" * 1000, "has 4,000 bytes"),
      )),
    # No statement binds the client: a level is a version, which the server supports or not.
    *(row(f"connect:protocol-level-{level}", f"The protocol level of CONNECT is {level}, which no version has.",
          partial(_piece, "protocol_level", bytes((level,))), "", _UNSUPPORTED, field="protocol_level",
          calls_for="3.1.1 MQTT-3.1.2-2, 5.0 MQTT-3.1.2-2") for level in (0, 1, 2, 6, 127, 255)),
    row("connect:reserved-connect-flag", "Bit 0 of the connect flags is set.", partial(_flags, 1, 1),
        "3.1.1 MQTT-3.1.2-3, 5.0 MQTT-3.1.2-3", MALFORMED, field="connect_flags"),
    row("connect:will-qos-3", "Both Will QoS bits are set.", partial(_will_flags, 0x1C, 0x1C),
        "3.1 V31-CONNECT-will-qos, 3.1.1 MQTT-3.1.2-14, 5.0 MQTT-3.1.2-12", MALFORMED, field="connect_flags"),
    *(row(f"connect:will-qos-{qos}-without-will", f"The Will QoS is {qos} and the Will Flag is 0.",
          partial(_no_will_flags, qos << 3), "3.1.1 MQTT-3.1.2-11, 3.1.1 MQTT-3.1.2-13, 5.0 MQTT-3.1.2-11",
          MALFORMED, field="connect_flags") for qos in (1, 2)),
    row("connect:will-retain-without-will", "Will Retain is 1 and the Will Flag is 0.", partial(_no_will_flags, 0x20),
        "3.1.1 MQTT-3.1.2-11, 3.1.1 MQTT-3.1.2-15, 5.0 MQTT-3.1.2-13", MALFORMED, field="connect_flags"),
    *(row(f"connect:{field.replace('_', '-')}-missing",
          f"The connect flags announce a {field.replace('_', ' ')}, but the payload ends before it.",
          partial(_missing, field, bit), statements, MALFORMED, field=field, legal=legal)
      for field, bit, statements, legal in (
          ("will", 0x04, "3.1.1 MQTT-3.1.2-9, 5.0 MQTT-3.1.2-9", ()),
          ("user_name", 0x80, "3.1.1 MQTT-3.1.2-19, 5.0 MQTT-3.1.2-17", (V3_1,)),
          ("password", 0x40, "3.1.1 MQTT-3.1.2-21, 5.0 MQTT-3.1.2-19", (V3_1,)),
      )),
    *(row(f"connect:{field.replace('_', '-')}-unannounced",
          f"The payload contains a {field.replace('_', ' ')} that the connect flags do not announce.",
          partial(_unannounced, field, bit), statements, MALFORMED if statements else ANY, field=field)
      for field, bit, statements in (
          # A receiver may read one string as another: the field is ambiguous.
          ("will", 0x04, ""),
          ("user_name", 0x80, ""),
          ("password", 0x40, "3.1.1 MQTT-3.1.2-20, 5.0 MQTT-3.1.2-18"),
      )),
    row("connect:password-without-user-name", "CONNECT has a password and no user name.",
        attributes(user_name=None, password=b"password"),
        "3.1 V31-CONNECT-password-without-username, 3.1.1 MQTT-3.1.2-22", Reaction(Demand.CLOSE),
        field="password", legal=ONLY_5),
    row("connect:empty-client-identifier-keeps-session",
        "The Client Identifier is empty and Clean Start (CleanSession) is 0.",
        attributes(client_identifier="", clean_start=False),
        "3.1 V31-CONNECT-client-id-length, 3.1.1 MQTT-3.1.3-7", Reaction(Demand.REFUSE, (0x85,)),
        field="client_identifier", legal=ONLY_5),
    *(row(f"connect:will-topic-with-{slug}", f"The Will Topic is {text}, with a wildcard.", partial(_will_topic, text),
          "3.1.1 MQTT-4.7.1-1, 5.0 MQTT-4.7.0-1", Reaction(Demand.CLOSE, (0x90, 0x82, 0x81)),
          field="will.will_topic") for slug, text in (("hash", "a/#"), ("plus", "a/+/b"))),
    row("connect:authentication-data-alone", "CONNECT has Authentication Data and no Authentication Method.",
        _data_alone, "5.0 V5-CONNECT-auth-data-alone", PROTOCOL_ERROR, ONLY_5,
        field="properties.authentication_data"),
    # 3.1.3.2.3: a server may check the payload, but does not have to.
    row("connect:will-payload-not-utf8",
        "The Payload Format Indicator of the Will declares UTF-8, but the Will Payload is not UTF-8.",
        _will_payload_not_utf8, "5.0 V5-WILL-payload-utf8", ANY, ONLY_5, field="will.will_payload"),
    row("connect:every-field",
        "CONNECT has all optional fields, and all properties that demand nothing of later packets.", _every_field,
        legal=ALL_VERSIONS),
)  # fmt: skip
"""Mutations of the protocol, flags and payload of CONNECT (5.0 3.1.2.3 to 3.1.2.9, 3.1.3)."""
