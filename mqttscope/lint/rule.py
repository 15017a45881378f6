"""The base of all rules.

A rule is one class in one file ``rules/<area>/<slug>.py``.  Rules that differ only in a few data are a family: one file
has their base and all of them.  A rule declares its input and implements one of the ``check`` methods.  Everything else
is derived: the slug from the class name, applicability from ``versions``, dispatch from ``looks_at``, byte spans from
field names, and tests, explanations and pages from its docstring and examples.

Rules read the state of the connection (`RuleContext`) and never keep a copy of it.  For other state, a rule declares a
``Memory`` dataclass, which has one instance per key of the rule's scope.
"""

from __future__ import annotations

import re
import reprlib
import traceback
from collections.abc import Iterable, Iterator
from enum import Flag, StrEnum, auto
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from mqttscope.errors import MqttscopeError
from mqttscope.lint.finding import Confidence, Related, Report, Scope, Severity
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, FaultReport, Malformed
from mqttscope.mqtt.repair import Misreading

if TYPE_CHECKING:
    from mqttscope.events import GapEvent
    from mqttscope.lint.context import RuleContext
    from mqttscope.lint.examples import ExampleConversation
    from mqttscope.lint.model import Model
    from mqttscope.mqtt.stream import Unparsed
    from mqttscope.session.connection import Connection
    from mqttscope.session.history import Violation

V3_1, V3_1_1, V5 = ProtocolVersion


class Standard(StrEnum):
    """A standard beyond MQTT; its statements apply to connections of every MQTT version."""

    SPARKPLUG = "sparkplug 3.0"

    @property
    def text(self) -> str:
        """The standard in `catalogue.Statement.key`: ``sparkplug 3.0``."""
        return self.value

    @classmethod
    def of(cls, identifier: str) -> Standard | None:
        """The standard with such identifiers; ``None`` for MQTT."""
        return cls.SPARKPLUG if identifier.startswith("tck-id-") else None


SPARKPLUG = Standard.SPARKPLUG
Specification = ProtocolVersion | Standard
"""A version of MQTT, or another standard."""
ALL_VERSIONS = (V3_1, V3_1_1, V5)
PRACTICE = ("TOP", "PAY", "SEC", "OPS")
"""Areas of rules of practice: off unless selected."""

Findings = Report | Iterable[Report] | None
"""Return value of a check.

Checks of frequent packets return one report or ``None``; other checks may be generators.
"""
MAX_REPORTS = 10_000
"""Maximum number of reports that a third-party check may return per event: its generator may be endless."""

TIME_SETTINGS = frozenset(
    (
        "close_timeout", "grace", "pause", "per_minute", "pings", "seconds", "slow", "timeout", "tolerance", "within",
        "tolerance_percent", "very_slow", "window",
    )
)  # fmt: skip

BRIEF: dict[str, int] = {"timeout": 1, "close_timeout": 1, "grace": 1, "tolerance": 2}
"""Maximum waiting times of rules, in seconds, when they judge a test suite.  Servers count expiry intervals with a
resolution of one second, so a tolerance of one second would have no effect."""


class Timing(StrEnum):
    """How long rules wait, unless their settings define it."""

    NORMAL = "normal"
    """As long as a real network may need."""
    TEST = "test"
    """As short as a test suite on one machine allows (`BRIEF`)."""


_SCOPES = {"1": Scope.PACKET, "2": Scope.CONNECTION, "3": Scope.SESSION, "4": Scope.BROKER, "5": Scope.CONNECTION}


class Needs(Flag):
    """Requirements of a finding on the capture; without them the finding is withheld and counted."""

    NOTHING = 0
    OPENING = auto()
    """CONNECT and its answer, so that version, limits and aliases are known."""
    SESSION_BIRTH = auto()
    """The session began on this connection: no identifiers or subscriptions are from an earlier one."""
    WHOLE_SENDER = auto()
    """No lost bytes in the sender's direction, and both directions in causal order."""
    WHOLE_RECEIVER = auto()
    """No lost bytes in the receiver's direction, and both directions in causal order."""
    BOTH_DIRECTIONS = auto()
    """Captured packets of both sides."""
    WHOLE = WHOLE_SENDER | WHOLE_RECEIVER


_CODE = re.compile(r"[A-Z]{3,12}[1-5][0-9]{2}")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_HOME = "mqttscope.lint.rules."
RULES: dict[str, type[Rule]] = {}
"""Imported built-in rules, by code; third-party rules can be selected after `catalogue.use_rules`."""


