"""The schemas of what is written about rules and settings: by ``rules`` and ``lint``, and of the file of a baseline."""

from __future__ import annotations

from dataclasses import fields

from mqttscope.lint.catalogue import STATES, VERSIONS
from mqttscope.lint.finding import Confidence, Scope, Severity
from mqttscope.lint.gate import Entry
from mqttscope.lint.quality import QualityLevel
from mqttscope.report.documents import (
    BOOL,
    COUNT,
    NAME,
    NUMBER,
    PROTOCOL,
    TEXT,
    VERSION_1,
    Schema,
    any_of,
    each,
    mapping,
    maybe,
    record,
    word,
)

_SETTINGS = mapping(any_of(NUMBER, BOOL, TEXT, each(TEXT)))
_JUDGED = {"severity": word(Severity), "confidence": word(Confidence)}
_STATEMENT = {"version": PROTOCOL, "identifier": TEXT, "section": TEXT, "summary": TEXT}
_EXAMPLES = each(record({"title": TEXT, "lines": each(TEXT)}))
_RULE = record(
    {
        "code": TEXT, "slug": TEXT, **_JUDGED, "severities": {**each(word(Severity)), "minItems": 1},
        "scope": word(Scope), "versions": each(PROTOCOL), "default": BOOL, "summary": TEXT, "why": each(TEXT),
        "instead": TEXT, "statements": each(record({**_STATEMENT, "where": TEXT, "partly": BOOL})),
        "reason_code": maybe(COUNT), "needs": each(TEXT), "settings": _SETTINGS, "since": TEXT,
    },
    {"examples": record({"bad": _EXAMPLES, "good": _EXAMPLES})},
)  # fmt: skip
_COVERED = record({
    **_STATEMENT, "packet": TEXT, "who": word("client", "server", "both", "any"), "state": word(*STATES),
    "rules": each(TEXT), "partly": each(TEXT), "why": TEXT,
})  # fmt: skip


def rules() -> Schema:
    """The document of ``rules --format json``; rules that were named in full have their examples."""
    return record({"schema": VERSION_1, "rules": each(_RULE)})


def coverage() -> Schema:
    """The document of ``rules --coverage --format json``."""
    counts = record(dict.fromkeys((*STATES, "statements"), COUNT))
    return record({
        "schema": VERSION_1, "coverage": each(_COVERED), "totals": record({}, dict.fromkeys(VERSIONS, counts)),
    })  # fmt: skip


def lint_settings() -> Schema:
    """The document of ``lint --show-settings --format json``."""
    written = {"format": TEXT, "output": maybe(NAME)}
    suppressed = {"written": NAME, "reason": NAME, "expires": maybe(TEXT)}
    return record({
        "schema": VERSION_1, "configuration_file": maybe(NAME), "fail_on": word(Severity),
        "fail_confidence": word(Confidence), "min_confidence": word(Confidence), "min_severity": word(Severity),
        "require_packets": maybe(COUNT), "require_quality": maybe(word(QualityLevel)), **written,
        "more": each(record(written)), "baseline": maybe(NAME),
        "profile": maybe(TEXT), "exit_zero": BOOL, "complete": each(TEXT), "ports": mapping(TEXT),
        "mqtt_version": maybe(PROTOCOL), "suppressed": each(record(suppressed)),
        "rules": each(record({"rule": TEXT, "slug": TEXT, **_JUDGED, "settings": _SETTINGS})),
    })  # fmt: skip


def baseline() -> Schema:
    """The file of ``lint --baseline``."""
    entry = record({one.name: TEXT for one in fields(Entry)})
    return record({"schema": VERSION_1, "tool": {"const": "mqttscope"}, "findings": each(entry)})
