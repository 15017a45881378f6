"""Descriptions of rules for pages, help texts and the terminal: summary, reason, advice, statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.lint.catalogue import Statement, statement
from mqttscope.lint.rule import CODE, Needs, Rule, Standard

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
"""How much traffic a rule has to see."""
NEEDS = {
    Needs.OPENING: "the CONNECT and the answer to it",
    Needs.SESSION_BIRTH: "the beginning of the session",
    Needs.WHOLE_SENDER: "no bytes of the sender lost",
    Needs.WHOLE_RECEIVER: "no bytes of the other side lost",
    Needs.BOTH_DIRECTIONS: "packets of both sides",
}
"""Requirements for a capture; findings are withheld if they are not met."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


@dataclass(slots=True)
class CitedStatement:
    """A statement that a rule cites."""

    statement: Statement
    where: str
    """Packets and sides that it applies to, in words; empty for all."""
    partly: bool
    """Whether the rule detects only some of its violations."""


def cited(rule: type[Rule]) -> Iterator[CitedStatement]:
    """The statements of a rule by version, then by other standards: fully checked ones before partly checked ones."""
    for version in (*reversed(rule.versions), *Standard):
        for identifier, where in rule.statements.get(version, {}).items():
            known = statement(version, identifier)
            if known is not None:
                yield CitedStatement(known, in_words(where), partly=False)
        for identifier in rule.also.get(version, ()):
            known = statement(version, identifier)
            if known is not None:
                yield CitedStatement(known, "", partly=True)


def in_words(where: str) -> str:
    """``client publish`` as ``PUBLISH of the client``, alternatives joined by ``or``."""
    alternatives = []
    for alternative in where.split(","):
        words = alternative.split()
        side = f"of the {words.pop(0)}" if words and words[0] in ("client", "server") else ""
        kind, _, path = words[0].partition(".") if words else ("", "", "")
        parts = [path, "of" if path else "", "any packet" if kind == "any" else kind.upper(), side]
        alternatives.append(" ".join(part for part in parts if part) or side)
    return " or ".join(part for part in alternatives if part)


def at_most(rule: type[Rule]) -> str:
    """``error``, or ``at most error`` if some findings are less severe."""
    return f"at most {rule.worst()}" if rule.severities else str(rule.severity)


def versions(rule: type[Rule]) -> str:
    """``3.1.1, 5.0``."""
    return ", ".join(version.text for version in rule.versions)


def area(rule: type[Rule]) -> str:
    """The directory of a rule as words, such as ``flow control``; ``own rules`` for third-party rules."""
    if not rule.is_ours():
        return "own rules"
    return rule.__module__.split(".")[-2].replace("_", " ")


def is_on(rule: type[Rule]) -> bool:
    return not rule.is_practice() and not rule.is_for_profiles()


def activation_note(rule: type[Rule]) -> str:
    """Note about what enables a rule that is off by default, after a space; empty for other rules."""
    if rule.is_for_profiles():
        return " (only with --profile)"
    return " (off unless selected)" if rule.is_practice() else ""


def needs(rule: type[Rule]) -> list[str]:
    return [words for need, words in NEEDS.items() if need in rule.needs]


def markdown(text: str) -> str:
    """Text of a docstring as Markdown: its marks are escaped, double backquotes stay code."""
    parts = CODE.split(text)
    return "".join(f"`{part}`" if index % 2 else _MARKDOWN.sub(r"\\\1", part) for index, part in enumerate(parts))


def help_text(rule: type[Rule]) -> str:
    statements = (citation.statement for citation in cited(rule))
    return "\n\n".join([*rule.paragraphs(), *(f"{statement.key}: {statement.summary}" for statement in statements)])


def help_markdown(rule: type[Rule]) -> str:
    """A rule in Markdown, without headings."""
    lines = [markdown(paragraph) for paragraph in rule.paragraphs(marked=True)]
    rows = [
        f"* **{known.key}** (section {known.section}): {markdown(known.summary)}"
        for known in (citation.statement for citation in cited(rule))
    ]
    if rows:
        lines.append("\n".join(rows))
    return "\n\n".join(lines)
