"""Plans: which rules are asked about which packets, and which models follow them.

A rule declares its input: packet classes, versions, the sending side, whether it applies to settled connections, a
condition on the packet (``when``), and unusual features of the packet (``signs``).  `Plans` turns the declarations into
one `PacketPlan` per kind of packet, which the engine runs for every packet of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from mqttscope.lint.broker_watch import expires_or_retained
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Scope
from mqttscope.lint.model import Model
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.signs import ALL, BITS, SIGNS
from mqttscope.lint.strings import has_odd_strings
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import PACKETS, ControlPacket

Check = Callable[..., Findings]
Condition = Callable[[Any], Any]
BoundChecks = tuple[tuple[Rule, Check], ...]

CONDITIONS: Final[dict[str, Condition]] = {"odd_strings": has_odd_strings, "expires_or_retained": expires_or_retained}
"""Conditions that ``Rule.when`` may name besides attributes of packets."""


# The result depends on the rules alone, so all engines with the same rules share it.
@lru_cache(maxsize=64)
def checks_named(running: tuple[Rule, ...], name: str) -> BoundChecks:
    """The rules that implement a check method, with the bound method."""
    return tuple((rule, getattr(rule, name)) for rule in running if rule.implements(name))


MAX_KINDS = 1_000
"""Maximum number of sign combinations with a cached plan; real traffic has far fewer."""


class Question:
    """A check, and the packets of its plan that it is called for."""

    __slots__ = ("check", "condition", "rule", "signs", "waiting", "when")

    def __init__(
        self, rule: Rule, check: Check, condition: Condition | None, when: int, signs: int, waiting: str = ""
    ) -> None:
        self.rule = rule
        self.check = check
        self.condition = condition
        """Condition on the packet; ``None`` for every packet."""
        self.when = when
        """Sign bit that stands for the condition; 0 if it has no bit."""
        self.signs = signs
        """The packet must have one of these sign bits; 0 for every packet."""
        self.waiting = waiting
        """Not asked while the rule with this code waits; empty if waiting does not matter."""

    def for_signs(self, signs: int) -> Question | None:
        """The question reduced to packets with these signs; ``None`` if it does not apply to them."""
        if (self.when and not signs & self.when) or (self.signs and not signs & self.signs):
            return None
        # A set bit proves the condition.
        condition = self.condition if signs == ALL or not self.when else None
        return Question(self.rule, self.check, condition, 0, 0, self.waiting)


class TopicQuestions:
    """Questions about PUBLISH packets on topics of a model."""

    __slots__ = ("code", "model", "names", "questions", "tables", "wide")

    def __init__(self, model: type[Model], names: tuple[str, ...], questions: list[Question]) -> None:
        self.model = model
        self.code = model.code
        self.wide = model.scope is Scope.BROKER
        self.names = names
        self.tables = [attrgetter(name) for name in names]
        """Getters of the model's tables; one of the tables must contain the topic."""
        self.questions = questions


class FollowingModel:
    """A model that is updated by packets of a type."""

    __slots__ = ("code", "condition", "model", "when", "wide")

    def __init__(self, model: type[Model], condition: Condition | None, when: int) -> None:
        self.model = model
        self.code = model.code
        self.wide = model.scope is Scope.BROKER
        self.condition = condition
        """Condition on the packet; ``None`` for every packet."""
        self.when = when
        """Sign bit that stands for the condition; 0 if it has no bit."""


class PlanForSigns:
    """Questions and models for packets of one plan with the same signs."""

    __slots__ = ("followers", "questions", "topic_questions")

    def __init__(self, plan: PacketPlan, signs: int) -> None:
        self.questions = _put(plan.questions, signs)
        """Asked if their ``condition`` is true as well."""
        groups = [TopicQuestions(row.model, row.names, _put(row.questions, signs)) for row in plan.topic_questions]
        self.topic_questions = [group for group in groups if group.questions]
        """Questions about topics in a model, asked under the same conditions."""
        self.followers = [
            FollowingModel(follower.model, follower.condition if signs == ALL or not follower.when else None, 0)
            for follower in plan.followers
            if not follower.when or signs & follower.when
        ]
        """Models in order; they are updated if their ``condition`` is true as well."""


def _put(questions: list[Question], signs: int) -> list[Question]:
    return [put for put in [question.for_signs(signs) for question in questions] if put is not None]


