"""SPB109 to SPB113, SPB214 to SPB219: wills of edge nodes and Host Applications."""

from typing import ClassVar

from mqttscope.lint.rules import SPARKPLUG, Findings, Needs, RuleContext
from mqttscope.lint.rules.sparkplug import (
    ROLE,
    SparkplugRule,
    certainty,
    commands_filter,
    forwards,
    host_of_will,
    is_of_others,
    is_online,
    node_of_will,
    sparkplug_examples,
    stated,
)
from mqttscope.lint.rules.sparkplug.topics import form_fault
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connect, Publish, Subscribe
from mqttscope.payloads.sparkplug_topics import NAMESPACE, SparkplugTopic, host_of_state, read_topic

_NODE = "tck-id-message-flow-edge-node-birth-publish-will-message"
_NDEATH = "tck-id-payloads-ndeath-will-message"
_HOST = "tck-id-operational-behavior-host-application"
_STATE = "tck-id-payloads-state-will-message"
_DEATH = "tck-id-host-topic-phid-death"


class SparkplugWillRule(SparkplugRule):
    """A rule about QoS or RETAIN of the will in a CONNECT: QoS 1, and RETAIN for a STATE alone."""

    when = "will"
    of_host: ClassVar[bool] = False
    """Whether it judges wills on STATE, and not on NDEATH."""
    field: ClassVar[str] = "will_qos"

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Judge the will of an edge node or a Host Application."""
        will, of_host = packet.will, self.of_host
        if will is None or (host_of_will(packet) if of_host else node_of_will(packet)) is None:
            return None
        due, value = 1 if self.field == "will_qos" else of_host, getattr(will, self.field)
        fault = f"QoS {value} instead of 1" if self.field == "will_qos" else "no RETAIN" if of_host else "RETAIN"
        text = f"will {'STATE' if of_host else 'NDEATH'} {will.will_topic!r} has {fault}"
        return None if value == due else self.report(f"will.{self.field}", text)


class EdgeNodeWillQos(SparkplugWillRule):
    """The will of an edge node does not have QoS 1.

    Host Applications learn from the will that the edge node is gone.  If it is lost, they show old values as current.

    Instead, connect with Will QoS 1.
    """

    code = "SPB109"
    statements = {SPARKPLUG: dict.fromkeys((f"{_NODE}-qos", f"{_NDEATH}-qos"), "client connect.will.will_qos")}

    good = sparkplug_examples("""
        QoS 1
            opened will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=0) will_qos=1
        another will
            opened will=plant/n will_payload=x
    """)
    bad = sparkplug_examples("""
        QoS 0
            > connect will=spBv1.0/g/NDEATH/n will_payload=x !will.will_qos; < connack
        QoS 2 in MQTT 3.1.1
            > connect 3.1.1 will=spBv1.0/g/NDEATH/n will_payload=x will_qos=2 !will.will_qos; < connack
    """)


class EdgeNodeWillRetained(SparkplugWillRule):
    """The will of an edge node has RETAIN.

    Host Applications that connect later receive the old death of an edge node that is alive again.

    Instead, connect with Will Retain 0.
    """

    code = "SPB110"
    field = "will_retain"
    statements = {
        SPARKPLUG: dict.fromkeys((f"{_NODE}-will-retained", f"{_NDEATH}-retain"), "client connect.will.will_retain")
    }

    good = sparkplug_examples("""
        not retained
            opened will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=0) will_qos=1
    """)
    bad = sparkplug_examples("""
        retained
            > connect will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1 will_retain !will.will_retain; < connack
    """)


class HostWillQos(SparkplugWillRule):
    """The will of a Host Application does not have QoS 1.

    If the will is lost, edge nodes take the Host Application for online.

    Instead, connect with Will QoS 1.
    """

    code = "SPB111"
    of_host = True
    statements = stated("""
        client connect.will.will_qos: operational-behavior-host-application-connect-will-qos
        payloads-state-will-message-qos host-topic-phid-death-qos
    """)

    good = sparkplug_examples("""
        QoS 1
            opened will=spBv1.0/STATE/h will_payload=state(online=false timestamp=5) will_qos=1 will_retain
    """)
    bad = sparkplug_examples("""
        QoS 0
            > connect will=spBv1.0/STATE/h will_payload=x will_retain !will.will_qos; < connack
    """)


class HostWillNotRetained(SparkplugWillRule):
    """The will of a Host Application does not have RETAIN.

    The retained birth stays, so edge nodes that connect later take the Host Application for online.

    Instead, connect with Will Retain 1.
    """

    code = "SPB112"
    field = "will_retain"
    of_host = True
    statements = stated("""
        client connect.will.will_retain: operational-behavior-host-application-connect-will-retained
        payloads-state-will-message-retain host-topic-phid-death-retain
    """)

    good = sparkplug_examples("""
        retained
            opened will=spBv1.0/STATE/h will_payload=state(online=false timestamp=5) will_qos=1 will_retain
    """)
    bad = sparkplug_examples("""
        not retained
            > connect will=spBv1.0/STATE/h will_payload=x will_qos=1 !will.will_retain; < connack
    """)


class SparkplugWillType(SparkplugRule):
    """A will in the namespace of Sparkplug is neither an NDEATH nor a STATE.

    Subscribers take a birth or data for news of a living edge node, at the moment of its death.

    Instead, set the NDEATH of the edge node or the STATE of the Host Application as the will.
    """

    code = "SPB113"
    when = "will"
    statements = {SPARKPLUG: dict.fromkeys((_NDEATH, f"{_NODE}-topic"), "client connect.will.will_topic")}

    good = sparkplug_examples("""
        a death of an edge node, and of a Host Application
            opened will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=0) will_qos=1
            @1 opened client=c2 will=spBv1.0/STATE/h will_payload=state(online=false timestamp=5) will_qos=1 will_retain
    """)
    bad = sparkplug_examples("""
        a birth
            > connect will=spBv1.0/g/NBIRTH/n will_payload=x will_qos=1 !will.will_topic; < connack
        the death of a device
            > connect 3.1.1 will=spBv1.0/g/DDEATH/n/d will_payload=x will_qos=1 !will.will_topic; < connack
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Look at the message type of a well-formed topic."""
        topic = None if packet.will is None else packet.will.will_topic or ""
        place = read_topic(topic)
        if topic is None or place is None or place.kind == "NDEATH" or form_fault(topic) is not None:
            return None
        return self.report("will.will_topic", f"will {topic!r} is a {place.kind} and not an NDEATH")


class NodeBirthRule(SparkplugRule):
    """A rule about the CONNECT of a client that publishes an NBIRTH, reported once for each edge node."""

    needs = Needs.OPENING
    Memory = ReportedTexts

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the CONNECT with the edge node that is born."""
        topic, connect = read_topic(at.topic), at.history.connect
        if topic is None or topic.kind != "NBIRTH" or topic.device is not None or connect is None:
            return None
        if is_of_others(packet, at):
            return None
        text = self.fault(connect, topic)
        if not text or not at.memory(self).first(at.topic):
            return None
        return self.report("topic_name", text, confidence=certainty(at, commands_filter(topic)))

    def fault(self, connect: Connect, topic: SparkplugTopic) -> str:
        """The fault in words; empty without a fault."""
        raise NotImplementedError


