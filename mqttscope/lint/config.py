"""The configuration of the linter: the keys of ``mqttscope.toml`` and ``[tool.mqttscope]``, checked one by one.

    [lint]
    extend-select = ["OPS", "SEC101"]
    rules = ["rules/ours.py"]
    ignore = ["ACK206"]
    fail-on = "warning"
    baseline = "lint-baseline.json"

    [lint.per-client-ignores]
    "legacy-*" = ["ACK", "PUB102"]

    [[lint.suppress]]
    rules = ["KAL201"]
    client = "meter-*"
    reason = "firmware 2.1 sleeps too long, fixed in 2.2"
    expires = 2027-03-31

    [rules.TOP104]
    levels = 10

The command reads the file; this module checks the parsed table.  ``[[payload]]`` tables are checked by
`mqttscope.payloads.settings`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from mqttscope.arguments import read_endpoint
from mqttscope.errors import MqttscopeError
from mqttscope.lint.catalogue import UnknownRuleError, all_rules, expand
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import Pattern
from mqttscope.lint.quality import QualityLevel
from mqttscope.lint.rule import Rule, Timing
from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem

Table = dict[str, Any]

LARGEST = 10**15
"""Maximum value of a rule's setting: larger times would not fit into nanoseconds."""
MAX_SHOWN = 60
"""Maximum number of characters shown of a wrong value."""


class ConfigError(MqttscopeError, ValueError):
    """An invalid key or value; the message names the key and, for a typing mistake, the right one."""


@dataclass(slots=True)
class Config:
    """The content of a configuration file; ``None`` or empty for absent keys."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str | None = None
    fail_confidence: str | None = None
    min_confidence: str | None = None
    min_severity: str | None = None
    require_packets: int | None = None
    require_quality: str | None = None
    format: str | None = None
    timing: str | None = None
    baseline: str | None = None
    """Path, relative to the file."""
    profile: str | None = None
    exit_zero: bool | None = None
    port: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()
    """Servers, as `arguments.read_endpoint` returns them."""
    mqtt_version: str | None = None
    patterns: list[Pattern] = field(default_factory=list)
    """``suppress``, ``per-client-ignores`` and ``per-topic-ignores``."""
    settings: dict[str, Table] = field(default_factory=dict)
    """Settings of rules by code."""


_LISTS = ("select", "extend-select", "ignore", "port", "complete")
_WORDS: dict[str, tuple[str, ...] | None] = {
    "fail-on": tuple(Severity),
    "fail-confidence": tuple(Confidence),
    "min-confidence": tuple(Confidence),
    "min-severity": tuple(Severity),
    "require-quality": tuple(QualityLevel),
    "timing": tuple(Timing),
    "format": None,
    "baseline": None,
    "profile": None,
    "mqtt-version": None,
}
_TABLES = ("per-client-ignores", "per-topic-ignores", "suppress")
LINT_KEYS = (*_LISTS, *_WORDS, "exit-zero", "require-packets", "rules", *_TABLES)


def parse(document: Table) -> Config:
    """Check a parsed configuration file; `ConfigError` for the first mistake in it."""
    _known(document, ("lint", "rules", "payload"), "")
    lint = _table(document.get("lint", {}), "lint")
    _known(lint, LINT_KEYS, "lint.")
    config = Config()
    for key in _LISTS:
        if key in lint:
            names = _strings(lint[key], f"lint.{key}")
            if key == "complete":
                names = tuple(_server(name) for name in names)
            elif key != "port":
                _codes(names, f"lint.{key}")
            setattr(config, key.replace("-", "_"), names)
    for key, allowed in _WORDS.items():
        if key in lint:
            setattr(config, key.replace("-", "_"), _word(lint[key], f"lint.{key}", allowed))
    if "exit-zero" in lint:
        if not isinstance(lint["exit-zero"], bool):
            raise ConfigError("lint.exit-zero is not true or false")
        config.exit_zero = lint["exit-zero"]
    if "require-packets" in lint:
        config.require_packets = _count(lint["require-packets"], "lint.require-packets")
    config.patterns = [*_ignores(lint, "client"), *_ignores(lint, "topic"), *_suppressions(lint)]
    config.settings = _settings(_table(document.get("rules", {}), "rules"))
    return config


def rule_files(document: Table) -> tuple[str, ...]:
    """The files with the user's own rules; load them before the configuration is checked."""
    lint = _table(document.get("lint", {}), "lint")
    return _strings(lint.get("rules", []), "lint.rules")


