"""Mutations of what CONNECT and CONNACK say, and packets of another version than the connection's (3.1, 3.2).

Those of CONNACK are for devices that have to notice.  A packet of 3.1 or 3.1.1 that is laid out as in 5.0 has
properties where none are read.  The other way round it has none where some are read, which is what
``properties:missing`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.wire import write_utf8
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.layout import layout_of
from mqttscope.mutate.mutation import (
    ACCEPT,
    ANY,
    MALFORMED,
    PROTOCOL_ERROR,
    Demand,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketChange,
    Reaction,
    Target,
    by_attributes,
    senders_of,
)
from mqttscope.mutate.samples import PROPERTY_VALUES, ensure, ensure_will, with_property

V3_1, V3_1_1, V5 = ProtocolVersion

_FIXED = ("3.1.1 V311-LENGTH-fixed",)
_BROKEN: dict[PacketType, tuple[str, ...]] = {
    PacketType.CONNACK: _FIXED,
    PacketType.PUBACK: _FIXED,
    PacketType.PUBREC: _FIXED,
    PacketType.PUBREL: _FIXED,
    PacketType.PUBCOMP: _FIXED,
    PacketType.UNSUBACK: _FIXED,
    PacketType.DISCONNECT: _FIXED,
    # The Property Length is read as the first of the return codes.
    PacketType.SUBACK: ("3.1.1 MQTT-3.8.4-5",),
}
"""What the layout of 5.0 breaks in 3.1.1; of the others it depends on their bytes."""
_SAME_IN_5 = (PacketType.CONNECT, PacketType.PINGREQ, PacketType.PINGRESP, PacketType.AUTH)
"""Packets that say their version themselves, have no fields, or do not exist before."""


def version_mutations() -> Iterator[Mutation]:
    """Each packet in the layout of 5.0, and each CONNECT as another version has it."""
    for kind in PacketType:
        if kind in _SAME_IN_5:
            continue
        statements = _BROKEN.get(kind, ())
        yield Mutation(
            f"{kind.name.lower()}:layout-of-5.0",
            MutationKind.PACKET,
            f"{kind.name} is laid out as in MQTT 5.0, with a Property Length.",
            change_packet=_as_in_5,
            packet_type=kind,
            versions=(V3_1, V3_1_1),
            senders=senders_of(kind) if kind != PacketType.DISCONNECT else (CLIENT,),
            statements=statements,
            reaction=MALFORMED if statements == _FIXED else ANY,
        )
    for version in ProtocolVersion:
        yield Mutation(
            f"connect:of-{version.text}",
            MutationKind.PACKET,
            f"CONNECT is one of MQTT {version.text} from first to last, and what follows it is not.",
            change_packet=_announcing(version),
            packet_type=PacketType.CONNECT,
            field="protocol_level",
            versions=tuple(one for one in ProtocolVersion if one != version),
        )


def _as_in_5(target: Target) -> bytes:
    packet = target.packet
    packet.properties = Properties()
    if getattr(packet, "reason_code", 0) is None:
        packet.reason_code = 0
    if packet.packet_type == PacketType.UNSUBACK:
        packet.reason_codes = [0]
    return encode(packet, V5)


def _announcing(version: ProtocolVersion) -> PacketChange:
    def change(target: Target) -> bytes:
        packet = target.packet
        five = version == V5
        packet.protocol_name = "MQIsdp" if version == V3_1 else "MQTT"
        packet.protocol_level = version.value
        packet.properties = Properties() if five else None
        if packet.will is not None:
            packet.will.properties = Properties() if five else None
        if packet.user_name is None and not five:
            # Before 5.0 there is no password without a user name (3.1.1 MQTT-3.1.2-22).
            packet.password = None
        return encode(packet, version)

    return change


def connack_mutations() -> Iterator[Mutation]:
    """CONNACK: what a server must not say, for devices that have to notice (5.0 3.2.2)."""
    for bit in range(1, 8):

        def reserved(packet: Any, target: Target, bit: int = bit) -> None:
            packet.acknowledge_flags = int(bool(packet.session_present)) | 1 << bit

        yield _connack(
            f"acknowledge-flag-{bit}",
            f"Bit {bit} of the acknowledge flags is set.",
            reserved,
            "acknowledge_flags",
            statements=(
                "3.1 V31-CONNACK-reserved-byte",
                "3.1.1 V311-CONNACK-reserved-bits",
                "5.0 MQTT-3.2.2-1",
            ),
            reaction=MALFORMED,
        )

    def refused(packet: Any, target: Target) -> None:
        packet.session_present, packet.reason_code = True, 0x88 if target.version == V5 else 3

    yield _connack(
        "session-present-on-refusal",
        "CONNACK refuses and has Session Present 1.",
        refused,
        "session_present",
        versions=(V3_1_1, V5),
        statements=("3.1.1 MQTT-3.2.2-4", "5.0 MQTT-3.2.2-6"),
        reaction=PROTOCOL_ERROR,
    )

    def reference(packet: Any, target: Target) -> None:
        if packet.reason_code in (0x9C, 0x9D):
            raise NotApplicableError("the server has moved")
        packet.properties = with_property(packet.properties, "server_reference", "other.example")

    yield _connack(
        "server-reference-on-success",
        "CONNACK has a Server Reference and a reason code that does not go with it.",
        reference,
        "properties.server_reference",
        versions=(V5,),
        statements=("5.0 V5-SERVER-REFERENCE-codes",),
        reaction=ANY,
    )

    def present(packet: Any, target: Target) -> None:
        if target.connect is None or not target.connect.clean_start or packet.reason_code:
            raise NotApplicableError("the client did not ask for a new session")
        packet.session_present = True

    yield _connack(
        "session-present-with-clean-start",
        "CONNACK has Session Present 1 although the client asked for a new session.",
        present,
        "session_present",
        versions=(V3_1_1, V5),
        statements=("3.1.1 MQTT-3.2.2-1", "5.0 MQTT-3.2.2-2"),
        reaction=Reaction(Demand.CLOSE, (0x82,)),
    )


def _connack(slug: str, description: str, make: Callable[[Any, Target], None], field: str, **more: Any) -> Mutation:
    more.setdefault("reaction", ACCEPT)
    return Mutation(
        f"connack:{slug}",
        MutationKind.PACKET,
        description,
        change_packet=by_attributes(make),
        packet_type=PacketType.CONNACK,
        field=field,
        senders=(SERVER,),
        **more,
    )


_UNSUPPORTED = Reaction(Demand.CLOSE, (0x84, 0x81))
_NAME = ("3.1 V31-CONNECT-protocol-name", "3.1.1 V311-CONNECT-protocol-name", "5.0 MQTT-3.1.2-1")
_NAMES = {
    "protocol-name-lower-case": ("mqtt", "is mqtt in lower case"),
    "protocol-name-longer": ("MQTTX", "is MQTTX"),
    "protocol-name-shorter": ("MQT", "is MQT"),
    "protocol-name-empty": ("", "is empty"),
    "protocol-name-other": ("HTTP", "is HTTP"),
    "protocol-name-long": ("MQTT" * 1000, "has 4,000 bytes"),
}


def _connect(slug: str, description: str, make: Callable[[Any, Target], None], field: str, **more: Any) -> Mutation:
    more.setdefault("reaction", MALFORMED)
    return Mutation(
        f"connect:{slug}",
        MutationKind.PACKET,
        description,
        change_packet=by_attributes(make),
        packet_type=PacketType.CONNECT,
        field=field,
        **more,
    )


def _flags(value: int, mask: int) -> Callable[[Any, Target], None]:
    def make(packet: Any, target: Target) -> None:
        packet.connect_flags = packet.derived_flags() & ~mask | value

    return make


def connect_mutations() -> Iterator[Mutation]:
    """CONNECT: protocol, flags, payload."""
    for slug, (text, words) in _NAMES.items():

        def name(target: Target, text: str = text) -> bytes:
            layout = layout_of(target)
            layout.piece("protocol_name").data = write_utf8(text)
            return layout.join(blocks=False)

        yield Mutation(
            f"connect:{slug}",
            MutationKind.PACKET,
            f"The protocol name of CONNECT {words}.",
            change_packet=name,
            packet_type=PacketType.CONNECT,
            field="protocol_name",
            statements=_NAME,
            reaction=_UNSUPPORTED,
        )
    yield from _levels()
    yield from _flag_mutations()
    yield from _payload()


def _levels() -> Iterator[Mutation]:
    for level in (0, 1, 2, 6, 127, 255):

        def change(target: Target, level: int = level) -> bytes:
            layout = layout_of(target)
            layout.piece("protocol_level").data = bytes((level,))
            return layout.join(blocks=False)

        # No sentence binds the client here: a level is a version, known to the server or not.
        yield Mutation(
            f"connect:protocol-level-{level}",
            MutationKind.PACKET,
            f"The protocol level of CONNECT is {level}, which no version has.",
            change_packet=change,
            packet_type=PacketType.CONNECT,
            field="protocol_level",
            calls_for=("3.1.1 MQTT-3.1.2-2", "5.0 MQTT-3.1.2-2"),
            reaction=_UNSUPPORTED,
        )
    for version in ProtocolVersion:

        def other(target: Target, version: ProtocolVersion = version) -> bytes:
            layout = layout_of(target)
            layout.piece("protocol_level").data = bytes((version.value,))
            return layout.join(blocks=False)

        yield Mutation(
            f"connect:protocol-level-of-{version.text}",
            MutationKind.PACKET,
            f"The protocol level of CONNECT is that of {version.text}, its layout that of another version.",
            change_packet=other,
            packet_type=PacketType.CONNECT,
            field="protocol_level",
            versions=tuple(one for one in ProtocolVersion if one != version),
        )


def _flag_mutations() -> Iterator[Mutation]:
    yield _connect(
        "reserved-connect-flag",
        "Bit 0 of the connect flags is set.",
        _flags(1, 1),
        "connect_flags",
        statements=("3.1.1 MQTT-3.1.2-3", "5.0 MQTT-3.1.2-3"),
    )

    def with_will(value: int, mask: int) -> Callable[[Any, Target], None]:
        def make(packet: Any, target: Target) -> None:
            ensure_will(packet, target.version)
            _flags(value, mask)(packet, target)

        return make

    def without_will(value: int) -> Callable[[Any, Target], None]:
        def make(packet: Any, target: Target) -> None:
            packet.will = None
            _flags(value, 0x3C)(packet, target)

        return make

    yield _connect(
        "will-qos-3",
        "Both Will QoS bits are set.",
        with_will(0x1C, 0x1C),
        "connect_flags",
        statements=("3.1 V31-CONNECT-will-qos", "3.1.1 MQTT-3.1.2-14", "5.0 MQTT-3.1.2-12"),
    )
    for qos in (1, 2):
        yield _connect(
            f"will-qos-{qos}-without-will",
            f"The Will QoS is {qos} and the Will Flag is 0.",
            without_will(qos << 3),
            "connect_flags",
            statements=("3.1.1 MQTT-3.1.2-11", "3.1.1 MQTT-3.1.2-13", "5.0 MQTT-3.1.2-11"),
        )
    yield _connect(
        "will-retain-without-will",
        "Will Retain is 1 and the Will Flag is 0.",
        without_will(0x20),
        "connect_flags",
        statements=("3.1.1 MQTT-3.1.2-11", "3.1.1 MQTT-3.1.2-15", "5.0 MQTT-3.1.2-13"),
    )


def _missing(field: str, bit: int) -> Callable[[Any, Target], None]:
    """A flag is set and everything from its field on is left out."""

    def make(packet: Any, target: Target) -> None:
        if field == "will":
            packet.will = packet.user_name = packet.password = None
        elif field == "user_name":
            packet.user_name = packet.password = None
        else:
            ensure(packet, "user_name", target.version)
            packet.password = None
        packet.connect_flags = packet.derived_flags() | bit

    return make


def _unannounced(field: str, bit: int) -> Callable[[Any, Target], None]:
    """The field is there and its flag is not."""

    def make(packet: Any, target: Target) -> None:
        ensure(packet, "will.will_topic" if field == "will" else field, target.version)
        flags = packet.derived_flags() & ~bit
        packet.connect_flags = flags & ~0x38 if field == "will" else flags

    return make


def _payload() -> Iterator[Mutation]:
    """Flags and payload that do not fit each other (5.0 3.1.2.3 to 3.1.2.9, 3.1.3)."""
    announced: tuple[tuple[str, int, tuple[str, ...]], ...] = (
        ("will", 0x04, ("3.1.1 MQTT-3.1.2-9", "5.0 MQTT-3.1.2-9")),
        ("user_name", 0x80, ("3.1.1 MQTT-3.1.2-19", "5.0 MQTT-3.1.2-17")),
        ("password", 0x40, ("3.1.1 MQTT-3.1.2-21", "5.0 MQTT-3.1.2-19")),
    )
    for field, bit, statements in announced:
        words = field.replace("_", " ")
        yield _connect(
            f"{field.replace('_', '-')}-missing",
            f"The connect flags announce a {words} and the payload ends before it.",
            _missing(field, bit),
            field,
            statements=statements,
            legal_in=() if field == "will" else (V3_1,),
        )
    unannounced: tuple[tuple[str, int, tuple[str, ...]], ...] = (
        ("will", 0x04, ()),
        ("user_name", 0x80, ("3.1.1 MQTT-3.1.2-18", "5.0 MQTT-3.1.2-16")),
        ("password", 0x40, ("3.1.1 MQTT-3.1.2-20", "5.0 MQTT-3.1.2-18")),
    )
    for field, bit, statements in unannounced:
        # Where one string can be taken for the other nobody sees which of the two is there.
        certain = field == "password"
        yield _connect(
            f"{field.replace('_', '-')}-unannounced",
            f"The payload has a {field.replace('_', ' ')} and the connect flags do not announce it.",
            _unannounced(field, bit),
            field,
            statements=statements if certain else (),
            reaction=MALFORMED if certain else ANY,
        )

    def alone(packet: Any, target: Target) -> None:
        packet.user_name, packet.password = None, b"password"

    yield _connect(
        "password-without-user-name",
        "CONNECT has a password and no user name.",
        alone,
        "password",
        statements=("3.1 V31-CONNECT-password-without-username", "3.1.1 MQTT-3.1.2-22"),
        legal_in=(V5,),
        reaction=Reaction(Demand.CLOSE),
    )

    def nameless(packet: Any, target: Target) -> None:
        packet.client_identifier, packet.clean_start = "", False

    yield _connect(
        "empty-client-identifier-keeps-session",
        "The Client Identifier is empty and Clean Start (CleanSession) is 0.",
        nameless,
        "client_identifier",
        statements=("3.1 V31-CONNECT-client-id-length", "3.1.1 MQTT-3.1.3-7"),
        legal_in=(V5,),
        reaction=Reaction(Demand.REFUSE, (0x85,)),
    )

    def will_topic(text: str) -> Callable[[Any, Target], None]:
        def make(packet: Any, target: Target) -> None:
            ensure_will(packet, target.version)
            packet.will.will_topic = text

        return make

    for slug, text in (("hash", "a/#"), ("plus", "a/+/b")):
        yield _connect(
            f"will-topic-with-{slug}",
            f"The Will Topic is {text}, with a wildcard.",
            will_topic(text),
            "will.will_topic",
            statements=("3.1.1 MQTT-4.7.1-1", "5.0 MQTT-4.7.0-1"),
            reaction=Reaction(Demand.CLOSE, (0x90, 0x82, 0x81)),
        )

    def data_alone(packet: Any, target: Target) -> None:
        items = [] if packet.properties is None else packet.properties.items
        block = Properties.of(one for one in items if one[0] != 0x15)
        packet.properties = with_property(block, "authentication_data", PROPERTY_VALUES["authentication_data"])

    yield _connect(
        "authentication-data-alone",
        "CONNECT has Authentication Data and no Authentication Method.",
        data_alone,
        "properties.authentication_data",
        versions=(V5,),
        statements=("5.0 V5-CONNECT-auth-data-alone",),
        reaction=PROTOCOL_ERROR,
    )

    def not_utf8(packet: Any, target: Target) -> None:
        ensure_will(packet, V5)
        packet.will.will_payload = b"\xff\xfe\x80"
        packet.will.properties = with_property(packet.will.properties, "payload_format_indicator", 1)

    yield _connect(
        "will-payload-not-utf8",
        "The Payload Format Indicator of the Will promises UTF-8 and the Will Payload is none.",
        not_utf8,
        "will.will_payload",
        versions=(V5,),
        statements=("5.0 V5-WILL-payload-utf8",),
        # 3.1.3.2.3: a server may check the payload; it need not.
        reaction=ANY,
    )

    def every(packet: Any, target: Target) -> None:
        for path in ("user_name", "password", "will.will_topic"):
            ensure(packet, path, target.version)
        if target.version == V5:
            for one in _WHOLE_CONNECT:
                ensure(packet, one, target.version)

    yield _connect(
        "every-field",
        "CONNECT has every field there is and every property that asks nothing of what follows.",
        every,
        "",
        legal_in=(V3_1, V3_1_1, V5),
        reaction=ANY,
    )


_WHOLE_CONNECT = tuple(
    f"properties.{name}" for name in ("session_expiry_interval", "receive_maximum", "topic_alias_maximum")
) + tuple(
    f"{prefix}properties.{name}"
    for prefix, names in (
        ("", ("request_problem_information", "request_response_information", "user_property")),
        (
            "will.",
            (
                "will_delay_interval",
                "payload_format_indicator",
                "message_expiry_interval",
                "content_type",
                "response_topic",
                "correlation_data",
                "user_property",
            ),
        ),
    )
    for name in names
)
