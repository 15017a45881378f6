"""Rules and their coverage of the specifications as JSON, schema 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqttscope.lint.rule import Rule
from mqttscope.lint.statements import STATES, Coverage, totals
from mqttscope.report.base import View
from mqttscope.report.example import render
from mqttscope.report.explain import cited, is_on, needs
from mqttscope.report.jsonl import SCHEMA


def rules_view(rules: Iterable[type[Rule]], *, examples: bool) -> dict[str, Any]:
    """Rules by key; their examples, which are run for it, only where asked for."""
    return {"schema": SCHEMA, "rules": [rule_view(rule, examples=examples) for rule in rules]}


def rule_view(rule: type[Rule], *, examples: bool) -> dict[str, Any]:
    """One rule by key."""
    what, *why = rule.paragraphs()
    shown = {
        "code": rule.code,
        "slug": rule.slug,
        "severity": rule.severity,
        "severities": list(rule.severities or (rule.severity,)),
        "confidence": rule.confidence,
        "scope": rule.scope,
        "versions": [version.text for version in rule.versions],
        "default": is_on(rule),
        "summary": what,
        "why": why[:-1],
        "instead": why[-1] if why else "",
        "statements": [
            {
                "version": one.statement.version,
                "identifier": one.statement.identifier,
                "section": one.statement.section,
                "summary": one.statement.summary,
                "where": one.where,
                "partly": one.partly,
            }
            for one in cited(rule)
        ],
        "reason_code": rule.reason_code,
        "needs": needs(rule),
        "settings": rule.settings,
        "since": rule.since,
    }
    if examples:
        view = View(width=0)
        shown["examples"] = {
            kind: [{"title": one.title, "lines": render(rule, one, view)} for one in found]
            for kind, found in (("bad", rule.bad), ("good", rule.good))
        }
    return shown


def coverage_view(rows: list[Coverage]) -> dict[str, Any]:
    """Statements by key, and how many are in which state."""
    return {
        "schema": SCHEMA,
        "coverage": [
            {
                "version": row.statement.version,
                "identifier": row.statement.identifier,
                "section": row.statement.section,
                "packet": row.statement.packet,
                "who": row.statement.who,
                "summary": row.statement.summary,
                "state": row.state,
                "rules": row.rules,
                "partly": row.partly,
                "why": row.why,
            }
            for row in rows
        ],
        "totals": {
            version: {state: counts[state] for state in STATES} | {"statements": counts.total()}
            for version, counts in totals(rows).items()
        },
    }
