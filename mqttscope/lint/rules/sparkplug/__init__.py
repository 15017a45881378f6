"""Rules about clients that use Sparkplug B (Eclipse Sparkplug Specification 3.0)."""

import re
from typing import Any, ClassVar, Final

from mqttscope.lint.examples import examples
from mqttscope.lint.rule import SPARKPLUG, Rule, Specification
from mqttscope.lint.rules import C2S, Confidence, RuleContext, Severity
from mqttscope.lint.sparkplug_model import read_state
from mqttscope.mqtt import Connect, ControlPacket, Direction, Publish
from mqttscope.payloads.sparkplug_topics import NAMESPACE, SparkplugTopic, host_of_state, read_topic

ROLE = "sparkplug_role"
"""Setting of rules that assume a role of every client: ``edge`` or ``host``, set by a profile."""

BEGINNINGS: Final = {
    "EDGE": (
        "opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1"
        "; > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1"
    ),
    "BORN": (
        "EDGE"
        '; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)'
    ),
    "DEVICE": "BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5)",
    "ALIASED": "BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S#1:Double=1.5)",
    "HOST": (
        "opened 3.1.1 client=h will=spBv1.0/STATE/h will_payload=state(online=false) will_qos=1 will_retain"
        "; > subscribe 1 spBv1.0/#:1; < suback 1 1"
    ),
    "ONLINE": "HOST; > publish spBv1.0/STATE/h state(online=true) qos=1 retain id=2; < puback 2",
    "SEEN": (
        "ONLINE"
        '; < publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)'
    ),
    "NODE": (
        "opened client=n will=spBv1.0/g/NDEATH/n will_payload=spb(bdSeq:Int64=0) will_qos=1"
        "; > subscribe 1 spBv1.0/g/NCMD/n:1 spBv1.0/g/DCMD/n/d:1; < suback 1 1 1"
        '; > publish spBv1.0/g/NBIRTH/n spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=1)'
        "; > publish spBv1.0/g/DBIRTH/n/d spb(seq=1 T:Int32=1)"
    ),
    "APPLICATION": (
        "opened client=h will=spBv1.0/STATE/h will_payload=state(online=false timestamp=5) will_qos=1 will_retain"
        "; > subscribe 1 spBv1.0/STATE/h:1 spBv1.0/#:1; < suback 1 1 1"
        "; > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=1 retain; < puback 1"
    ),
}  # fmt: skip
"""Steps at the beginning of examples: an edge node that has connected, was born with the metric T, has a device with
the metric S, also with an alias; a host that has connected, is online, has received the birth of an edge node; and in
MQTT 5.0 an edge node with a device, and a Host Application, that are online."""
_BEGINNING: Final = re.compile(rf"(?m)(^\s*|; )({'|'.join(BEGINNINGS)})(?=;|$)")


def expanded(text: str) -> str:
    """A conversation, with the steps of `BEGINNINGS` in place of their names."""
    while _BEGINNING.search(text):
        text = _BEGINNING.sub(lambda match: match[1] + BEGINNINGS[match[2]], text)
    return text


def sparkplug_examples(text: str) -> Any:
    """Examples that may have names of `BEGINNINGS`."""
    return examples(expanded(text))


def stated(text: str) -> dict[Specification, dict[str, str]]:
    """Statements by their identifiers without ``tck-id-``; the place of ``client publish: a b`` is not the payload."""
    place, colon, names = text.rpartition(":")
    where = place.strip() if colon else "client publish.payload"
    return {SPARKPLUG: {f"tck-id-{name}": where for name in names.split()}}


class SparkplugRule(Rule):
    """A rule about packets of clients with topics of Sparkplug."""

    severity = Severity.ERROR
    sender: ClassVar[Direction | None] = C2S
    signs: ClassVar[tuple[str, ...] | dict[type[ControlPacket], tuple[str, ...]]] = ("sparkplug",)
    version_matters = False

    def cited(self, *words: str) -> tuple[str, ...]:
        """The rule's statements with one of these words in their identifiers, such as ``-nbirth-``."""
        return tuple(name for name in self.statements[SPARKPLUG] if any(word in f"{name}-" for word in words))


def is_online(payload: bytes) -> bool | None:
    """Whether a STATE payload is a birth (true) or a death; ``None`` if it does not show that.

    Before 3.0, the payload was the text ``ONLINE`` or ``OFFLINE``.
    """
    online = payload == b"ONLINE" if payload in (b"ONLINE", b"OFFLINE") else read_state(payload)[0].get("online")
    return online if isinstance(online, bool) else None


def commands_filter(topic: SparkplugTopic) -> str:
    """The filter of an edge node for its commands."""
    return f"{NAMESPACE}/{topic.group}/NCMD/{topic.node}"


def node_of_will(connect: Connect | None) -> SparkplugTopic | None:
    """The edge node with its NDEATH as the will of a CONNECT; ``None`` for other wills."""
    will = None if connect is None else connect.will
    topic = None if will is None else read_topic(will.will_topic)
    return topic if topic is not None and topic.kind == "NDEATH" and topic.device is None else None


def host_of_will(connect: Connect | None) -> str | None:
    """The Host ID in the STATE topic of the will of a CONNECT; ``None`` for other wills."""
    will = None if connect is None else connect.will
    return None if will is None else host_of_state(will.will_topic)


def certainty(at: RuleContext, own_filter: str) -> Confidence | None:
    """``likely`` for a client without a subscription to its own commands or STATE, otherwise as usual.

    A bridge also publishes the births of others, and subscribes with wildcards.
    """
    return None if own_filter in at.history.subscriptions.live else Confidence.LIKELY


def is_of_others(packet: Publish, at: RuleContext) -> bool:
    """Whether a client forwards a message of another client, or only deletes a retained one."""
    return (packet.retain and not packet.payload) or is_bridge(at)


def is_bridge(at: RuleContext) -> bool:
    """Whether the client is a bridge by its CONNECT."""
    return at.history.connect is not None and forwards(at.history.connect)


def if_connected(at: RuleContext) -> Confidence | None:
    """``likely`` for a client without a captured CONNECT, which may be a bridge; otherwise as usual."""
    return Confidence.LIKELY if at.history.connect is None else None


def forwards(connect: Connect) -> bool:
    """Whether the client is a bridge by its CONNECT: it publishes the births of other clients."""
    will = connect.will
    return connect.bridge or (will is not None and (will.will_topic or "").startswith("$SYS/"))
