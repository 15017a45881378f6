"""Separate names for cases that run at one broker at the same time.

All cases of a connection use its Client Identifier and topics.  Played at once, they would take over each other's
sessions (5.0 MQTT-3.1.4-3) and receive each other's messages.  So every worker except the first plays a copy of the
connection with other names of equal length (`isolate`).  `IsolatedConnection.case` applies the mutation to the copy,
and checks that only the names differ.  Names in packets added by the mutation are not replaced.  A `Footprint` is the
set of names that a case uses, and cases with conflicting footprints are not played at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from string import ascii_lowercase, ascii_uppercase, digits

from mqttscope.broker_test.fit import flow_of
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.stream import PacketStream
from mqttscope.mqtt.topics import parse_shared
from mqttscope.mutate import Action, MutationCase, NotApplicableError
from mqttscope.mutate.cases import reapply
from mqttscope.mutate.flow import FlowStep, MutatedFlow
from mqttscope.replay.rewrite.links import copy_scripts, rename, set_packet, shared_too, with_client, with_topics
from mqttscope.replay.script import Script

MAX_BYTES = 64 * 1024
MAX_STEPS = 1_000
"""Maximum size of a mutation in bytes and steps; larger cases are played alone, because they load both sides."""
_CHARACTERS = digits + ascii_lowercase + ascii_uppercase
_CHANGED = 3
"""Maximum number of changed characters in a name: enough for any number of workers."""


class NamePool:
    """Replacement names of equal length, each used once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._replacements: dict[tuple[str, int], str | None] = {}

    def other(self, name: str, worker: int) -> str | None:
        """The name that a worker uses instead of this one; ``None`` if no name of equal length is free."""
        key = name, worker
        if key not in self._replacements:
            self._used.add(name)
            other = next((candidate for candidate in _alike(name) if candidate not in self._used), None)
            self._replacements[key] = other
            if other is not None:
                self._used.add(other)
        return self._replacements[key]


def _alike(name: str) -> Iterator[str]:
    """Names of equal length that differ in their last letters and digits."""
    places = [place for place, character in enumerate(name) if character in _CHARACTERS]
    for count in range(1, min(_CHANGED, len(places)) + 1):
        for instead in product(_CHARACTERS, repeat=count):
            characters = list(name)
            for place, character in zip(places[-count:], instead, strict=True):
                characters[place] = character
            yield "".join(characters)


def root_of(topic: str) -> str:
    """The topic up to its first non-empty level; topics with different roots never match."""
    start = len(topic) - len(topic.lstrip("/"))
    end = topic.find("/", start)
    return topic if end < 0 else topic[:end]


def _is_fixed(root: str) -> bool:
    """Whether a root must not be renamed: it is empty, has a wildcard, or belongs to the broker (5.0 4.7.2)."""
    return not root.strip("/") or root[0] == "$" or "+" in root or "#" in root


@dataclass(slots=True, frozen=True)
class Footprint:
    """Names that a case uses and that all clients of a broker share."""

    clients: frozenset[str] = frozenset()
    """Client Identifiers, without the empty one."""
    sends: frozenset[str] = frozenset()
    """Roots of the topics of sent messages."""
    receives: frozenset[str] = frozenset()
    """Roots of the subscribed Topic Filters."""
    everything: bool = False
    """Whether a Topic Filter begins with a wildcard."""
    alone: bool = False
    """Whether the case must be played alone."""

    def conflicts_with(self, other: Footprint) -> bool:
        """Whether two cases would affect each other."""
        return (
            self.alone
            or other.alone
            or not self.clients.isdisjoint(other.clients)
            or not self.sends.isdisjoint(other.receives)
            or not self.receives.isdisjoint(other.sends)
            or (self.everything and bool(other.sends))
            or (other.everything and bool(self.sends))
        )

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.clients | other.clients,
            self.sends | other.sends,
            self.receives | other.receives,
            self.everything or other.everything,
            self.alone or other.alone,
        )


@dataclass(slots=True)
class _FootprintBuilder:
    """Collects the names for a footprint."""

    clients: set[str] = field(default_factory=set)
    sends: set[str] = field(default_factory=set)
    filters: set[str] = field(default_factory=set)

    def add(self, item: ControlPacket | Malformed, *, from_client: bool = True) -> None:
        """Add a packet; from the recorded broker only messages count, because a helper publishes them."""
        packet = item.packet if isinstance(item, Malformed) else item
        if isinstance(packet, Publish):
            self.sends.update(filter(None, (packet.topic_name,)))
        elif not from_client:
            return
        elif isinstance(packet, Connect):
            self.clients.update(filter(None, (packet.client_identifier,)))
            if packet.will is not None and packet.will.will_topic:
                self.sends.add(packet.will.will_topic)
        elif isinstance(packet, Subscribe):
            for row in packet.subscriptions or ():
                shared = parse_shared(row.topic_filter)
                self.filters.add(row.topic_filter if shared is None else shared[1])

    def footprint(self) -> Footprint:
        roots = {root_of(topic_filter) for topic_filter in self.filters}
        wild = {root for root in roots if "+" in root or "#" in root}
        return Footprint(
            frozenset(self.clients), frozenset(map(root_of, self.sends)), frozenset(roots - wild), everything=bool(wild)
        )