class EdgeNodeWithoutWill(NodeBirthRule):
    """An edge node has connected without a will.

    If its connection fails, no Host Application learns of its death, and old values look current.  The finding is
    ``likely`` for a client that has not subscribed to the commands of the edge node: it may be a bridge.

    Instead, connect with the NDEATH of the edge node as the will.
    """

    code = "SPB214"
    statements = {SPARKPLUG: dict.fromkeys((_NODE, _NDEATH), "client publish")}

    good = sparkplug_examples("""
        with its NDEATH
            NODE
        a bridge of mosquitto
            opened 3.1.1 protocol_level=0x84
            > publish spBv1.0/g/NBIRTH/n spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
        the CONNECT is not in the capture
            midstream; > publish spBv1.0/g/NBIRTH/n spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
    """)
    bad = sparkplug_examples("""
        without a will
            opened; > subscribe 1 spBv1.0/g/NCMD/n:1; < suback 1 1; > publish spBv1.0/g/NBIRTH/n x !topic_name
        perhaps a bridge, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/NBIRTH/n x !topic_name; > publish spBv1.0/g/NBIRTH/n x
    """)

    def fault(self, connect: Connect, topic: SparkplugTopic) -> str:
        """Look for a will."""
        return (
            "" if connect.will else f"NBIRTH of {topic.group}/{topic.node} from a client that connected without a will"
        )


