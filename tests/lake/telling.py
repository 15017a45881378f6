"""Rules of session and broker scope that report all that a rule can see, so that any difference shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from mqttscope.events import PacketEvent
from mqttscope.lake.state import allow
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.session.connection import Connection


@allow
@dataclass(slots=True)
class Seen:
    """What a test rule keeps of its key."""

    connections: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


class Tells(Rule):
    """Tells all that a rule can see, so that any difference shows."""

    severity = Severity.INFO
    looks_at = ControlPacket
    Memory = Seen
    needs = Needs.NOTHING

    def told(self, what: str, at: RuleContext) -> Findings:
        memory: Seen = at.memory(self)
        memory.bytes += at.sender.bytes
        state = (
            what, memory.connections, sorted(memory.topics.items()), memory.bytes, at.timestamp_ns, at.topic,
            at.version, at.acknowledged, at.begun_ns, at.sender, at.receiver, repr(at.party), repr(at.other),
            at.history.disordered, at.history.settled, at.history.subscriptions, at.history.early,
            at.connection.phase, at.connection.details, at.connection.gaps, at.connection.closed_how,
            at.connection.closed_by, at.connection.version_evidence, at.connection.decrypted,
        )  # fmt: skip
        # All of it is more than 1,000 characters, which every finding is searched for secrets in.
        return self.report("", f"{what!r} {blake2b(repr(state).encode(), digest_size=8).hexdigest()}")

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        memory: Seen = at.memory(self)
        if isinstance(packet, Connect):
            memory.connections.append(at.connection.client)
        if isinstance(packet, Publish) and at.topic is not None:
            memory.topics[at.topic] = memory.topics.get(at.topic, 0) + 1
        # What may be of a secret is not written down.
        open_one = isinstance(at.event, PacketEvent) and packet.packet_type not in (1, 2, 15)
        shown = packet if open_one else packet.packet_type
        return self.told(repr(shown), at)

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        return self.told(f"{malformed.reason} {malformed.faults}", at)

    def check_unparsed(self, unparsed: Any, at: RuleContext) -> Findings:
        return self.told(f"{unparsed.reason} {unparsed.length}", at)

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        return self.told("opened", at)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        return self.told("closed", at)


class OfSession(Tells):
    code = "TST390"


class OfBroker(Tells):
    code = "TST490"


BOTH: tuple[Rule, ...] = (OfSession(), OfBroker())
