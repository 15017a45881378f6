"""Recordings in another version of MQTT: 3.1 to 3.1.1 to 5.0, and 5.0 back to 3.1.1 where nothing is lost.

Both directions of a connection are converted, so that what the recorded server said becomes what a server of the other
version should say.  What such a server says beyond that is not known: server packets that were converted to 5.0 have
`UNSAID` properties, and ``None`` stands for the ``reason_codes`` of UNSUBACK and, from 3.1, for Session Present.
Neither is to be compared.  The bytes of such an UNSUBACK are not well-formed.

What cannot be said in the other version raises ConversionError, which names the first such packet and field
(`convert_down` lists what 3.1.1 can do without).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
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
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.convert_down import NEVER_EXPIRES, RETURN_CODE_TO_REASON_CODE, Loss, to_3_1_1
from mqttscope.replay.rewrite.links import copy_scripts, say
from mqttscope.replay.script import UNSAID, Entry, Script

V3_1, V3_1_1, V5 = ProtocolVersion


class ConversionError(RewriteError):
    """A recording that cannot be said in another version."""

    def __init__(self, script: Script, entry: Entry, field: str, why: str, version: ProtocolVersion) -> None:
        frame = f", frame {entry.frame}" if entry.frame else ""
        path = f"{entry.type}.{field}" if field else entry.type
        super().__init__(f"{script.name}{frame}: {path} cannot be converted to MQTT {version.text}: {why}")
        self.entry = entry
        """The recorded packet."""
        self.field = field
        """Path of the field in the packet; empty for the packet itself."""


def convert(scripts: Sequence[Script], version: ProtocolVersion) -> tuple[list[Script], Changes]:
    """Copies of scripts in another version, and what was converted; those that have it already are left as they are."""
    changes = Changes()
    copies = copy_scripts(scripts)
    for script, recorded in zip(copies, scripts, strict=True):
        before = script.version
        if before == version:
            continue
        for entry, original in zip(script.entries, recorded.entries, strict=True):
            try:
                _entry(script, entry, version, changes)
            except Loss as error:
                raise ConversionError(recorded, original, error.field, error.why, version) from None
        script.connection = replace(
            script.connection, version=version, version_evidence=f"converted from MQTT {before.text}"
        )
        changes.count("connection", f"converted from MQTT {before.text} to {version.text}")
    return copies, changes


def _entry(script: Script, entry: Entry, version: ProtocolVersion, changes: Changes) -> None:
    packet, before = entry.packet, script.version
    if isinstance(packet, Malformed):
        raise Loss("", f"it is malformed ({packet.reason})")
    if version == V3_1:
        raise Loss("", "nothing is converted to MQTT 3.1")
    if before == V5:
        say(entry, to_3_1_1(packet, entry, changes), version)
        return
    made = packet
    if before == V3_1:
        made = _from_3_1(made, changes)
    if version == V5:
        made = _to_5_0(made, entry, changes)
        if entry.resends is not None and entry.resends in script.entries:
            changes.count("PUBLISH packet", "sent again on one connection, which MQTT 5.0 does not allow (4.4.0-1)")
    say(entry, replace(made), version)


def _from_3_1(packet: ControlPacket, changes: Changes) -> ControlPacket:
    """From 3.1 to 3.1.1: another protocol name, and no DUP flag but that of PUBLISH."""
    if packet.header_flags is not None and not isinstance(packet, Publish):
        # 3.1 lets SUBSCRIBE, UNSUBSCRIBE and PUBREL be sent again with DUP (3.1 section 2.1).
        packet = replace(packet, header_flags=None)
        changes.count(f"{packet.packet_type.name} packet", "without its header flags, which MQTT 3.1.1 reserves")
    if isinstance(packet, Connect):
        if packet.bridge:
            raise Loss("protocol_level", "it marks a bridge between servers")
        if packet.connect_flags is not None:
            raise Loss("connect_flags", f"0x{packet.connect_flags:02x} has bits that MQTT 3.1.1 reserves")
        return replace(packet, protocol_name="MQTT", protocol_level=4)
    if isinstance(packet, Connack) and packet.acknowledge_flags is not None:
        return replace(packet, acknowledge_flags=None)
    if isinstance(packet, Subscribe) and any(row.reserved for row in packet.subscriptions):
        return replace(packet, subscriptions=[replace(row, reserved=0) for row in packet.subscriptions])
    return packet


def _to_5_0(packet: ControlPacket, entry: Entry, changes: Changes) -> ControlPacket:
    """From 3.1.1 to 5.0."""
    if isinstance(packet, Connect):
        return _connect(packet, changes)
    if isinstance(packet, Connack):
        code = RETURN_CODE_TO_REASON_CODE.get(packet.reason_code)
        if code is None:
            raise Loss("reason_code", f"{packet.reason_code} is no Connect Return code")
        if code:
            changes.count("Connect Return code", "converted to a Connect Reason Code")
        return replace(packet, reason_code=code, properties=UNSAID)
    if entry.from_client:
        # Acknowledgements and DISCONNECT without a reason code mean success in 5.0.
        return replace(packet, properties=EMPTY) if isinstance(packet, Publish | Subscribe | Unsubscribe) else packet
    if isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        return replace(packet, reason_code=0, properties=UNSAID)
    # SUBACK has the same codes.
    return replace(packet, properties=UNSAID) if isinstance(packet, Publish | Suback | Unsuback) else packet


def _connect(packet: Connect, changes: Changes) -> Connect:
    """CONNECT: CleanSession 0 is a session that is resumed and never expires (5.0 3.1.2.4, 3.1.2.11.2)."""
    if packet.bridge or packet.protocol_level != V3_1_1:
        raise Loss("protocol_level", f"{packet.protocol_level} is not that of MQTT 3.1.1")
    if packet.connect_flags is not None:
        raise Loss("connect_flags", f"0x{packet.connect_flags:02x} does not fit the fields")
    if not packet.client_identifier and not packet.clean_start:
        raise Loss(
            "client_identifier", "an empty one with CleanSession 0 is refused before MQTT 5.0 and accepted there"
        )
    block = EMPTY
    if not packet.clean_start:
        block = Properties(session_expiry_interval=NEVER_EXPIRES)
        changes.count("CONNECT packet", "with CleanSession 0: its session is resumed and never expires")
    will = None if packet.will is None else replace(packet.will, properties=EMPTY)
    return replace(packet, protocol_name="MQTT", protocol_level=5, properties=block, will=will)
