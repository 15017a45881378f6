r"""Renames topics and clients by mappings, and gives copies of a recording names of their own.

Topics: ``site/+/temp=lab/+/temp``.  The left side is a Topic Filter, the right side what becomes of the topics that it
matches.  Both have the same wildcards in the same order: each ``+`` on the right stands for the level that the ``+`` on
the left stood for, ``#`` for all levels that are left (none, where ``site/#`` matches ``site`` itself).  Without
wildcards one topic becomes another.  As in subscriptions a wildcard in the first level does not match topics that begin
with ``$`` (5.0 4.7.2).  An equals sign inside a topic is written ``\=``.

A topic is left as it is when its new name would not match the right side (``site/#=#`` would leave nothing of ``site``,
and make a system topic of ``site/$SYS``).  A Topic Filter is mapped when every topic that it matches is one that the
left side matches; if it matched a topic before, it matches the mapped topic afterwards.

Client Identifiers: ``sensor-*=load-*``.  Each ``*`` on the left matches any characters, as few as will do, and stands
for the same characters on the right.  Everything else is literal; an equals sign inside is written ``\=``.

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


def _split_pair(text: str, what: str) -> tuple[str, str]:
    r"""The two sides of ``FROM=TO``; ``\=`` is an equals sign that belongs to one of them."""
    sides = [side.replace("\\=", "=") for side in _SEPARATOR.split(text)]
    if len(sides) != 2 or not all(sides):
        raise links.RewriteError(f"{what} {text!r}: write FROM=TO, and \\= for an equals sign inside of one of them")
    return sides[0], sides[1]


@dataclass(slots=True)
class NameMapping:
    """What becomes of some names."""

    what: ClassVar[str]
    source: str
    target: str
    used: int = 0
    """How often it was used; a mapping that is never used may be a mistake."""

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(*_split_pair(text, cls.what))

    def __str__(self) -> str:
        return f"{self.source}={self.target}"


@dataclass(slots=True)
class TopicMapping(NameMapping):
    """One mapping of the topics that a Topic Filter matches."""

    what = "topic mapping"

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
        """The mapped Topic Name; ``None`` where the mapping does not apply."""
        if not matches(self.source, topic, shared=False):
            return None
        mapped = self._fill(_inside(self.source.split("/"), topic.split("/")))
        good = topic_name_problem(mapped) is None and matches(self.target, mapped, shared=False)
        return mapped if good else None

    def topic_filter(self, asked: str) -> str | None:
        """The mapped Topic Filter; ``None`` where it may match topics that the mapping does not apply to."""
        levels = asked.split("/")
        if levels[0][:1] == "$" and self.source.split("/")[0] in WILDCARDS:
            return None
        found = _inside(self.source.split("/"), levels)
        if found is None or topic_filter_problem(asked, shared=False) is not None:
            return None
        mapped = self._fill(found)
        if topic_filter_problem(mapped, shared=False) is not None:
            return None
        if mapped[:1] == "$" and self.target[:1] != "$":
            return None
        return mapped

    def touches(self, asked: str) -> bool:
        """Whether a Topic Filter and the left side may match the same topic."""
        mine, theirs = self.source.split("/"), asked.split("/")
        if (mine[0] in WILDCARDS and theirs[0][:1] == "$") or (theirs[0] in WILDCARDS and mine[0][:1] == "$"):
            return False
        for one, other in zip_longest(mine, theirs):
            if "#" in (one, other):
                return True
            if one is None or other is None or (one != other and "+" not in (one, other)):
                return False
        return True

    def _fill(self, found: list[list[str]] | None) -> str:
        assert found is not None
        parts = iter(found)
        levels: list[str] = []
        for level in self.target.split("/"):
            levels.extend(next(parts) if level in WILDCARDS else (level,))
        return "/".join(levels)


def _wildcards(topic_filter: str) -> list[str]:
    return [level for level in topic_filter.split("/") if level in WILDCARDS]


def _inside(source: list[str], levels: list[str]) -> list[list[str]] | None:
    """The levels that each wildcard stands for; ``None`` where ``levels`` may match what ``source`` does not."""
    found: list[list[str]] = []
    for index, wanted in enumerate(source):
        if wanted == "#":
            return [*found, levels[index:]]
        if index >= len(levels):
            return None
        level = levels[index]
        if wanted == "+":
            if level == "#":
                return None
            found.append([level])
        elif wanted != level:
            return None
    return found if len(levels) == len(source) else None


@dataclass(slots=True)
class TopicMap:
    """Several mappings; the first that applies is used."""

    mappings: list[TopicMapping]
    changes: links.Changes = field(default_factory=links.Changes)
    _names: dict[str, str] = field(default_factory=dict)

    def name(self, topic: str) -> str:
        """The mapped Topic Name, the name itself where no mapping applies."""
        known = self._names.get(topic)
        if known is None:
            known = self._names[topic] = self._name(topic)
        return known

    def _name(self, topic: str) -> str:
        for mapping in self.mappings:
            mapped = mapping.name(topic)
            if mapped is not None:
                mapping.used += 1
                return mapped
            if matches(mapping.source, topic, shared=False):
                self.changes.note(f"{topic!r} left as it is: {mapping} would make no Topic Name of it")
        return topic

    def topic_filter(self, asked: str) -> str:
        """The mapped Topic Filter, the filter itself where no mapping applies."""
        result, wider = asked, None
        for mapping in self.mappings:
            mapped = mapping.topic_filter(asked)
            if mapped is not None:
                mapping.used += 1
                result = mapped
                break
            if wider is None and mapping.touches(asked):
                wider = mapping
        if wider is not None:
            # It may match topics of this mapping and others: wherever it points afterwards, something changes.
            told = f"{asked!r} may receive more than was recorded, or less"
            self.changes.count("Topic Filter", f"wider than {wider.source!r}: {told}")
        return result


def map_topics(scripts: Iterable[Script], mappings: Iterable[TopicMapping], changes: links.Changes) -> None:
    """Map Topic Names, Will Topics, Response Topics and Topic Filters of copied scripts, in both directions.

    ``Entry.topic`` is mapped too, so a topic that an alias stands for is; malformed packets are left as they are.
    """
    topics = TopicMap([TopicMapping(one.source, one.target) for one in mappings], changes)
    asked = links.shared_too(topics.topic_filter)
    for script in scripts:
        for entry in script.entries:
            packet = entry.packet
            if isinstance(packet, Malformed):
                changes.count("malformed packet", "left as recorded: topics in it are not mapped")
                continue
            made = links.with_topics(packet, topics.name, asked, lambda thing: changes.count(thing, "mapped"))
            if made is not packet:
                links.say(entry, made, script.version)
            if entry.topic is not None:
                mapped = topics.name(entry.topic)
                if mapped != entry.topic and made is packet:
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
"""Longest Client Identifier of MQTT 3.1 (section 3.1)."""


@dataclass(slots=True)
class ClientMapping(NameMapping):
    """One mapping of Client Identifiers."""

    what = "client mapping"
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.source.count("*") != self.target.count("*"):
            raise links.RewriteError(f"client mapping {self}: both sides need the same number of asterisks")
        self._pattern = re.compile("(.*?)".join(map(re.escape, self.source.split("*"))), re.DOTALL)

    def client(self, identifier: str) -> str | None:
        """The mapped Client Identifier; ``None`` where the mapping does not apply."""
        found = self._pattern.fullmatch(identifier)
        if found is None:
            return None
        parts = self.target.split("*")
        return "".join(part + found[index] for index, part in enumerate(parts[:-1], 1)) + parts[-1]


def map_clients(scripts: Iterable[Script], mappings: Iterable[ClientMapping], changes: links.Changes) -> None:
    """Map the Client Identifiers of copied scripts: of CONNECT, those that servers assigned, and of the connection.

    The first mapping that applies is used; an empty Client Identifier stays empty.
    """
    mine = [ClientMapping(one.source, one.target) for one in mappings]

    def change(identifier: str) -> str:
        for mapping in mine:
            mapped = mapping.client(identifier)
            if mapped is not None:
                mapping.used += 1
                return mapped
        return identifier

    change_clients(scripts, change, changes)
    for mapping in mine:
        if not mapping.used:
            changes.note(f"the client mapping {mapping} applied to nobody")


def change_clients(scripts: Iterable[Script], change: Callable[[str], str], changes: links.Changes) -> None:
    """Put all Client Identifiers of copied scripts through a function."""
    origins: dict[str, set[str]] = {}
    for script in scripts:
        before = script.connection.client_identifier
        for entry in script.entries:
            if isinstance(entry.packet, Malformed):
                continue
            made = links.with_client(entry.packet, change)
            if made is not entry.packet:
                links.say(entry, made, script.version)
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
            told = ", ".join(map(repr, sorted(before_all)))
            changes.note(f"{told} are all {after!r} now: they will take each other's sessions over")


def judge_identifier(identifier: str, version: ProtocolVersion, changes: links.Changes) -> None:
    """Refuse a Client Identifier that cannot be sent, and say where a server may refuse it."""
    if not identifier or utf8_length(identifier) > MAX_BYTES or "\0" in identifier:
        raise links.RewriteError(f"{identifier[:60]!r} is not a Client Identifier: 1 to {MAX_BYTES} bytes, no U+0000")
    if version == ProtocolVersion.V3_1 and len(identifier) > MAX_CHARACTERS_3_1:
        told = f"longer than the {MAX_CHARACTERS_3_1} characters of MQTT 3.1: servers may refuse it"
        changes.count("Client Identifier", told)


def multiply(
    scripts: Sequence[Script], count: int, topic_template: str = TOPIC_TEMPLATE
) -> tuple[list[Script], links.Changes]:
    """``count`` copies of every script, at the same times, with places that interleave.

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
    made: list[Script] = []
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
        made += copies
    # As with one recording: in the order in which connections were opened.
    made.sort(key=lambda script: (script.opened_place, script.opened_ns))
    changes.count("connection", f"made of {len(scripts)} recorded", len(made))
    return made, changes


