"""Base of the rules about Sparkplug B payloads, values by data type, and the beginnings of their examples."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Related, Report
from mqttscope.lint.rule import SPARKPLUG, Findings, Needs
from mqttscope.lint.rules import C2S, S2C, Connection
from mqttscope.lint.rules.sparkplug import SparkplugRule, is_bridge
from mqttscope.lint.sparkplug_model import (
    KINDS,
    EdgeNode,
    SparkplugMessage,
    SparkplugModel,
    TemplateDefinition,
    nested,
    read_message,
    will_message,
)
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.lint.waiting import has_arrived, is_over
from mqttscope.mqtt import Connect, Disconnect, Publish
from mqttscope.payloads.sparkplug_wire import DATATYPES, VALUES, Message, value_field

BY_BIRTH: Final = {"NDATA": "NBIRTH", "DDATA": "DBIRTH"}
"""The birth that data belongs to (`PayloadRule.cited_as`)."""
_KIND_WORDS: Final = {kind.lower() for kind in KINDS}


class PayloadRule(SparkplugRule):
    """A rule about the payloads of some message types."""

    kinds: ClassVar[tuple[str, ...]]
    """Message types that it judges."""
    cited_as: ClassVar[dict[str, str]] = {}
    """For message types that break statements about another message type, that type."""
    part: ClassVar[str] = ""
    """Field of the metrics that `fault` judges, also inside templates; empty for all metrics of a message."""

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Judge a message with a readable payload."""
        message = read_message(packet, at)
        if message is None or message.kind not in self.kinds or message.problem:
            return None
        return self.joined(self.faults(message, at), message, at)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Sentences about the faults of a message; empty ones are left out."""
        metrics = nested(message.metrics, self.part) if self.part else message.metrics
        return map(self.fault, metrics)

    def fault(self, metric: Message) -> str:
        """The fault of a metric; empty without one."""
        raise NotImplementedError

    def related(self, message: SparkplugMessage, at: RuleContext) -> tuple[Related, ...]:
        """Messages that show the fault as well."""
        return ()

    def joined(self, faults: Iterable[str], message: SparkplugMessage, at: RuleContext) -> Report | None:
        """One report about all faults of a message, with the statements about its type."""
        texts = [*filter(None, faults)]
        if not texts:
            return None
        rest = f", and {len(texts) - 1:,} more" if len(texts) > 1 else ""
        text = f"{message.name}: {texts[0]}{rest}"
        related, statements = self.related(message, at), self.broken(message, at)
        return self.report(message.field, text, related=related, statements=statements)

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
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


class UnansweredRule(NodeRule):
    """A rule about a message of the server that the client does not answer within ``timeout`` seconds."""

    confidence = Confidence.LIKELY
    sender = S2C
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    Memory = ReportedTexts

    def unanswered(self, at: RuleContext) -> Iterator[tuple[Related, int, str]]:
        """Messages without an answer, the positions after them, and the faults as sentences."""
        raise NotImplementedError

    def wait(self, at: RuleContext) -> None:
        """Begin to wait for an answer."""
        if not at.history.is_asked(self.code):
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))

    def awaits(self, at: RuleContext) -> bool:
        return any(True for _ in self._waiting(at))

    def _waiting(self, at: RuleContext) -> Iterator[tuple[Related, int, str]]:
        reported: ReportedTexts = at.memory(self)
        return (row for row in self.unanswered(at) if f"{row[0].packet} {row[2]}" not in reported.texts)

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report messages older than the timeout, and wait on for later ones."""
        if is_over(at):
            return
        timeout_ns, reported = self.nanoseconds("timeout"), at.memory(self)
        for request, position, text in list(self._waiting(at)):
            is_early = request.timestamp_ns > at.timestamp_ns - timeout_ns
            if is_early or not has_arrived(at.history.server, position):
                at.ask(self, (request if is_early else at).timestamp_ns + timeout_ns)
            elif reported.first(f"{request.packet} {text}"):
                yield self.report("", text, sender=C2S, related=(request,), overdue=True)


class DisconnectRule(NodeRule):
    """A rule about a client that leaves without a death; Reason Codes other than 0 publish the will."""

    looks_at = Disconnect
    signs = ()

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:  # type: ignore[override]
        return None if packet.reason_code or is_bridge(at) else self.left(at)

    def left(self, at: RuleContext) -> Iterator[Report]:
        """Reports about all edge nodes or hosts of the connection that are alive."""
        raise NotImplementedError


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


def contradiction(metric: Message, datatype: int) -> str:
    """Why the value of a metric cannot have a data type; empty if it can, or if one of them is missing.

    Implementations send 32-bit numbers in ``long_value`` and 64-bit numbers in ``int_value``; both have the value.
    """
    name, wanted = value_of(metric), value_field(datatype)
    if not name or not wanted:
        return ""
    subject, kind = f"metric {metric_name(metric)}", type_name(datatype)
    if name != wanted and not {name, wanted} <= NUMBERS:
        return f"{subject}: a value of the data type {kind} is in {name}, not in {wanted}"
    highest, number = _UPPER_BOUNDS.get(kind), metric[name]
    if highest is None or number <= highest:
        return ""
    # Negative numbers are sent as two's complement of 32 or 64 bits.
    bits = 1 << (32 if name == "int_value" else 64)
    is_negative = datatype < DATATYPES.index("UInt8") and number >= bits - (highest + 1) // 2
    return "" if is_negative else f"{subject}: {number} is not a value of the data type {kind}"
