"""SPB224 to SPB228: subscriptions of edge nodes and Host Applications."""

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import C2S, SPARKPLUG, Confidence, Connection, Findings, Needs, Report, RuleContext
from mqttscope.lint.rules.sparkplug import (
    ROLE,
    SparkplugRule,
    commands_filter,
    forwards,
    host_of_will,
    is_online,
    node_of_will,
    sparkplug_examples,
    stated,
)
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Publish, Subscribe
from mqttscope.mqtt.topics import matches
from mqttscope.payloads.sparkplug_topics import NAMESPACE, host_of_state, read_topic

_HOST = "tck-id-host-topic-phid-birth"
_FLOW = "tck-id-message-flow-phid-sparkplug"


class MissingReactionRule(SparkplugRule):
    """A rule about a packet of the client that is missing ``timeout`` seconds after another one, or at DISCONNECT."""

    needs = Needs.WHOLE_SENDER
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 10}
    Memory = ReportedTexts

    def wait(self, topic: str, at: RuleContext) -> None:
        """Begin to wait for a packet about a topic."""
        if at.memory(self).first(topic):
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))

    def is_done(self, topic: str, at: RuleContext) -> bool:
        """Whether the client has sent the packet."""
        raise NotImplementedError

    def describe(self, topic: str, at: RuleContext) -> Report:
        """The finding about a missing packet."""
        raise NotImplementedError

    def awaits(self, at: RuleContext) -> bool:
        return any(waits and not self.is_done(topic, at) for topic, waits in at.memory(self).texts.items())

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the packets that are still missing."""
        memory: ReportedTexts = at.memory(self)
        for topic in [topic for topic, waits in memory.texts.items() if waits]:
            memory.texts[topic] = False
            if not self.is_done(topic, at):
                yield self.describe(topic, at)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the packets that are missing when the client leaves."""
        if connection.disconnect_by == "client":
            yield from self.check_due(connection, at)


class OwnSubscriptionRule(MissingReactionRule):
    """A rule about a client that was born and has not subscribed to its own commands or STATE."""

    def is_done(self, topic: str, at: RuleContext) -> bool:
        """Whether a filter of the client matches the topic, even if the server has refused it."""
        table = at.history.subscriptions
        return bool(table.match(topic).subscriptions) or any(matches(name, topic) for name in table.refused)

    def may_judge(self, at: RuleContext) -> bool:
        """Whether all subscriptions of the session are known, and the client is not a bridge by its CONNECT."""
        connect, connection = at.history.connect, at.connection
        begins = connect is not None and (connect.clean_start or connection.session_present is False)
        return connect is not None and begins and not forwards(connect) and at.history.subscriptions.complete


