"""What a replay will do, worked out before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.script import Script

MAX_NAMED = 20
"""Topics that are named; further ones are counted."""


@dataclass(slots=True)
class Plan:
    """What is going to be sent, and what of it others will notice or that stays behind."""

    connections: int = 0
    packets: Counter[str] = field(default_factory=Counter)
    """Packets of the clients, by type; acknowledgements depend on the live broker."""
    retained: list[str] = field(default_factory=list)
    """Topics on which a message will be retained, each once."""
    cleared: list[str] = field(default_factory=list)
    """Topics whose retained message will be removed."""
    wills: list[tuple[str, str]] = field(default_factory=list)
    """Client and topic of each will."""
    shared: list[str] = field(default_factory=list)
    """Shared subscriptions, which take messages away from others."""
    system: list[str] = field(default_factory=list)
    """Topics that begin with ``$`` and are published to: brokers refuse or ignore that."""

    @property
    def warnings(self) -> list[str]:
        """What somebody else at the broker will notice, as sentences."""
        found = []
        if self.retained:
            found.append(f"messages stay retained on {_named(self.retained)}")
        if self.cleared:
            found.append(f"retained messages are removed from {_named(self.cleared)}")
        if self.wills:
            found.append(f"wills are left for {_named([f'{topic} ({client})' for client, topic in self.wills])}")
        if self.shared:
            found.append(f"shared subscriptions take messages away from other members: {_named(self.shared)}")
        if self.system:
            found.append(f"messages are published to topics that belong to the broker: {_named(self.system)}")
        return found


def make_plan(scripts: Sequence[Script]) -> Plan:
    """The plan of scripts as they will be played."""
    plan = Plan(len(scripts))
    kept: dict[str, bool] = {}
    shared, system = dict[str, None](), dict[str, None]()
    for script in scripts:
        for entry in script.entries:
            if not entry.from_client:
                continue
            packet = entry.packet
            plan.packets[entry.type] += 1
            if isinstance(packet, Publish) and entry.topic is not None:
                if packet.retain:
                    kept[entry.topic] = bool(packet.payload)
                if entry.topic.startswith("$"):
                    system[entry.topic] = None
            elif isinstance(packet, Connect) and packet.will is not None:
                plan.wills.append((script.name, packet.will.will_topic))
            elif isinstance(packet, Subscribe):
                shared.update(
                    dict.fromkeys(one.topic_filter for one in packet.subscriptions if _is_shared(one.topic_filter))
                )
    plan.retained = [topic for topic, has_payload in kept.items() if has_payload]
    plan.cleared = [topic for topic, has_payload in kept.items() if not has_payload]
    plan.shared, plan.system = list(shared), list(system)
    return plan


def _is_shared(topic_filter: str) -> bool:
    return parse_shared(topic_filter) is not None


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