def _personalise(script: Script, number: int, topic: links.Change | None, changes: links.Changes) -> None:
    def client(name: str) -> str:
        return f"{name}-{number}"

    asked = links.shared_too(topic) if topic is not None else None
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        made = links.with_client(packet, client)
        if topic is not None and asked is not None:
            made = links.with_topics(made, topic, asked, lambda thing: None)
            if entry.topic is not None:
                entry.topic = topic(entry.topic)
        if made is not packet:
            links.say(entry, made, script.version)
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
    what = "topic template"
    found = [mark[1] for mark in _PLACEHOLDER.finditer(template)]
    rest = _PLACEHOLDER.sub("", template)
    if any(name not in ("topic", "n") for name in found) or "{" in rest or "}" in rest:
        raise links.RewriteError(f"{what} {template!r}: it may hold {{topic}} and {{n}} and nothing else in braces")
    front = template.removesuffix(TOPIC_TEMPLATE)
    if found.count("topic") != 1 or front == template or (front and not front.endswith("/")):
        told = "it ends with {topic}, after a slash where something is before it"
        raise links.RewriteError(f"{what} {template!r}: {told}")
    if "+" in front or "#" in front or "\0" in front or front[:1] == "$":
        raise links.RewriteError(f"{what} {template!r}: no wildcards, and no $ at its beginning")
