"""Base of the rules about Sparkplug B payloads, values by data type, and the beginnings of their examples."""

import re
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Related, Report
from mqttscope.lint.rule import SPARKPLUG, Findings, Specification
from mqttscope.lint.rules.sparkplug import SparkplugRule, is_bridge
from mqttscope.lint.sparkplug_model import (
    KINDS,
    EdgeNode,
    SparkplugMessage,
    SparkplugModel,
    TemplateDefinition,
    read_message,
    will_message,
)
from mqttscope.lint.strings import shown
from mqttscope.mqtt import Connect, Publish
from mqttscope.payloads.sparkplug_wire import DATATYPES, VALUES, Message, value_field

EDGE: Final = (
    "opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1"
    "; > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1"
)
"""An edge node that has connected."""
BORN: Final = (
    EDGE + '; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)'
)
"""An edge node with the metric T."""
DEVICE: Final = BORN + "; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5)"
"""An edge node with a device that has the metric S."""
ALIASED: Final = BORN + "; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S#1:Double=1.5)"
"""An edge node with a device that has the metric S with the alias 1."""
HOST: Final = (
    "opened 3.1.1 client=h will=spBv1.0/STATE/h will_payload=state(online=false) will_qos=1 will_retain"
    "; > subscribe 1 spBv1.0/#:1; < suback 1 1"
)
"""A host that has connected."""
ONLINE: Final = HOST + "; > publish spBv1.0/STATE/h state(online=true) qos=1 retain id=2; < puback 2"
"""A host that is online."""
BY_BIRTH: Final = {"NDATA": "NBIRTH", "DDATA": "DBIRTH"}
"""The birth that data belongs to (`PayloadRule.cited_as`)."""
SEEN: Final = (
    ONLINE + '; < publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)'
)
"""A host that has received the birth of an edge node with the metric T."""
_BEGINNINGS: Final = {
    "EDGE": EDGE, "BORN": BORN, "DEVICE": DEVICE, "ALIASED": ALIASED, "HOST": HOST, "ONLINE": ONLINE, "SEEN": SEEN
}  # fmt: skip


_BEGINNING = re.compile(rf"(?m)^(\s+)({'|'.join(_BEGINNINGS)})\b")
_KIND_WORDS: Final = {kind.lower() for kind in KINDS}


def stated(where: str, names: str) -> dict[Specification, dict[str, str]]:
    """Statements of a rule by their identifiers without ``tck-id-``, all with one place."""
    return {SPARKPLUG: {f"tck-id-{name}": where for name in names.split()}}


def sparkplug_examples(text: str) -> Any:
    """Examples, with these steps in place of a first word EDGE, BORN, DEVICE, ALIASED, HOST, ONLINE or SEEN."""
    return examples(_BEGINNING.sub(lambda match: match[1] + _BEGINNINGS[match[2]], text))


class PayloadRule(SparkplugRule):
    """A rule about the payloads of some message types."""

    kinds: ClassVar[tuple[str, ...]]
    """Message types that it judges."""
    cited_as: ClassVar[dict[str, str]] = {}
    """For message types that break statements about another message type, that type."""

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Judge a message with a readable payload."""
        message = read_message(packet, at)
        if message is None or message.kind not in self.kinds or message.problem:
            return None
        return self.joined(self.faults(message, at), message)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Sentences about the faults of a message."""
        raise NotImplementedError

    def joined(self, faults: Iterable[str], message: SparkplugMessage, **more: Any) -> Report | None:
        """One report about all faults of a message, with the statements about its type."""
        texts = list(faults)
        if not texts:
            return None
        rest = f", and {len(texts) - 1:,} more" if len(texts) > 1 else ""
        text = f"{message.name}: {texts[0]}{rest}"
        return self.report(message.field, text, statements=self.broken(message), **more)

    def broken(self, message: SparkplugMessage) -> tuple[str, ...]:
        """The rule's statements, without those about other message types or, for a PUBLISH, about wills."""
        is_will, kind = message.field != "payload", self.cited_as.get(message.kind, message.kind).lower()
        return tuple(
            name
            for name in self.statements.get(SPARKPLUG, ())
            if not (_KIND_WORDS - {kind}) & set(name.split("-")) and (is_will or "-will-" not in name)
        )


