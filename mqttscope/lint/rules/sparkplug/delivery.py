"""SPB105 to SPB108: QoS and RETAIN of messages of Sparkplug."""

from typing import ClassVar

from mqttscope.lint.rules import SPARKPLUG, Findings, RuleContext
from mqttscope.lint.rules.sparkplug import SparkplugRule, if_connected, is_of_others, is_online, sparkplug_examples
from mqttscope.mqtt import Publish
from mqttscope.payloads.sparkplug_topics import host_of_state, read_topic

_KINDS = ("nbirth", "ndata", "dbirth", "ddata", "ddeath", "ncmd", "dcmd")
"""Message types with a QoS and a RETAIN in the specification; a published NDEATH has neither (6.4.25)."""
_BIRTHS = ("message-flow-edge-node-birth-publish-nbirth", "message-flow-device-birth-publish-dbirth")


def _statements(attribute: str, birth: str) -> dict[str, str]:
    """The statements about an attribute of all message types."""
    names = [f"topics-{kind}-mqtt" for kind in _KINDS]
    names += [f"payloads-{kind}-{attribute}" for kind in _KINDS if kind != "ddeath"]
    names += [f"{prefix}-{birth}" for prefix in _BIRTHS]
    return {f"tck-id-{name}": f"client publish.{attribute}" for name in names}


class AttributeRule(SparkplugRule):
    """A rule about QoS or RETAIN of the messages of edge nodes, which have neither."""

    field: ClassVar[str]

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the attribute in a message type without it."""
        topic, value = read_topic(at.topic), getattr(packet, self.field)
        if is_of_others(packet, at) or topic is None or not value or topic.kind.lower() not in _KINDS:
            return None
        is_qos = self.field == "qos"
        text = f"{topic.kind} {at.topic!r} has {f'QoS {value} instead of 0' if is_qos else 'RETAIN'}"
        certainty = None if is_qos else if_connected(at)
        return self.report(self.field, text, statements=self.cited(f"-{topic.kind.lower()}-"), confidence=certainty)


class SparkplugQos(AttributeRule):
    """A birth, data or command message of Sparkplug has a QoS other than 0.

    Sparkplug detects lost messages by sequence numbers, and repeated or late ones disturb them.

    Instead, publish everything but STATE and the will with QoS 0.
    """

    code = "SPB105"
    field = "qos"
    when = "qos"
    statements = {SPARKPLUG: _statements("qos", "qos")}

    good = sparkplug_examples("""
        births, data and commands
            NODE; > publish spBv1.0/g/DDATA/n/d spb(seq=2 T:Int32=2); < publish spBv1.0/g/NCMD/n spb(T:Int32=3)
        a command in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/NCMD/n spb(T=1)
        the QoS of a published NDEATH is not specified
            NODE; > publish spBv1.0/g/NDEATH/n spb(bdSeq:Int64=0) qos=1 id=1; < puback 1
    """)
    bad = sparkplug_examples("""
        a birth
            opened; > publish spBv1.0/g/NBIRTH/n x qos=1 id=1 !qos; < puback 1
        the data of a device, by alias
            opened 5.0 < topic_alias_maximum=5; > publish spBv1.0/g/DDATA/n/d x topic_alias=1
            > publish - x topic_alias=1 qos=1 id=1 !qos; < puback 1
        a death and a command, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/DDEATH/n/d x qos=2 id=1 !qos; < pubrec 1; > pubrel 1; < pubcomp 1
            > publish spBv1.0/g/NCMD/n x qos=1 id=2 !qos; < puback 2
    """)


class SparkplugRetained(AttributeRule):
    """A birth, data or command message of Sparkplug has RETAIN.

    A subscriber that connects later receives it as if it were new: an old birth makes a dead node look alive, and an
    old command is carried out again.

    Instead, publish everything but STATE without RETAIN.
    """

    code = "SPB106"
    field = "retain"
    when = "retain"
    statements = {SPARKPLUG: _statements("retain", "retained")}

    good = sparkplug_examples("""
        births and data
            NODE; > publish spBv1.0/g/DDATA/n/d spb(seq=2 T:Int32=2)
        a bridge of mosquitto
            opened 3.1.1 protocol_level=0x84; > publish spBv1.0/g/NDATA/n spb(seq=1 T=1) retain
        an empty payload that removes a retained birth
            opened; > publish spBv1.0/g/NBIRTH/n - retain
    """)
    bad = sparkplug_examples("""
        a birth
            opened; > publish spBv1.0/g/NBIRTH/n x retain !retain
        the data of a node, and a command, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/NDATA/n x retain !retain; > publish spBv1.0/g/DCMD/n/d x retain !retain
    """)


class StateRule(SparkplugRule):
    """A rule about the attributes of a published STATE."""

    birth: tuple[str, ...]
    """Statements about births."""
    death: tuple[str, ...]
    """Statements about deaths."""

    field: ClassVar[str]

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for QoS 1 or RETAIN in a STATE; its payload decides about the statements."""
        if getattr(packet, self.field) == 1 or host_of_state(at.topic) is None or is_of_others(packet, at):
            return None
        online = is_online(packet.payload)
        fault = f"QoS {packet.qos} instead of 1" if self.field == "qos" else "no RETAIN"
        names = (*(self.birth if online is not False else ()), *(self.death if online is not True else ()))
        text = f"STATE {at.topic!r} has {fault}"
        return self.report(self.field, text, statements=names, confidence=if_connected(at))


