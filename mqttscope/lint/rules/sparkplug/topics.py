"""SPB101, SPB103, SPB104, SPB202: topics of Sparkplug."""

import re
from collections.abc import Iterator

from mqttscope.lint.rules import SPARKPLUG, Confidence, Findings, Report, RuleContext
from mqttscope.lint.rules.sparkplug import SparkplugRule, is_of_others, is_online, sparkplug_examples
from mqttscope.mqtt import Connect, Publish
from mqttscope.payloads.sparkplug_topics import DEVICE_TYPES, NAMESPACE, NODE_TYPES, STATE

_TYPES = (*NODE_TYPES, *DEVICE_TYPES)
_NODES = ("nbirth", "ndata", "ndeath", "ncmd")
_DEVICES = ("dbirth", "ddata", "ddeath", "dcmd")
_NAME, _WILL = "client publish.topic_name", "client connect.will.will_topic"
_BOTH = f"{_NAME},{_WILL}"
_BIRTH_TOPICS = {
    "tck-id-host-topic-phid-birth-topic": _NAME,
    "tck-id-operational-behavior-host-application-connect-birth-topic": _NAME,
}
_DEATH_TOPICS = {
    "tck-id-host-topic-phid-death-topic": _BOTH,
    "tck-id-operational-behavior-host-application-death-topic": _NAME,
}
_WILL_TOPICS = {
    "tck-id-host-topic-phid-death-topic": _BOTH,
    "tck-id-operational-behavior-host-application-connect-will-topic": _WILL,
    "tck-id-payloads-state-will-message": _WILL,
}
_LOOKALIKE = re.compile(r"sp(?:ark(?:plug)?)?[a-z]?v?[0-9]*(?:\.[0-9]+)*", re.IGNORECASE)


class SparkplugTopicRule(SparkplugRule):
    """A rule about Topic Names of PUBLISH and wills."""

    def check(self, packet: Connect | Publish, at: RuleContext) -> Findings:
        """Judge the topic of a PUBLISH or of the will; an alias stands for a topic that was judged before."""
        if isinstance(packet, Publish):
            if not packet.topic_name or is_of_others(packet, at):
                return None
            return self.faults(packet.topic_name, "topic_name", packet.payload, at)
        will = packet.will
        if will is None or not will.will_topic:
            return None
        return self.faults(will.will_topic, "will.will_topic", will.will_payload or b"", at)

    def faults(self, topic: str, field: str, payload: bytes, at: RuleContext) -> Findings:
        """Findings about the topic in a field."""
        raise NotImplementedError


class SparkplugTopicForm(SparkplugTopicRule):
    """A topic in the namespace of Sparkplug does not have its form.

    The levels are namespace, group, message type, edge node and, for devices, the device; the topic of a Host
    Application is its Host ID after STATE.  Subscribers of Sparkplug find their messages by these levels and miss the
    message.

    Instead, publish on ``spBv1.0/group/NDATA/node`` or ``spBv1.0/group/DDATA/node/device``, with a message type of
    the specification.
    """

    code = "SPB101"
    statements = {
        SPARKPLUG: {
            "tck-id-topic-structure": _BOTH,
            "tck-id-topic-structure-namespace-device-id-associated-message-types": _BOTH,
            "tck-id-topic-structure-namespace-device-id-non-associated-message-types": _BOTH,
            **{f"tck-id-topics-{kind}-topic": _NAME for kind in (*_NODES, *_DEVICES)},
            "tck-id-topics-ndeath-topic": _BOTH,
            "tck-id-message-flow-edge-node-birth-publish-nbirth-topic": _NAME,
            "tck-id-message-flow-device-birth-publish-dbirth-topic": _NAME,
            "tck-id-message-flow-edge-node-birth-publish-will-message-topic": _WILL,
            **_BIRTH_TOPICS, **_DEATH_TOPICS, **_WILL_TOPICS,
        }
    }  # fmt: skip

    good = sparkplug_examples("""
        an edge node with a device
            NODE; > publish spBv1.0/g/DDATA/n/d spb(seq=2 T:Int32=2)
        a Host Application
            APPLICATION; > publish spBv1.0/g/NCMD/n spb("Node Control/Rebirth":Boolean=true)
        a topic without Sparkplug
            opened; > publish plant/spBv1.0 x
    """)
    bad = sparkplug_examples("""
        a device in the topic of an edge node
            opened; > publish spBv1.0/g/NDATA/n/d x !topic_name
        no device in the topic of a device, in MQTT 3.1.1
            opened 3.1.1; > publish spBv1.0/g/DBIRTH/n x !topic_name
        an unknown message type
            opened; > publish spBv1.0/g/NBirth/n x !topic_name
        an empty group, an empty edge node, and a level too many
            opened; > publish spBv1.0//NDATA/n x !topic_name; > publish spBv1.0/g/NDATA/ x !topic_name
            > publish spBv1.0/g/DDATA/n/d/e x !topic_name; > publish spBv1.0 x !topic_name
        the will of an edge node
            > connect will=spBv1.0/g/NDEATH will_payload=x will_qos=1 !will.will_topic; < connack
        the will of a Host Application
            > connect will=spBv1.0/STATE/h/x will_payload=x will_qos=1 !will.will_topic; < connack
        the birth of a Host Application with a level too many, and its death with a group
            opened; > publish spBv1.0/STATE/h/x state(online=true timestamp=1) qos=1 id=1 retain !topic_name
            < puback 1; > publish spBv1.0/g/STATE/h state(online=false timestamp=1) qos=1 id=2 retain !topic_name
    """)

    def faults(self, topic: str, field: str, payload: bytes, at: RuleContext) -> Findings:
        """Compare the levels with the form of the message type."""
        fault = form_fault(topic)
        if fault is None:
            return None
        kind, text = fault
        if kind == STATE:
            cited = state_statements(field, is_online(payload))
            if "device" in text or "too many" in text:
                cited = ("tck-id-topic-structure-namespace-device-id-non-associated-message-types", *cited)
        else:
            words = [f"-{kind.lower()}-topic"] if kind else []
            if kind == "NDEATH" and field != "topic_name":
                words.append("-will-message-topic")
            if "Device ID" in text:
                words.append("-device-id-associated-" if kind in DEVICE_TYPES else "-device-id-non-associated-")
            cited = self.cited(*words)
        return self.report(field, f"topic {topic!r} {text}", statements=("tck-id-topic-structure", *cited))