class Rule:
    """One check."""

    code: ClassVar[str]
    """Three letters for the area and three digits; the first digit is the scope.  Codes are never reused.  Third-party
    rules have letters of their own, such as ``ACME101``."""
    slug: ClassVar[str]
    """Name of the mistake, not of its remedy: by default the class name with dashes."""
    severity: ClassVar[Severity]
    """The default is the first of ``severities``."""
    confidence: ClassVar[Confidence] = Confidence.CERTAIN
    severities: ClassVar[tuple[Severity, ...]] = ()
    """All severities of findings, worst first, if there are several."""
    once: ClassVar[Severity | None] = None
    """Findings with this severity become one finding of the run, with the number of affected clients (`sum_up`)."""
    versions: ClassVar[tuple[ProtocolVersion, ...]] = ALL_VERSIONS
    statements: ClassVar[dict[Specification, dict[str, str]]] = {}
    """Normative statements that a finding breaks, each with the places where it applies.  ``""`` is everywhere.  Other
    texts are alternatives separated by commas, each with an optional side, packet type and field: ``client publish``,
    ``connect.client_identifier``, ``publish.properties.response_topic``."""
    also: ClassVar[dict[Specification, tuple[str, ...]]] = {}
    """Statements that the rule checks in part."""
    reason_code: ClassVar[int | None] = None
    """Reason Code that 5.0 defines for this violation."""
    since: ClassVar[str] = "1.0.0"
    scope: ClassVar[Scope]
    """The default follows from the code."""
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``check`` is called for, by default those in its annotation; ``ControlPacket`` for all."""
    sender: ClassVar[Direction | None] = None
    """Direction of the packets that ``check`` is called for; ``None`` for both."""
    when: ClassVar[str | dict[type[ControlPacket], str] | None] = None
    """``check`` is called only if this attribute of the packet is true (``qos``, ``properties``, ``retain``), or this
    condition of `dispatch.CONDITIONS`.  In a table by packet class, other classes have no condition."""
    signs: ClassVar[tuple[str, ...] | dict[type[ControlPacket], tuple[str, ...]]] = ()
    """Names of `signs.SIGNS`: without any of them in a packet, ``check`` may be skipped, because it would find nothing.
    Empty: ``check`` is always called.  In a table by packet class, other classes are always checked.  ``check`` must
    not rely on signs: called for any other packet, it finds nothing."""
    waits: ClassVar[bool] = False
    """Whether ``check`` only starts a timer (`RuleContext.ask`), so that it can be skipped while the timer runs."""
    settled: ClassVar[bool] = True
    """Whether ``check`` must be called even after the connection is settled (`History.settled`)."""
    always: ClassVar[tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``when`` does not apply to."""
    malformed: ClassVar[tuple[MalformedReason, ...]] = ()
    """Reasons of the decoder that this rule reports."""
    needs: ClassVar[Needs] = Needs.NOTHING
    version_matters: ClassVar[bool] = True
    """Whether a finding could be wrong if the version is only assumed."""
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {}
    """Thresholds that the configuration can change (``[rules.TOP104]``), with their defaults."""
    brief: ClassVar[dict[str, int]] = {}
    """Settings for test timing that do not follow from `BRIEF`."""
    reads_findings: ClassVar[bool] = False
    """Whether it judges reactions to violations that other rules report (`History.reported`).  The engine runs those
    rules even if they are not selected, and then drops their findings."""
    models: ClassVar[tuple[type[Model], ...]] = ()
    """Models with the same scope that it reads (`RuleContext.model`)."""
    about: ClassVar[tuple[type[Model], str] | tuple[type[Model], str, str] | None] = None
    """One of these models and names of its tables of topics: ``check`` is called only for PUBLISH on these topics."""
    Memory: ClassVar[type | None] = None
    """Dataclass with the state of the rule per key of its scope.  Bounded plain data."""

    good: ClassVar[list[ExampleConversation]]
    """Conversations without a finding of severity ``error``."""
    bad: ClassVar[list[ExampleConversation]]
    """Conversations with exactly the marked findings of this rule."""

    def __init__(self, settings: dict[str, Any] | None = None, timing: Timing = Timing.NORMAL) -> None:
        self.is_timed = not TIME_SETTINGS.isdisjoint(self.settings)
        self.set = {**self.settings, **self.timed(timing), **(settings or {})}

    def __init_subclass__(cls) -> None:
        if cls.severities and isinstance(cls.severities, tuple) and not hasattr(cls, "severity"):
            cls.severity = cls.severities[0]
        if not cls.looks_at and "check" in cls.__dict__:
            cls.looks_at = _looked_at(cls.check)
        if "code" not in cls.__dict__:
            return
        if not isinstance(cls.code, str) or not _CODE.fullmatch(cls.code):
            raise TypeError(
                f"{cls.code!r} is not a rule code: at least three letters in upper case, and three digits, the first"
                " from 1 (packet) to 5"
            )
        if "scope" not in cls.__dict__:
            cls.scope = _SCOPES[cls.code[-3]]
        if "slug" not in cls.__dict__:
            cls.slug = _WORD.sub("-", cls.__name__).lower()
        if not cls.is_ours():
            return
        known = RULES.get(cls.code, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.code} is the code of two rules")
        RULES[cls.code] = cls

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Judge a packet, with the state before it."""
        raise NotImplementedError

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Judge a fault with one of the ``malformed`` reasons."""
        return self.report(fault.field, _sentence(fault, at.event.type))  # type: ignore[union-attr]

    def check_damaged(self, packet: Malformed, at: RuleContext) -> Findings:
        """Judge a packet with a broken layout, once for all of its faults."""
        raise NotImplementedError

    def check_misread(self, reading: Misreading, at: RuleContext) -> Findings:
        """Judge a fault that moves all later packets of a side; no other rule looks at the malformed packet."""
        raise NotImplementedError

    def check_foreign(self, protocol: str, at: RuleContext) -> Findings:
        """Judge bytes of another protocol at the start of a connection; no other rule is asked about them."""
        raise NotImplementedError

    def check_unparsed(self, unparsed: Unparsed, at: RuleContext) -> Findings:
        """Judge bytes that belong to no packet."""
        raise NotImplementedError

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the start of a connection."""
        raise NotImplementedError

    def check_gap(self, event: GapEvent, at: RuleContext) -> Findings:
        """Take note of bytes that are missing from the capture."""
        raise NotImplementedError

    def check_violation(self, violation: Violation, at: RuleContext) -> Findings:
        """Take note of another rule's violation in the current packet, for a rule with ``reads_findings``."""
        raise NotImplementedError

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge what is overdue, at the first event after the time passed to `RuleContext.ask`."""
        raise NotImplementedError

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the end of a connection: packets that never arrived."""
        raise NotImplementedError

    def awaits(self, at: RuleContext) -> bool:
        """Whether a packet is still missing at the end of a connection, for rules with a ``timeout``."""
        raise NotImplementedError

    def sum_up(self, clients: str, names: str) -> str:
        """Message of the finding of the run, for rules with ``once``: number of clients, and some of their names."""
        raise NotImplementedError

    def report(
        self,
        field: str,
        message: str,
        *,
        severity: Severity | None = None,
        confidence: Confidence | None = None,
        related: tuple[Related, ...] = (),
        sender: Direction | None = None,
        reason_code: int | None = None,
        statements: tuple[str, ...] | None = None,
        span: tuple[int, int] | None = None,
        overdue: bool = False,
        topic: str | None = None,
    ) -> Report:
        """A report about a field (its path, empty for the complete packet); see `Report` for the rest."""
        return Report(
            field, message, severity, confidence, related, sender, reason_code, statements, span, overdue, topic
        )

    def nanoseconds(self, name: str) -> int:
        """A setting in seconds, in nanoseconds."""
        seconds = self.set[name]
        return seconds * 1_000_000_000 if type(seconds) is int else round(float(seconds) * 1e9)

    def statements_for(self, version: ProtocolVersion, sender: str, packet_type: str | None, field: str) -> list[str]:
        """Identifiers of the statements that a finding breaks: of the version, then of other standards."""
        return [
            identifier
            for specification in (version, *Standard)
            for identifier, where in self.statements.get(specification, {}).items()
            if not where or any(_applies(place, sender, packet_type, field) for place in where.split(","))
        ]

    @classmethod
    def timed(cls, timing: Timing) -> dict[str, Any]:
        """Settings that a timing changes; third-party rules define their own times."""
        if timing is Timing.NORMAL or not cls.is_ours():
            return {}
        waits = {name: most for name, most in BRIEF.items() if float(cls.settings.get(name, 0)) > most}  # type: ignore[arg-type]
        return {**waits, **cls.brief}

    @classmethod
    def implements(cls, name: str) -> bool:
        """Whether the rule overrides a check method."""
        return getattr(cls, name) is not getattr(Rule, name)

    @classmethod
    def worst(cls) -> Severity:
        """The highest severity of its findings."""
        return cls.severities[0] if cls.severities else cls.severity

    @classmethod
    def is_practice(cls) -> bool:
        """Whether it is a rule of practice, off unless selected."""
        return cls.code[:-3] in PRACTICE

    @classmethod
    def is_for_profiles(cls) -> bool:
        """Whether it judges only with a profile, which has its settings."""
        return "profile" in cls.settings

    @classmethod
    def is_ours(cls) -> bool:
        """Whether the rule is built in."""
        return cls.__module__.startswith(_HOME)

    @classmethod
    def paragraphs(cls, *, marked: bool = False) -> list[str]:
        """The docstring by paragraphs, each on one line: the mistake, why it matters, the remedy.

        ``marked``: keep the double backquotes around code, which Markdown needs.
        """
        parts = [re.sub(r"\s+", " ", part).strip() for part in (cls.__doc__ or "").split("\n\n")]
        return parts if marked else [CODE.sub(r"\1", part) for part in parts]


