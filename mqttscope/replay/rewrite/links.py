"""Changes copies of scripts and keeps the links between entries: which one answers which, which one resends which.

A recording is copied before it is changed (`copy_scripts`), so that the original stays as it is.  On the copy,
`set_packet` gives an entry another packet, `drop` removes entries, and `renumber` makes the places consecutive again.
Packets are shared between copies and therefore never changed in place.

`with_topics` and `with_client` make a packet with other topics or another Client Identifier, for mappings and for
copies of clients.  `Changes` counts what was done and reports it in sentences; a change that cannot be made is a
`RewriteError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.script import Script, ScriptEntry


class RewriteError(MqttscopeError, ValueError):
    """A requested change that cannot be made; the message gives the allowed ones."""


@dataclass(slots=True)
class Changes:
    """Changes made to scripts, as sentences with counts, in order of occurrence."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of changes, by the thing that is counted and what happened to it."""

    def count(self, thing: str, happened: str, number: int = 1) -> None:
        """Count something: ``count("Topic Name", "mapped")`` becomes ``3 Topic Names mapped``."""
        if number:
            key = thing, happened
            self.counts[key] = self.counts.get(key, 0) + number

    def note(self, sentence: str) -> None:
        self.counts.setdefault(("", sentence), 1)

    def add(self, other: Changes) -> None:
        """Add the changes of another step."""
        for (thing, happened), number in other.counts.items():
            if thing:
                self.count(thing, happened, number)
            else:
                self.note(happened)

    @property
    def sentences(self) -> list[str]:
        return list(self)

    def __iter__(self) -> Iterator[str]:
        for (thing, happened), number in self.counts.items():
            yield f"{_counted(number, thing)} {happened}" if thing else happened

    def __bool__(self) -> bool:
        return bool(self.counts)


def _counted(number: int, thing: str) -> str:
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("y"):
        return f"{number} {thing[:-1]}ies"
    return f"{number} {thing}{'es' if thing.endswith('s') else 's'}"


Change = Callable[[str], str]
Count = Callable[[str], None]
RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
ASSIGNED_CLIENT_IDENTIFIER = BY_NAME["assigned_client_identifier"].identifier


def shared_too(change: Change) -> Change:
    """A change of Topic Filters that keeps a leading ``$share/ShareName/`` (5.0 4.8.2)."""

    def changed(topic_filter: str) -> str:
        shared = parse_shared(topic_filter)
        return change(topic_filter) if shared is None else f"$share/{shared[0]}/{change(shared[1])}"

    return changed


def with_topics(packet: ControlPacket, name: Change, topic_filter: Change, count: Count) -> ControlPacket:
    """The packet with other Topic Names, Will Topic, Response Topic and Topic Filters.

    Returns the packet itself if nothing changes.  ``count`` is called with the name of each field that changes.
    """
    if isinstance(packet, Publish):
        # The name is empty if an alias replaces it.
        topic = _renamed(packet.topic_name, name, "Topic Name", count) if packet.topic_name else ""
        block = _response_topic(packet.properties, name, count)
        if topic != packet.topic_name or block is not packet.properties:
            return replace(packet, topic_name=topic, properties=block)
    elif isinstance(packet, Subscribe):
        names = [_renamed(row.topic_filter, topic_filter, "Topic Filter", count) for row in packet.subscriptions]
        rows = [replace(row, topic_filter=topic) for row, topic in zip(packet.subscriptions, names, strict=True)]
        return packet if rows == packet.subscriptions else replace(packet, subscriptions=rows)
    elif isinstance(packet, Unsubscribe):
        filters = [_renamed(name_filter, topic_filter, "Topic Filter", count) for name_filter in packet.topic_filters]
        return packet if filters == packet.topic_filters else replace(packet, topic_filters=filters)
    elif isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        topic = _renamed(will.will_topic, name, "Will Topic", count)
        block = _response_topic(will.properties, name, count)
        if topic != will.will_topic or block is not will.properties:
            return replace(packet, will=replace(will, will_topic=topic, properties=block))
    return packet


def _renamed(text: str, change: Change, thing: str, count: Count) -> str:
    changed = change(text)
    if changed != text:
        count(thing)
    return changed


def _response_topic(block: Properties | None, name: Change, count: Count) -> Properties | None:
    """Change the Response Topic (5.0 3.3.2.3.5, 3.1.3.2.6)."""
    return changed_property(block, RESPONSE_TOPIC, lambda text: _renamed(text, name, "Response Topic", count))


def changed_property(block: Properties | None, identifier: int, change: Change) -> Properties | None:
    """A block with the text of one property changed by a function; the block itself if nothing changes."""
    if not block or block.first(identifier) is None:
        return block
    changed = Properties.of(
        (number, change(value) if number == identifier and isinstance(value, str) else value)
        for number, value in block.items
    )
    return block if changed == block else changed


