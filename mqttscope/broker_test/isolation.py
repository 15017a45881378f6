"""Names of their own for cases that are played at one broker at the same time.

All cases of a connection use its Client Identifier and its topics: played at once they would take over each other's
sessions (5.0 MQTT-3.1.4-3) and hear each other's messages.  So each worker but the first plays a copy of the connection
with other names of the same length (`isolated`), to which the same mutation is applied (`Isolated.case`): the bytes are
those of the case but for these names, which is checked.  The names of packets that the mutation makes up are the same
for all workers; `Footprint` has what a case uses, and cases whose footprints meet are not played at once.
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
from mqttscope.mutate import Action, Case, NotApplicableError
from mqttscope.mutate.cases import remade
from mqttscope.mutate.flow import MutatedFlow, Step
from mqttscope.replay.rewrite.links import copy_scripts, rename, say, shared_too, with_client, with_topics
from mqttscope.replay.script import Script

MAX_BYTES = 64 * 1024
MAX_STEPS = 1_000
"""A case of which the mutation sends more bytes or does more steps is played alone: it is work for both sides."""
_CHARACTERS = digits + ascii_lowercase + ascii_uppercase
_CHANGED = 3
"""Characters of a name that are changed at most: enough for any number of workers."""


class Names:
    """Other names of the same length, each of them given out once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._given: dict[tuple[str, int], str | None] = {}

    def other(self, name: str, worker: int) -> str | None:
        """The name that a worker uses in place of this one; ``None`` where there is none of the same length."""
        key = name, worker
        if key not in self._given:
            self._taken.add(name)
            made = next((one for one in _alike(name) if one not in self._taken), None)
            self._given[key] = made
            if made is not None:
                self._taken.add(made)
        return self._given[key]


def _alike(name: str) -> Iterator[str]:
    """Names with other letters and digits at the last places that have some."""
    places = [place for place, one in enumerate(name) if one in _CHARACTERS]
    for count in range(1, min(_CHANGED, len(places)) + 1):
        for instead in product(_CHARACTERS, repeat=count):
            made = list(name)
            for place, one in zip(places[-count:], instead, strict=True):
                made[place] = one
            yield "".join(made)


def root_of(topic: str) -> str:
    """The first level that is not empty, with the slashes before it: topics with different ones never match."""
    start = len(topic) - len(topic.lstrip("/"))
    end = topic.find("/", start)
    return topic if end < 0 else topic[:end]


def _is_fixed(root: str) -> bool:
    """Whether a root means something of its own: nothing, a wildcard, or a topic of the broker (5.0 4.7.2)."""
    return not root.strip("/") or root[0] == "$" or "+" in root or "#" in root


@dataclass(slots=True, frozen=True)
class Footprint:
    """What a case uses of what all clients of a broker share."""

    clients: frozenset[str] = frozenset()
    """Client Identifiers; an empty one is everybody's."""
    sends: frozenset[str] = frozenset()
    """Roots of the topics on which there will be messages."""
    receives: frozenset[str] = frozenset()
    """Roots of the filters that are subscribed to."""
    everything: bool = False
    """A filter begins with a wildcard."""
    alone: bool = False
    """Nothing can be played beside it."""

    def meets(self, other: Footprint) -> bool:
        """Whether two cases would disturb each other."""
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
class _Uses:
    """A footprint in the making."""

    clients: set[str] = field(default_factory=set)
    sends: set[str] = field(default_factory=set)
    filters: set[str] = field(default_factory=set)

    def take(self, item: ControlPacket | Malformed, *, from_client: bool = True) -> None:
        """A packet; of what the recorded broker sent only messages count, which will be published by a helper."""
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
        roots = {root_of(one) for one in self.filters}
        wild = {one for one in roots if "+" in one or "#" in one}
        return Footprint(
            frozenset(self.clients), frozenset(map(root_of, self.sends)), frozenset(roots - wild), everything=bool(wild)
        )


def footprint_of(script: Script) -> Footprint:
    """What a connection uses when it is played without a mutation."""
    uses = _Uses()
    for entry in script.entries:
        uses.take(entry.packet, from_client=entry.from_client)
        if entry.topic:
            uses.sends.add(entry.topic)
    return uses.footprint()


def _of_flow(flow: MutatedFlow) -> Footprint:
    """What a mutation uses: of its bytes as one stream, and of each of its steps, since the stream may end before."""
    if _is_large(flow):
        return Footprint(alone=True)
    sends = [step for step in flow.steps if step.action is Action.SEND]
    mutated = [step.data for step in sends if step.mutated]
    uses = _Uses()
    whole = b"".join(step.data for step in sends)
    for data in (*mutated, *((whole,) if len(whole) <= MAX_BYTES else ())):
        for item in _packets(data, flow.version):
            uses.take(item)
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
class Isolated:
    """A connection as one worker plays it."""

    script: Script
    footprint: Footprint
    exchanged: frozenset[tuple[int, int]]
    """Bytes that stand in the place of others in its names: recorded and played."""

    @classmethod
    def as_recorded(cls, script: Script) -> Isolated:
        return cls(script, footprint_of(script), frozenset())

    def case(self, recorded: Case) -> Case | None:
        """The case with the names of this worker; ``None`` where more than the names would be different."""
        if not self.exchanged:
            return recorded
        if _is_large(recorded.flow):
            return None
        try:
            made = remade(recorded, flow_of(self.script, recorded.capture_hash, recorded.connection))
        except NotApplicableError:
            return None
        return made if self._differs_in_names(recorded.flow, made.flow) else None

    def uses(self, case: Case) -> Footprint:
        return self.footprint | _of_flow(case.flow)

    def _differs_in_names(self, recorded: MutatedFlow, made: MutatedFlow) -> bool:
        return len(recorded.steps) == len(made.steps) and all(map(self._alike, recorded.steps, made.steps))

    def _alike(self, one: Step, other: Step) -> bool:
        if one == other:
            return True
        if len(one.data) != len(other.data) or replace(one, data=b"") != replace(other, data=b""):
            return False
        return all(pair in self.exchanged for pair in zip(one.data, other.data, strict=True) if pair[0] != pair[1])


def isolated(script: Script, worker: int, clients: Names, roots: Names) -> Isolated | None:
    """The connection with the names of a worker; ``None`` where it has one of which there is no other.

    Topics get another root; those of the broker (``$SYS``) and wildcards stay what they are.
    """
    lacking: list[str] = []
    exchanged: set[tuple[int, int]] = set()

    def instead(names: Names, name: str) -> str:
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

    (made,) = copy_scripts([script])
    for entry, recorded in zip(made.entries, script.entries, strict=True):
        entry.resends = entry.resends or recorded.resends
        if isinstance(entry.packet, Malformed):
            continue
        packet = with_topics(with_client(entry.packet, client), topic, shared_too(topic), lambda thing: None)
        if entry.topic is not None:
            entry.topic = topic(entry.topic)
        if packet is not entry.packet:
            say(entry, packet, script.version)
        if len(entry.raw) != len(recorded.raw):
            lacking.append("other bytes")
    if made.connection.client_identifier:
        rename(made, client(made.connection.client_identifier))
    if lacking:
        return None
    return Isolated(made, footprint_of(made), frozenset(exchanged))