class EdgeNodeWillOfAnother(NodeBirthRule):
    """The will of an edge node is not its own NDEATH.

    If its connection fails, Host Applications learn nothing, or learn of the death of another edge node.  The finding
    is ``likely`` for a client that has not subscribed to the commands of the edge node: it may be a bridge.

    Instead, connect with the NDEATH of the edge node as the will, and use one connection for each edge node.
    """

    code = "SPB215"
    statements = {SPARKPLUG: dict.fromkeys((f"{_NODE}-topic", _NDEATH), "client publish.topic_name")}

    good = sparkplug_examples("""
        its own NDEATH
            NODE
    """)
    bad = sparkplug_examples("""
        the NDEATH of another edge node
            opened will=spBv1.0/g/NDEATH/m will_payload=x will_qos=1
            > subscribe 1 spBv1.0/g/NCMD/n:1; < suback 1 1; > publish spBv1.0/g/NBIRTH/n x !topic_name
        another will
            opened 3.1.1 will=plant/n/offline will_payload=x; > publish spBv1.0/g/NBIRTH/n x !topic_name
    """)

    def fault(self, connect: Connect, topic: SparkplugTopic) -> str:
        """Compare the topics; wills with other types of Sparkplug have findings of their own."""
        will = connect.will
        name = "" if will is None else will.will_topic or ""
        wanted = f"{NAMESPACE}/{topic.group}/NDEATH/{topic.node}"
        if will is None or name == wanted or (name.startswith(f"{NAMESPACE}/") and node_of_will(connect) is None):
            return ""
        return f"NBIRTH of {topic.group}/{topic.node} from a client with the will {name!r} instead of {wanted!r}"


class HostBirthRule(SparkplugRule):
    """A rule about the CONNECT of a client that publishes the birth of a Host Application, reported once for each."""

    needs = Needs.OPENING
    Memory = ReportedTexts

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the CONNECT with the Host Application that is born."""
        host, connect = host_of_state(at.topic), at.history.connect
        if host is None or connect is None or forwards(connect) or is_online(packet.payload) is not True:
            return None
        text = self.fault(connect, host)
        if not text or not at.memory(self).first(host):
            return None
        return self.report("topic_name", text, confidence=certainty(at, at.topic or ""))

    def fault(self, connect: Connect, host: str) -> str:
        """The fault in words; empty without a fault."""
        raise NotImplementedError


class HostWithoutWill(HostBirthRule):
    """A Host Application has connected without a will.

    If its connection fails, the retained birth stays, and edge nodes take the Host Application for online.  The finding
    is ``likely`` for a client that has not subscribed to its STATE: it may be a bridge.

    Instead, connect with the STATE of the Host Application as the will.
    """

    code = "SPB216"
    statements = {SPARKPLUG: dict.fromkeys((f"{_DEATH}-required", f"{_HOST}-connect-will", _STATE), "client publish")}

    good = sparkplug_examples("""
        with its STATE
            APPLICATION
        an offline STATE
            opened; > publish spBv1.0/STATE/h state(online=false timestamp=1) qos=1 id=1 retain; < puback 1
    """)
    bad = sparkplug_examples("""
        without a will
            opened; > subscribe 1 spBv1.0/STATE/h:1; < suback 1 1
            > publish spBv1.0/STATE/h state(online=true timestamp=1) qos=1 id=1 retain !topic_name; < puback 1
    """)

    def fault(self, connect: Connect, host: str) -> str:
        """Look for a will."""
        return "" if connect.will else f"STATE of {host!r} from a client that connected without a will"


class HostWillOfAnother(HostBirthRule):
    """The will of a Host Application is not its own STATE.

    If its connection fails, the retained birth stays, and edge nodes take the Host Application for online.  The finding
    is ``likely`` for a client that has not subscribed to its STATE: it may be a bridge.

    Instead, connect with the STATE of the Host Application as the will.
    """

    code = "SPB217"
    statements = stated("""
        client publish.topic_name: operational-behavior-host-application-connect-will-topic
        host-topic-phid-death-topic payloads-state-will-message
    """)

    good = sparkplug_examples("""
        its own STATE
            APPLICATION
    """)
    bad = sparkplug_examples("""
        the STATE of another Host Application, and another will
            opened will=spBv1.0/STATE/g will_payload=state(online=false timestamp=1) will_qos=1 will_retain
            > subscribe 1 spBv1.0/STATE/h:1; < suback 1 1
            > publish spBv1.0/STATE/h state(online=true timestamp=1) qos=1 id=1 retain !topic_name; < puback 1
            @1 opened client=c2 will=host/offline will_payload=x
            @1 > publish spBv1.0/STATE/i state(online=true timestamp=1) qos=1 id=1 retain !topic_name
            @1 < puback 1
    """)

    def fault(self, connect: Connect, host: str) -> str:
        """Compare the topics; wills on the STATE topic before 3.0 have findings of their own."""
        will = connect.will
        if will is None or host_of_will(connect) == host or (will.will_topic or "").startswith("STATE/"):
            return ""
        return f"STATE of {host!r} from a client with the will {will.will_topic!r}"


class RoleWillRule(SparkplugRule):
    """A rule about a client with topics of Sparkplug and a role that a profile assumes, reported once."""

    needs = Needs.OPENING
    Memory = ReportedTexts
    settings = {ROLE: "", "profile": "the profile"}
    role: ClassVar[str]
    wanted: ClassVar[str]
    """The will of the role, in words."""

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Look for the will of the role, unless the will shows the other one."""
        connect = at.history.connect
        if self.set[ROLE] != self.role or connect is None or node_of_will(connect) or host_of_will(connect):
            return None
        if not at.memory(self).first(""):
            return None
        topic = None if connect.will is None else connect.will.will_topic
        text = "no will" if topic is None else f"the will {topic!r}"
        return self.report("", f"{at.client_name!r} connected with {text}; {self.set['profile']} has {self.wanted}")


