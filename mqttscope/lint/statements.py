"""The normative statements of the specifications, in the project's own words.

The identifier of a statement means nothing without its version: 3.1.1 and 5.0 number different sentences alike.
Numbers are those of the OASIS Standards (5.0: 7 March 2019; 3.1.1: 29 October 2014); statements that the standards do
not number have identifiers of this project (``V5-…``, ``V311-…``, ``V31-…``).

Which normative statement is checked by which rule, and why none checks it yet.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mqttscope.lint.catalogue import all_rules
from mqttscope.mqtt.constants import ProtocolVersion

FILE = "statements.jsonl"


@dataclass(slots=True, frozen=True)
class Statement:
    """One sentence that binds somebody."""

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
        """The identifier with its version: ``5.0 MQTT-3.3.1-4``."""
        return f"{self.version} {self.identifier}"


@cache
def all_statements() -> dict[str, Statement]:
    """Every statement by `Statement.key`, in the order of the specifications."""
    text = files("mqttscope.lint").joinpath(FILE).read_text("utf-8")
    rows = (Statement(**json.loads(line)) for line in text.splitlines())
    return {row.key: row for row in rows}


def statement(version: ProtocolVersion, identifier: str) -> Statement | None:
    """The statement with this identifier in this version."""
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