def form_fault(topic: str) -> tuple[str, str] | None:
    """Message type (empty if unknown) and fault of a topic in the namespace; ``None`` without a fault."""
    levels = topic.split("/")
    if levels[0] != NAMESPACE:
        return None
    kind = levels[2] if len(levels) > 2 else ""
    is_host = levels[1:2] == [STATE] and len(levels) == 3
    if is_host or (kind not in _TYPES and STATE in levels[1:3]):
        if levels[1] != STATE:
            return STATE, "has a group before STATE"
        if len(levels) > 3:
            return STATE, f"has {len(levels)} levels, one too many or more for STATE"
        return None if kind else (STATE, "has no Host ID")
    if kind not in _TYPES:
        return "", f"has {kind!r} in the place of the message type" if kind else "has no message type"
    wanted = 4 if kind in NODE_TYPES else 5
    if len(levels) > wanted:
        return kind, f"has a Device ID, which {kind} has not" if wanted == 4 else f"has more levels than {kind}"
    for name, level in zip(("group", "edge node", "device"), levels[1:2] + levels[3:], strict=False):
        if not level:
            return kind, f"has an empty {name}"
    if len(levels) < wanted:
        return kind, f"has no Device ID, which {kind} needs" if len(levels) == 4 else "has no edge node"
    return None


def state_statements(field: str, online: bool | None) -> tuple[str, ...]:
    """The statements about the topic of a STATE, by the field with the topic."""
    if field != "topic_name":
        return tuple(_WILL_TOPICS)
    return (*(_BIRTH_TOPICS if online is not False else ()), *(_DEATH_TOPICS if online is not True else ()))


class SparkplugNamespace(SparkplugTopicRule):
    """The first level of a topic with the form of Sparkplug is not ``spBv1.0``.

    Brokers compare topics character by character: subscribers of ``spBv1.0/#`` do not receive the message.  A first
    level that is not even similar is reported only if the client uses ``spBv1.0`` too.

    Instead, begin every topic with ``spBv1.0``, in exactly this spelling.
    """

    code = "SPB202"
    statements = {SPARKPLUG: {"tck-id-topic-structure": _BOTH, "tck-id-topic-structure-namespace-a": _BOTH}}
    confidence = Confidence.LIKELY

    good = sparkplug_examples("""
        the namespace
            NODE
        other topics with such words
            opened; > publish plant/g/NDATA/n x; > publish spindle/NDATA/n x
        Sparkplug A, alone
            opened; > publish spAv1.0/g/NDATA/n x
    """)
    bad = sparkplug_examples("""
        lower case
            opened; > publish spbv1.0/g/NDATA/n x !topic_name
        another version, in a will
            > connect will=spBv3.0/g/NDEATH/n will_payload=x will_qos=1 !will.will_topic; < connack
        another word, beside a will with the namespace
            opened will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1; > publish sparkplug/g/DDATA/n/d x !topic_name
            > publish line/g/NBIRTH/n x !topic_name
    """)

    def faults(self, topic: str, field: str, payload: bytes, at: RuleContext) -> Findings:
        """Compare the first level of a topic that has a message type in its third one."""
        levels = topic.split("/")
        if levels[0] == NAMESPACE or form_fault("/".join([NAMESPACE, *levels[1:]])) is not None:
            return None
        connect = at.history.connect
        will = connect.will if connect is not None else None
        if not (will is not None and (will.will_topic or "").startswith(f"{NAMESPACE}/")) and (
            levels[0] == "spAv1.0" or not _LOOKALIKE.fullmatch(levels[0])
        ):
            return None
        return self.report(field, f"topic {topic!r} begins with {levels[0]!r} instead of {NAMESPACE!r}")


