"""All rules, all normative statements of the specifications, and which rule checks which statement.

A statement is given in the words of this project.  Its identifier means nothing without its version: 3.1.1 and 5.0
number different sentences alike.  Numbers are those of the OASIS Standards (5.0: 7 March 2019; 3.1.1: 29 October 2014);
statements that the standards do not number have identifiers of this project (``V5-…``, ``V311-…``, ``V31-…``).
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
from mqttscope.lint.rule import RULES, Rule
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.secrets.forms import LENGTH

ALL = "ALL"
"""The word that selects every rule, those of practice too."""


class UnknownRuleError(MqttscopeError, ValueError):
    """A code, prefix or slug that no rule has; the message suggests the nearest."""


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
        for one in pkgutil.iter_modules(package.__path__, f"{area.name}."):
            importlib.import_module(one.name)


_OWN: dict[str, type[Rule]] = {}
"""Rules made elsewhere, by code."""


class RuleClashError(MqttscopeError, ValueError):
    """Two rules have one code or name, or one has the letters of an area of ours; the message names both."""


_USUAL: dict[type[Rule], Rule] = {}


def usual_rule(rule: type[Rule]) -> Rule:
    """A rule with its usual settings, always the same object: engines that run the same rules share their plans."""
    found = _USUAL.get(rule)
    if found is None:
        found = _USUAL[rule] = rule()
    return found


def use_rules(rules: Iterable[tuple[type[Rule], str]]) -> None:
    """Let these rules, made elsewhere, be selected as well, each with where it comes from, and no other ones any more.

    `RuleClashError` where they have codes or names that others have; then nothing changes.
    """
    before = dict(_OWN)
    _forget()
    areas, homes, slugs = {code[:-3] for code in all_rules()}, dict[str, str](), dict(_by_slug())
    try:
        for rule, where in rules:
            code = rule.code
            if code in homes:
                raise RuleClashError(f"{where}: {code} is the code of another rule in {homes[code]} too")
            if code[:-3] in areas:
                ours = f"{code} {all_rules()[code].slug}" if code in all_rules() else f"the rules {code[:-3]}"
                raise RuleClashError(f"{where}: {code} has the letters of mqttscope's own area: {ours}; take others")
            if rule.slug in slugs:
                other = slugs[rule.slug]
                home = homes.get(other, "mqttscope")
                raise RuleClashError(f"{where}: {code} is called {rule.slug}, as {other} of {home} is")
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
    for one in (all_rules, _by_slug, _usual):
        one.cache_clear()


@cache
def _by_slug() -> dict[str, str]:
    return _slugs(all_rules())


def _slugs(rules: Mapping[str, type[Rule]]) -> dict[str, str]:
    return {rule.slug: code for code, rule in rules.items()}


def find(name: str) -> type[Rule]:
    """The rule with this code or slug; `UnknownRuleError` when there is none."""
    code = _by_slug().get(name.lower(), name.upper())
    if code not in all_rules():
        raise UnknownRuleError(_unknown(name))
    return all_rules()[code]


def expand(name: str, beside: Mapping[str, type[Rule]] | None = None) -> list[str]:
    """Codes of a code, a prefix (``PUB``, ``PUB1``), a slug or ``ALL``; `UnknownRuleError` when it names none.

    ``beside``: rules by code that are known for this once, beside those of the catalogue.
    """
    rules, slugs = all_rules(), _by_slug()
    if beside:
        rules, slugs = {**rules, **beside}, {**slugs, **_slugs(beside)}
    if name.upper() == ALL:
        return list(rules)
    slug = slugs.get(name.lower())
    found = [slug] if slug else [code for code in rules if code.startswith(name.upper())]
    if not name or not found:
        raise UnknownRuleError(_unknown(name, rules, slugs))
    return found


def _unknown(name: str, rules: Mapping[str, type[Rule]] | None = None, slugs: Mapping[str, str] | None = None) -> str:
    codes = all_rules() if rules is None else rules
    prefixes = {code[:-3] for code in codes}
    known = [*codes, *(_by_slug() if slugs is None else slugs), *sorted(prefixes), ALL]
    near = difflib.get_close_matches(name.upper(), known, 1, 0.5) or difflib.get_close_matches(
        name.lower(), known, 1, 0.5
    )
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name!r} is no rule code, prefix or name{hint} (mqttscope rules lists them)"


def select(
    chosen: Sequence[str] = (),
    extended: Sequence[str] = (),
    ignored: Sequence[str] = (),
    *,
    beside: Mapping[str, type[Rule]] | None = None,
) -> dict[str, type[Rule]]:
    """Rules by code after ``--select``, ``--extend-select`` and ``--ignore``.

    Without ``chosen`` all rules of the specifications.  Where a rule is both selected and ignored, the longer name
    decides, and of equals the one that ignores.  ``beside``: rules that are known for this once; they are selected
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
    """Rules that only something else than a selection switches on: those of a profile."""
    return rule.code.startswith("PRF")


