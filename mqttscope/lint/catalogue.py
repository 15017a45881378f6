"""All rules, all normative statements of the specifications, and which rule checks which statement.

A statement is given in the words of this project.  Its identifier is unique only together with its version: 3.1.1 and
5.0 number different sentences alike.  Numbers are from the OASIS Standards (5.0: 7 March 2019; 3.1.1: 29 October 2014);
statements without a number in the standards have identifiers of this project (``V5-…``, ``V311-…``, ``V31-…``).
Statements of Sparkplug (``tck-id-…``) are from the Eclipse Sparkplug Specification 3.0.0.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.lint.rule import RULES, SPARKPLUG, Rule, Specification, Standard
from mqttscope.secrets.forms import LENGTH

ALL = "ALL"
"""The word that selects every rule, rules of practice included."""


class UnknownRuleError(MqttscopeError, ValueError):
    """A code, prefix or slug that no rule has; the message suggests the nearest one."""


@cache
def all_rules() -> dict[str, type[Rule]]:
    """Every rule by code, in the order of codes."""
    _import_ours()
    return dict(sorted({**RULES, **_OWN}.items()))


@cache
def _import_ours() -> None:
    from mqttscope.lint import rules

    for area in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}."):
        package = importlib.import_module(area.name)
        for module in pkgutil.iter_modules(package.__path__, f"{area.name}."):
            importlib.import_module(module.name)


_OWN: dict[str, type[Rule]] = {}
"""Third-party rules, by code."""


class RuleClashError(MqttscopeError, ValueError):
    """Two rules have the same code or name, or a third-party code has the letters of a built-in area."""


_USUAL: dict[type[Rule], Rule] = {}


def usual_rule(rule: type[Rule]) -> Rule:
    """The shared instance of a rule with default settings: engines that run the same rules share their plans."""
    instance = _USUAL.get(rule)
    if instance is None:
        instance = _USUAL[rule] = rule()
    return instance


def use_rules(rules: Iterable[tuple[type[Rule], str]]) -> None:
    """Replace the set of third-party rules; each rule comes with its source, for messages.

    `RuleClashError` if a code or name is already in use; then nothing changes.
    """
    before = dict(_OWN)
    _forget()
    areas, homes, slugs = {code[:-3] for code in all_rules()}, dict[str, str](), dict(_by_slug())
    try:
        for rule, where in rules:
            code = rule.code
            if code in homes:
                raise RuleClashError(f"{where}: {code} is also the code of another rule in {homes[code]}")
            if code[:-3] in areas:
                ours = f"{code} {all_rules()[code].slug}" if code in all_rules() else f"the rules {code[:-3]}"
                raise RuleClashError(f"{where}: {code} has the letters of mqttscope's own area: {ours}; use others")
            if rule.slug in slugs:
                other = slugs[rule.slug]
                home = homes.get(other, "mqttscope")
                raise RuleClashError(f"{where}: {code} has the name {rule.slug}, which {other} of {home} has too")
            homes[code], slugs[rule.slug], _OWN[code] = where, code, rule
    except RuleClashError:
        _OWN.clear()
        _OWN.update(before)
        raise
    finally:
        _clear()


def _forget() -> None:
    _OWN.clear()
    _clear()


def _clear() -> None:
    for cached in (all_rules, _by_slug, _usual):
        cached.cache_clear()


@cache
def _by_slug() -> dict[str, str]:
    return _slugs(all_rules())


def _slugs(rules: Mapping[str, type[Rule]]) -> dict[str, str]:
    return {rule.slug: code for code, rule in rules.items()}


def find(name: str) -> type[Rule]:
    """The rule with this code or slug; `UnknownRuleError` if it does not exist."""
    code = _by_slug().get(name.lower(), name.upper())
    if code not in all_rules():
        raise UnknownRuleError(_unknown(name))
    return all_rules()[code]


def expand(name: str, beside: Mapping[str, type[Rule]] | None = None) -> list[str]:
    """Codes for a code, a prefix (``PUB``, ``PUB1``), a slug or ``ALL``; `UnknownRuleError` if nothing matches.

    ``beside``: additional rules by code, for this call only.
    """
    rules, slugs = all_rules(), _by_slug()
    if beside:
        rules, slugs = {**rules, **beside}, {**slugs, **_slugs(beside)}
    if name.upper() == ALL:
        return list(rules)
    slug = slugs.get(name.lower())
    codes = [slug] if slug else [code for code in rules if code.startswith(name.upper())]
    if not name or not codes:
        raise UnknownRuleError(_unknown(name, rules, slugs))
    return codes


def _unknown(name: str, rules: Mapping[str, type[Rule]] | None = None, slugs: Mapping[str, str] | None = None) -> str:
    codes = all_rules() if rules is None else rules
    prefixes = {code[:-3] for code in codes}
    known = [*codes, *(_by_slug() if slugs is None else slugs), *sorted(prefixes), ALL]
    near = difflib.get_close_matches(name.upper(), known, 1, 0.5) or difflib.get_close_matches(
        name.lower(), known, 1, 0.5
    )
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name!r} is not a rule code, prefix or name{hint} (mqttscope rules lists them)"


def select(
    chosen: Sequence[str] = (),
    extended: Sequence[str] = (),
    ignored: Sequence[str] = (),
    *,
    beside: Mapping[str, type[Rule]] | None = None,
) -> dict[str, type[Rule]]:
    """Rules by code after ``--select``, ``--extend-select`` and ``--ignore``.

    Without ``chosen``: all rules of the specifications.  If a rule is both selected and ignored, the longer name
    decides; between equal names, ignoring wins.  ``beside``: additional rules for this call only, selected
    unless they are ignored.
    """
    own = beside or {}
    if not (chosen or extended or ignored):
        return {**_usual(), **own}
    rules = {**all_rules(), **own}
    wanted = dict.fromkeys([*(() if chosen else _usual()), *own], 0)
    slugs = _slugs(own)
    for name in (*chosen, *extended):
        for code in expand(name, own):
            wanted[code] = max(wanted.get(code, 0), _weight(name, slugs))
    for name in ignored:
        for code in expand(name, own):
            if wanted.get(code, 99) <= _weight(name, slugs):
                del wanted[code]
    return {code: rule for code, rule in rules.items() if code in wanted}


@cache
def _usual() -> dict[str, type[Rule]]:
    return {code: rule for code, rule in all_rules().items() if not rule.is_practice() and not _asked(rule)}


def _asked(rule: type[Rule]) -> bool:
    """Whether only a profile switches the rule on, not a selection."""
    return rule.is_for_profiles()


def _weight(name: str, own: Mapping[str, str]) -> int:
    if name.upper() == ALL:
        return 0
    return 6 if name.lower() in _by_slug() or name.lower() in own else len(name)


def secret_length(rules: Iterable[Rule]) -> int:
    """Minimum length of random text that counts as a secret, as set for the rule that reports secrets."""
    return next((int(rule.set["length"]) for rule in rules if rule.code == "SEC104"), LENGTH)


def instances(rules: Iterable[type[Rule]], settings: dict[str, dict[str, Any]] | None = None) -> list[Rule]:
    """The rules, each with its settings from the configuration (by code)."""
    by_code = settings or {}
    return [rule(by_code.get(rule.code)) for rule in rules]


FILES = ("statements.jsonl", "sparkplug_statements.jsonl")


@dataclass(slots=True, frozen=True)
class Statement:
    """One sentence of a specification that is binding for a client or a server."""

    version: str
    """``3.1``, ``3.1.1`` or ``5.0``, or the text of another `Standard`."""
    identifier: str
    section: str
    packet: str
    """Packet type, or message type of Sparkplug."""
    who: str
    """Who has to comply (`BOUND`)."""
    summary: str
    visible: str
    """How much a reader must see to detect a violation: ``packet``, ``connection``, ``session``, ``broker``,
    ``indirect`` (only the consequences are visible) or ``no``.  For Sparkplug: ``packet`` (MQTT alone), ``payload``,
    ``state``, ``configuration`` (a capture shows only some violations) or ``no``."""
    note: str
    """How a violation is detected, or why it cannot be."""
    planned: str | None
    """Code of the rule that is to check it, if that rule does not exist yet."""

    @property
    def key(self) -> str:
        return f"{self.version} {self.identifier}"


@cache
def all_statements() -> dict[str, Statement]:
    """Every statement by `Statement.key`, in the order of the specifications."""
    # Imported late: linting needs no statements.
    import json
    from importlib.resources import files

    texts = (files("mqttscope.lint").joinpath(name).read_text("utf-8") for name in FILES)
    rows = (Statement(**json.loads(line)) for text in texts for line in text.splitlines())
    return {row.key: row for row in rows}


def statement(version: Specification, identifier: str) -> Statement | None:
    return all_statements().get(f"{version.text} {identifier}")


STATES = ("checked", "partly", "planned", "invisible", "open")
"""``checked`` by a rule, ``partly`` if rules detect only some violations, ``planned`` for a rule that does not exist
yet, ``invisible`` on the wire, ``open`` otherwise."""
VERSIONS = ("5.0", "3.1.1", SPARKPLUG.text)
"""Versions and standards with numbered statements."""
BOUND = ("client", "server", "both", "any", "edge node", "host application")
"""Who has to comply with a statement."""
_LOOKS = {
    "3": "needs several connections",
    "4": "needs several clients",
    "5": "needs the reaction of the other side",
}
"""How much the planned rule has to see, by the first digit of its code."""


@dataclass(slots=True)
class Coverage:
    """One statement, with the rules that check it."""

    statement: Statement
    rules: tuple[str, ...]
    """Codes of the rules that check it."""
    partly: tuple[str, ...]
    """Codes of the rules that detect some of its violations."""
    state: str
    why: str
    """Reason no rule checks it; empty if one does."""


def coverage(versions: Iterable[str] = VERSIONS) -> list[Coverage]:
    """Coverage of every statement of these versions, in the order of the specifications."""
    whole: dict[str, list[str]] = {}
    partly: dict[str, list[str]] = {}
    for code, rule in all_rules().items():
        for version, rows in rule.statements.items():
            for identifier in rows:
                whole.setdefault(f"{version.text} {identifier}", []).append(code)
        for version, identifiers in rule.also.items():
            for identifier in identifiers:
                partly.setdefault(f"{version.text} {identifier}", []).append(code)
    wanted = tuple(versions)
    coverages = [
        _row(statement, tuple(whole.get(key, ())), tuple(partly.get(key, ())))
        for key, statement in all_statements().items()
        if statement.version in wanted
    ]
    return sorted(coverages, key=lambda row: wanted.index(row.statement.version))


def _row(statement: Statement, rules: tuple[str, ...], partly: tuple[str, ...]) -> Coverage:
    if rules or partly:
        return Coverage(statement, rules, partly, "checked" if rules else "partly", "")
    if statement.planned is not None and statement.planned not in all_rules():
        looks = _LOOKS.get(statement.planned[3])
        why = f"{looks} ({statement.planned}, planned)" if looks else f"{statement.planned}, planned"
        return Coverage(statement, (), (), "planned", why)
    if statement.visible == "no":
        return Coverage(statement, (), (), "invisible", statement.note or "nothing of it is visible on the wire")
    return Coverage(statement, (), (), "open", statement.note or "no rule yet")


def specification_name(version: str) -> str:
    """The specification of a `Statement.version` in titles: ``MQTT 5.0``, ``Sparkplug 3.0``."""
    return version.capitalize() if version in list(Standard) else f"MQTT {version}"


def totals(rows: Iterable[Coverage]) -> dict[str, Counter[str]]:
    """Number of statements in each state, by version."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.statement.version, Counter())[row.state] += 1
    return counts