class PacketPlan:
    """Questions and models for packets of one type, version and side, before or after the connection is settled.

    They are selected once for each combination of signs.
    """

    __slots__ = ("_by_signs", "_last", "_last_signs", "followers", "questions", "topic_questions")

    def __init__(self, questions: list[Question], topics: list[TopicQuestions], models: list[FollowingModel]) -> None:
        self.questions = questions
        self.topic_questions = topics
        """Questions about PUBLISH packets on topics of a model."""
        self.followers = models
        self._by_signs: dict[int, PlanForSigns] = {}
        self._last_signs = -1
        self._last: PlanForSigns | None = None

    def plan_for(self, signs: int) -> PlanForSigns:
        """The plan for packets with these signs."""
        plan = self._last
        # Nearly always the signs of the packet before: comparing a number is faster than looking it up.
        if plan is None or signs != self._last_signs:
            plan = self._by_signs.get(signs)
            if plan is None:
                if len(self._by_signs) >= MAX_KINDS:
                    self._by_signs.clear()
                plan = self._by_signs[signs] = PlanForSigns(self, signs)
            self._last_signs, self._last = signs, plan
        return plan


PacketPlans = dict[type[ControlPacket], PacketPlan]
"""Plans of one version and side, before or after the connection is settled, by packet class."""


@lru_cache(maxsize=16)
def plans_of(running: tuple[Rule, ...], models: tuple[type[Model], ...], *, thorough: bool = False) -> Plans:
    """The plans of rules and models that run together; ``thorough``: no rule is skipped for its signs or ``when``."""
    return Plans(running, models, thorough=thorough)


class Plans:
    """The plans of the rules and models that run together, created as packets arrive."""

    def __init__(
        self, running: Iterable[Rule], models: tuple[type[Model], ...] = (), *, thorough: bool = False
    ) -> None:
        """``thorough``: ask each rule about every packet of its classes, for tests."""
        self._models = models
        self._checks = [(rule, rule.check) for rule in running if rule.implements("check")]
        self._thorough = thorough
        self._by_key: dict[tuple[int, bool, bool], PacketPlans] = {}

    def plans_for(self, at: RuleContext) -> PacketPlans:
        """The plans for the version, side and settled state of the context, as far as they exist."""
        key = int(at.version), at.from_client, at.history.settled
        return self._by_key.setdefault(key, {})

    def add_plan(self, cls: type[ControlPacket], at: RuleContext) -> PacketPlan:
        """Create the plan for a packet class."""
        plan = self.plans_for(at)[cls] = self._plan(cls, at)
        return plan

    def _plan(self, cls: type[ControlPacket], at: RuleContext) -> PacketPlan:
        settled = at.history.settled and not self._thorough
        groups: dict[str | None, list[Question]] = {}
        by_model: dict[type[Model], dict[tuple[str, ...], list[Question]]] = {}
        for rule, check in self._checks:
            if not (
                issubclass(cls, rule.looks_at)
                and at.version in rule.versions
                and rule.sender in (None, at.direction)
                and (rule.settled or not settled)
            ):
                continue
            when = rule.when.get(cls) if isinstance(rule.when, dict) else rule.when
            if issubclass(cls, rule.always) or (self._thorough and when in CONDITIONS):
                when = None
            condition = None if when is None else CONDITIONS.get(when) or attrgetter(when)
            bit = 0 if when is None else BITS.get(when, 0)
            waiting = rule.code if rule.waits and not self._thorough else ""
            question = Question(rule, check, condition, bit, 0 if self._thorough else _signs(rule, cls), waiting)
            if rule.about is not None and cls is PACKETS[PacketType.PUBLISH] and not self._thorough:
                model, *tables = rule.about
                by_model.setdefault(model, {}).setdefault(tuple(tables), []).append(question)
            else:
                groups.setdefault(when, []).append(question)
        return PacketPlan(
            [question for group in groups.values() for question in group],
            [TopicQuestions(model, *row) for model, tables in by_model.items() for row in tables.items()],
            [_follower(model, cls) for model in self._models if cls in model.looks_at],
        )


def _signs(rule: Rule, cls: type[ControlPacket]) -> int:
    """The rule is asked if the packet has one of these sign bits; 0 for every packet."""
    names = rule.signs.get(cls, ()) if isinstance(rule.signs, dict) else rule.signs
    bits = 0
    for name in names:
        bits |= SIGNS[name]
    return bits


def _follower(model: type[Model], cls: type[ControlPacket]) -> FollowingModel:
    name = model.when.get(cls)
    if name is None:
        return FollowingModel(model, None, 0)
    if name not in BITS:  # a sign, not an attribute of the packet
        return FollowingModel(model, None, SIGNS[name]) if name in SIGNS else FollowingModel(model, attrgetter(name), 0)
    return FollowingModel(model, attrgetter(name), BITS[name])