_HOST = "tck-id-operational-behavior-host-application"


class StateQos(StateRule):
    """A STATE message of a Host Application does not have QoS 1.

    With QoS 0 it may be lost, and then edge nodes wait for a Host Application that is online, or send to one that is
    not.

    Instead, publish births and deaths of a Host Application with QoS 1.
    """

    code = "SPB107"
    field = "qos"
    birth = ("tck-id-host-topic-phid-birth-qos", f"{_HOST}-connect-birth-qos", "tck-id-payloads-state-birth")
    death = ("tck-id-host-topic-phid-death-qos", f"{_HOST}-death-qos")
    statements = {SPARKPLUG: dict.fromkeys((*birth, *death), "client publish.qos")}

    good = sparkplug_examples("""
        birth and death
            APPLICATION; > publish spBv1.0/STATE/h state(online=false timestamp=6) qos=1 id=2 retain; < puback 2
        an empty payload that removes the STATE
            opened; > publish spBv1.0/STATE/h - retain
        a bridge of mosquitto
            opened 3.1.1 protocol_level=0x84; > publish spBv1.0/STATE/h state(online=true timestamp=1) retain
    """)
    bad = sparkplug_examples("""
        a birth with QoS 0
            opened; > publish spBv1.0/STATE/h state(online=true timestamp=1) retain !qos
        a death with QoS 2, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/STATE/h state(online=false timestamp=1) qos=2 id=1 retain !qos
            < pubrec 1; > pubrel 1; < pubcomp 1
    """)


class StateNotRetained(StateRule):
    """A STATE message of a Host Application does not have RETAIN.

    An edge node that connects later does not learn whether its Host Application is online, and may wait forever.

    Instead, publish births and deaths of a Host Application with RETAIN.
    """

    code = "SPB108"
    field = "retain"
    birth = ("tck-id-host-topic-phid-birth-retain", f"{_HOST}-connect-birth-retained", "tck-id-payloads-state-birth")
    death = ("tck-id-host-topic-phid-death-retain", f"{_HOST}-death-retained")
    statements = {SPARKPLUG: dict.fromkeys((*birth, *death), "client publish.retain")}

    good = sparkplug_examples("""
        birth and death
            APPLICATION; > publish spBv1.0/STATE/h state(online=false timestamp=6) qos=1 id=2 retain; < puback 2
        an empty payload that removes the STATE
            opened; > publish spBv1.0/STATE/h - qos=1 id=1 retain; < puback 1
        a bridge of mosquitto
            opened 3.1.1 protocol_level=0x84
            > publish spBv1.0/STATE/h state(online=true timestamp=1) qos=1 id=1; < puback 1
    """)
    bad = sparkplug_examples("""
        a birth
            opened; > publish spBv1.0/STATE/h state(online=true timestamp=1) qos=1 id=1 !retain; < puback 1
        a death, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/STATE/h state(online=false timestamp=1) qos=1 id=1 !retain; < puback 1
    """)
