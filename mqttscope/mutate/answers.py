"""Mutations of reason codes and of answering packets (5.0 2.4, 3.4 to 3.7, 3.9, 3.11, 3.14, 3.15)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, allowed_reason_codes
from mqttscope.mutate.fields import REASON_CODE, MutationField, all_fields
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import (
    ALL_VERSIONS,
    ANY,
    ONLY_5,
    PROTOCOL_ERROR,
    V3_1,
    V3_1_1,
    V5,
    Mutation,
    NotApplicableError,
    PacketTarget,
    attributes,
    row,
)
from mqttscope.mutate.samples import ensure, with_property, without_properties

STATEMENTS: dict[ProtocolVersion, dict[PacketType, str]] = {
    V5: {
        PacketType.CONNACK: "MQTT-3.2.2-8",
        PacketType.PUBACK: "MQTT-3.4.2-1",
        PacketType.PUBREC: "MQTT-3.5.2-1",
        PacketType.PUBREL: "MQTT-3.6.2-1",
        PacketType.PUBCOMP: "MQTT-3.7.2-1",
        PacketType.SUBACK: "MQTT-3.9.3-2",
        PacketType.UNSUBACK: "MQTT-3.11.3-2",
        PacketType.DISCONNECT: "MQTT-3.14.2-1",
        PacketType.AUTH: "MQTT-3.15.2-1",
    },
    V3_1_1: {PacketType.CONNACK: "MQTT-3.2.2-6", PacketType.SUBACK: "MQTT-3.9.3-2"},
    V3_1: {PacketType.CONNACK: "V31-CONNACK-codes", PacketType.SUBACK: "V31-SUBACK-codes"},
}
"""Statements that limit the reason codes of a packet to its table."""
_CODES = {"unknown-03": 0x03, "unknown-7f": 0x7F, "unknown-ff": 0xFF}
"""Codes that no packet type has in any version."""


def reason_code_mutations() -> Iterator[Mutation]:
    """Reason and return codes that are unknown, or belong to other packet types."""
    every = {code for kind in PacketType for code in allowed_reason_codes(kind, V5)}
    for field in all_fields():
        if field.wire != REASON_CODE:
            continue
        for slug, code in _CODES.items():
            yield _outside_table(field, slug, code, field.versions)
        for code in sorted(every - allowed_reason_codes(field.packet_type, V5)):
            yield _outside_table(field, f"of-another-packet-{code:02x}", code, ONLY_5)


def _outside_table(field: MutationField, slug: str, code: int, versions: tuple[ProtocolVersion, ...]) -> Mutation:
    kind = field.packet_type
    statements = [
        f"{version.text} {table[kind]}"
        for version, table in STATEMENTS.items()
        if kind in table and code not in allowed_reason_codes(kind, version)
    ]
    return row(
        f"{field.name}:{slug}",
        f"The reason code of {kind.name} is 0x{code:02x}, which is not in its table.",
        partial(_set_code, field.path, code),
        ", ".join(statements),
        PROTOCOL_ERROR,
        versions,
    )


def _set_code(path: str, code: int, target: PacketTarget) -> None:
    packet = target.packet
    ensure(packet, path, target.version)
    if path != "reason_code":
        packet.reason_codes[0] = code
        return
    packet.reason_code = code
    if packet.packet_type == PacketType.CONNACK:
        # A refusal with Session Present would be another fault.
        packet.session_present = False


def _longer(target: PacketTarget) -> None:
    target.packet.reason_codes = [*(target.packet.reason_codes or []), 0]


def _shorter(target: PacketTarget) -> None:
    target.packet.reason_codes = list(target.packet.reason_codes or [])[:-1]


def _set_expiry(target: PacketTarget) -> None:
    ensure(target.packet, "reason_code", V5)
    target.packet.properties = with_property(target.packet.properties, "session_expiry_interval", 60)


def _raise_expiry(target: PacketTarget) -> None:
    connect = target.connect
    if connect is None or (connect.properties is not None and connect.properties.session_expiry_interval):
        raise NotApplicableError("the session outlives the connection already")
    _set_expiry(target)


def _other_method(target: PacketTarget) -> None:
    connect = target.connect
    if connect is None or connect.properties is None or connect.properties.authentication_method is None:
        raise NotApplicableError("CONNECT has no Authentication Method")
    ensure(target.packet, "reason_code", V5)
    target.packet.properties = with_property(target.packet.properties, "authentication_method", "MQTTSCOPE-OTHER")


def _no_method(target: PacketTarget) -> None:
    ensure(target.packet, "reason_code", V5)
    names = ("authentication_method", "authentication_data")
    target.packet.properties = without_properties(target.packet.properties, *names)


_SERVER_DISCONNECTS = (0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2)
"""Codes of DISCONNECT that only a server sends; clients send 0x9B too (5.0 3.3.4), contrary to the table."""
ANSWERS = (
    # The receiver of a DISCONNECT closes after any reason code.
    *(row(f"{name}.reason_code:of-{other}-{code:02x}",
          f"A {sender} sends {name.upper()} with reason code 0x{code:02x}, which only a {other} may send.",
          attributes(reason_code=code), f"5.0 V5-{name.upper()}-sender", reaction, ONLY_5, (sender,))
      for name, codes, sender, other, reaction in (
          ("disconnect", _SERVER_DISCONNECTS, CLIENT, SERVER, ANY),
          ("disconnect", (0x04,), SERVER, CLIENT, ANY),
          ("auth", (0x00,), CLIENT, SERVER, PROTOCOL_ERROR),
          ("auth", (0x19,), SERVER, CLIENT, PROTOCOL_ERROR),
      ) for code in codes),
    # SUBACK and UNSUBACK have one code for each Topic Filter (5.0 3.9.3, 3.11.3).
    *(row(f"{name}.reason_codes:one-{slug}",
          f"The number of reason codes in {name.upper()} is one {slug} than the number of Topic Filters.", change,
          statements, ANY, versions)
      for name, statements, versions in (
          ("suback", "3.1.1 MQTT-3.8.4-5, 5.0 MQTT-3.8.4-6", ALL_VERSIONS),
          ("unsuback", "5.0 MQTT-3.11.3-1", ONLY_5),
      ) for slug, change in (("more", _longer), ("less", _shorter))),
    row("disconnect:session-expiry-from-server", "A server's DISCONNECT has a Session Expiry Interval.", _set_expiry,
        "5.0 MQTT-3.14.2-2", PROTOCOL_ERROR, ONLY_5, (SERVER,), field="properties.session_expiry_interval"),
    row("disconnect.session_expiry_interval:raised-from-zero",
        "DISCONNECT has a Session Expiry Interval although CONNECT had 0 or none.", _raise_expiry,
        "5.0 V5-DISCONNECT-expiry-from-0", PROTOCOL_ERROR, ONLY_5, (CLIENT,),
        field="properties.session_expiry_interval"),
    row("auth.authentication_method:other", "AUTH has an Authentication Method that differs from the one of CONNECT.",
        _other_method, "5.0 MQTT-4.12.0-5", PROTOCOL_ERROR, ONLY_5, field="properties.authentication_method"),
    row("auth.authentication_method:missing", "AUTH has no Authentication Method.", _no_method,
        "5.0 V5-AUTH-method-present", PROTOCOL_ERROR, ONLY_5, field="properties.authentication_method"),
)  # fmt: skip
"""Mutations with codes and properties of the other side, and with lists of the wrong length."""
