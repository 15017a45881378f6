"""Completions for a filter expression: fields, operators for a field, and values for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqttscope.filter.evaluate import operators_of
from mqttscope.filter.fields import FieldKind, FilterField, lookup, names
from mqttscope.filter.parser import SYMBOLS, WORD_OPERATORS, FilterError, Token, tokenize

JOINING: Final = ("and", "or")
BEGINNING: Final = ("not", "exists")
"""Words that may precede a field."""


@dataclass(slots=True)
class Completion:
    """Words that may replace the last word of a text."""

    start: int
    """Start of that word, or the end of the text if a new word may begin there."""
    words: list[str]


def complete(text: str) -> Completion:
    """Completions at the end of an expression; empty if the end is invalid or inside quotes."""
    try:
        tokens = tokenize(text)[:-1]
    except FilterError:
        return Completion(len(text), [])
    partial: Token | None = None
    if tokens and tokens[-1].kind in ("word", "atom") and not text[-1:].isspace():
        partial = tokens.pop()
    written = "" if partial is None else partial.text
    start = len(text) if partial is None else partial.position
    small = written.lower()
    words = [word for word in _next(tokens) if word.startswith(small)]
    if not words and small:
        # Any part of a name is enough.
        words = [word for word in _next(tokens) if small in word]
    return Completion(start, [word for word in words if word != written])


def _next(tokens: list[Token]) -> list[str]:
    """The words that may follow the tokens."""
    last = tokens[-1] if tokens else None
    keyword = "" if last is None else last.keyword
    if last is None or keyword in (*JOINING, "not", "!", "(", "&&", "||", "exists"):
        return [*BEGINNING, *names()] if keyword != "exists" else names()
    if keyword in (*SYMBOLS, *WORD_OPERATORS, "{", ",", ".."):
        return _values(_compared_field(tokens))
    if last.kind == "word":
        before = tokens[-2].keyword if len(tokens) > 1 else ""
        field = lookup(last.text)
        if field is not None and before not in (*SYMBOLS, *WORD_OPERATORS, "{", ",", ".."):
            operators = operators_of(field)
            return [*operators, *(["not in"] if "in" in operators else []), *JOINING]
    return list(JOINING)


def _compared_field(tokens: list[Token]) -> FilterField | None:
    """The field of the comparison at the end."""
    compared = False
    for token in reversed(tokens):
        if token.keyword in (*SYMBOLS, *WORD_OPERATORS):
            compared = True
        elif compared and token.kind == "word" and token.keyword != "not":
            return lookup(token.text)
    return None


def _values(field: FilterField | None) -> list[str]:
    if field is None:
        return []
    if field.kind is FieldKind.FLAG:
        return ["true", "false"]
    if field.kind is FieldKind.VERSION:
        return ["3.1", "3.1.1", "5.0"]
    return list(field.words)