def _weight(name: str, own: Mapping[str, str]) -> int:
    if name.upper() == ALL:
        return 0
    return 6 if name.lower() in _by_slug() or name.lower() in own else len(name)


def secret_length(rules: Iterable[Rule]) -> int:
    """Characters from which on random text counts as a secret: what the rule that looks for it goes by."""
    return next((int(rule.set["length"]) for rule in rules if rule.code == "SEC104"), LENGTH)


def instances(rules: Iterable[type[Rule]], settings: dict[str, dict[str, Any]] | None = None) -> list[Rule]:
    """The rules with the settings that the configuration has for them, by code."""
    given = settings or {}
    return [rule(given.get(rule.code)) for rule in rules]


FILE = "statements.jsonl"


@dataclass(slots=True, frozen=True)
class Statement:
    """One sentence of a specification that binds a client or a server."""

    version: str
    """``3.1``, ``3.1.1`` or ``5.0``."""
    identifier: str
    section: str
    packet: str
    who: str
    """Whom it binds: ``client``, ``server``, ``both``, ``any``."""
    summary: str
    visible: str
    """How far one has to look to see a violation: ``packet``, ``connection``, ``session``, ``broker``, ``indirect``
    (only by its consequences) or ``no``."""
    note: str
    """How a violation is seen, or why it cannot be."""
    planned: str | None
    """Code of the rule that is to see it, where that rule is not there yet."""

    @property
    def key(self) -> str:
        return f"{self.version} {self.identifier}"


@cache
def all_statements() -> dict[str, Statement]:
    """Every statement by `Statement.key`, in the order of the specifications."""
    # What lints needs no statements.
    import json
    from importlib.resources import files

    text = files("mqttscope.lint").joinpath(FILE).read_text("utf-8")
    rows = (Statement(**json.loads(line)) for line in text.splitlines())
    return {row.key: row for row in rows}


def statement(version: ProtocolVersion, identifier: str) -> Statement | None:
    return all_statements().get(f"{version.text} {identifier}")


STATES = ("checked", "partly", "planned", "invisible", "open")
"""``checked`` by a rule, ``partly`` where rules see some violations only, ``planned`` for a rule that is not there yet,
``invisible`` on the wire, ``open`` otherwise."""
VERSIONS = ("5.0", "3.1.1")
"""Versions whose statements are numbered by their standards."""
_LOOKS = {
    "3": "needs several connections",
    "4": "needs several clients",
    "5": "needs the reaction of the other side",
}
"""By the first digit of the code: how far the planned rule has to look."""


@dataclass(slots=True)
class Coverage:
    """One statement and what becomes of it."""

    statement: Statement
    rules: tuple[str, ...]
    """Codes of the rules that check it."""
    partly: tuple[str, ...]
    """Codes of those that see a part of its violations."""
    state: str
    why: str
    """Why no rule checks it; empty where one does."""


def coverage(versions: Iterable[str] = VERSIONS) -> list[Coverage]:
    """Every statement of these versions, in the order of the specifications."""
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
    made = [
        _row(one, tuple(whole.get(key, ())), tuple(partly.get(key, ())))
        for key, one in all_statements().items()
        if one.version in wanted
    ]
    return sorted(made, key=lambda row: wanted.index(row.statement.version))


def _row(one: Statement, rules: tuple[str, ...], partly: tuple[str, ...]) -> Coverage:
    if rules or partly:
        return Coverage(one, rules, partly, "checked" if rules else "partly", "")
    if one.planned is not None and one.planned not in all_rules():
        looks = _LOOKS.get(one.planned[3])
        why = f"{looks} ({one.planned}, planned)" if looks else f"{one.planned}, planned"
        return Coverage(one, (), (), "planned", why)
    if one.visible == "no":
        return Coverage(one, (), (), "invisible", one.note or "nothing of it is seen on the wire")
    return Coverage(one, (), (), "open", one.note or "no rule yet")


def totals(rows: Iterable[Coverage]) -> dict[str, Counter[str]]:
    """How many statements of each version are in which state."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row.statement.version, Counter())[row.state] += 1
    return found
