"""Sets fields of client packets or leaves them out (``--set PATH=VALUE``, ``--unset PATH``), and applies all rewrites.

Only client packets are changed.  Their answers are adapted as far as the change determines them: QoS (`change_qos`),
Session Present of a CONNECT that now begins a new session, granted QoS.  Deliveries to other clients are not adapted,
and a note reports that.

Fields are named by the paths of the JSON output: ``publish.properties.content_type``.  They come from the declarations
of the packets and the table of properties.  As in filters, ``properties`` may be left out
(``publish.content_type``), and so may everything between the packet and the last word, if only one field has that
name (``connect.will_delay_interval``).

Values are read by the type of the field.  Numbers are decimal or ``0x…``, those in seconds may be written ``30s`` or
``1h30m``, those in bytes ``10KiB``; flags are ``true`` and ``false``; bytes are text (UTF-8), ``hex:00ff``, ``@file``,
or ``text:…`` where the text itself begins with one of these; a User Property is ``NAME=VALUE``.

`rewrite` changes both directions alike, so that a comparison with a live broker expects the new names.  The scripts
passed in are never changed.  An entry without changes keeps its packet and its bytes; other entries get the bytes
that their new packet is encoded to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from mqttscope.filter import literals
from mqttscope.filter.fields import unit_of
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, allowed_reason_codes, type_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.fields import BITS, PacketField, fields_of
from mqttscope.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.properties import EMPTY, Properties, Property
from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem, topic_name_problem, utf8_length
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER, U8
from mqttscope.replay.rewrite.links import Changes, RewriteError, client_entries, copy_scripts, rename, set_packet
from mqttscope.replay.rewrite.names import ClientMapping, TopicMapping, judge_identifier, map_clients, map_topics
from mqttscope.replay.rewrite.qos import change_qos
from mqttscope.replay.script import Script, ScriptEntry

ReadFile = Callable[[str], bytes]


@dataclass(slots=True, frozen=True)
class Rewrites:
    """Changes to be made."""

    topics: Sequence[TopicMapping] = ()
    clients: Sequence[ClientMapping] = ()
    settings: Sequence[Setting] = ()

    @classmethod
    def parse(
        cls,
        topics: Sequence[str] = (),
        clients: Sequence[str] = (),
        settings: Sequence[str] = (),
        unset: Sequence[str] = (),
        *,
        password: bytes | None = None,
        read_file: ReadFile | None = None,
    ) -> Rewrites:
        """Parse the values of ``--map-topic``, ``--map-client``, ``--set`` and ``--unset``; raises RewriteError.

        ``password`` comes from the environment or a file; ``read_file`` reads ``@file``.
        """
        parsed = [_parse_option("--unset", Setting.parse_unset, text) for text in unset]
        parsed += [_parse_option("--set", lambda text: Setting.parse(text, read_file), setting) for setting in settings]
        if password is not None:
            parsed.append(Setting.password(password))
        return cls(
            [TopicMapping.parse(text) for text in topics], [ClientMapping.parse(text) for text in clients], parsed
        )

    def __bool__(self) -> bool:
        return bool(self.topics or self.clients or self.settings)


def _parse_option(option: str, parse: Callable[[str], Setting], text: str) -> Setting:
    try:
        return parse(text)
    except RewriteError as error:
        raise RewriteError(f"{option}: {error}") from None


def rewrite(scripts: Sequence[Script], rewrites: Rewrites) -> tuple[list[Script], Changes]:
    """Changed copies of scripts, and the changes made.

    Mappings come first and apply to recorded names; fields that are set override mapped ones.
    """
    changes = Changes()
    copies = copy_scripts(scripts)
    if rewrites.topics:
        map_topics(copies, rewrites.topics, changes)
    if rewrites.clients:
        map_clients(copies, rewrites.clients, changes)
    if rewrites.settings:
        apply_settings(copies, rewrites.settings, changes)
    return copies, changes


QOS = "publish.qos"
_TOPIC_PATHS = ("publish.topic_name", "publish.properties.topic_alias")


@dataclass(slots=True, frozen=True)
class Setting:
    """One field and its new value."""

    target: SettableField
    value: Any
    """``None`` leaves the field out."""
    index: int | None = None
    """Index of a subscription or a topic filter; ``None`` means all of them."""

    @classmethod
    def parse(cls, text: str, read_file: ReadFile | None = None) -> Setting:
        """Parse ``PATH=VALUE``."""
        path, equals, value = text.partition("=")
        if not equals:
            # The value may be a secret.
            field = _known_part(text.partition(":")[0].strip())
            raise RewriteError(f"{field}: write PATH=VALUE" if field else "write PATH=VALUE")
        target, index = find_target(path.strip())
        refuse(target)
        return cls(target, parse_value(target, value, read_file), index)

    @classmethod
    def parse_unset(cls, path: str) -> Setting:
        """The setting that leaves a field out."""
        target, index = find_target(path.strip())
        if not target.optional:
            raise RewriteError(f"{target.path} cannot be left out: it is not optional")
        return cls(target, None, index)

    @classmethod
    def password(cls, value: bytes) -> Setting:
        """The setting of the password, for a caller that reads it from the environment or a file."""
        return cls(targets()["connect.password"], value)


def apply_settings(scripts: list[Script], settings: Sequence[Setting], changes: Changes) -> None:
    """Set fields in copied scripts; if two settings are for one field, the last one applies."""
    used = dict.fromkeys((setting.target.path for setting in settings), False)
    qos = None
    for setting in settings:
        if setting.target.path == QOS:
            qos = setting.value
    if qos is not None:
        used[QOS] = change_qos(scripts, qos, changes)
    by_class: dict[type[ControlPacket], list[Setting]] = {}
    for setting in settings:
        if setting.target.path != QOS:
            by_class.setdefault(setting.target.cls, []).append(setting)
    changed: dict[ScriptEntry, ControlPacket] = {}
    for script, entry in client_entries(scripts):
        before = entry.packet
        own_settings = None if isinstance(before, Malformed) else by_class.get(type(before))
        if own_settings is not None and not isinstance(before, Malformed):
            _change(script, entry, before, own_settings, used, changes)
            if entry.packet is not before and not isinstance(before, Publish):
                changed[entry] = before
    _adapt_answers(scripts, changed, changes)
    for path, was_used in used.items():
        if not was_used:
            changes.note(f"{path} applied to no packet")
        elif path.startswith("publish.") and path not in _OWN_BUSINESS:
            changes.note(f"{path}: deliveries to subscribers are still expected as recorded")


_OWN_BUSINESS = (QOS, "publish.dup", "publish.properties.topic_alias")
"""Fields of PUBLISH that subscribers do not see."""


def _change(
    script: Script,
    entry: ScriptEntry,
    packet: ControlPacket,
    settings: list[Setting],
    used: dict[str, bool],
    changes: Changes,
) -> None:
    changed = packet
    for setting in settings:
        path = setting.target.path
        if setting.target.since > script.version:
            changes.count(
                f"{changed.packet_type.name} packet", f"without {path}: MQTT {script.version.text} has no such field"
            )
            continue
        if path in _TOPIC_PATHS and entry.topic is not None and isinstance(changed, Publish):
            # Every PUBLISH names its topic itself: with another alias, or without one, the topic would be unknown.
            changed = replace(changed, topic_name=entry.topic)
        with_field = with_setting(changed, setting)
        if with_field is None:
            changes.count(f"{changed.packet_type.name} packet", f"left as it is: it has no {_container(setting)}")
            continue
        changed, used[path] = with_field, True
        if path == "publish.topic_name":
            entry.topic = setting.value
        elif path == "connect.client_identifier":
            judge_identifier(setting.value, script.version, changes)
            rename(script, setting.value)
    has_password_only = isinstance(changed, Connect) and changed.password is not None and changed.user_name is None
    had_user_name = isinstance(packet, Connect) and packet.user_name is not None
    if has_password_only and had_user_name and script.version < ProtocolVersion.V5:  # 3.1.1 MQTT-3.1.2-22
        changed = replace(changed, password=None)  # type: ignore[call-arg]
        changes.count("password", f"left out with its User Name: MQTT {script.version.text} requires both")
    if changed != packet:
        if isinstance(changed, Connect):
            changed = replace(changed, connect_flags=None)
        set_packet(entry, changed, script.version)
        changes.count(f"{changed.packet_type.name} packet", "set as asked")


def _container(setting: Setting) -> str:
    if setting.target.part == "will":
        return "Will"
    return f"{setting.target.part}[{setting.index}]"


def with_setting(packet: ControlPacket, setting: Setting) -> ControlPacket | None:
    """A packet with one field set; ``None`` if it lacks the part that contains the field."""
    target, value = setting.target, setting.value
    if target.part == "will":
        assert isinstance(packet, Connect)
        return None if packet.will is None else replace(packet, will=_in_part(packet.will, target, value))
    if target.part == "subscriptions":
        assert isinstance(packet, Subscribe)
        return _in_list(packet, "subscriptions", setting, lambda row: replace(row, **{target.name: value}))
    if target.part == "topic_filters":
        assert isinstance(packet, Unsubscribe)
        return _in_list(packet, "topic_filters", setting, lambda row: value)
    if isinstance(packet, Publish) and target.name == "payload":
        return replace(packet, payload=value, missing=0)
    changed: ControlPacket = _in_part(packet, target, value)
    return changed


def _in_part(part: Any, target: SettableField, value: Any) -> Any:
    """The packet or Will with a field or property set."""
    if target.block:
        return replace(part, properties=EMPTY)
    if target.row is not None:
        return replace(part, properties=_with_property(part.properties, target, value))
    return replace(part, **{target.name: value})


def _in_list(packet: ControlPacket, name: str, setting: Setting, change: Any) -> ControlPacket | None:
    rows = getattr(packet, name)
    if setting.index is not None and setting.index >= len(rows):
        return None
    changed = [change(row) if setting.index in (None, index) else row for index, row in enumerate(rows)]
    return replace(packet, **{name: changed})  # type: ignore[arg-type]


def _with_property(block: Properties | None, target: SettableField, value: Any) -> Properties:
    """The block with a property set at its old position, else at the end.

    A User Property replaces only User Properties of the same name.
    """
    assert target.row is not None
    number = target.row.identifier
    items: list[tuple[int, Any]] = []
    placed = value is None
    for other, old in block.items if block is not None else ():
        if other != number or (target.name == "user_property" and value is not None and old[0] != value[0]):
            items.append((other, old))
        elif not placed:
            items.append((number, value))
            placed = True
    if not placed:
        items.append((number, value))
    return Properties.of(items)


def _adapt_answers(scripts: Iterable[Script], changed: dict[ScriptEntry, ControlPacket], changes: Changes) -> None:
    """Adapt the server's answers to changed packets, as far as the change determines them."""
    for script in scripts:
        for entry in script.entries:
            if entry.answers not in changed:
                continue
            packet, request = entry.packet, entry.answers.packet
            adapted: ControlPacket | None = None
            if isinstance(packet, Connack) and isinstance(request, Connect):
                if request.clean_start and packet.session_present:  # 5.0 MQTT-3.2.2-2
                    adapted = replace(packet, session_present=False)
            elif isinstance(packet, Suback) and isinstance(request, Subscribe):
                before = changed[entry.answers]
                assert isinstance(before, Subscribe)
                codes = _granted(packet.reason_codes, before, request)
                adapted = None if codes == packet.reason_codes else replace(packet, reason_codes=codes)
            if adapted is not None:
                set_packet(entry, adapted, script.version)
                changes.count(f"{adapted.packet_type.name} packet", "expected to differ, since its request changed")


