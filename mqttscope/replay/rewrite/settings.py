"""Setting fields of what clients send, and leaving them out: ``--set PATH=VALUE``, ``--unset PATH``.

Only client packets are changed.  What answers them is adapted where it follows from them without a doubt: QoS
(`rewrite_qos`), Session Present of a CONNECT that now begins a session anew, granted QoS.  What other clients receive
is not, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.clients import judge_identifier
from mqttscope.replay.rewrite.links import client_entries, rename, say
from mqttscope.replay.rewrite.paths import Target, find_target, known_part, refuse, targets
from mqttscope.replay.rewrite.qos import change_qos
from mqttscope.replay.rewrite.values import ReadFile, parse_value
from mqttscope.replay.script import Entry, Script

QOS = "publish.qos"
_TOPIC_PATHS = ("publish.topic_name", "publish.properties.topic_alias")


@dataclass(slots=True, frozen=True)
class Setting:
    """One field and what it is set to."""

    target: Target
    value: Any
    """``None`` leaves the field out."""
    index: int | None = None
    """Of a subscription or a topic filter; ``None`` means all of them."""

    @classmethod
    def parse(cls, text: str, read_file: ReadFile | None = None) -> Setting:
        """The setting of ``PATH=VALUE``."""
        path, equals, value = text.partition("=")
        if not equals:
            # The value may be a secret.
            field = known_part(text.partition(":")[0].strip())
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
        """The setting of the password, for a caller that has it from the environment or a file."""
        return cls(targets()["connect.password"], value)


def apply_settings(scripts: list[Script], settings: Sequence[Setting], changes: Changes) -> None:
    """Set fields in copied scripts; where two settings are of the same field the last one holds."""
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
    changed: dict[Entry, ControlPacket] = {}
    for script, entry in client_entries(scripts):
        before = entry.packet
        mine = None if isinstance(before, Malformed) else by_class.get(type(before))
        if mine is not None and not isinstance(before, Malformed):
            _change(script, entry, before, mine, used, changes)
            if entry.packet is not before and not isinstance(before, Publish):
                changed[entry] = before
    _adapt_answers(scripts, changed, changes)
    for path, was_used in used.items():
        if not was_used:
            changes.note(f"{path} applied to no packet")
        elif path.startswith("publish.") and path not in _OWN_BUSINESS:
            changes.note(f"{path}: what subscribers receive is still expected as it was recorded")


_OWN_BUSINESS = (QOS, "publish.dup", "publish.properties.topic_alias")
"""Fields of PUBLISH that subscribers do not see."""


def _change(
    script: Script,
    entry: Entry,
    packet: ControlPacket,
    settings: list[Setting],
    used: dict[str, bool],
    changes: Changes,
) -> None:
    made = packet
    for setting in settings:
        path = setting.target.path
        if setting.target.since > script.version:
            changes.count(
                f"{made.packet_type.name} packet", f"without {path}: MQTT {script.version.text} has no such field"
            )
            continue
        if path in _TOPIC_PATHS and entry.topic is not None and isinstance(made, Publish):
            # Every PUBLISH names its topic itself: with another alias, or none, it could not be told.
            made = replace(made, topic_name=entry.topic)
        done = with_setting(made, setting)
        if done is None:
            changes.count(f"{made.packet_type.name} packet", f"left as it is: it has no {_container(setting)}")
            continue
        made, used[path] = done, True
        if path == "publish.topic_name":
            entry.topic = setting.value
        elif path == "connect.client_identifier":
            judge_identifier(setting.value, script.version, changes)
            rename(script, setting.value)
    lonely = isinstance(made, Connect) and made.password is not None and made.user_name is None
    had_user_name = isinstance(packet, Connect) and packet.user_name is not None
    if lonely and had_user_name and script.version < ProtocolVersion.V5:  # 3.1.1 MQTT-3.1.2-22
        made = replace(made, password=None)  # type: ignore[call-arg]
        changes.count("password", f"left out with its User Name: MQTT {script.version.text} has none alone")
    if made != packet:
        if isinstance(made, Connect):
            made = replace(made, connect_flags=None)
        say(entry, made, script.version)
        changes.count(f"{made.packet_type.name} packet", "set as asked")


def _container(setting: Setting) -> str:
    if setting.target.part == "will":
        return "Will"
    return f"{setting.target.part}[{setting.index}]"


def with_setting(packet: ControlPacket, setting: Setting) -> ControlPacket | None:
    """A packet with one field set; ``None`` where it has not what the field would be in."""
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
    made: ControlPacket = _in_part(packet, target, value)
    return made


def _in_part(part: Any, target: Target, value: Any) -> Any:
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
    made = [change(row) if setting.index in (None, index) else row for index, row in enumerate(rows)]
    return replace(packet, **{name: made})  # type: ignore[arg-type]


def _with_property(block: Properties | None, target: Target, value: Any) -> Properties:
    """The block with a property set where it stood, else at its end.

    A User Property replaces those of the same name and leaves the others.
    """
    assert target.row is not None
    number = target.row.identifier
    items: list[tuple[int, Any]] = []
    placed = value is None
    for one, old in block.items if block is not None else ():
        if one != number or (target.name == "user_property" and value is not None and old[0] != value[0]):
            items.append((one, old))
        elif not placed:
            items.append((number, value))
            placed = True
    if not placed:
        items.append((number, value))
    return Properties.of(items)


def _adapt_answers(scripts: Iterable[Script], changed: dict[Entry, ControlPacket], changes: Changes) -> None:
    """What the server says to changed packets, as far as it follows from them."""
    for script in scripts:
        for entry in script.entries:
            if entry.answers not in changed:
                continue
            packet, asked = entry.packet, entry.answers.packet
            made: ControlPacket | None = None
            if isinstance(packet, Connack) and isinstance(asked, Connect):
                if asked.clean_start and packet.session_present:  # 5.0 MQTT-3.2.2-2
                    made = replace(packet, session_present=False)
            elif isinstance(packet, Suback) and isinstance(asked, Subscribe):
                before = changed[entry.answers]
                assert isinstance(before, Subscribe)
                codes = _granted(packet.reason_codes, before, asked)
                made = None if codes == packet.reason_codes else replace(packet, reason_codes=codes)
            if made is not None:
                say(entry, made, script.version)
                changes.count(f"{made.packet_type.name} packet", "expected otherwise, since its request changed")


def _granted(codes: list[int], before: Subscribe, after: Subscribe) -> list[int]:
    """Granted QoS: all that is asked for where it was so before, else no more than then (5.0 3.9.3)."""
    if len(codes) != len(after.subscriptions):
        return codes
    granted = []
    for code, old, new in zip(codes, before.subscriptions, after.subscriptions, strict=True):
        full = code == old.maximum_qos
        granted.append(code if code > 2 else new.maximum_qos if full else min(code, new.maximum_qos))
    return granted
