"""A rule in words: what, why, what instead, the statements after it, for pages, help texts and the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.lint.catalogue import Statement, statement
from mqttscope.lint.rule import Needs, Rule

CONFIDENCES = {
    "certain": "certain: proved by the bytes",
    "likely": "likely: it holds unless something happened that the capture does not show",
    "heuristic": "heuristic: a pattern that is often, but not always, wrong",
}
SCOPES = {
    "packet": "one packet",
    "connection": "one connection",
    "session": "the connections of a session",
    "broker": "all connections of a broker",
}
"""How far a rule has to look."""
NEEDS = {
    Needs.OPENING: "the CONNECT and the answer to it",
    Needs.SESSION_BIRTH: "the beginning of the session",
    Needs.WHOLE_SENDER: "no bytes of the sender lost",
    Needs.WHOLE_RECEIVER: "no bytes of the other side lost",
    Needs.BOTH_DIRECTIONS: "packets of both sides",
}
"""What a capture must have, else findings are withheld."""
PROFILE = "PRF"
"""Area of the rules that a profile switches on."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


@dataclass(slots=True)
class Cited:
    """A statement that a rule cites."""

    statement: Statement
    where: str
    """Where it applies, in words; empty for everywhere."""
    partly: bool
    """Whether the rule sees only a part of its violations."""


def cited(rule: type[Rule]) -> Iterator[Cited]:
    """The statements of a rule: by version, those it checks before those it sees in part."""
    for version in reversed(rule.versions):
        for identifier, where in rule.statements.get(version, {}).items():
            known = statement(version, identifier)
            if known is not None:
                yield Cited(known, in_words(where), partly=False)
        for identifier in rule.also.get(version, ()):
            known = statement(version, identifier)
            if known is not None:
                yield Cited(known, "", partly=True)


def in_words(where: str) -> str:
    """``client publish`` as ``PUBLISH of the client``; alternatives joined by ``or``."""
    told = []
    for one in where.split(","):
        words = one.split()
        side = f"of the {words.pop(0)}" if words and words[0] in ("client", "server") else ""
        kind, _, path = words[0].partition(".") if words else ("", "", "")
        parts = [path, "of" if path else "", "any packet" if kind == "any" else kind.upper(), side]
        told.append(" ".join(part for part in parts if part) or side)
    return " or ".join(part for part in told if part)


def at_most(rule: type[Rule]) -> str:
    """``error``, or ``at most error`` where some findings are less severe."""
    return f"at most {rule.worst()}" if rule.severities else str(rule.severity)


def versions(rule: type[Rule]) -> str:
    """``3.1.1, 5.0``."""
    return ", ".join(version.text for version in rule.versions)


def area(rule: type[Rule]) -> str:
    """The folder that a rule lies in, as words: ``flow control``; ``own rules`` for those that come from elsewhere."""
    if not rule.is_ours():
        return "own rules"
    return rule.__module__.split(".")[-2].replace("_", " ")


def is_on(rule: type[Rule]) -> bool:
    return not rule.is_practice() and not rule.code.startswith(PROFILE)


def switched(rule: type[Rule]) -> str:
    """What switches a rule on that is off by itself, with a blank before it; empty for others."""
    if rule.code.startswith(PROFILE):
        return " (only with --profile)"
    return " (off unless selected)" if rule.is_practice() else ""


def needs(rule: type[Rule]) -> list[str]:
    return [words for need, words in NEEDS.items() if need in rule.needs]


def markdown(told: str) -> str:
    """Text of a docstring as Markdown: its marks mean nothing, double backquotes stay code."""
    parts = re.split(r"``(.+?)``", told)
    return "".join(f"`{part}`" if index % 2 else _MARKDOWN.sub(r"\\\1", part) for index, part in enumerate(parts))


def help_text(rule: type[Rule]) -> str:
    lines = [*rule.paragraphs(), *(f"{one.statement.key}: {one.statement.summary}" for one in cited(rule))]
    return "\n\n".join(lines)


def help_markdown(rule: type[Rule]) -> str:
    """A rule in Markdown, without headings."""
    lines = [markdown(one) for one in rule.paragraphs()]
    rows = [
        f"* **{one.statement.key}** (section {one.statement.section}): {markdown(one.statement.summary)}"
        for one in cited(rule)
    ]
    if rows:
        lines.append("\n".join(rows))
    return "\n\n".join(lines)
