"""Describes packets, times and names in a few words, for sentences, without any secret."""

from __future__ import annotations

from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt import PacketType, Properties, ProtocolVersion, packets
from mqttscope.mqtt.constants import reason_name, type_name
from mqttscope.mqtt.view import without_topic
from mqttscope.mqtt.wire import counted
from mqttscope.secrets.findings import masked
from mqttscope.secrets.packets import DISGUISED

MAX_NAME = 80
"""Characters of a topic, a Client Identifier or a Reason String that are shown."""
MAX_FILTERS = 3
_SECOND = 1_000_000_000


def span(nanoseconds: int) -> str:
    """A length of time: ``0.4 ms``, ``6.003 s``, ``12 min 3 s``, ``5 h 2 min``."""
    sign, length = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if length < _SECOND:
        return f"{sign}{length / 1e6:.1f} ms"
    if length < 600 * _SECOND:
        return f"{sign}{length / 1e9:.3f} s"
    minutes, seconds = divmod(length // _SECOND, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds} s"
    return f"{sign}{minutes // 60} h {minutes % 60} min"


def seconds(value: float) -> str:
    """Seconds of the protocol: ``6 s``, ``4.5 s``."""
    return f"{value:g} s"


def name(text: str | None) -> str:
    """A name of the wire without what may be a secret, cut where it is long, and in quotes where a level has blanks."""
    if not text:
        return "" if text is None else "(empty)"
    shown = _cut(text)
    return f'"{shown}"' if any(level != level.strip() for level in text.split("/")) else shown


def _cut(text: str) -> str:
    shown = masked(text[: 4 * MAX_NAME])
    return shown if len(shown) <= MAX_NAME else shown[:MAX_NAME] + "…"


def code(value: int) -> str:
    """A reason code: ``0x8D``."""
    return f"0x{value:02X}"


def reason(kind: int, value: int, version: ProtocolVersion) -> str:
    """A reason code with its name: ``0x8D Keep Alive timeout``, ``5 not authorized`` before 5.0."""
    known = reason_name(kind, value, version).removeprefix("Connection Refused, ")
    number = code(value) if version == ProtocolVersion.V5 or value >= 0x80 else str(value)
    return number if known == "Unknown" else f"{number} {known}"


def reason_string(block: Properties | None) -> str:
    """The Reason String of a packet, as it may be shown; empty without one."""
    told = None if block is None else block.reason_string
    return "" if not told else _cut(told)


def topic_of(event: PacketEvent) -> str:
    """The topic of a PUBLISH as it may be shown."""
    packet = event.packet
    if event.connection.doubtful or getattr(packet, "topic_name", "") in DISGUISED:
        return "(topic hidden)"
    if not event.topic and isinstance(packet, packets.Publish):
        return f"({without_topic(packet)} topic)"
    return "(unknown topic)" if event.topic is None else name(event.topic)


def packet(event: PacketEvent) -> str:
    """A packet: ``PUBLISH q1 id=4 a/b (27 bytes)``."""
    found, version = event.packet, event.connection.version
    kind = found.packet_type
    if isinstance(found, packets.Publish):
        return _publish(event, found)
    title = kind.name
    if isinstance(found, packets.Connect):
        return _connect(found)
    if isinstance(found, packets.Connack):
        present = ", session present" if found.session_present else ""
        return f"{title} {reason(kind, found.reason_code or 0, version)}{present}"
    if isinstance(found, packets.Disconnect):
        if version != ProtocolVersion.V5:
            return title
        told = "" if event.connection.doubtful else reason_string(found.properties)
        return f"{title} {reason(kind, found.reason_code or 0, version)}" + (f" ({told})" if told else "")
    identifier = getattr(found, "packet_identifier", None)
    if identifier is not None:
        title += f" id={identifier}"
    if isinstance(found, packets.Subscribe) and not event.connection.doubtful:
        rows = found.subscriptions or ()
        shown = [f"{name(row.topic_filter)} (q{row.maximum_qos})" for row in rows[:MAX_FILTERS]]
        shown += [f"{len(rows) - MAX_FILTERS} more"] if len(rows) > MAX_FILTERS else []
        return f"{title} {', '.join(shown)}"
    if isinstance(found, packets.Suback | packets.Unsuback):
        codes = found.reason_codes or ()
        shown = [reason(kind, one, version) for one in codes[:MAX_FILTERS]]
        shown += [f"{len(codes) - MAX_FILTERS} more"] if len(codes) > MAX_FILTERS else []
        return f"{title} {', '.join(shown)}".rstrip()
    value = getattr(found, "reason_code", None)
    return f"{title} {reason(kind, value, version)}" if value else title


def _publish(event: PacketEvent, found: packets.Publish) -> str:
    marks = f"q{found.qos}" + (" dup" if found.dup else "") + (" retain" if found.retain else "")
    identifier = "" if found.packet_identifier is None else f" id={found.packet_identifier}"
    return f"PUBLISH {marks}{identifier} {topic_of(event)} ({counted(len(found.raw) + found.missing, 'byte')})"


def _connect(found: packets.Connect) -> str:
    started = "clean start" if found.version == ProtocolVersion.V5 else "clean session"
    parts = [found.version.text, *([started] if found.clean_start else [])]
    parts.append(f"keep alive {found.keep_alive} s" if found.keep_alive else "no keep alive")
    parts += ["will"] if found.will is not None else []
    return f"CONNECT {', '.join(parts)}"


def damaged(event: MalformedEvent | UnparsedEvent) -> str:
    """Bytes that are no packet, or a damaged one."""
    if isinstance(event, MalformedEvent):
        found = event.malformed
        title = "bytes that begin no packet" if found.packet_type is None else _type(found.packet_type)
        missing = f", {counted(found.missing, 'byte')} never came" if found.missing else ""
        return f"malformed {title} ({str(found.reason).replace('_', ' ')}{missing})"
    left = event.unparsed
    if left.reason == "proxy_header":
        return f"PROXY protocol header ({counted(left.length, 'byte')})"
    size = counted(left.length, "byte")
    if left.packet_type is None:
        return f"bytes ({size}) that were not read as a packet"
    return f"beginning of a {_type(left.packet_type)} ({size}), which was not read as a packet"


def _type(number: int) -> str:
    try:
        return PacketType(number).name
    except ValueError:
        return type_name(number)
