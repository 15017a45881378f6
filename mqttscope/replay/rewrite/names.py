r"""Renames topics and clients by mappings, and gives copies of a recording names of their own.

Topics: ``site/+/temp=lab/+/temp``.  The left side is a Topic Filter, the right side the new name of the topics that it
matches.  Both have the same wildcards in the same order: each ``+`` on the right stands for the level that the ``+``
on the left matched, ``#`` for all remaining levels (none, if ``site/#`` matches ``site`` itself).  Without wildcards
one topic becomes another.  As in subscriptions, a wildcard in the first level does not match topics that begin with
``$`` (5.0 4.7.2).  An equals sign inside a topic is written ``\=``.

A topic is left as it is if its new name would not match the right side (``site/#=#`` would leave nothing of ``site``,
and make a system topic of ``site/$SYS``).  A Topic Filter is mapped if the left side matches every topic that the
filter matches; if it matched a topic before, it matches the mapped topic afterwards.

Client Identifiers: ``sensor-*=load-*``.  Each ``*`` on the left matches any characters, as few as possible; the ``*``
on the right is replaced by them.  Everything else is literal; an equals sign inside is written ``\=``.

`multiply` copies a recording for many clients; a template gives each copy its topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import ClassVar, Self

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.topics import (
    FILTER_PROBLEMS,
    MAX_TOPIC_BYTES,
    SHARE,
    matches,
    topic_filter_problem,
    topic_name_problem,
    utf8_length,
)
from mqttscope.replay.rewrite import links
from mqttscope.replay.script import Script

WILDCARDS = ("+", "#")
MAX_BYTES = 65_535
_SEPARATOR = re.compile(r"(?<!\\)=")
TOPIC_TEMPLATE = "{topic}"
_PLACEHOLDER = re.compile(r"\{([a-z]*)(?::0?([0-9]{1,2}))?\}")


def _split_pair(text: str, title: str) -> tuple[str, str]:
    r"""The two sides of ``FROM=TO``; ``\=`` is an equals sign that belongs to one of them."""
    sides = [side.replace("\\=", "=") for side in _SEPARATOR.split(text)]
    if len(sides) != 2 or not all(sides):
        raise links.RewriteError(f"{title} {text!r}: write FROM=TO, and \\= for an equals sign inside of one of them")
    return sides[0], sides[1]


@dataclass(slots=True)
class NameMapping:
    """One mapping of names."""

    title: ClassVar[str]
    source: str
    target: str
    used: int = 0
    """Number of uses; a mapping that is never used may be a mistake."""

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(*_split_pair(text, cls.title))

    def __str__(self) -> str:
        return f"{self.source}={self.target}"


@dataclass(slots=True)
class TopicMapping(NameMapping):
    """One mapping of the topics that a Topic Filter matches."""

    title = "topic mapping"

    def __post_init__(self) -> None:
        for side in (self.source, self.target):
            problem = topic_filter_problem(side, shared=False)
            if problem is not None:
                why = f"{side!r} is not a Topic Filter ({FILTER_PROBLEMS[problem]})"
                raise links.RewriteError(f"topic mapping {self}: {why}")
            if side.split("/")[0] == SHARE:
                raise links.RewriteError(f"topic mapping {self}: leave out $share and the ShareName, they are kept")
        if _wildcards(self.source) != _wildcards(self.target):
            raise links.RewriteError(f"topic mapping {self}: both sides need the same wildcards in the same order")

    def name(self, topic: str) -> str | None:
        """The mapped Topic Name; ``None`` if the mapping does not apply."""
        if not matches(self.source, topic, shared=False):
            return None
        mapped = self._fill(_match_levels(self.source.split("/"), topic.split("/")))
        good = topic_name_problem(mapped) is None and matches(self.target, mapped, shared=False)
        return mapped if good else None

    def topic_filter(self, requested: str) -> str | None:
        """The mapped Topic Filter; ``None`` if it may match topics that the mapping does not apply to."""
        levels = requested.split("/")
        if levels[0][:1] == "$" and self.source.split("/")[0] in WILDCARDS:
            return None
        levels_by_wildcard = _match_levels(self.source.split("/"), levels)
        if levels_by_wildcard is None or topic_filter_problem(requested, shared=False) is not None:
            return None
        mapped = self._fill(levels_by_wildcard)
        if topic_filter_problem(mapped, shared=False) is not None:
            return None
        if mapped[:1] == "$" and self.target[:1] != "$":
            return None
        return mapped

    def touches(self, requested: str) -> bool:
        """Whether a Topic Filter and the left side may match the same topic."""
        mine, theirs = self.source.split("/"), requested.split("/")
        if (mine[0] in WILDCARDS and theirs[0][:1] == "$") or (theirs[0] in WILDCARDS and mine[0][:1] == "$"):
            return False
        for level, other in zip_longest(mine, theirs):
            if "#" in (level, other):
                return True
            if level is None or other is None or (level != other and "+" not in (level, other)):
                return False
        return True

    def _fill(self, levels_by_wildcard: list[list[str]] | None) -> str:
        assert levels_by_wildcard is not None
        parts = iter(levels_by_wildcard)
        levels: list[str] = []
        for level in self.target.split("/"):
            levels.extend(next(parts) if level in WILDCARDS else (level,))
        return "/".join(levels)


def _wildcards(topic_filter: str) -> list[str]:
    return [level for level in topic_filter.split("/") if level in WILDCARDS]


def _match_levels(source: list[str], levels: list[str]) -> list[list[str]] | None:
    """The levels that each wildcard matches; ``None`` if ``levels`` may match topics that ``source`` does not."""
    levels_by_wildcard: list[list[str]] = []
    for index, level_pattern in enumerate(source):
        if level_pattern == "#":
            return [*levels_by_wildcard, levels[index:]]
        if index >= len(levels):
            return None
        level = levels[index]
        if level_pattern == "+":
            if level == "#":
                return None
            levels_by_wildcard.append([level])
        elif level_pattern != level:
            return None
    return levels_by_wildcard if len(levels) == len(source) else None


@dataclass(slots=True)
class TopicMap:
    """Several mappings; the first that applies is used."""

    mappings: list[TopicMapping]
    changes: links.Changes = field(default_factory=links.Changes)
    _names: dict[str, str] = field(default_factory=dict)

    def name(self, topic: str) -> str:
        """The mapped Topic Name, or the name itself if no mapping applies."""
        mapped = self._names.get(topic)
        if mapped is None:
            mapped = self._names[topic] = self._name(topic)
        return mapped

    def _name(self, topic: str) -> str:
        for mapping in self.mappings:
            mapped = mapping.name(topic)
            if mapped is not None:
                mapping.used += 1
                return mapped
            if matches(mapping.source, topic, shared=False):
                self.changes.note(f"{topic!r} left as it is: {mapping} would make no Topic Name of it")
        return topic

    def topic_filter(self, requested: str) -> str:
        """The mapped Topic Filter, or the filter itself if no mapping applies."""
        result, wider = requested, None
        for mapping in self.mappings:
            mapped = mapping.topic_filter(requested)
            if mapped is not None:
                mapping.used += 1
                result = mapped
                break
            if wider is None and mapping.touches(requested):
                wider = mapping
        if wider is not None:
            # The filter matches topics inside and outside of this mapping: mapped or not, its deliveries may change.
            consequence = f"{requested!r} may receive more than was recorded, or less"
            self.changes.count("Topic Filter", f"wider than {wider.source!r}: {consequence}")
        return result


def map_topics(scripts: Iterable[Script], mappings: Iterable[TopicMapping], changes: links.Changes) -> None:
    """Map Topic Names, Will Topics, Response Topics and Topic Filters of copied scripts, in both directions.

    ``ScriptEntry.topic`` is mapped too, also if an alias replaces the topic; malformed packets are left as they are.
    """
    topics = TopicMap([TopicMapping(mapping.source, mapping.target) for mapping in mappings], changes)
    filter_change = links.shared_too(topics.topic_filter)
    for script in scripts:
        for entry in script.entries:
            packet = entry.packet
            if isinstance(packet, Malformed):
                changes.count("malformed packet", "left as recorded: topics in it are not mapped")
                continue
            renamed = links.with_topics(
                packet, topics.name, filter_change, lambda thing: changes.count(thing, "mapped")
            )
            if renamed is not packet:
                links.set_packet(entry, renamed, script.version)
            if entry.topic is not None:
                mapped = topics.name(entry.topic)
                if mapped != entry.topic and renamed is packet:
                    changes.count("Topic Name", "mapped where an alias stands for it")
                entry.topic = mapped
    for mapping in topics.mappings:
        if not mapping.used:
            changes.note(f"the topic mapping {mapping} applied to nothing{_advice(mapping)}")


def _advice(mapping: TopicMapping) -> str:
    if _wildcards(mapping.source):
        return ""
    ends = mapping.source.rstrip("/"), mapping.target.rstrip("/")
    return f"; for all topics below it write {ends[0]}/#={ends[1]}/#"


MAX_CHARACTERS_3_1 = 23
"""Maximum length of a Client Identifier in MQTT 3.1 (section 3.1)."""


@dataclass(slots=True)
class ClientMapping(NameMapping):
    """One mapping of Client Identifiers."""

    title = "client mapping"
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.source.count("*") != self.target.count("*"):
            raise links.RewriteError(f"client mapping {self}: both sides need the same number of asterisks")
        self._pattern = re.compile("(.*?)".join(map(re.escape, self.source.split("*"))), re.DOTALL)

    def client(self, identifier: str) -> str | None:
        """The mapped Client Identifier; ``None`` if the mapping does not apply."""
        match = self._pattern.fullmatch(identifier)
        if match is None:
            return None
        parts = self.target.split("*")
        return "".join(part + match[index] for index, part in enumerate(parts[:-1], 1)) + parts[-1]


def map_clients(scripts: Iterable[Script], mappings: Iterable[ClientMapping], changes: links.Changes) -> None:
    """Map the Client Identifiers of copied scripts: in CONNECT, as assigned by servers, and of the connection.

    The first mapping that applies is used; an empty Client Identifier stays empty.
    """
    copies = [ClientMapping(mapping.source, mapping.target) for mapping in mappings]

    def change(identifier: str) -> str:
        for mapping in copies:
            mapped = mapping.client(identifier)
            if mapped is not None:
                mapping.used += 1
                return mapped
        return identifier

    change_clients(scripts, change, changes)
    for mapping in copies:
        if not mapping.used:
            changes.note(f"the client mapping {mapping} applied to no client")


def change_clients(scripts: Iterable[Script], change: Callable[[str], str], changes: links.Changes) -> None:
    """Change all Client Identifiers of copied scripts with a function."""
    origins: dict[str, set[str]] = {}
    for script in scripts:
        before = script.connection.client_identifier
        for entry in script.entries:
            if isinstance(entry.packet, Malformed):
                continue
            renamed = links.with_client(entry.packet, change)
            if renamed is not entry.packet:
                links.set_packet(entry, renamed, script.version)
                changes.count("Client Identifier", "mapped" if entry.from_client else "mapped that a server assigned")
        if not before:
            continue
        after = change(before)
        if after != before:
            links.rename(script, after)
        judge_identifier(after, script.version, changes)
        origins.setdefault(after, set()).add(before)
    for after, before_all in origins.items():
        if len(before_all) > 1:
            identifiers = ", ".join(map(repr, sorted(before_all)))
            changes.note(f"{identifiers} are all {after!r} now: they will take each other's sessions over")


def judge_identifier(identifier: str, version: ProtocolVersion, changes: links.Changes) -> None:
    """Refuse a Client Identifier that cannot be sent, and note one that a server may refuse."""
    if not identifier or utf8_length(identifier) > MAX_BYTES or "\0" in identifier:
        raise links.RewriteError(f"{identifier[:60]!r} is not a Client Identifier: 1 to {MAX_BYTES} bytes, no U+0000")
    if version == ProtocolVersion.V3_1 and len(identifier) > MAX_CHARACTERS_3_1:
        problem = f"longer than the {MAX_CHARACTERS_3_1} characters of MQTT 3.1: servers may refuse it"
        changes.count("Client Identifier", problem)


def multiply(
    scripts: Sequence[Script], count: int, topic_template: str = TOPIC_TEMPLATE
) -> tuple[list[Script], links.Changes]:
    """``count`` copies of every script, at the same times, with interleaved places.

    Copy 2 of the client ``sensor`` is called ``sensor-2``.  In the template ``{n}`` is the number of the copy from 1
    (``{n:04}`` with leading zeros), and ``{topic}`` the recorded topic.  It ends with ``{topic}`` as levels of its own,
    so that it turns Topic Filters into Topic Filters; topics that begin with ``$`` are left as they are.  Packets that
    stay the same are shared between the copies.
    """
    if count < 1:
        raise links.RewriteError(f"{count} copies cannot be made")
    _judge_topic_template(topic_template)
    changes = links.Changes()
    step = 1 + max((script.connection.number for script in scripts), default=0)
    multiplied: list[Script] = []
    for number in range(1, count + 1):
        copies = links.copy_scripts(scripts)
        for script in copies:
            connection = replace(script.connection, number=script.connection.number + (number - 1) * step)
            script.connection = connection
            script.opened_place *= count
            script.ended_place *= count
            for entry in script.entries:
                entry.place = entry.place * count + number - 1
            _personalise(script, number, _topic(topic_template, number), changes)
        multiplied += copies
    # Sorted by the opening of connections, like a single recording.
    multiplied.sort(key=lambda script: (script.opened_place, script.opened_ns))
    changes.count("connection", f"made of {len(scripts)} recorded", len(multiplied))
    return multiplied, changes


def _personalise(script: Script, number: int, topic: links.Change | None, changes: links.Changes) -> None:
    def client(name: str) -> str:
        return f"{name}-{number}"

    filter_change = links.shared_too(topic) if topic is not None else None
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        renamed = links.with_client(packet, client)
        if topic is not None and filter_change is not None:
            renamed = links.with_topics(renamed, topic, filter_change, lambda thing: None)
            if entry.topic is not None:
                entry.topic = topic(entry.topic)
        if renamed is not packet:
            links.set_packet(entry, renamed, script.version)
    name = script.connection.client_identifier
    if name:
        judge_identifier(client(name), script.version, changes)
        links.rename(script, client(name))
    else:
        changes.count("connection", "without a Client Identifier of its own")


def _topic(template: str, number: int) -> links.Change | None:
    if template == TOPIC_TEMPLATE:
        return None
    front = _PLACEHOLDER.sub(lambda mark: f"{number:0{mark[2] or 1}}", template.removesuffix(TOPIC_TEMPLATE))

    def topic(text: str) -> str:
        if text[:1] == "$":
            return text
        if utf8_length(front) + utf8_length(text) > MAX_TOPIC_BYTES:
            raise links.RewriteError(f"the topic template makes a topic too long: {text[:60]!r}…")
        return front + text

    return topic


def _judge_topic_template(template: str) -> None:
    title = "topic template"
    placeholders = [mark[1] for mark in _PLACEHOLDER.finditer(template)]
    rest = _PLACEHOLDER.sub("", template)
    if any(name not in ("topic", "n") for name in placeholders) or "{" in rest or "}" in rest:
        raise links.RewriteError(f"{title} {template!r}: it may hold {{topic}} and {{n}} and nothing else in braces")
    front = template.removesuffix(TOPIC_TEMPLATE)
    if placeholders.count("topic") != 1 or front == template or (front and not front.endswith("/")):
        rule = "it ends with {topic}, after a slash where something is before it"
        raise links.RewriteError(f"{title} {template!r}: {rule}")
    if "+" in front or "#" in front or "\0" in front or front[:1] == "$":
        raise links.RewriteError(f"{title} {template!r}: no wildcards, and no $ at its beginning")
