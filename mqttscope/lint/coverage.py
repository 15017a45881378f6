"""Which normative statement is checked by which rule, and why none checks it yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.statements import Statement, all_statements

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