def _granted(codes: list[int], before: Subscribe, after: Subscribe) -> list[int]:
    """Granted QoS: all that is requested if that was so before, else at most the QoS granted before (5.0 3.9.3)."""
    if len(codes) != len(after.subscriptions):
        return codes
    granted = []
    for code, old, new in zip(codes, before.subscriptions, after.subscriptions, strict=True):
        full = code == old.maximum_qos
        granted.append(code if code > 2 else new.maximum_qos if full else min(code, new.maximum_qos))
    return granted


MAX_LENGTH = 65_535
"""Maximum length of a string or of Binary Data (5.0 1.5.4, 1.5.6)."""
_HIGHEST = {
    "Byte": 0xFF,
    "Two Byte Integer": 0xFFFF,
    "Four Byte Integer": 0xFFFFFFFF,
    "Variable Byte Integer": MAX_VARIABLE_BYTE_INTEGER,
}
_RANGES = {
    "qos": (0, 2),
    "will_qos": (0, 2),
    "maximum_qos": (0, 2),
    "retain_handling": (0, 2),
    "payload_format_indicator": (0, 1),
    "request_problem_information": (0, 1),
    "request_response_information": (0, 1),
}
_NOT_ZERO = frozenset({"receive_maximum", "maximum_packet_size", "topic_alias", "subscription_identifier"})
"""Properties that must not be 0 (5.0 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.4, 3.8.2.1.2)."""
_NAMES = frozenset({"topic_name", "will_topic", "response_topic"})
_OTHERS = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGREQ, PacketType.PINGRESP)
_CLIENT_PACKETS = tuple(kind for kind in PacketType if kind not in _OTHERS)
"""Packets that clients send and that have fields."""
_SECRET = "it is a secret: give it from the environment or a file, never on the command line"
REFUSED = {
    **{field.key: _SECRET for kind in _CLIENT_PACKETS for field in fields_of(kind) if field.secret},
    "connect.protocol_name": "it follows from the version; convert the recording instead",
    "connect.protocol_level": "it follows from the version; convert the recording instead",
    "connect.connect_flags": "it follows from the other fields",
    "subscribe.subscriptions.reserved": "these bits are reserved",
    **{
        f"{type_name(kind)}.packet_identifier": "it ties packets to their answers"
        for kind in _CLIENT_PACKETS
        if kind not in (PacketType.CONNECT, PacketType.DISCONNECT, PacketType.AUTH)
    },
}
"""Fields that cannot be set, with the reason."""
_OPTIONAL = frozenset({"connect.user_name", "connect.password", "connect.will"})
"""Fields besides properties and reason codes that can be left out."""

