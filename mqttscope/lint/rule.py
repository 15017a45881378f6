"""The base of all rules.

A rule is one class in one file ``rules/<area>/<slug>.py``.  Rules that differ in little but data are a family: one
file has their base and all of them.  A rule names what it looks at and implements one of the ``check`` methods;
everything else is derived: the slug from the class, applicability from ``versions``, dispatch from ``looks_at``, byte
spans from field names, tests, explanations and pages from its docstring and examples.

Rules read the state of the connection (`RuleContext`) and never keep a copy of it.  A rule that counts something the
state does not have declares a ``Memory`` dataclass; there is one per key of its scope.
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

if TYPE_CHECKING:
    from mqttscope.events import GapEvent
    from mqttscope.lint.context import RuleContext
    from mqttscope.lint.examples import Conversation
    from mqttscope.lint.model import Model
    from mqttscope.mqtt.stream import Unparsed
    from mqttscope.session.connection import Connection
    from mqttscope.session.history import Violation

V3_1, V3_1_1, V5 = ProtocolVersion
ALL_VERSIONS = (V3_1, V3_1_1, V5)
PRACTICE = ("TOP", "PAY", "SEC", "OPS")
"""Families of rules of practice: off unless selected."""

Findings = Report | Iterable[Report] | None
"""What a check returns.

Checks of frequent packets return one report or ``None``; others may be generators.
"""
MAX_REPORTS = 10_000
"""Reports that one check of a rule made elsewhere may return for one event: its generator may have no end."""

TIME_SETTINGS = frozenset(
    (
        "close_timeout", "grace", "pause", "per_minute", "pings", "seconds", "slow", "timeout", "tolerance",
        "tolerance_percent", "very_slow", "window",
    )
)  # fmt: skip

BRIEF: dict[str, int] = {"timeout": 1, "close_timeout": 1, "grace": 1, "tolerance": 2}
"""Highest values, in seconds, of what rules wait for when they judge a test suite.  Servers count expiry intervals by
clocks of whole seconds, so that a tolerance of one second would be none."""


class Timing(StrEnum):
    """How long rules wait, unless their settings say otherwise."""

    NORMAL = "normal"
    """As long as a real network may take."""
    TEST = "test"
    """As short as a test suite on one machine allows (`BRIEF`)."""


_SCOPES = {"1": Scope.PACKET, "2": Scope.CONNECTION, "3": Scope.SESSION, "4": Scope.BROKER, "5": Scope.CONNECTION}


class Needs(Flag):
    """What a capture must have for a finding to count; without it the finding is withheld, and counted as such."""

    NOTHING = 0
    OPENING = auto()
    """CONNECT and the answer to it, so that version, limits and aliases are known."""
    SESSION_BIRTH = auto()
    """The session began on this connection, so that no identifiers and subscriptions come from before."""
    WHOLE_SENDER = auto()
    """No bytes of the sender's direction lost so far, and the two directions in the order of their causes."""
    WHOLE_RECEIVER = auto()
    """The same of the other direction."""
    BOTH_DIRECTIONS = auto()
    """Packets of both sides were captured."""
    WHOLE = WHOLE_SENDER | WHOLE_RECEIVER


_CODE = re.compile(r"[A-Z]{3,12}[1-5][0-9]{2}")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_HOME = "mqttscope.lint.rules."
RULES: dict[str, type[Rule]] = {}
"""The rules of this folder that were imported, by code; those made elsewhere are selected after
`catalogue.use_rules`."""


