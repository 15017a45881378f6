"""From the text of a filter expression to tokens with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mqttscope.filter.errors import FilterError

MAX_EXPRESSION_CHARACTERS = 65_536
"""Longest filter expression."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
  | (?P<atom>[+-]?[0-9](?:[\w:/+-]|\.(?!\.))*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<operator>==|!=|<=|>=|&&|\|\||\.\.|[<>!~(){}\[\],])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Token:
    """One token of an expression."""

    kind: str
    """``word``, ``atom`` (a number or whatever else begins with a digit), ``string``, ``operator`` or ``end``."""
    text: str
    """As written, quotes included."""
    position: int

    @property
    def keyword(self) -> str:
        """The token as a keyword: capital letters mean nothing there."""
        return self.text.lower() if self.kind in ("word", "operator") else ""


def tokenize(expression: str) -> list[Token]:
    """Tokens of an expression, the last one of kind ``end``; FilterError where there is none."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        message = f"the expression has {len(expression)} characters, at most {MAX_EXPRESSION_CHARACTERS} are allowed"
        raise FilterError(message, MAX_EXPRESSION_CHARACTERS, 0, expression=expression)
    tokens: list[Token] = []
    position, end = 0, len(expression)
    while position < end:
        found = _TOKEN.match(expression, position)
        if found is None:
            raise _strange(expression, position)
        if found.lastgroup != "space":
            assert found.lastgroup is not None
            tokens.append(Token(found.lastgroup, found[0], position))
        position = found.end()
    tokens.append(Token("end", "", end))
    return tokens


_RUN = re.compile(r"[^\s()\[\]{},\"'<>=!&|]+")
MAX_QUOTED = 60
"""Characters of text that a hint repeats in quotes."""
_CURLY_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
_HINTS = {"=": "equality is ==", "&": "write 'and' or &&", "|": "write 'or' or ||", "`": "quote text with ' or \""}


def _around(expression: str, position: int) -> str:
    """The text without blanks and punctuation of expressions that a character stands in."""
    before = _RUN.search(expression[max(0, position - MAX_QUOTED) : position][::-1])
    after = _RUN.match(expression, position, position + MAX_QUOTED)
    head = before[0][::-1] if before is not None and before.start() == 0 else ""
    return head + (after[0] if after is not None else "")


def _strange(expression: str, position: int) -> FilterError:
    character = expression[position]
    if character in "\"'":
        message = f"the text that begins here has no closing {character}"
        return FilterError(message, position, 1, expression=expression)
    hint = _HINTS.get(character, "text needs quotes around it")
    if character not in _HINTS:
        run = _around(expression, position)
        if 1 < len(run) <= MAX_QUOTED and run.isprintable():
            hint = f'text needs quotes: "{run}"'
    if character in _CURLY_QUOTES:
        hint = "write straight quotes: ' or \""
    return FilterError(f"unexpected character {character!r}", position, 1, expression=expression, hint=hint)
