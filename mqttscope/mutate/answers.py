"""Mutations of reason codes and of what packets say that answer others (5.0 2.4, 3.4 to 3.7, 3.9, 3.11, 3.14, 3.15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, allowed_reason_codes
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mutate.fields import REASON_CODE, REASON_CODES_3_1, REASON_CODES_3_1_1, REASON_CODES_5, all_fields
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import (
    ANY,
    PROTOCOL_ERROR,
    Demand,
    Mutation,
    MutationKind,
    NotApplicableError,
    Reaction,
    Target,
    by_attributes,
    senders_of,
)
from mqttscope.mutate.samples import ensure, with_property

V3_1, V3_1_1, V5 = ProtocolVersion
_AUTHENTICATION = [BY_NAME[name].identifier for name in ("authentication_method", "authentication_data")]
_CODES = {"unknown-03": 0x03, "unknown-7f": 0x7F, "unknown-ff": 0xFF}
"""Codes that no packet of any version has."""


def reason_code_mutations() -> Iterator[Mutation]:
    """Reason and return codes outside the table of the packet: such as no table has, and those of other packets."""
    for field in all_fields():
        if field.wire != REASON_CODE:
            continue
        kind = field.packet_type
        every = {code for other in PacketType for code in allowed_reason_codes(other, V5)}
        foreign = sorted(every - allowed_reason_codes(kind, V5))
        rows = dict(_CODES)
        rows.update({f"of-another-packet-{code:02x}": code for code in foreign})
        for slug, code in rows.items():
            yield _reason_code(kind, field.path, slug, code, field.versions)


def _reason_code(kind: PacketType, path: str, slug: str, code: int, versions: tuple[ProtocolVersion, ...]) -> Mutation:
    def make(packet: Any, target: Target) -> None:
        ensure(packet, path, target.version)
        if path == "reason_code":
            packet.reason_code = code
            if kind == PacketType.CONNACK:
                # A refusal with Session Present would be another fault.
                packet.session_present = False
        else:
            packet.reason_codes[0] = code

    statements = [f"5.0 {one}" for one in REASON_CODES_5[kind]]
    for version, table in ((V3_1_1, REASON_CODES_3_1_1), (V3_1, REASON_CODES_3_1)):
        if version in versions and kind in table and code not in allowed_reason_codes(kind, version):
            statements += [f"{version.text} {one}" for one in table[kind]]
    name = path.removesuffix("[0]")
    return Mutation(
        f"{kind.name.lower()}.{name}:{slug}",
        MutationKind.PACKET,
        f"The reason code of {kind.name} is 0x{code:02x}, which its table does not have.",
        change_packet=by_attributes(make),
        packet_type=kind,
        field=name,
        versions=versions if slug in _CODES else (V5,),
        senders=senders_of(kind),
        statements=tuple(one for one in statements if slug in _CODES or one.startswith("5.0")),
        reaction=Reaction(Demand.CLOSE, (0x82, 0x81)),
    )


_SERVER_DISCONNECTS = (0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2)
"""Codes of DISCONNECT that only a server uses; 0x9B is for clients too, whatever the table says (5.0 3.3.4)."""


def answer_mutations() -> Iterator[Mutation]:
    """Codes of the other side, lists of the wrong length, properties of the other side."""
    for code in _SERVER_DISCONNECTS:
        yield _sent_by(PacketType.DISCONNECT, code, CLIENT, "V5-DISCONNECT-sender")
    yield _sent_by(PacketType.DISCONNECT, 0x04, SERVER, "V5-DISCONNECT-sender")
    yield _sent_by(PacketType.AUTH, 0x00, CLIENT, "V5-AUTH-sender")
    yield _sent_by(PacketType.AUTH, 0x19, SERVER, "V5-AUTH-sender")
    yield from _counts()

    def expiry(packet: Any, target: Target) -> None:
        ensure(packet, "reason_code", V5)
        packet.properties = with_property(packet.properties, "session_expiry_interval", 60)

    yield Mutation(
        "disconnect:session-expiry-from-server",
        MutationKind.PACKET,
        "A server's DISCONNECT has a Session Expiry Interval.",
        change_packet=by_attributes(expiry),
        packet_type=PacketType.DISCONNECT,
        field="properties.session_expiry_interval",
        versions=(V5,),
        senders=(SERVER,),
        statements=("5.0 MQTT-3.14.2-2",),
        reaction=PROTOCOL_ERROR,
    )

    def raised(packet: Any, target: Target) -> None:
        connect = target.connect
        if connect is None or (connect.properties is not None and connect.properties.session_expiry_interval):
            raise NotApplicableError("the session was to outlive the connection anyway")
        expiry(packet, target)

    yield Mutation(
        "disconnect.session_expiry_interval:raised-from-zero",
        MutationKind.PACKET,
        "DISCONNECT sets a Session Expiry Interval where CONNECT had none or 0.",
        change_packet=by_attributes(raised),
        packet_type=PacketType.DISCONNECT,
        field="properties.session_expiry_interval",
        versions=(V5,),
        statements=("5.0 V5-DISCONNECT-expiry-from-0",),
        reaction=PROTOCOL_ERROR,
    )

    def other_method(packet: Any, target: Target) -> None:
        connect = target.connect
        if connect is None or connect.properties is None or connect.properties.authentication_method is None:
            raise NotApplicableError("CONNECT names no Authentication Method")
        ensure(packet, "reason_code", V5)
        packet.properties = with_property(packet.properties, "authentication_method", "MQTTSCOPE-OTHER")

    yield Mutation(
        "auth.authentication_method:other",
        MutationKind.PACKET,
        "AUTH has another Authentication Method than CONNECT.",
        change_packet=by_attributes(other_method),
        packet_type=PacketType.AUTH,
        field="properties.authentication_method",
        versions=(V5,),
        senders=(CLIENT, SERVER),
        statements=("5.0 MQTT-4.12.0-5",),
        reaction=PROTOCOL_ERROR,
    )

    def no_method(packet: Any, target: Target) -> None:
        ensure(packet, "reason_code", V5)
        block = packet.properties
        if block is not None:
            packet.properties = type(block).of(one for one in block.items if one[0] not in _AUTHENTICATION)

    yield Mutation(
        "auth.authentication_method:missing",
        MutationKind.PACKET,
        "AUTH has no Authentication Method.",
        change_packet=by_attributes(no_method),
        packet_type=PacketType.AUTH,
        field="properties.authentication_method",
        versions=(V5,),
        senders=(CLIENT, SERVER),
        statements=("5.0 V5-AUTH-method-present",),
        reaction=PROTOCOL_ERROR,
    )


def _sent_by(kind: PacketType, code: int, sender: str, statement: str) -> Mutation:
    def make(packet: Any, target: Target) -> None:
        packet.reason_code = code

    other = SERVER if sender == CLIENT else CLIENT
    return Mutation(
        f"{kind.name.lower()}.reason_code:of-{other}-{code:02x}",
        MutationKind.PACKET,
        f"A {sender} sends {kind.name} with 0x{code:02x}, which only a {other} sends.",
        change_packet=by_attributes(make),
        packet_type=kind,
        field="reason_code",
        versions=(V5,),
        senders=(sender,),
        statements=(f"5.0 {statement}",),
        # The receiver of a DISCONNECT closes whatever it says.
        reaction=PROTOCOL_ERROR if kind == PacketType.AUTH else ANY,
    )


def _counts() -> Iterator[Mutation]:
    """SUBACK and UNSUBACK have one code for each Topic Filter (5.0 3.9.3, 3.11.3)."""

    def longer(packet: Any, target: Target) -> None:
        packet.reason_codes = [*(packet.reason_codes or []), 0]

    def shorter(packet: Any, target: Target) -> None:
        packet.reason_codes = list(packet.reason_codes or [])[:-1]

    rows = (
        (PacketType.SUBACK, ("3.1.1 MQTT-3.8.4-5", "5.0 MQTT-3.8.4-6"), (V3_1, V3_1_1, V5)),
        (PacketType.UNSUBACK, ("5.0 MQTT-3.11.3-1",), (V5,)),
    )
    for kind, statements, versions in rows:
        for slug, make, words in (
            ("one-more", longer, "one reason code more"),
            ("one-less", shorter, "one reason code less"),
        ):
            yield Mutation(
                f"{kind.name.lower()}.reason_codes:{slug}",
                MutationKind.PACKET,
                f"{kind.name} has {words} than the request has Topic Filters.",
                change_packet=by_attributes(make),
                packet_type=kind,
                field="reason_codes",
                versions=versions,
                senders=(SERVER,),
                statements=statements,
                reaction=ANY,
            )
