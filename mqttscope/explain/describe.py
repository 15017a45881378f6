"""Describes packets, times and names in a few words, for sentences, without any secret."""

from __future__ import annotations

from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.explain.oddities import ENDS, announced
from mqttscope.mqtt import PacketType, Properties, ProtocolVersion, packets
from mqttscope.mqtt.constants import Direction, reason_name, type_name
from mqttscope.mqtt.foreign import foreign_protocol
from mqttscope.mqtt.view import without_topic
from mqttscope.mqtt.wire import counted
from mqttscope.net.proxy_protocol import header_length, is_health_check
from mqttscope.secrets.findings import masked
from mqttscope.secrets.packets import DISGUISED

MAX_NAME = 80
"""Characters of a topic, a Client Identifier or a Reason String that are shown."""
MAX_FILTERS = 3
LOCAL = "command LOCAL"
"""The command in a PROXY protocol header without a client."""
_SECOND = 1_000_000_000
_DAYS = 3
"""Minimum length of a span that is shown in days alone."""


def span(nanoseconds: int) -> str:
    """A length of time: ``0.4 ms``, ``6.003 s``, ``12 min 3 s``, ``5 h 2 min``, ``400 days``."""
    sign, length = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if length < _SECOND:
        return f"{sign}{length / 1e6:.1f} ms"
    if length < 600 * _SECOND:
        return f"{sign}{length / 1e9:.3f} s"
    minutes, seconds = divmod(length // _SECOND, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds} s"
    if minutes < _DAYS * 24 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60} min"
    return f"{sign}{minutes // (24 * 60):,} days"


def seconds(value: float) -> str:
    """Seconds of the protocol: ``6 s``, ``4.5 s``."""
    return f"{value:g} s"


def are(count: int) -> str:
    """The verb after a number of things."""
    return "is" if count == 1 else "are"


def listed(names: list[str], most: int = 3) -> str:
    """Names as words: ``a``, ``a and b``, ``a, b and c``, ``a, b, c and 2 more``."""
    shown = names[:most] + ([f"{len(names) - most:,} more"] if len(names) > most else [])
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""


def more_not_shown(count: int) -> str:
    """``3 more of these are not shown.``, or with ``is``."""
    return f"{count:,} more of these {are(count)} not shown."


def name(text: str | None) -> str:
    """A name of the wire without what may be a secret, cut where it is long, and in quotes where a level has blanks."""
    if not text:
        return "" if text is None else "(empty)"
    shown = _cut(text)
    if text.split() == [text]:  # no blanks
        return shown
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
    text = None if block is None else block.reason_string
    return "" if not text else _cut(text)


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
    packet, version = event.packet, event.connection.version
    kind = packet.packet_type
    if isinstance(packet, packets.Publish):
        return _publish(event, packet)
    title = kind.name
    if isinstance(packet, packets.Connect):
        return _connect(packet)
    if isinstance(packet, packets.Connack):
        present = ", session present" if packet.session_present else ""
        return f"{title} {reason(kind, packet.reason_code or 0, version)}{present}"
    if isinstance(packet, packets.Disconnect):
        if version != ProtocolVersion.V5:
            return title
        stated = "" if event.connection.doubtful else reason_string(packet.properties)
        return f"{title} {reason(kind, packet.reason_code or 0, version)}" + (f" ({stated})" if stated else "")
    identifier = getattr(packet, "packet_identifier", None)
    if identifier is not None:
        title += f" id={identifier}"
    if isinstance(packet, packets.Subscribe) and not event.connection.doubtful:
        rows = packet.subscriptions or ()
        shown = [f"{name(row.topic_filter)} (q{row.maximum_qos})" for row in rows[:MAX_FILTERS]]
        shown += [f"{len(rows) - MAX_FILTERS} more"] if len(rows) > MAX_FILTERS else []
        return f"{title} {', '.join(shown)}"
    if isinstance(packet, packets.Suback | packets.Unsuback):
        codes = packet.reason_codes or ()
        shown = [reason(kind, code, version) for code in codes[:MAX_FILTERS]]
        shown += [f"{len(codes) - MAX_FILTERS} more"] if len(codes) > MAX_FILTERS else []
        return f"{title} {', '.join(shown)}".rstrip()
    value = getattr(packet, "reason_code", None)
    return f"{title} {reason(kind, value, version)}" if value else title


def _publish(event: PacketEvent, publish: packets.Publish) -> str:
    marks = f"q{publish.qos}" + (" dup" if publish.dup else "") + (" retain" if publish.retain else "")
    identifier = "" if publish.packet_identifier is None else f" id={publish.packet_identifier}"
    return f"PUBLISH {marks}{identifier} {topic_of(event)} ({counted(len(publish.raw) + publish.missing, 'byte')})"


def _connect(connect: packets.Connect) -> str:
    started = "clean start" if connect.version == ProtocolVersion.V5 else "clean session"
    parts = [connect.version.text, *([started] if connect.clean_start else [])]
    parts.append(f"keep alive {connect.keep_alive} s" if connect.keep_alive else "no keep alive")
    parts += ["will"] if connect.will is not None else []
    return f"CONNECT {', '.join(parts)}"


def damaged(event: MalformedEvent | UnparsedEvent) -> str:
    """Bytes that are not a packet, or a damaged packet."""
    if isinstance(event, MalformedEvent):
        malformed = event.malformed
        title = "bytes that begin no packet" if malformed.packet_type is None else _type(malformed.packet_type)
        missing = f", {counted(malformed.missing, 'byte')} never came" if malformed.missing else ""
        return f"malformed {title} ({str(malformed.reason).replace('_', ' ')}{missing})"
    left = event.unparsed
    if left.reason == "proxy_header":
        command = f", {LOCAL}" * is_health_check(left.raw)
        begun = "beginning of a " * (header_length(left.raw) is None)
        return f"{begun}PROXY protocol header ({counted(left.length, 'byte')}{command})"
    size = counted(left.length, "byte")
    if left.reason == "not_mqtt":
        protocol = foreign_protocol(left.raw, is_answer=event.direction is Direction.SERVER_TO_CLIENT)
        return f"bytes of {protocol} ({size})"
    if left.packet_type is None:
        return f"bytes ({size}) that were not read as a packet"
    total = announced(left.raw)
    size = f"{left.length} of {total} bytes" if total > left.length else size
    begun = f"beginning of a {_type(left.packet_type)} ({size})"
    if left.reason not in ENDS:
        return f"{begun}, which was not read as a packet"
    return f"{begun}, inside which the {'capture ends' if left.reason == 'capture_end' else 'connection ended'}"


def _type(number: int) -> str:
    try:
        return PacketType(number).name
    except ValueError:
        return type_name(number)
