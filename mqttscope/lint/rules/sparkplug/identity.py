"""SPB429, SPB499: names of edge nodes, devices and Host Applications among the clients of a server."""

from dataclasses import dataclass, field

from mqttscope.lint.rules import (
    SPARKPLUG,
    Confidence,
    ConnectionKey,
    Findings,
    Report,
    RuleContext,
    Severity,
    forget_oldest,
)
from mqttscope.lint.rules.sparkplug import SparkplugRule, forwards, is_online, sparkplug_examples
from mqttscope.mqtt import Publish
from mqttscope.payloads.sparkplug_topics import host_of_state, read_topic

MAX_NAMES = 10_000
"""Maximum number of names remembered for a server; the oldest is dropped first."""


@dataclass(slots=True)
class BornClients:
    """Connections of the last two births, by group and edge node, or by STATE and Host ID."""

    latest: dict[str, ConnectionKey] = field(default_factory=dict)
    before: dict[str, ConnectionKey] = field(default_factory=dict)


class SparkplugNameShared(SparkplugRule):
    """Two clients publish at the same time as the same edge node or the same Host Application.

    Their sequence numbers and metrics mix, and the death of the one ends the other.  Reported for the first message of
    a client that was born earlier, while the later one is still connected.  A bridge may publish the messages of both.

    Instead, give every edge node of the infrastructure its own pair of group and name, and every Host Application its
    own Host ID.
    """

    code = "SPB429"
    confidence = Confidence.LIKELY
    also = {
        SPARKPLUG: (
            "tck-id-intro-edge-node-id-uniqueness",
            "tck-id-topic-structure-namespace-unique-edge-node-descriptor",
            "tck-id-payloads-nbirth-edge-node-descriptor",
            "tck-id-operational-behavior-host-application-host-id",
        )
    }
    Memory = BornClients

    good = sparkplug_examples("""
        born again on another connection, after the first one was lost
            NODE; > fin
            @1 opened client=n will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=1) will_qos=1
            @1 > subscribe 1 spBv1.0/g/NCMD/n:1; @1 < suback 1 1
            @1 > publish spBv1.0/g/NBIRTH/n spb(seq=0 bdSeq:Int64=1 "Node Control/Rebirth":Boolean=false)
        one Host Application
            APPLICATION
    """)
    bad = sparkplug_examples("""
        two edge nodes
            opened client=a will=spBv1.0/g/NDEATH/n will_payload=x; > publish spBv1.0/g/NBIRTH/n x
            @1 opened client=b will=spBv1.0/g/NDEATH/n will_payload=x; @1 > publish spBv1.0/g/NBIRTH/n x
            > publish spBv1.0/g/NDATA/n x !topic_name; > publish spBv1.0/g/NDATA/n x
        two Host Applications
            opened client=a; > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=1 retain; < puback 1
            @1 opened client=b
            @1 > publish spBv1.0/STATE/h state(online=true timestamp=9) qos=1 id=1 retain; @1 < puback 1
            > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=2 retain !topic_name; < puback 2
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Note births, and report a message of the client that was born before the last one."""
        connect, topic, host = at.history.connect, read_topic(at.topic), host_of_state(at.topic)
        if connect is None or forwards(connect):
            return None
        if topic is not None:
            name, is_birth, is_alive = f"{topic.group}/{topic.node}", topic.kind == "NBIRTH", topic.kind[1:] != "CMD"
            is_alive = is_alive and topic.kind != "NDEATH"
        elif host is not None:
            name = f"STATE/{host}"
            is_birth = is_alive = is_online(packet.payload) is True
        else:
            return None
        born: BornClients = at.memory(self)
        if is_alive and born.before.get(name) == at.key and at.connection_of(born.latest[name]) is not None:
            del born.before[name]
            identifiers = self.also[SPARKPLUG]
            return self.report(
                "topic_name",
                f"{at.client_name!r} publishes as {name!r}, and another client was born with this name after it",
                statements=identifiers[:3] if host is None else identifiers[3:],
            )
        if is_birth and born.latest.get(name) != at.key:
            if name in born.latest:
                born.before[name] = born.latest[name]
            born.latest[name] = at.key
            if len(born.latest) > MAX_NAMES:
                born.before.pop(next(iter(born.latest)), None)
                forget_oldest(born.latest, MAX_NAMES)
        return None


@dataclass(slots=True)
class SpelledNames:
    """First spelling of each name, by its lower case."""

    names: dict[str, str] = field(default_factory=dict)


class SparkplugNamesDifferInCase(SparkplugRule):
    """The names of two groups, edge nodes or devices differ only in upper and lower case.

    Topics distinguish them, and tools that store values by name often do not: the values of the two mix there.

    Instead, use names that differ in more than their case.
    """

    code = "SPB499"
    severity = Severity.WARNING
    statements = {SPARKPLUG: {"tck-id-case-sensitivity-sparkplug-ids": "client publish.topic_name"}}
    Memory = SpelledNames

    good = sparkplug_examples("""
        one spelling
            NODE
    """)
    bad = sparkplug_examples("""
        two edge nodes, reported once
            opened client=a will=spBv1.0/g/NDEATH/n will_payload=x; > publish spBv1.0/g/NBIRTH/Press x
            @1 opened client=b will=spBv1.0/g/NDEATH/n will_payload=x
            @1 > publish spBv1.0/g/NBIRTH/press x !topic_name; @1 > publish spBv1.0/g/NBIRTH/press x
        two groups, and two devices
            opened; > publish spBv1.0/G/NBIRTH/n x; > publish spBv1.0/g/NBIRTH/m x !topic_name
            > publish spBv1.0/g/DBIRTH/m/d x; > publish spBv1.0/g/DBIRTH/m/D x !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the names in the topic of a birth with the names before."""
        topic = read_topic(at.topic)
        if topic is None or topic.kind not in ("NBIRTH", "DBIRTH"):
            return None
        memory: SpelledNames = at.memory(self)
        return self._different([topic.group, topic.node, *([topic.device] if topic.device else ())], memory)

    def _different(self, levels: list[str], memory: SpelledNames) -> Report | None:
        for count in range(1, len(levels) + 1):
            # The levels above are folded, so that a difference is reported at its own level.
            path = "/".join([*(level.lower() for level in levels[: count - 1]), levels[count - 1]])
            first = memory.names.setdefault(path.lower(), path)
            forget_oldest(memory.names, MAX_NAMES)
            if first != path and f"{path}\n" not in memory.names:
                memory.names[f"{path}\n"] = path
                return self.report("topic_name", f"name {path!r} differs from {first!r} only in its case")
        return None