def footprint_of(script: Script) -> Footprint:
    """Names that a connection uses without a mutation."""
    uses = _FootprintBuilder()
    for entry in script.entries:
        uses.add(entry.packet, from_client=entry.from_client)
        if entry.topic:
            uses.sends.add(entry.topic)
    return uses.footprint()


def _footprint_of_flow(flow: MutatedFlow) -> Footprint:
    """Names in the bytes of a mutated flow as one stream, and in each step, because the stream may break off."""
    if _is_large(flow):
        return Footprint(alone=True)
    sends = [step for step in flow.steps if step.action is Action.SEND]
    mutated = [step.data for step in sends if step.mutated]
    uses = _FootprintBuilder()
    whole = b"".join(step.data for step in sends)
    for data in (*mutated, *((whole,) if len(whole) <= MAX_BYTES else ())):
        for item in _packets(data, flow.version):
            uses.add(item)
    return uses.footprint()


def _is_large(flow: MutatedFlow) -> bool:
    mutated = [len(step.data) for step in flow.steps if step.mutated]
    return len(mutated) > MAX_STEPS or sum(mutated) > MAX_BYTES


def _packets(data: bytes, version: ProtocolVersion) -> Iterator[ControlPacket | Malformed]:
    stream = PacketStream()
    stream.version = version
    for item in (*stream.feed(data), *stream.close()):
        if isinstance(item, ControlPacket | Malformed):
            yield item


@dataclass(slots=True)
class IsolatedConnection:
    """A connection with the names of one worker."""

    script: Script
    footprint: Footprint
    exchanged: frozenset[tuple[int, int]]
    """Replaced bytes of names, as pairs of recorded and played byte."""

    @classmethod
    def as_recorded(cls, script: Script) -> IsolatedConnection:
        return cls(script, footprint_of(script), frozenset())

    def case(self, recorded: MutationCase) -> MutationCase | None:
        """The case with the names of this worker; ``None`` if more than the names would differ."""
        if not self.exchanged:
            return recorded
        if _is_large(recorded.flow):
            return None
        try:
            case = reapply(recorded, flow_of(self.script, recorded.capture_hash, recorded.connection))
        except NotApplicableError:
            return None
        return case if self._differs_in_names(recorded.flow, case.flow) else None

    def uses(self, case: MutationCase) -> Footprint:
        return self.footprint | _footprint_of_flow(case.flow)

    def _differs_in_names(self, recorded: MutatedFlow, own: MutatedFlow) -> bool:
        return len(recorded.steps) == len(own.steps) and all(map(self._alike, recorded.steps, own.steps))

    def _alike(self, step: FlowStep, other: FlowStep) -> bool:
        if step == other:
            return True
        if len(step.data) != len(other.data) or replace(step, data=b"") != replace(other, data=b""):
            return False
        return all(pair in self.exchanged for pair in zip(step.data, other.data, strict=True) if pair[0] != pair[1])


def isolate(script: Script, worker: int, clients: NamePool, roots: NamePool) -> IsolatedConnection | None:
    """The connection with the names of a worker; ``None`` if a name cannot be replaced.

    Topics get another root; topics of the broker (``$SYS``) and wildcards stay unchanged.
    """
    lacking: list[str] = []
    exchanged: set[tuple[int, int]] = set()

    def instead(names: NamePool, name: str) -> str:
        other = names.other(name, worker)
        if other is None:
            lacking.append(name)
            return name
        pairs = zip(name.encode(errors="surrogateescape"), other.encode(errors="surrogateescape"), strict=True)
        exchanged.update(pair for pair in pairs if len(set(pair)) > 1)
        return other

    def client(name: str) -> str:
        return instead(clients, name)

    def topic(name: str) -> str:
        root = root_of(name)
        return name if _is_fixed(root) else instead(roots, root) + name[len(root) :]

    (copied,) = copy_scripts([script])
    for entry, recorded in zip(copied.entries, script.entries, strict=True):
        entry.resends = entry.resends or recorded.resends
        if isinstance(entry.packet, Malformed):
            continue
        packet = with_topics(with_client(entry.packet, client), topic, shared_too(topic), lambda thing: None)
        if entry.topic is not None:
            entry.topic = topic(entry.topic)
        if packet is not entry.packet:
            set_packet(entry, packet, script.version)
        if len(entry.raw) != len(recorded.raw):
            lacking.append("another length")
    if copied.connection.client_identifier:
        rename(copied, client(copied.connection.client_identifier))
    if lacking:
        return None
    return IsolatedConnection(copied, footprint_of(copied), frozenset(exchanged))