def _ignores(lint: Table, what: str) -> list[Pattern]:
    key = f"per-{what}-ignores"
    patterns = []
    for name, codes in _table(lint.get(key, {}), f"lint.{key}").items():
        path = f'lint.{key}."{name}"'
        ignored = _codes(_strings(codes, path), path)
        if what == "topic":
            _topic(name, path)
        client, topic = (name, None) if what == "client" else (None, name)
        patterns.append(Pattern(ignored, client, topic, f"ignored for {what} {name}", written=path))
    return patterns


def _suppressions(lint: Table) -> list[Pattern]:
    rows = lint.get("suppress", [])
    if not isinstance(rows, list):
        raise ConfigError("lint.suppress is not a list of tables: write [[lint.suppress]]")
    patterns = []
    for number, row in enumerate(rows, 1):
        path = f"lint.suppress, entry {number}"
        table = _table(row, path)
        _known(table, ("rules", "client", "topic", "reason", "expires"), f"{path}: ")
        if not table.get("rules"):
            raise ConfigError(f"{path} names no rules")
        reason = table.get("reason", "")
        if not isinstance(reason, str) or not reason.strip():
            raise ConfigError(f"{path} has no reason: explain why the findings are accepted")
        client, topic = table.get("client"), table.get("topic")
        if client is not None:
            _word(client, f"{path}: client", None)
        if topic is not None:
            _topic(_word(topic, f"{path}: topic", None), path)
        patterns.append(
            Pattern(
                _codes(_strings(table["rules"], path), path),
                client,
                topic,
                reason,
                _date(table.get("expires"), path),
                f"{path} ({', '.join(_strings(table['rules'], path))})",
            )
        )
    return patterns


def _settings(rules: Table) -> dict[str, Table]:
    settings = {}
    for code, value in rules.items():
        path = f"rules.{code}"
        table = _table(value, path)
        rule = all_rules().get(code.upper())
        if rule is None:
            raise ConfigError(f"{path}: {_unknown_name(code, tuple(all_rules()), 'no rule')}")
        _known(table, tuple(rule.settings), f"{path}.")
        for key, setting in table.items():
            fault = fault_of_setting(rule, key, setting)
            if fault is not None:
                raise ConfigError(f"{path}.{key} {fault}")
        settings[rule.code] = table
    return settings


def fault_of_setting(rule: type[Rule], name: str, value: Any) -> str | None:
    """Why the value of a rule's setting is wrong, as the end of a sentence; ``None`` if it is right."""
    default = rule.settings[name]
    return None if _same_kind(value, default) else f"must be like its default {default!r}, not {short(value)}"


def _same_kind(value: Any, default: Any) -> bool:
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    if isinstance(default, float | int) and not isinstance(default, bool):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return isinstance(value, type(default))


def short(value: Any) -> str:
    """A value for a message, shortened: TOML integers may have more digits than Python converts."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number of more than 15 digits"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _known(table: Table, keys: tuple[str, ...], prefix: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"{prefix}{_unknown_name(key, keys, 'an unknown key')}")


def _unknown_name(name: str, known: tuple[str, ...], what: str) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"{name} is {what}" + (f"; did you mean {near[0]}?" if near else "")


def _table(value: Any, path: str) -> Table:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a table")
    return value


def _strings(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"{path} is not a list of strings")
    return tuple(value)


def _codes(names: tuple[str, ...], path: str) -> frozenset[str]:
    try:
        return frozenset(code for name in names for code in expand(name))
    except UnknownRuleError as error:
        raise ConfigError(f"{path}: {error}") from None


def _word(value: Any, path: str, allowed: tuple[str, ...] | None) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path} is not a string")
    if allowed is not None and value not in allowed:
        raise ConfigError(f"{path} is {value!r}, not one of {', '.join(allowed)}")
    return value


def _count(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise ConfigError(f"{path} is {short(value)}, not a number of packets")
    return value


def _server(value: str) -> str:
    try:
        return read_endpoint(value)
    except ValueError as error:
        raise ConfigError(f"lint.complete: {value!r}: {error}") from None


def _topic(value: str, path: str) -> None:
    problem = topic_filter_problem(value)
    if problem is not None:
        raise ConfigError(f"{path}: {value!r} is not an MQTT topic filter ({FILTER_PROBLEMS[problem]})")


def _date(value: Any, path: str) -> date | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: expires is {short(value)}, not a date like 2027-03-31") from None