_ID_STATEMENTS = {
    "group": ("intro-group-id", "topic-structure-namespace-valid-group-id"),
    "edge node": ("intro-edge-node-id", "topic-structure-namespace-valid-edge-node-id"),
    "device": ("intro-device-id", "topic-structure-namespace-valid-device-id"),
}


class SparkplugIdCharacters(SparkplugTopicRule):
    """The name of a group, an edge node or a device has a character that topics cannot have.

    The wildcards ``+`` and ``#`` are not allowed in Topic Names, and the names are UTF-8.  Servers close the connection
    or deliver the message to nobody.

    Instead, replace such characters in the names before they become levels of topics.
    """

    code = "SPB103"
    statements = {
        SPARKPLUG: {
            f"tck-id-{name}": _BOTH
            for intro, valid in _ID_STATEMENTS.values()
            for name in (f"{intro}-string", f"{intro}-chars", valid)
        }
    }

    good = sparkplug_examples("""
        spaces and other scripts
            midstream; > publish "spBv1.0/Werk 1/DDATA/Linie ä/d-1" spb(seq=5 T:Int32=1)
        letters alone
            opened; > publish spBv1.0/g/NCMD/n spb(T:Int32=1)
    """)
    bad = sparkplug_examples("""
        wildcards in the group, the edge node and the device
            opened; > publish spBv1.0/g+/NDATA/n x !topic_name; > publish spBv1.0/g/DDATA/n/d#1 x !topic_name
            > publish spBv1.0/g/NBIRTH/+ x !topic_name
        the will of an edge node
            > connect will=spBv1.0/g/NDEATH/n# will_payload=x will_qos=1 !will.will_topic; < connack
        bytes that are not UTF-8
            opened; > raw 30 13 0011 "spBv1.0/g/NDATA/" ff !topic_name
    """)

    def faults(self, topic: str, field: str, payload: bytes, at: RuleContext) -> Iterator[Report]:
        """Look for wildcards, and for bytes that are not UTF-8, in the levels with names."""
        if form_fault(topic) is not None or not topic.startswith(f"{NAMESPACE}/"):
            return
        levels = topic.split("/")
        for name, level in zip(_ID_STATEMENTS, levels[1:2] + levels[3:], strict=False):
            if "+" in level or "#" in level:
                yield self._fault(field, topic, name, "a wildcard", "chars")
            elif not level.isascii() and any("\udc80" <= character <= "\udcff" for character in level):
                yield self._fault(field, topic, name, "bytes that are not UTF-8", "string")

    def _fault(self, field: str, topic: str, name: str, what: str, word: str) -> Report:
        intro, valid = _ID_STATEMENTS[name]
        return self.report(
            field, f"topic {topic!r} has {what} in its {name}", statements=(f"tck-id-{intro}-{word}", f"tck-id-{valid}")
        )


class StateTopicBeforeThree(SparkplugTopicRule):
    """A Host Application uses the STATE topic of Sparkplug before 3.0.

    Until 2.2 the topic was ``STATE/host``.  Only clients that subscribe to topics of Sparkplug are judged.
    Edge nodes with Sparkplug 3.0 subscribe to ``spBv1.0/STATE/host``: for them
    the Host Application stays offline.

    Instead, publish on ``spBv1.0/STATE/host``, with the JSON payload of Sparkplug 3.0.
    """

    code = "SPB104"
    confidence = Confidence.LIKELY
    statements = {SPARKPLUG: {**_BIRTH_TOPICS, **_DEATH_TOPICS}}

    good = sparkplug_examples("""
        the topic of 3.0
            APPLICATION
        another topic with this name
            opened; > publish STATE/pump running; > publish STATE/pump/1 ONLINE
        a client without a subscription to topics of Sparkplug
            opened; > publish STATE/pump ONLINE
        another payload
            opened; > subscribe 1 spBv1.0/#:0; < suback 1 0; > publish STATE/pump ONLINA
    """)
    bad = sparkplug_examples("""
        a birth
            > connect will=STATE/h will_payload=OFFLINE will_qos=1 will_retain; < connack
            > subscribe 1 spBv1.0/#:0; < suback 1 0
            > publish STATE/h ONLINE qos=1 id=2 retain !topic_name; < puback 2
        JSON on the former topic
            opened 3.1.1; > subscribe 1 spBv1.0/g/#:0; < suback 1 0
            > publish STATE/h state(online=false timestamp=1) qos=1 id=2 retain !topic_name; < puback 2
    """)

    def faults(self, topic: str, field: str, payload: bytes, at: RuleContext) -> Findings:
        """Report the former topic if the payload is a STATE."""
        levels = topic.split("/")
        online = is_online(payload)
        if len(levels) != 2 or levels[0] != STATE or online is None or field != "topic_name":
            return None
        # Other systems have such topics too.
        if not any(name.startswith(f"{NAMESPACE}/") for name in at.history.subscriptions.live):
            return None
        text = f"STATE topic {topic!r} is of Sparkplug before 3.0"
        return self.report(field, text, statements=state_statements(field, online))