class WillPayloadRule(PayloadRule):
    """A rule that judges payloads in the Will too."""

    looks_at = (Publish, Connect)

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        return super().check(packet, at)  # type: ignore[arg-type]


class NodeRule(PayloadRule):
    """A rule about messages in their order, with what the connection has shown of their edge node."""

    models = (SparkplugModel,)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Judge a message; a repeated PUBLISH has been judged before, and the messages of a bridge are of others."""
        if packet.dup or is_bridge(at):
            return None
        report = super().check(packet, at)
        if isinstance(report, Report):
            report.confidence = report.confidence or self.certainty(at, report_owner(at))
        return report

    def certainty(self, at: RuleContext, owner: str) -> Confidence | None:
        """``likely`` unless the will of the connection proves that the client is that edge node or host.

        Other clients may forward messages, and may have lost some of them.
        """
        will = will_message(at)
        is_proved = self.confidence is not Confidence.CERTAIN or (will is not None and will.owner == owner)
        return None if is_proved else Confidence.LIKELY

    @staticmethod
    def node(message: SparkplugMessage, at: RuleContext) -> EdgeNode | None:
        """The edge node of a message that the client publishes; ``None`` if it has published nothing before."""
        return at.model(SparkplugModel).published.get(message.owner)

    def templates(self, message: SparkplugMessage, at: RuleContext) -> dict[str, TemplateDefinition] | None:
        """The template definitions of the edge node and of this message; ``None`` if they are unknown."""
        if message.kind == "NBIRTH":
            node = EdgeNode()
            node.apply(message, Related(message.kind, 0, 0, 0))
            return node.templates
        known = self.node(message, at)
        return None if known is None or known.birth is None or not known.is_whole else known.templates


def report_owner(at: RuleContext) -> str:
    """``group/node`` of the topic of a message, or its host."""
    levels = (at.topic or "").split("/")
    return levels[2] if levels[1] == "STATE" else f"{levels[1]}/{levels[3]}"


def metric_name(metric: Message) -> str:
    """A metric in messages: its name, or its alias."""
    return shown(metric["name"]) if "name" in metric else f"alias {metric['alias']}" if "alias" in metric else "unnamed"


def type_name(datatype: int) -> str:
    return DATATYPES[datatype] if datatype < len(DATATYPES) else str(datatype)


def value_of(holder: Message) -> str:
    """The field with the value of a metric, property or parameter; empty without any."""
    return next((name for name in VALUES if name in holder), "")


NUMBERS: Final = {"int_value", "long_value"}
_UPPER_BOUNDS: Final = {"UInt8": 0xFF, "UInt16": 0xFFFF, "Int8": 0xFF, "Int16": 0xFFFF}


def contradiction(holder: Message, datatype: int) -> str:
    """Why a value cannot have a data type; empty if it can, or if one of them is missing.

    Implementations send 32-bit numbers in ``long_value`` and 64-bit numbers in ``int_value``; both have the value.
    """
    name, wanted = value_of(holder), value_field(datatype)
    if not name or not wanted:
        return ""
    if name != wanted and not {name, wanted} <= NUMBERS:
        return f"a value of the data type {type_name(datatype)} is in {name}, not in {wanted}"
    highest = _UPPER_BOUNDS.get(type_name(datatype))
    number = holder[name]
    if highest is None or number <= highest:
        return ""
    # Negative numbers are sent as two's complement of 32 or 64 bits.
    bits = 1 << (32 if name == "int_value" else 64)
    is_negative = datatype < DATATYPES.index("UInt8") and number >= bits - (highest + 1) // 2
    return "" if is_negative else f"{number} is not a value of the data type {type_name(datatype)}"