class ClientWithoutNodeDeath(RoleWillRule):
    """A client that the profile takes for an edge node has connected without an NDEATH as its will.

    If its connection fails, no Host Application learns of its death.  Reported with its first packet that names a topic
    of Sparkplug.

    Instead, connect with the NDEATH of the edge node as the will, or use the profile for captures of edge nodes only.
    """

    code = "SPB218"
    role = "edge"
    wanted = "an NDEATH as its will"
    statements = {SPARKPLUG: dict.fromkeys((_NODE, f"{_NODE}-topic", _NDEATH), "client")}

    good = sparkplug_examples("""
        an NDEATH
            settings sparkplug_role=edge; NODE
        a Host Application by its will
            settings sparkplug_role=edge; APPLICATION
        without the profile
            opened; > subscribe 1 spBv1.0/g/NCMD/n:1; < suback 1 1
        without a topic of Sparkplug
            settings sparkplug_role=edge; opened; > subscribe 1 plant/#:1; < suback 1 1
    """)
    bad = sparkplug_examples("""
        no will
            settings sparkplug_role=edge; opened; > subscribe 1 spBv1.0/g/NCMD/n:1 !; < suback 1 1
        another will
            settings sparkplug_role=edge; opened 3.1.1 will=plant/n will_payload=x; > publish spBv1.0/g/NDATA/n x !
    """)


class ClientWithoutHostDeath(RoleWillRule):
    """A client that the profile takes for a Host Application has connected without a STATE as its will.

    The specification calls every client that consumes Sparkplug a Host Application (3.6), so that every dashboard owes
    a STATE.  Without one, edge nodes that wait for the client never begin.  Reported with its first packet that names a
    topic of Sparkplug.

    Instead, connect with the STATE of the Host Application as the will, or use the profile for Host Applications only.
    """

    code = "SPB219"
    role = "host"
    wanted = "a STATE as its will"
    statements = stated("""
        client: host-topic-phid-death-required operational-behavior-host-application-connect-will
        operational-behavior-host-application-connect-will-topic payloads-state-will-message
    """)

    good = sparkplug_examples("""
        a STATE
            settings sparkplug_role=host; APPLICATION
        an edge node by its will
            settings sparkplug_role=host; NODE
        without the profile
            opened; > subscribe 1 spBv1.0/#:0; < suback 1 0
    """)
    bad = sparkplug_examples("""
        no will
            settings sparkplug_role=host; opened; > subscribe 1 spBv1.0/#:0 !; < suback 1 0
    """)