CODE = re.compile(r"``(.+?)``")
"""Code in a docstring."""


def _applies(where: str, sender: str, packet_type: str | None, field: str) -> bool:
    words = where.split()
    if words and words[0] in ("client", "server"):
        if words[0] != sender:
            return False
        del words[0]
    if not words:
        return True
    kind, _, path = words[0].partition(".")
    plain = re.sub(r"\[\d+\]", "", field)
    return kind in ("any", packet_type) and (not path or plain == path or plain.startswith(path + "."))


def _sentence(fault: FaultReport, kind: str | None) -> str:
    """The decoder's words for a fault, with the packet, and with the field unless the words name it."""
    text = fault.detail or str(fault.reason).replace("_", " ")
    name = fault.field.rpartition(".")[2]
    named = name in text or name.replace("_", " ") in text.lower()
    words = ["" if kind in (None, "reserved") else str(kind).upper(), "" if named else fault.field]
    place = " ".join(word for word in words if word)
    return f"{place}: {text}" if place else text


def _looked_at(check: object) -> tuple[type[ControlPacket], ...] | type[ControlPacket]:
    """The packet classes in the annotation of the first parameter of a ``check``."""
    named = next(iter(getattr(check, "__annotations__", {}).values()), None)
    kinds = get_args(named) or (named,)
    if not all(isinstance(kind, type) and issubclass(kind, ControlPacket) for kind in kinds):
        return ()
    return kinds if len(kinds) > 1 else kinds[0]


