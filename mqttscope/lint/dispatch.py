"""Which rules are asked about which packets, and which models follow them.

A rule says what it looks at: packet classes, versions, the side that sends, whether it has to be asked once all is
settled, what must be true of the packet (``when``), and what has to be out of the ordinary (``signs``).  `Plans` turns
that into a `Plan` for each kind of packet, which the engine goes through for every packet of that kind.
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
Group = tuple[tuple[Rule, Check], ...]

CONDITIONS: Final[dict[str, Condition]] = {"odd_strings": has_odd_strings, "expires_or_retained": expires_or_retained}
"""What ``Rule.when`` may name beside attributes of packets."""


# What depends on the rules alone serves all engines that run the same ones.
@lru_cache(maxsize=64)
def checks_named(running: tuple[Rule, ...], name: str) -> Group:
    """The rules with a check method of their own, and that."""
    return tuple((rule, getattr(rule, name)) for rule in running if rule.implements(name))


MAX_KINDS = 1_000
"""Combinations of signs of which is remembered what is asked; more of them come in nothing but made-up traffic."""


class Question:
    """A check, and of which packets of its plan it is asked."""

    __slots__ = ("check", "condition", "rule", "signs", "waiting", "when")

    def __init__(
        self, rule: Rule, check: Check, condition: Condition | None, when: int, signs: int, waiting: str = ""
    ) -> None:
        self.rule = rule
        self.check = check
        self.condition = condition
        """What must be true of the packet; ``None`` where nothing must."""
        self.when = when
        """The bit that says the same; 0 where there is none."""
        self.signs = signs
        """Bits of which the packet has to bear one; 0 where it need not."""
        self.waiting = waiting
        """Not asked while the rule of this code waits; empty where that makes no difference."""

    def of(self, signs: int) -> Question | None:
        """The question as it is put about packets with these signs; ``None`` where it is not put."""
        if (self.when and not signs & self.when) or (self.signs and not signs & self.signs):
            return None
        # What a bit has said is not worked out again.
        condition = self.condition if signs == ALL or not self.when else None
        return Question(self.rule, self.check, condition, 0, 0, self.waiting)


class About:
    """The questions about topics of a model."""

    __slots__ = ("code", "model", "names", "questions", "tables", "wide")

    def __init__(self, model: type[Model], names: tuple[str, ...], questions: list[Question]) -> None:
        self.model = model
        self.code = model.code
        self.wide = model.scope is Scope.BROKER
        self.names = names
        self.tables = [attrgetter(name) for name in names]
        """Of which one has to have the topic."""
        self.questions = questions


class Follower:
    """A model that follows packets of a type."""

    __slots__ = ("code", "condition", "model", "when", "wide")

    def __init__(self, model: type[Model], condition: Condition | None, when: int) -> None:
        self.model = model
        self.code = model.code
        self.wide = model.scope is Scope.BROKER
        self.condition = condition
        """What must be true of the packet; ``None`` where nothing must."""
        self.when = when
        """The bit that says the same; 0 where there is none."""


class Asked:
    """Who is asked about packets of one plan with the same signs, and which models follow them."""

    __slots__ = ("abouts", "followers", "questions")

    def __init__(self, plan: Plan, signs: int) -> None:
        self.questions = _put(plan.questions, signs)
        """Asked if their ``condition`` is true as well."""
        self.abouts = [About(one.model, one.names, _put(one.questions, signs)) for one in plan.abouts]
        """The same about topics that a model knows."""
        self.abouts = [one for one in self.abouts if one.questions]
        self.followers = [
            Follower(one.model, one.condition if signs == ALL or not one.when else None, 0)
            for one in plan.followers
            if not one.when or signs & one.when
        ]
        """Models in their order; they follow if their ``condition`` is true as well."""


def _put(questions: list[Question], signs: int) -> list[Question]:
    return [put for put in [one.of(signs) for one in questions] if put is not None]


class Plan:
    """The questions about packets of one type, version and side, before or after all is settled, and their followers.

    Who is asked and who follows is decided once for each combination of signs.
    """

    __slots__ = ("_asked", "_last", "_last_signs", "abouts", "followers", "questions")

    def __init__(self, questions: list[Question], abouts: list[About], followers: list[Follower]) -> None:
        self.questions = questions
        self.abouts = abouts
        """Questions about PUBLISH of topics that a model knows."""
        self.followers = followers
        self._asked: dict[int, Asked] = {}
        self._last_signs = -1
        self._last: Asked | None = None

    def asked(self, signs: int) -> Asked:
        """Who has to do with packets that bear these signs."""
        found = self._last
        # Like the packet before, nearly always: a number is compared more quickly than looked up.
        if found is None or signs != self._last_signs:
            found = self._asked.get(signs)
            if found is None:
                if len(self._asked) >= MAX_KINDS:
                    self._asked.clear()
                found = self._asked[signs] = Asked(self, signs)
            self._last_signs, self._last = signs, found
        return found


Planned = dict[type[ControlPacket], Plan]
"""The plans of one version and side, before or after all is settled, by packet class."""


@lru_cache(maxsize=16)
def plans_of(running: tuple[Rule, ...], models: tuple[type[Model], ...], *, thorough: bool = False) -> Plans:
    """The plans of rules and models that run together; ``thorough``: each rule is asked about all that it looks at."""
    return Plans(running, models, thorough=thorough)


class Plans:
    """The plans of the rules and models that run together, made as packets come."""

    def __init__(
        self, running: Iterable[Rule], models: tuple[type[Model], ...] = (), *, thorough: bool = False
    ) -> None:
        """``thorough``: ask each rule about every packet that it looks at, for tests."""
        self._models = models
        self._checks = [(rule, rule.check) for rule in running if rule.implements("check")]
        self._thorough = thorough
        self._made: dict[tuple[int, bool, bool], Planned] = {}

    def of(self, at: RuleContext) -> Planned:
        """The plans for packets like those that come now, as far as they were needed so far."""
        key = int(at.version), at.from_client, at.history.settled
        return self._made.setdefault(key, {})

    def plan(self, cls: type[ControlPacket], at: RuleContext) -> Plan:
        """The plan for a packet of this class that comes now, as long as `of` has none."""
        found = self.of(at)[cls] = self._plan(cls, at)
        return found

    def _plan(self, cls: type[ControlPacket], at: RuleContext) -> Plan:
        settled = at.history.settled and not self._thorough
        groups: dict[str | None, list[Question]] = {}
        abouts: dict[type[Model], dict[tuple[str, ...], list[Question]]] = {}
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
            one = Question(rule, check, condition, bit, 0 if self._thorough else _signs(rule, cls), waiting)
            if rule.about is not None and cls is PACKETS[PacketType.PUBLISH] and not self._thorough:
                model, *tables = rule.about
                abouts.setdefault(model, {}).setdefault(tuple(tables), []).append(one)
            else:
                groups.setdefault(when, []).append(one)
        return Plan(
            [one for group in groups.values() for one in group],
            [About(model, names, found) for model, tables in abouts.items() for names, found in tables.items()],
            [_follower(model, cls) for model in self._models if cls in model.looks_at],
        )


def _signs(rule: Rule, cls: type[ControlPacket]) -> int:
    """The bits of which a packet has to bear one for a rule to be asked; 0 where it need not."""
    names = rule.signs.get(cls, ()) if isinstance(rule.signs, dict) else rule.signs
    bits = 0
    for name in names:
        bits |= SIGNS[name]
    return bits


def _follower(model: type[Model], cls: type[ControlPacket]) -> Follower:
    name = model.when.get(cls)
    if name is None:
        return Follower(model, None, 0)
    if name not in BITS:  # a sign, which no packet says by itself
        return Follower(model, None, SIGNS[name]) if name in SIGNS else Follower(model, attrgetter(name), 0)
    return Follower(model, attrgetter(name), BITS[name])