class CommandsNotSubscribed(OwnSubscriptionRule):
    """An edge node does not subscribe to its commands.

    Host Applications cannot ask it for a rebirth: after a lost message they continue to show its old values.  Reported
    ``timeout`` seconds after its birth, or at its DISCONNECT.  The finding is ``likely`` for a client without the
    NDEATH of the edge node as its will: it may be a bridge.

    Instead, subscribe to ``spBv1.0/group/NCMD/node`` with QoS 1.
    """

    code = "SPB224"
    statements = {SPARKPLUG: {"tck-id-message-flow-edge-node-ncmd-subscribe": ""}}

    good = sparkplug_examples("""
        subscribed
            NODE; +60 > pingreq & disconnect code=0x04; > fin
        the server refuses the subscription
            opened will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=0) will_qos=1
            > subscribe 1 spBv1.0/g/NCMD/n:1; < suback 1 0x87
            > publish spBv1.0/g/NBIRTH/n spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
            +60 > pingreq; > disconnect code=0x04; > fin
    """)
    bad = sparkplug_examples("""
        never
            opened will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1; > publish spBv1.0/g/NBIRTH/n x; +60 > pingreq !!
        until it leaves, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/NBIRTH/n x; > disconnect; > fin !!
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Wait for the subscription after a birth without one."""
        topic = read_topic(at.topic)
        if topic is not None and topic.kind == "NBIRTH" and self.may_judge(at):
            own = commands_filter(topic)
            if not self.is_done(own, at):
                self.wait(own, at)
        return None

    def describe(self, topic: str, at: RuleContext) -> Report:
        """A certain report if the will shows that the client is the edge node."""
        node = node_of_will(at.history.connect)
        known = node is not None and commands_filter(node) == topic
        text = f"{at.client_name!r} publishes an NBIRTH and does not subscribe to {topic!r}"
        return self.report("", text, sender=C2S, overdue=True, confidence=None if known else Confidence.LIKELY)


class CommandSubscriptionQos(SparkplugRule):
    """An edge node subscribes to its commands with a QoS other than 1.

    With QoS 0, the server may drop a command that its sender has published with QoS 1.

    Instead, subscribe to the NCMD and DCMD of the edge node with QoS 1.
    """

    code = "SPB225"
    statements = stated("""
        client subscribe.subscriptions,client publish: message-flow-edge-node-ncmd-subscribe
        message-flow-device-dcmd-subscribe
    """)

    good = sparkplug_examples("""
        QoS 1
            NODE
        another client that watches the commands
            opened client=c2; > subscribe 1 spBv1.0/g/NCMD/n:0; < suback 1 0
    """)
    bad = sparkplug_examples("""
        QoS 0 for a node, and QoS 2 for its devices
            opened will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1
            > subscribe 1 spBv1.0/g/NCMD/n:0 spBv1.0/g/DCMD/n/+:2 !subscriptions[0].maximum_qos
                !subscriptions[1].maximum_qos
            < suback 1 0 2
        without a will, by its birth
            opened 3.1.1; > subscribe 1 spBv1.0/g/NCMD/n/#:0; < suback 1 0; > publish spBv1.0/g/NBIRTH/n x !topic_name
    """)

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Iterator[Report]:
        """Judge a SUBSCRIBE by the will, and without such a will judge the subscriptions at the birth."""
        node = node_of_will(at.history.connect)
        if isinstance(packet, Subscribe):
            own = "" if node is None else commands_filter(node)
            for index, row in enumerate(packet.subscriptions or ()) if own else ():
                yield from self._fault(f"subscriptions[{index}].maximum_qos", own, row.topic_filter, row.maximum_qos)
            return
        topic = read_topic(at.topic)
        if (
            topic is None
            or topic.kind != "NBIRTH"
            or (node is not None and commands_filter(node) == commands_filter(topic))
        ):
            return
        own = commands_filter(topic)
        devices = own.replace("/NCMD/", "/DCMD/")
        table = at.history.subscriptions.live
        for name in (own, f"{own}/#", f"{devices}/+", f"{devices}/#"):
            if name in table:
                yield from self._fault("topic_name", own, name, table[name].maximum_qos)

    def _fault(self, field: str, own: str, name: str, qos: int) -> Iterator[Report]:
        devices = own.replace("/NCMD/", "/DCMD/") + "/"
        is_device = name.startswith(devices)
        if qos == 1 or not (is_device or name in (own, f"{own}/#")):
            return
        text = f"subscription {name!r} of an edge node has QoS {qos} instead of 1"
        yield self.report(field, text, statements=self.cited("-dcmd-" if is_device else "-ncmd-"))


class StateNotSubscribed(OwnSubscriptionRule):
    """A Host Application does not subscribe to its own STATE.

    If its former will is published late, it does not notice, and edge nodes take it for offline.  Reported ``timeout``
    seconds after its birth, or at its DISCONNECT.  The finding is ``likely`` for a client without the STATE as its
    will: it may be a bridge.

    Instead, subscribe to ``spBv1.0/STATE/host`` right after connecting.
    """

    code = "SPB226"
    statements = stated("""
        : host-topic-phid-birth-sub-required message-flow-phid-sparkplug-subscription payloads-state-subscribe
    """)

    good = sparkplug_examples("""
        subscribed
            APPLICATION; +60 > pingreq
    """)
    bad = sparkplug_examples("""
        never
            opened will=spBv1.0/STATE/h will_payload=x will_qos=1 will_retain
            > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=1 retain; < puback 1; +60 > pingreq !!
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Wait for the subscription after a birth without one."""
        topic = at.topic
        if topic is None or host_of_state(topic) is None or not is_online(packet.payload):
            return None
        if self.may_judge(at) and not self.is_done(topic, at):
            self.wait(topic, at)
        return None

    def describe(self, topic: str, at: RuleContext) -> Report:
        """A certain report if the will shows that the client is the Host Application."""
        known = host_of_will(at.history.connect) == host_of_state(topic)
        text = f"{at.client_name!r} publishes its STATE and does not subscribe to {topic!r}"
        return self.report("", text, sender=C2S, overdue=True, confidence=None if known else Confidence.LIKELY)


class StateBeforeSubscription(SparkplugRule):
    """A Host Application subscribes to its own STATE only after its birth.

    Another client may publish an offline STATE between the two, and it does not notice.  The specification wants the
    subscriptions first, and in another place the birth immediately after connecting: the finding is ``likely``.

    Instead, subscribe to ``spBv1.0/STATE/host`` and wait for the SUBACK before the birth.
    """

    code = "SPB227"
    confidence = Confidence.LIKELY
    statements = stated("""
        client subscribe: host-topic-phid-birth-required message-flow-phid-sparkplug-subscription
        message-flow-phid-sparkplug-state-publish payloads-state-birth
    """)
    Memory = ReportedTexts

    good = sparkplug_examples("""
        the subscription first
            APPLICATION
    """)
    bad = sparkplug_examples("""
        the birth first
            opened will=spBv1.0/STATE/h will_payload=x will_qos=1 will_retain
            > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=1 retain; < puback 1
            > subscribe 1 spBv1.0/STATE/h:1 !subscriptions[0].topic_filter; < suback 1 1
    """)

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Remember births without a subscription, and report the subscription that follows."""
        births: ReportedTexts = at.memory(self)
        if isinstance(packet, Subscribe):
            for index, row in enumerate(packet.subscriptions or ()):
                if births.texts.pop(row.topic_filter, False):
                    text = (
                        f"{at.client_name!r} subscribes to {row.topic_filter!r} after it has published its birth there"
                    )
                    return self.report(f"subscriptions[{index}].topic_filter", text)
            return None
        topic, table = at.topic, at.history.subscriptions
        connect = at.history.connect
        if connect is None or not topic or not host_of_state(topic) or not is_online(packet.payload):
            return None
        if table.complete and not at.connection.session_present and not table.match(topic).subscriptions:
            births.first(topic)
        return None


class ClientWithoutState(MissingReactionRule):
    """A client that the profile takes for a Host Application subscribes to Sparkplug and publishes no STATE.

    Edge nodes that wait for it never begin.  The specification calls every client that consumes Sparkplug a Host
    Application (3.6).  Reported ``timeout`` seconds after its first subscription, or at its DISCONNECT.

    Instead, publish a STATE, or use the profile for captures of Host Applications only.
    """

    code = "SPB228"
    statements = stated("""
        : intro-sparkplug-host-state conformance-primary-host
        operational-behavior-host-application-connect-birth message-flow-phid-sparkplug-state-publish
    """)
    also = {SPARKPLUG: ("tck-id-components-ph-state",)}
    settings = {**MissingReactionRule.settings, ROLE: "", "profile": "the profile"}

    good = sparkplug_examples("""
        a STATE
            settings sparkplug_role=host; APPLICATION; +60 > pingreq
        an edge node by its will
            settings sparkplug_role=host; NODE; +60 > pingreq; < pingresp
        without the profile
            opened; > subscribe 1 spBv1.0/#:0; < suback 1 0; +60 > pingreq
    """)
    bad = sparkplug_examples("""
        no STATE
            settings sparkplug_role=host; opened; > subscribe 1 spBv1.0/#:0; < suback 1 0; +60 > pingreq !!
        until it leaves
            settings sparkplug_role=host
            opened 3.1.1; > subscribe 1 spBv1.0/g/#:0; < suback 1 0; > disconnect; > fin !!
    """)

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Wait for a STATE after the first subscription."""
        connect = at.history.connect
        if self.set[ROLE] != "host" or connect is None or node_of_will(connect) is not None:
            return None
        if isinstance(packet, Publish):
            if host_of_state(at.topic) is not None:
                at.memory(self).texts[""] = False
        elif any(row.topic_filter.startswith(f"{NAMESPACE}/") for row in packet.subscriptions or ()):
            self.wait("", at)
        return None

    def is_done(self, topic: str, at: RuleContext) -> bool:
        """A STATE ends the wait."""
        return False

    def describe(self, topic: str, at: RuleContext) -> Report:
        """A report about the client."""
        text = f"{at.client_name!r} subscribes to Sparkplug and publishes no STATE; {self.set['profile']} has a STATE"
        return self.report("", text, sender=C2S, overdue=True)