class Rule:
    """One check."""

    code: ClassVar[str]
    """Three letters for the area, three digits: the first stands for the scope.  Never used again.  Rules made
    elsewhere have letters of their own, such as ``ACME101``."""
    slug: ClassVar[str]
    """Names the pattern, not the cure: the name of the class with dashes, unless given."""
    severity: ClassVar[Severity]
    """The first of ``severities``, unless given."""
    confidence: ClassVar[Confidence] = Confidence.CERTAIN
    severities: ClassVar[tuple[Severity, ...]] = ()
    """All severities that findings may have, worst first, where that is not the one severity alone."""
    once: ClassVar[Severity | None] = None
    """Findings of this severity are one finding of a run, which gives the number of clients it is about (`sum_up`)."""
    versions: ClassVar[tuple[ProtocolVersion, ...]] = ALL_VERSIONS
    statements: ClassVar[dict[ProtocolVersion, dict[str, str]]] = {}
    """Normative statements that a finding breaks: identifier to where it applies.  ``""`` is everywhere; else
    alternatives with commas between them, each of an optional side, packet type and field: ``client publish``,
    ``connect.client_identifier``, ``publish.properties.response_topic``."""
    also: ClassVar[dict[ProtocolVersion, tuple[str, ...]]] = {}
    """Statements that the rule sees in part."""
    reason_code: ClassVar[int | None] = None
    """Reason code of 5.0 that the specification gives to this violation."""
    since: ClassVar[str] = "1.0.0"
    scope: ClassVar[Scope]
    """Follows from the code, unless a rule says otherwise."""
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``check`` is called for, those that its annotation names unless given; ``ControlPacket`` for
    all."""
    sender: ClassVar[Direction | None] = None
    """Call ``check`` only for packets in this direction."""
    when: ClassVar[str | dict[type[ControlPacket], str] | None] = None
    """Call ``check`` only when this attribute of the packet is true: ``qos``, ``properties``, ``retain``; or when this
    condition of `dispatch.CONDITIONS` holds.  In a table by packet class, what is not in it is always taken."""
    signs: ClassVar[tuple[str, ...] | dict[type[ControlPacket], tuple[str, ...]]] = ()
    """Names of `signs.SIGNS` without any of which the rule has nothing to say of a packet, so that it need not be
    asked; none: it always has to be asked.  In a table by packet class, what is not in it has none.  ``check`` must not
    rely on them: asked about any other packet it finds nothing."""
    waits: ClassVar[bool] = False
    """Whether ``check`` does nothing but begin to wait (`RuleContext.ask`), so that it need not be called meanwhile."""
    settled: ClassVar[bool] = True
    """Whether ``check`` has to be called as well once the connection is settled (`History.settled`)."""
    always: ClassVar[tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``when`` does not count for."""
    malformed: ClassVar[tuple[MalformedReason, ...]] = ()
    """Reasons of the decoder that this rule stands for."""
    needs: ClassVar[Needs] = Needs.NOTHING
    version_matters: ClassVar[bool] = True
    """Whether a finding could be wrong where the version is only assumed."""
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {}
    """Thresholds that the configuration may change (``[rules.TOP104]``), with their defaults."""
    brief: ClassVar[dict[str, int]] = {}
    """Settings with the timing of tests that do not follow from `BRIEF`."""
    reads_findings: ClassVar[bool] = False
    """Whether it judges what becomes of the violations that other rules find (`History.reported`).  The engine runs
    those rules for it also where they are not selected, and keeps what they find to itself."""
    models: ClassVar[tuple[type[Model], ...]] = ()
    """What it reads beside the connection (`RuleContext.model`), of its own scope."""
    about: ClassVar[tuple[type[Model], str] | tuple[type[Model], str, str] | None] = None
    """One of these models and the names of tables of topics in it: of PUBLISH, ``check`` is called for these alone."""
    Memory: ClassVar[type | None] = None
    """Dataclass of what the rule keeps for each key of its scope.  Plain data, bounded."""

    good: ClassVar[list[Conversation]]
    """Conversations in which no rule of severity ``error`` finds anything."""
    bad: ClassVar[list[Conversation]]
    """Conversations in which this rule finds exactly what is marked."""

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
                f"{cls.code!r} is no code of a rule: letters in upper case, at least three, and three digits, the first"
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
        """Judge a packet.  The state is that before the packet."""
        raise NotImplementedError

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Judge a fault of one of the ``malformed`` reasons."""
        return self.report(fault.field, _sentence(fault, at.event.type))  # type: ignore[union-attr]

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """Judge a packet that breaks the layout, once for all of its faults."""
        raise NotImplementedError

    def check_foreign(self, protocol: str, at: RuleContext) -> Findings:
        """Judge bytes of another protocol where MQTT should begin; no other rule looks at them."""
        raise NotImplementedError

    def check_unparsed(self, unparsed: Unparsed, at: RuleContext) -> Findings:
        """Judge bytes that belong to no packet."""
        raise NotImplementedError

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the beginning of a connection."""
        raise NotImplementedError

    def check_gap(self, event: GapEvent, at: RuleContext) -> Findings:
        """Take note of bytes that the capture does not have."""
        raise NotImplementedError

    def check_violation(self, violation: Violation, at: RuleContext) -> Findings:
        """Take note of what another rule has found in the packet at hand, for a rule with ``reads_findings``."""
        raise NotImplementedError

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge what should have come by now: at the first event from the time on that `RuleContext.ask` was given."""
        raise NotImplementedError

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge a connection at its end: what never came."""
        raise NotImplementedError

    def awaits(self, at: RuleContext) -> bool:
        """Whether a packet is still to come at the end of a connection, for rules with a ``timeout``."""
        raise NotImplementedError

    def sum_up(self, clients: str, names: str) -> str:
        """The message of the one finding of a run, for rules with ``once``: the number of clients, some of them."""
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
        """Identifiers of the statements that a finding of this rule breaks, in the order of the table."""
        return [
            identifier
            for identifier, where in self.statements.get(version, {}).items()
            if not where or any(_applies(one, sender, packet_type, field) for one in where.split(","))
        ]

    @classmethod
    def timed(cls, timing: Timing) -> dict[str, Any]:
        """Settings that a timing changes; the times of rules made elsewhere are their own affair."""
        if timing is Timing.NORMAL or not cls.is_ours():
            return {}
        waits = {name: most for name, most in BRIEF.items() if float(cls.settings.get(name, 0)) > most}  # type: ignore[arg-type]
        return {**waits, **cls.brief}

    @classmethod
    def implements(cls, name: str) -> bool:
        """Whether the rule has a check method of its own."""
        return getattr(cls, name) is not getattr(Rule, name)

    @classmethod
    def worst(cls) -> Severity:
        """The highest severity that a finding may have."""
        return cls.severities[0] if cls.severities else cls.severity

    @classmethod
    def is_practice(cls) -> bool:
        """Whether the rule is one of practice, off unless selected."""
        return cls.code[:-3] in PRACTICE

    @classmethod
    def is_ours(cls) -> bool:
        """Whether the rule comes with this program."""
        return cls.__module__.startswith(_HOME)

    @classmethod
    def paragraphs(cls) -> list[str]:
        """The docstring by paragraphs, each on one line: what, why, what instead."""
        return [re.sub(r"\s+", " ", part).strip() for part in (cls.__doc__ or "").split("\n\n")]


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
    """The decoder's words for a fault, with the packet, and with the field where they do not name it."""
    told = fault.detail or str(fault.reason).replace("_", " ")
    name = fault.field.rpartition(".")[2]
    named = name in told or name.replace("_", " ") in told.lower()
    words = ["" if kind in (None, "reserved") else str(kind).upper(), "" if named else fault.field]
    place = " ".join(word for word in words if word)
    return f"{place}: {told}" if place else told