_LISTS = ("subscriptions", "topic_filters")
"""Parts of packets with elements that have an index."""

_INDEX = re.compile(r"(.*?)\[([0-9]+)\](.*)", re.DOTALL)


@dataclass(slots=True, frozen=True)
class SettableField:
    """One field that can be set or left out."""

    path: str
    """Path as in JSON, beginning with the packet; lists without an index."""
    cls: type[ControlPacket]
    part: str
    """Part of the packet: empty, ``will``, ``subscriptions`` or ``topic_filters``."""
    name: str
    """Name of the attribute or of the property."""
    kind: str
    """``flag``, or the data type as the specification calls it."""
    row: Property | None = None
    """The property's row in the table; ``None`` for other fields."""
    block: bool = False
    """Whether it is a whole property block."""
    since: ProtocolVersion = ProtocolVersion.V3_1

    @property
    def optional(self) -> bool:
        return self.row is not None or self.block or self.name == "reason_code" or self.path in _OPTIONAL


@cache
def targets() -> dict[str, SettableField]:
    """All fields of clients' packets by path, refused ones included."""
    return {
        field.key: _target(field)
        for kind in _CLIENT_PACKETS
        for field in fields_of(kind)
        if not (field.is_part and field.path.endswith("[]"))
    }


def _target(field: PacketField) -> SettableField:
    first, name = field.words[0], field.name
    kind = "flag" if field.value_type is bool else U8.name if field.wire == BITS else field.wire
    if field.path == "topic_filters[]":
        name = "topic_filter"
    part = first if first in _LISTS or (first == "will" and len(field.words) > 1) else ""
    return SettableField(
        field.key,
        field.packet,
        part,
        name,
        kind,
        field.row,
        block=field.value_type is Properties,
        since=field.versions[0],
    )