def with_client(packet: ControlPacket, change: Change) -> ControlPacket:
    """The packet with another Client Identifier (5.0 3.1.3.1) or Assigned Client Identifier (5.0 3.2.2.3.7).

    An empty Client Identifier, which asks the server to assign one, stays empty.
    """
    if isinstance(packet, Connect) and packet.client_identifier:
        name = change(packet.client_identifier)
        return packet if name == packet.client_identifier else replace(packet, client_identifier=name)
    if isinstance(packet, Connack) and packet.properties:
        block = changed_property(packet.properties, ASSIGNED_CLIENT_IDENTIFIER, change)
        return packet if block is packet.properties else replace(packet, properties=block)
    return packet


def copy_scripts(scripts: Iterable[Script]) -> list[Script]:
    """New scripts with new entries that link to each other; packets and their bytes are the same objects.

    Each entry has its captured entry as its ``origin``.
    Links to entries outside of these scripts are lost.
    """
    copied: dict[ScriptEntry, ScriptEntry] = {}
    copies = []
    for script in scripts:
        entries = [replace(entry, origin=entry.origin or entry) for entry in script.entries]
        copied.update(zip(script.entries, entries, strict=True))
        copies.append(replace(script, entries=entries, ending=replace(script.ending)))
    for entry in copied.values():
        if entry.answers is not None:
            entry.answers = copied.get(entry.answers)
        if entry.resends is not None:
            entry.resends = copied.get(entry.resends)
    return copies


def set_packet(entry: ScriptEntry, packet: ControlPacket, version: ProtocolVersion) -> None:
    """Give an entry another packet, which must be a new one: it gets the bytes that it is encoded to."""
    packet.raw = entry.raw = encode(packet, version)
    entry.packet = packet


def rename(script: Script, client_identifier: str) -> None:
    script.connection = replace(script.connection, client_identifier=client_identifier)


def in_order(scripts: Iterable[Script]) -> list[tuple[Script, ScriptEntry]]:
    pairs = [(script, entry) for script in scripts for entry in script.entries]
    pairs.sort(key=lambda pair: pair[1].place)
    return pairs


def client_entries(scripts: Iterable[Script]) -> Iterator[tuple[Script, ScriptEntry]]:
    """Entries of clients, script by script."""
    for script in scripts:
        for entry in script.entries:
            if entry.from_client:
                yield script, entry


def drop(scripts: list[Script], dropped: Collection[ScriptEntry]) -> list[ScriptEntry]:
    """Take entries out of scripts, with everything that answers them; returns all entries taken out.

    If a PUBLISH is taken out that is sent again later, its first remaining repetition takes its place: it loses its DUP
    flag, since it is the first one for the receiver (5.0 3.3.1.1), and gets the answers.
    """
    if not dropped:
        return []
    out = dict.fromkeys(dropped)
    heirs: dict[ScriptEntry, ScriptEntry] = {}
    for script, entry in in_order(scripts):
        if entry in out:
            continue
        first, answered = entry.resends, entry.answers
        if first is not None and first in out:
            entry.resends = heirs.get(first)
            if entry.resends is None:
                heirs[first] = entry
                if isinstance(entry.packet, Publish) and entry.packet.dup:
                    set_packet(entry, replace(entry.packet, dup=False), script.version)
        if answered is not None and answered in out:
            entry.answers = heirs.get(answered)
            if entry.answers is None:
                out[entry] = None
    for script in scripts:
        script.entries = [entry for entry in script.entries if entry not in out]
    return list(out)


def renumber(scripts: list[Script]) -> None:
    """Number the places from 0 without gaps again, after entries were taken out or put in.

    An entry that was put in has the place of the entry before it in its script.
    """
    pairs = in_order(scripts)
    old = [entry.place for _, entry in pairs]
    bounds = sorted({place for script in scripts for place in (script.opened_place, script.ended_place)})
    before: dict[int, int] = {}
    at = 0
    for bound in bounds:
        while at < len(old) and old[at] < bound:
            at += 1
        before[bound] = at
    for script in scripts:
        script.opened_place, script.ended_place = before[script.opened_place], before[script.ended_place]
    for place, (_, entry) in enumerate(pairs):
        entry.place = place


def restore_aliases(script: Script) -> int:
    """Write out Topic Names for aliases that are not set, or set to another topic (5.0 3.3.2.3.4).

    This happens when the PUBLISH that set an alias was taken out.  The alias stays, so that it is set from there on.
    Returns the number of changed packets.  A packet with an unknown topic is left as it is.
    """
    changed = 0
    topics: dict[tuple[bool, int], str] = {}
    for entry in script.entries:
        packet = entry.packet
        if not isinstance(packet, Publish) or not packet.properties:
            continue
        alias = packet.properties.topic_alias
        if alias is None:
            continue
        key = entry.from_client, alias
        if not packet.topic_name:
            if entry.topic is None or topics.get(key) == entry.topic:
                continue
            set_packet(entry, replace(packet, topic_name=entry.topic), script.version)
            changed += 1
        topics[key] = entry.topic or packet.topic_name
    return changed
