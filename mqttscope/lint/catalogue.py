"""All rules: finding, selecting and explaining them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.lint.rule import RULES, Rule

ALL = "ALL"
"""The word that selects every rule, those of practice too."""


class UnknownRuleError(MqttscopeError, ValueError):
    """A code, prefix or slug that no rule has; the message suggests the nearest."""


@cache
def all_rules() -> dict[str, type[Rule]]:
    """Every rule by code, in the order of codes."""
    from mqttscope.lint import rules

    for area in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}."):
        package = importlib.import_module(area.name)
        for one in pkgutil.iter_modules(package.__path__, f"{area.name}."):
            importlib.import_module(one.name)
    return dict(sorted(RULES.items()))


@cache
def _by_slug() -> dict[str, str]:
    return {rule.slug: code for code, rule in all_rules().items()}


def find(name: str) -> type[Rule]:
    """The rule with this code or slug; `UnknownRuleError` when there is none."""
    code = _by_slug().get(name.lower(), name.upper())
    if code not in all_rules():
        raise UnknownRuleError(_unknown(name))
    return all_rules()[code]


def expand(name: str) -> list[str]:
    """Codes of a code, a prefix (``PUB``, ``PUB1``), a slug or ``ALL``; `UnknownRuleError` when it names none."""
    if name.upper() == ALL:
        return list(all_rules())
    slug = _by_slug().get(name.lower())
    found = [slug] if slug else [code for code in all_rules() if code.startswith(name.upper())]
    if not name or not found:
        raise UnknownRuleError(_unknown(name))
    return found


def _unknown(name: str) -> str:
    prefixes = {code[:3] for code in all_rules()}
    known = [*all_rules(), *_by_slug(), *sorted(prefixes), ALL]
    near = difflib.get_close_matches(name.upper(), known, 1, 0.5) or difflib.get_close_matches(
        name.lower(), known, 1, 0.5
    )
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name!r} is no rule code, prefix or name{hint} (mqttscope rules lists them)"


def select(
    chosen: Sequence[str] = (), extended: Sequence[str] = (), ignored: Sequence[str] = ()
) -> dict[str, type[Rule]]:
    """Rules by code after ``--select``, ``--extend-select`` and ``--ignore``.

    Without ``chosen`` all rules of the specifications.  Where a rule is both selected and ignored, the longer name
    decides, and of equals the one that ignores.
    """
    rules = all_rules()
    wanted = {code: 0 for code, rule in rules.items() if not chosen and not rule.is_practice() and not _asked(rule)}
    for name in (*chosen, *extended):
        for code in expand(name):
            wanted[code] = max(wanted.get(code, 0), _weight(name))
    for name in ignored:
        for code in expand(name):
            if wanted.get(code, 99) <= _weight(name):
                del wanted[code]
    return {code: rule for code, rule in rules.items() if code in wanted}


def _asked(rule: type[Rule]) -> bool:
    """Rules that only something else than a selection switches on: those of a profile."""
    return rule.code.startswith("PRF")


def _weight(name: str) -> int:
    if name.upper() == ALL:
        return 0
    return 6 if name.lower() in _by_slug() else len(name)


def instances(rules: Iterable[type[Rule]], settings: dict[str, dict[str, Any]] | None = None) -> list[Rule]:
    """The rules with the settings that the configuration has for them, by code."""
    given = settings or {}
    return [rule(given.get(rule.code)) for rule in rules]