@cache
def _names() -> dict[str, list[SettableField]]:
    """Fields by all names that select them; full paths take precedence over short names."""
    by_name = {path: [target] for path, target in targets().items()}
    for at_ends in (False, True):
        more: dict[str, list[SettableField]] = {}
        for path, target in targets().items():
            words = path.split(".")
            short = f"{words[0]}.{words[-1]}" if at_ends else path.replace(".properties.", ".")
            if short not in by_name and not target.block:
                more.setdefault(short, []).append(target)
        by_name |= more
    return by_name


def find_target(path: str) -> tuple[SettableField, int | None]:
    """The field of a path, and the index if the path has one (``subscribe.subscriptions[0].maximum_qos``)."""
    index = None
    indexed = _INDEX.fullmatch(path)
    plain = path
    if indexed is not None:
        plain, index = indexed[1] + indexed[3], int(indexed[2])
    fields = _names().get(plain)
    if fields is None:
        raise RewriteError(_unknown(plain, path))
    if len(fields) > 1:
        raise RewriteError(f"{path} may be {' or '.join(field.path for field in fields)}: write one of them")
    target = fields[0]
    if index is not None and target.part not in _LISTS:
        raise RewriteError(f"{path}: only subscriptions and topic_filters have an index")
    return target, index


def _unknown(plain: str, path: str) -> str:
    packet, _, rest = plain.partition(".")
    if packet in map(type_name, _OTHERS):
        return f"{packet}: only packets of clients can be set, and {packet} is not one or has no fields"
    packets = [type_name(kind) for kind in _CLIENT_PACKETS]
    if packet not in packets:
        ends = [name for name in targets() if name.endswith(f".{plain}")]
        near = ends[:3] or get_close_matches(plain, list(_names()), 3, 0.6)
    else:
        field_names = [name for name in _names() if name.startswith(f"{packet}.")]
        within = [name for name in field_names if rest and rest in name]
        near = get_close_matches(plain, field_names, 3, 0.6) or within[:3]
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; a path begins with one of {', '.join(packets)}"
    return f"{_known_part(path) or 'this'} is not a field that can be set{hint}"