def packet_name(packet: ControlPacket) -> str:
    """Name of a packet in messages, such as ``PUBLISH``."""
    return PacketType(packet.packet_type).name


class WrongReturnError(MqttscopeError, TypeError):
    """A check returned something other than reports, or more than `MAX_REPORTS`."""


def reports_of(rule: Rule, returned: object) -> Iterator[Report]:
    """Check the reports that a third-party check returned; `WrongReturnError` for anything else."""
    if returned is None:
        return
    if not isinstance(returned, Report | Iterable) or isinstance(returned, str | bytes | dict):
        raise _wrong_return(rule, f"a value of the type {type(returned).__name__}")
    for number, report in enumerate((returned,) if isinstance(returned, Report) else returned):
        if number == MAX_REPORTS:
            raise WrongReturnError(f"a check of {rule.code} returned more than {MAX_REPORTS:,} reports for one event")
        if not isinstance(report, Report):
            raise _wrong_return(rule, f"a {type(returned).__name__} with a {type(report).__name__} in it")
        for name, kinds in _OF_REPORTS.items():
            value = getattr(report, name)
            if not isinstance(value, kinds):
                raise _wrong_field(rule, name, value)
            if isinstance(value, tuple) and not all(isinstance(element, _OF_TUPLES[name]) for element in value):
                raise _wrong_field(rule, name, value)
        yield report


_OF_REPORTS: dict[str, Any] = {
    "field": str, "message": str, "severity": Severity | None, "confidence": Confidence | None, "related": tuple,
    "sender": Direction | None, "reason_code": int | None, "statements": tuple | None, "span": tuple | None,
    "topic": str | None,
}  # fmt: skip
_OF_TUPLES: dict[str, type] = {"related": Related, "statements": str, "span": int}


def _wrong_field(rule: Rule, name: str, value: object) -> WrongReturnError:
    return WrongReturnError(f"a check of {rule.code} returned a report with invalid {name}: {reprlib.repr(value)}")


def _wrong_return(rule: Rule, what: str) -> WrongReturnError:
    return WrongReturnError(
        f"a check of {rule.code} returned {what}; it has to return a report, which self.report(field, message) makes,"
        " several of them (a list or a generator), or None"
    )


def failure_text(rule: type, error: BaseException) -> str:
    """The exception of a rule or a model as text; for third-party code with file and line."""
    text = f"{type(error).__name__}: {error}"
    if rule.__module__.startswith(_HOME.partition(".")[0] + "."):
        return text
    package, place = rule.__module__.partition(".")[0], ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            place = f"{frame.f_code.co_filename}, line {line}"
    if not place:  # the return value of a check is wrong
        codes = [row.__code__ for name, row in vars(rule).items() if name.startswith("check") and isfunction(row)]
        place = f"{codes[0].co_filename}, line {codes[0].co_firstlineno}" if codes else rule.__module__
    return f"{text} ({place})"
