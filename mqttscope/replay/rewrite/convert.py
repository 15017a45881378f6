"""Recordings in another version of MQTT: 3.1 to 3.1.1 to 5.0, and 5.0 back to 3.1.1 where nothing is lost.

Both directions of a connection are converted, so that what the recorded server said becomes what a server of the other
version should say.  What such a server says beyond that is not known: server packets that were converted to 5.0 have
`UNSAID` properties, and ``None`` stands for the ``reason_codes`` of UNSUBACK and, from 3.1, for Session Present.
Neither is to be compared.  The bytes of such an UNSUBACK are not well-formed.

What cannot be said in the other version raises ConversionError, which names all such packets and fields
(`convert_down` lists what 3.1.1 can do without, and what it does in place of the rest).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from mqttscope.replay.rewrite.convert_down import NEVER_EXPIRES, RETURN_CODE_TO_REASON_CODE, Loss, Losses, to_3_1_1
from mqttscope.replay.rewrite.links import copy_scripts, drop, say
from mqttscope.replay.script import UNSAID, Entry, Script

V3_1, V3_1_1, V5 = ProtocolVersion
MAX_KINDS = 40
"""Fields that an error names; further ones are counted."""


@dataclass(slots=True, frozen=True)
class Lost:
    """One field that cannot be said in another version, and where it first stands."""

    script: Script
    entry: Entry
    """The recorded packet."""
    loss: Loss

    @property
    def path(self) -> str:
        """``subscribe.subscriptions[0].no_local``."""
        return f"{self.entry.type}.{self.loss.field}" if self.loss.field else self.entry.type

    @property
    def kind(self) -> str:
        """The same for all rows of a list."""
        return re.sub(r"\[\d+\]", "[]", self.path)

    @property
    def place(self) -> str:
        """``sensor-1, frame 16``."""
        return f"{self.script.name}, frame {self.entry.frame}" if self.entry.frame else self.script.name


class ConversionError(RewriteError):
    """A recording that cannot be said in another version: everything that cannot, by field."""

    def __init__(self, lost: Sequence[Lost], version: ProtocolVersion) -> None:
        first = lost[0]
        kinds: dict[str, list[Lost]] = {}
        for one in lost:
            kinds.setdefault(one.kind, []).append(one)
        if len(lost) == 1:
            told = f"{first.place}: {first.path} cannot be converted to MQTT {version.text}: {first.loss.why}"
        else:
            rows = [_told(those) for those in list(kinds.values())[:MAX_KINDS]]
            if len(kinds) > MAX_KINDS:
                rows.append(f"and {len(kinds) - MAX_KINDS:,} more fields")
            told = "\n  ".join([f"{len(lost):,} fields cannot be converted to MQTT {version.text}:", *rows])
        super().__init__(told)
        self.lost = list(lost)
        """All of them, in the order of the recording."""
        self.entry = first.entry
        """The recorded packet of the first one."""
        self.field = first.loss.field
        """Path of the field in the packet; empty for the packet itself."""


def _told(those: Sequence[Lost]) -> str:
    """What is said of all losses of one field."""
    first = those[0]
    if len(those) == 1:
        return f"{first.path}: {first.loss.why} ({first.place})"
    return f"{first.kind}, {len(those):,} times: {first.loss.why} (first: {first.place})"


def convert(
    scripts: Sequence[Script], version: ProtocolVersion, *, lossy: bool = False
) -> tuple[list[Script], Changes]:
    """Copies of scripts in another version, and what was converted; those that have it already are left as they are.

    What the other version has no form for is a `ConversionError` that names all of it; ``lossy`` leaves it out, as far
    as it is 5.0 that says more than 3.1.1 can.
    """
    changes = Changes()
    copies = copy_scripts(scripts)
    lost: list[Lost] = []
    gone: list[Entry] = []
    for script, recorded in zip(copies, scripts, strict=True):
        before = script.version
        if before == version:
            continue
        for entry, original in zip(script.entries, recorded.entries, strict=True):
            losses = Losses()
            try:
                if not _entry(script, entry, version, changes, losses):
                    gone.append(entry)
            except Loss as error:
                losses.found.append(error)
                gone.append(entry)
            lost += (Lost(recorded, original, one) for one in losses.found)
        script.connection = replace(
            script.connection, version=version, version_evidence=f"converted from MQTT {before.text}"
        )
        changes.count("connection", f"converted from MQTT {before.text} to {version.text}")
    if lost and not (lossy and version == V3_1_1):
        raise ConversionError(lost, version)
    drop(copies, gone)
    for one in lost:
        thing = "field" if one.loss.field else "packet"
        changes.count(thing, f"without a form in MQTT {version.text}, {one.loss.instead}: {one.kind}")
    return copies, changes


def _entry(script: Script, entry: Entry, version: ProtocolVersion, changes: Changes, losses: Losses) -> bool:
    """Let an entry speak the other version; returns whether it has any form there.  Raises `Loss` where it cannot."""
    packet, before = entry.packet, script.version
    if isinstance(packet, Malformed):
        raise Loss("", f"it is malformed ({packet.reason})")
    if version == V3_1:
        raise Loss("", "nothing is converted to MQTT 3.1")
    if before == V5:
        said = to_3_1_1(packet, entry, changes, losses)
        if said is not None:
            say(entry, said, version)
        return said is not None
    made = packet
    if before == V3_1:
        made = _from_3_1(made, changes)
    if version == V5:
        made = _to_5_0(made, entry, changes)
        if entry.resends is not None and entry.resends in script.entries:
            changes.count("PUBLISH packet", "sent again on one connection, which MQTT 5.0 does not allow (4.4.0-1)")
    say(entry, replace(made), version)
    return True


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
