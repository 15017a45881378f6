"""Which fields of a client's packets can be set, by the paths of the JSON output: ``publish.properties.content_type``.

The list follows from the declarations of the packets and the table of properties.  As in filters, ``properties`` may be
left out (``publish.content_type``), and so may what stands between the packet and the last word, where only one field
is called so (``connect.will_delay_interval``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.fields import BITS, Field, fields_of
from mqttscope.mqtt.properties import Properties, Property
from mqttscope.mqtt.wire import U8
from mqttscope.replay.rewrite.links import RewriteError

CLIENT_PACKETS = (
    PacketType.CONNECT,
    PacketType.PUBLISH,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.DISCONNECT,
    PacketType.AUTH,
)
"""Packets that clients send and that have fields."""
SECRET = "it is a secret: give it from the environment or a file, never on the command line"
REFUSED = {
    **{one.key: SECRET for kind in CLIENT_PACKETS for one in fields_of(kind) if one.secret},
    "connect.protocol_name": "it follows from the version; convert the recording instead",
    "connect.protocol_level": "it follows from the version; convert the recording instead",
    "connect.connect_flags": "it follows from the other fields",
    "subscribe.subscriptions.reserved": "these bits are reserved",
    **{
        f"{type_name(kind)}.packet_identifier": "it ties packets to their answers"
        for kind in CLIENT_PACKETS
        if kind not in (PacketType.CONNECT, PacketType.DISCONNECT, PacketType.AUTH)
    },
}
"""Fields that exist and are not set, and why."""
OPTIONAL = frozenset({"connect.user_name", "connect.password", "connect.will"})
"""Fields besides properties and reason codes that can be left out."""

LISTS = ("subscriptions", "topic_filters")
"""Parts of packets whose elements have an index."""

_INDEX = re.compile(r"(.*?)\[([0-9]+)\](.*)", re.DOTALL)


@dataclass(slots=True, frozen=True)
class Target:
    """One field that can be set or left out."""

    path: str
    """As in JSON, with the packet in front; lists without an index."""
    cls: type[ControlPacket]
    part: str
    """Where in the packet: nothing, ``will``, ``subscriptions`` or ``topic_filters``."""
    name: str
    """Of the attribute or of the property."""
    kind: str
    """``flag``, or the data type as the specification calls it."""
    row: Property | None = None
    """Of a property: its row in the table."""
    block: bool = False
    """Whether it is a whole property block."""
    since: ProtocolVersion = ProtocolVersion.V3_1

    @property
    def optional(self) -> bool:
        """Whether it can be left out."""
        return self.row is not None or self.block or self.name == "reason_code" or self.path in OPTIONAL


@cache
def targets() -> dict[str, Target]:
    """All fields of clients' packets by path, the refused ones included."""
    return {
        one.key: _target(one)
        for kind in CLIENT_PACKETS
        for one in fields_of(kind)
        if not (one.is_part and one.path.endswith("[]"))
    }


def _target(field: Field) -> Target:
    first, name = field.words[0], field.name
    kind = "flag" if field.value_type is bool else U8.name if field.wire == BITS else field.wire
    if field.path == "topic_filters[]":
        name = "topic_filter"
    part = first if first in LISTS or (first == "will" and len(field.words) > 1) else ""
    return Target(
        field.key,
        field.packet,
        part,
        name,
        kind,
        field.row,
        block=field.value_type is Properties,
        since=field.versions[0],
    )


def _without_properties(path: list[str]) -> list[str]:
    return [part for part in path if part != "properties"]


def _ends(path: list[str]) -> list[str]:
    return [path[0], path[-1]]


@cache
def _names() -> dict[str, list[Target]]:
    """Targets by all names that they are found under; paths come before what is short for them."""
    found = {path: [target] for path, target in targets().items()}
    for shorten in (_without_properties, _ends):
        more: dict[str, list[Target]] = {}
        for path, target in targets().items():
            short = ".".join(shorten(path.split(".")))
            if short not in found and not target.block:
                more.setdefault(short, []).append(target)
        found |= more
    return found


def find_target(path: str) -> tuple[Target, int | None]:
    """The field of a path, and the index where the path has one (``subscribe.subscriptions[0].maximum_qos``)."""
    index = None
    indexed = _INDEX.fullmatch(path)
    plain = path
    if indexed is not None:
        plain, index = indexed[1] + indexed[3], int(indexed[2])
    found = _names().get(plain)
    if found is None:
        raise RewriteError(_unknown(plain, path))
    if len(found) > 1:
        raise RewriteError(f"{path} may be {' or '.join(one.path for one in found)}: write one of them")
    target = found[0]
    if index is not None and target.part not in LISTS:
        raise RewriteError(f"{path}: only subscriptions and topic_filters have an index")
    return target, index


def _unknown(plain: str, path: str) -> str:
    packet, _, rest = plain.partition(".")
    others = [type_name(kind) for kind in PacketType if kind not in CLIENT_PACKETS]
    if packet in others:
        return f"{packet}: only what clients send can be set, and {packet} is no such packet or has no fields"
    packets = [type_name(kind) for kind in CLIENT_PACKETS]
    if packet not in packets:
        ends = [name for name in targets() if name.endswith(f".{plain}")]
        near = ends[:3] or get_close_matches(plain, list(_names()), 3, 0.6)
    else:
        mine = [name for name in _names() if name.startswith(f"{packet}.")]
        within = [name for name in mine if rest and rest in name]
        near = get_close_matches(plain, mine, 3, 0.6) or within[:3]
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; a path begins with one of {', '.join(packets)}"
    return f"{known_part(path) or 'this'} is no field that can be set{hint}"


def known_part(path: str) -> str:
    """What may be repeated of a path that is none: only words of fields, since the others may be a secret."""
    known = {word for name in _names() for word in name.split(".")}
    words = path.split(".")
    count = next((place for place, word in enumerate(words) if word not in known), len(words))
    return ".".join([*words[:count], *(["…"] if 0 < count < len(words) else [])])


def refuse(target: Target) -> None:
    """Raise for a field that is not to be set."""
    why = REFUSED.get(target.path)
    if why is not None:
        raise RewriteError(f"{target.path} cannot be set: {why}")