def _known_part(path: str) -> str:
    """The part of an invalid path that may be repeated: only words of fields, since the others may be a secret."""
    known = {word for name in _names() for word in name.split(".")}
    words = path.split(".")
    count = next((place for place, word in enumerate(words) if word not in known), len(words))
    return ".".join([*words[:count], *(["…"] if 0 < count < len(words) else [])])


def refuse(target: SettableField) -> None:
    """Raise `RewriteError` for a field that cannot be set."""
    why = REFUSED.get(target.path)
    if why is not None:
        raise RewriteError(f"{target.path} cannot be set: {why}")


def parse_value(target: SettableField, text: str, read_file: ReadFile | None = None) -> Any:
    """Parse the value for a field; RewriteError names the path and the allowed values.

    ``read_file`` returns the bytes of ``@file``; without it, files are refused.
    """
    kind = target.kind
    if kind == "flag":
        return _flag(target, text)
    if kind in _HIGHEST:
        return _reason(target, text) if target.name == "reason_code" else _number(target, text)
    if kind == "UTF-8 Encoded String":
        return _text(target, text)
    if kind in ("Binary Data", "rest of the packet"):
        return _bytes(target, text, read_file)
    if kind == "UTF-8 String Pair":
        name, equals, value = text.partition("=")
        if not equals:
            raise _wrong(target, text, "NAME=VALUE")
        return _plain(target, name), _plain(target, value)
    raise RewriteError(f"{target.path} has no value of its own: set one of the fields in it")


def _is_plain(target: SettableField) -> bool:
    """Whether values of a field are never secret: numbers, flags and topics."""
    return target.kind == "flag" or target.kind in _HIGHEST or target.name in (*_NAMES, "topic_filter")


def _wrong(target: SettableField, text: str, allowed: str) -> RewriteError:
    shown = repr(text if len(text) <= 60 else text[:60] + "…") if _is_plain(target) else "this value"
    return RewriteError(f"{target.path}: {shown} is not allowed, only {allowed}")


def _flag(target: SettableField, text: str) -> bool:
    values = {"true": True, "false": False, "1": True, "0": False}
    value = values.get(text.lower())
    if value is None:
        raise _wrong(target, text, "true or false")
    return value


def _number(target: SettableField, text: str) -> int:
    low, high = _RANGES.get(target.name, (int(target.name in _NOT_ZERO), _HIGHEST[target.kind]))
    unit = unit_of(target.name)
    value: int | float | None = literals.integer(text)
    if value is None and unit == "seconds":
        lasting = literals.duration(text)
        value = None if lasting is None or lasting % 1_000_000_000 else lasting // 1_000_000_000
    if value is None and unit == "bytes":
        value = literals.size(text)
    if not isinstance(value, int) or not low <= value <= high:
        raise _wrong(target, text, f"{low} to {high}{f' {unit}' if unit else ''}")
    return value


def _reason(target: SettableField, text: str) -> int:
    value = literals.integer(text)
    allowed = sorted(allowed_reason_codes(target.cls.packet_type, ProtocolVersion.V5))
    if value not in allowed:
        raise _wrong(target, text, ", ".join(f"0x{code:02x}" for code in allowed))
    return value


def _plain(target: SettableField, text: str) -> str:
    if "\0" in text or utf8_length(text) > MAX_LENGTH:
        raise _wrong(target, text, f"text of at most {MAX_LENGTH} bytes without U+0000")
    return text


def _text(target: SettableField, text: str) -> str:
    if target.name in _NAMES:
        problem = topic_name_problem(text)
        if problem is not None:
            raise _wrong(target, text, f"a Topic Name ({problem.replace('_', ' ')})")
    elif target.name == "topic_filter":
        problem = topic_filter_problem(text)
        if problem is not None:
            raise _wrong(target, text, f"a Topic Filter ({FILTER_PROBLEMS[problem]})")
    return _plain(target, text)


def _bytes(target: SettableField, text: str, read_file: ReadFile | None) -> bytes:
    if text.startswith("@"):
        if read_file is None:
            raise _wrong(target, text, "text or hex:…, no files here; text:@… is text that begins with @")
        try:
            value = read_file(text[1:])
        except OSError as error:
            raise RewriteError(f"{target.path}: {text[1:]}: {error.strerror or error}") from None
    elif text.startswith("hex:"):
        try:
            value = bytes.fromhex(text[4:])
        except ValueError:
            raise _wrong(target, text, "pairs of hex digits after hex:") from None
    else:
        value = text.removeprefix("text:").encode("utf-8", "surrogateescape")
    if target.kind == "Binary Data" and len(value) > MAX_LENGTH:
        raise RewriteError(f"{target.path}: {len(value)} bytes are too many, at most {MAX_LENGTH} are allowed")
    return value