def _looked_at(check: object) -> tuple[type[ControlPacket], ...] | type[ControlPacket]:
    """The packet classes that the first parameter of a ``check`` is annotated with."""
    named = next(iter(getattr(check, "__annotations__", {}).values()), None)
    kinds = get_args(named) or (named,)
    if not all(isinstance(one, type) and issubclass(one, ControlPacket) for one in kinds):
        return ()
    return kinds if len(kinds) > 1 else kinds[0]


def packet_name(packet: ControlPacket) -> str:
    """``PUBLISH``: how messages name a packet."""
    return PacketType(packet.packet_type).name


class WrongReturnError(MqttscopeError, TypeError):
    """A check returned what is no report, or more reports than `MAX_REPORTS`."""


def reports_of(rule: Rule, found: object) -> Iterator[Report]:
    """The reports that a check of a rule made elsewhere has returned; `WrongReturnError` at what is none."""
    if found is None:
        return
    if not isinstance(found, Report | Iterable) or isinstance(found, str | bytes | dict):
        raise _wrong_return(rule, f"a value of the type {type(found).__name__}")
    for number, report in enumerate((found,) if isinstance(found, Report) else found):
        if number == MAX_REPORTS:
            raise WrongReturnError(f"a check of {rule.code} returned more than {MAX_REPORTS:,} reports for one event")
        if not isinstance(report, Report):
            raise _wrong_return(rule, f"a {type(found).__name__} with a {type(report).__name__} in it")
        for name, kinds in _OF_REPORTS.items():
            value = getattr(report, name)
            if not isinstance(value, kinds):
                raise _wrong_field(rule, name, value)
            if isinstance(value, tuple) and not all(isinstance(one, _OF_TUPLES[name]) for one in value):
                raise _wrong_field(rule, name, value)
        yield report


_OF_REPORTS: dict[str, Any] = {
    "field": str, "message": str, "severity": Severity | None, "confidence": Confidence | None, "related": tuple,
    "sender": Direction | None, "reason_code": int | None, "statements": tuple | None, "span": tuple | None,
    "topic": str | None,
}  # fmt: skip
_OF_TUPLES: dict[str, type] = {"related": Related, "statements": str, "span": int}


def _wrong_field(rule: Rule, name: str, value: object) -> WrongReturnError:
    return WrongReturnError(f"a check of {rule.code} returned a report whose {name} cannot be {reprlib.repr(value)}")


def _wrong_return(rule: Rule, what: str) -> WrongReturnError:
    return WrongReturnError(
        f"a check of {rule.code} returned {what}; it has to return a report, which self.report(field, message) makes,"
        " several of them (a list or a generator), or None"
    )


def told_failure(rule: type, error: BaseException) -> str:
    """What a rule, or a model, has raised; of one that is made elsewhere with its file and line."""
    told = f"{type(error).__name__}: {error}"
    if rule.__module__.startswith(_HOME.partition(".")[0] + "."):
        return told
    package, place = rule.__module__.partition(".")[0], ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            place = f"{frame.f_code.co_filename}, line {line}"
    if not place:  # what a check has returned is wrong
        codes = [one.__code__ for name, one in vars(rule).items() if name.startswith("check") and isfunction(one)]
        place = f"{codes[0].co_filename}, line {codes[0].co_firstlineno}" if codes else rule.__module__
    return f"{told} ({place})"
