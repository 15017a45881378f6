"""Filter expressions as text: tokens with positions, the syntax tree, and errors that show where the mistake is.

::

    either     = both { ("or" | "||") both }
    both       = term { ("and" | "&&") term }
    term       = ("not" | "!") term | "(" either ")" | "exists" field | field [ comparison ]
    comparison = ("==" | "!=" | "<" | "<=" | ">" | ">=") value
               | [ "not" ] ("matches" | "contains" | "startswith" | "endswith" | "like" | "~") value
               | [ "not" ] "in" ( "{" item { "," item } "}" | item )
    item       = value [ ".." value ]
    field      = word { "." word } { "[" ( string | number ) "]" { "." word } }
    value      = string | number, size, duration, time, version, address | word
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from difflib import get_close_matches

from mqttscope.errors import MqttscopeError

MAX_SHOWN_COLUMNS = 100
"""Maximum length of a line in an error message; longer lines are cut around the mistake."""
_CONTEXT = 40


class FilterError(MqttscopeError, ValueError):
    """A filter expression that cannot be used.

    ``position`` and ``length`` give the offending characters of the expression, counted from 0.  A length of 0 is a
    position between characters, such as the end.  ``hint`` suggests a correction, if one is known.
    """

    def __init__(self, message: str, position: int, length: int, *, expression: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.length = length
        self.expression = expression
        self.hint = hint

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The message, the line of the expression with carets under the offending characters, and the hint."""
        lines = [self.message]
        if self.expression:
            lines.extend(self._marked())
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def _marked(self) -> tuple[str, str]:
        text, at = self.expression, min(self.position, len(self.expression))
        begin = text.rfind("\n", 0, at) + 1
        end = text.find("\n", begin)
        line = text[begin:] if end < 0 else text[begin:end]
        column = at - begin
        stop = min(column + max(self.length, 1), max(len(line), column + 1))
        before = after = ""
        if len(line) > MAX_SHOWN_COLUMNS:
            first = max(0, column - _CONTEXT)
            last = min(len(line), first + MAX_SHOWN_COLUMNS)
            before, after = "…" if first else "", "…" if last < len(line) else ""
            line, column, stop = line[first:last], column - first, min(stop, last + 1) - first
        shown = "".join(character if character.isprintable() else " " for character in line)
        blank = " " * (len(before) + _columns(shown[:column]))
        carets = "^" * max(1, _columns(shown[column:stop]))
        return f"  {before}{shown}{after}", f"  {blank}{carets}"


def _columns(text: str) -> int:
    """Number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


MAX_EXPRESSION_CHARACTERS = 65_536
"""Maximum length of a filter expression."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
  | (?P<atom>[+-]?[0-9](?:[\w:/+-]|\.(?!\.))*)
  | (?P<member>(?:\.[A-Za-z_][A-Za-z0-9_]*)+)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<operator>==|!=|<=|>=|&&|\|\||\.\.|[<>!~(){}\[\],])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Token:
    """One token of an expression."""

    kind: str
    """``word``, ``atom`` (a number, or anything else that begins with a digit), ``string``, ``operator``, ``member``
    (names with dots after brackets) or ``end``."""
    text: str
    """As written, quotes included."""
    position: int

    def ends_at(self, position: int, text: str) -> bool:
        """Whether it is this text and ends at the position, where another token begins."""
        return self.text == text and self.position + len(text) == position

    @property
    def keyword(self) -> str:
        """The token as a keyword, in lower case."""
        return self.text.lower() if self.kind in ("word", "operator") else ""


def tokenize(expression: str) -> list[Token]:
    """Tokens of an expression, the last one of kind ``end``; FilterError for text that is not a token."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        message = f"the expression has {len(expression)} characters, at most {MAX_EXPRESSION_CHARACTERS} are allowed"
        raise FilterError(message, MAX_EXPRESSION_CHARACTERS, 0, expression=expression)
    tokens: list[Token] = []
    position, end = 0, len(expression)
    while position < end:
        match = _TOKEN.match(expression, position)
        if match is None or (match.lastgroup == "member" and not (tokens and tokens[-1].ends_at(position, "]"))):
            raise _syntax_error(expression, position, tokens)
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            tokens.append(Token(match.lastgroup, match[0], position))
        position = match.end()
    tokens.append(Token("end", "", end))
    return tokens


_RUN = re.compile(r"[^\s()\[\]{},\"'<>=!&|]+")
MAX_QUOTED = 60
"""Maximum length of text that a hint repeats in quotes."""
_CURLY_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
_HINTS = {"=": "equality is ==", "&": "write 'and' or &&", "|": "write 'or' or ||", "`": "quote text with ' or \""}


def _around(expression: str, position: int) -> str:
    """The text around a character, up to blanks and punctuation of expressions."""
    before = _RUN.search(expression[max(0, position - MAX_QUOTED) : position][::-1])
    after = _RUN.match(expression, position, position + MAX_QUOTED)
    head = before[0][::-1] if before is not None and before.start() == 0 else ""
    return head + (after[0] if after is not None else "")


def _names_a_field(tokens: list[Token], position: int) -> bool:
    """Whether a field ends at a position: a name, or a bracket after one, that is not a value."""
    if not tokens or tokens[-1].position + len(tokens[-1].text) != position:
        return False
    if tokens[-1].text == "]":
        return True
    before = tokens[-2].keyword if len(tokens) > 1 else ""
    return (
        tokens[-1].kind == "word"
        and tokens[-1].keyword not in RESERVED
        and before not in (*SYMBOLS, *WORD_OPERATORS, "{", ",", "..")
    )


def _syntax_error(expression: str, position: int, tokens: list[Token]) -> FilterError:
    character = expression[position]
    if character == "." and _names_a_field(tokens, position):
        field = "payload" if tokens[-1].text == "]" else tokens[-1].text
        hint = f'for example: {field}.name, {field}["a name"] or {field}[0]'
        return FilterError("expected a name after this dot", position, 1, expression=expression, hint=hint)
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


MAX_NESTING = 64
"""Maximum depth of parentheses and negations."""

SYMBOLS = ("==", "!=", "<", "<=", ">", ">=", "~")
WORD_OPERATORS = ("in", "matches", "contains", "startswith", "endswith", "like")
RESERVED = frozenset({"and", "or", "not", "exists", "true", "false", *WORD_OPERATORS})
"""Words that cannot be field names."""


@dataclass(slots=True)
class ValueRange:
    """A value, or a range of values including both ends."""

    low: Token
    high: Token | None = None


@dataclass(slots=True)
class FieldName:
    """A field as written."""

    name: str
    position: int
    length: int
    keys: list[Token] = field(default_factory=list)
    """Keys in brackets after the name, and dotted names after them."""


@dataclass(slots=True)
class BareField:
    """A field without a comparison."""

    field: FieldName


@dataclass(slots=True)
class ExistenceTest:
    """A test whether a field exists."""

    field: FieldName


@dataclass(slots=True)
class FieldComparison:
    """A field compared with values."""

    field: FieldName
    operator: str
    """``==`` also for ``!=``, ``like`` also for ``~``, otherwise as written."""
    negated: bool
    sign: Token
    """The operator as written."""
    items: list[ValueRange]


@dataclass(slots=True)
class Negation:
    """The negation of an expression."""

    part: Node


@dataclass(slots=True)
class Conjunction:
    """Expressions joined by ``and``."""

    parts: list[Node]


@dataclass(slots=True)
class Disjunction:
    """Expressions joined by ``or``."""

    parts: list[Node]


Node = BareField | ExistenceTest | FieldComparison | Negation | Conjunction | Disjunction


def parse(expression: str) -> Node:
    """The syntax tree of an expression; FilterError if it is invalid."""
    return _Parser(expression).run()


class _Parser:
    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens = tokenize(expression)
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def error(self, message: str, token: Token, hint: str = "") -> FilterError:
        return FilterError(message, token.position, len(token.text), expression=self.expression, hint=hint)

    def take(self, *keywords: str) -> Token | None:
        token = self.token
        if token.keyword in keywords:
            self.at += 1
            return token
        return None

    def run(self) -> Node:
        if self.token.kind == "end":
            raise self.error("the expression is empty", self.token, "for example: type == publish")
        tree = self.either()
        if self.token.kind != "end":
            raise self.unexpected()
        return tree

    def unexpected(self) -> FilterError:
        token = self.token
        if token.keyword == ")":
            return self.error("this ) closes nothing", token)
        before = self.tokens[self.at - 1]
        unquoted = self.unquoted()
        if unquoted is not None:
            return unquoted
        if token.kind == "word" and before.kind == "word" and before.keyword not in RESERVED:
            close = get_close_matches(token.keyword, WORD_OPERATORS, 1)
            hint = f"did you mean '{close[0]}'?" if close else ""
            return self.error(f"expected an operator, 'and' or 'or' here, not '{token.text}'", token, hint)
        if token.keyword in SYMBOLS or token.keyword in WORD_OPERATORS:
            hint = "a comparison has one field and one value; join comparisons with 'and'"
            return self.error(f"'{token.text}' has no field on its left", token, hint)
        return self.error(f"expected 'and' or 'or' here, not {shown(token)}", token)

    def unquoted(self) -> FilterError | None:
        """The error for text without quotes, such as ``pump-0042``, that is several tokens."""
        first = last = self.at - 1
        while first > 0 and self.are_joined(first - 1):
            first -= 1
        while self.are_joined(last):
            last += 1
        if last == self.at - 1 or self.tokens[first].kind not in ("word", "atom"):
            return None
        if first == 0 or self.tokens[first - 1].keyword not in (*SYMBOLS, *WORD_OPERATORS):
            return None
        start, end = self.tokens[first].position, self.tokens[last].position + len(self.tokens[last].text)
        text = self.expression[start:end]
        message = f"{text!r} is neither a word nor a number"
        return FilterError(message, start, end - start, expression=self.expression, hint=f'text needs quotes: "{text}"')

    def are_joined(self, at: int) -> bool:
        """Whether a token and the next one are written without a blank between them, and neither is punctuation."""
        token, following = self.tokens[at], self.tokens[at + 1]
        both = token.kind in ("word", "atom") and following.kind in ("word", "atom")
        return both and token.position + len(token.text) == following.position

    def either(self) -> Node:
        parts = [self.both()]
        while self.take("or", "||"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Disjunction(parts)

    def both(self) -> Node:
        parts = [self.term()]
        while self.take("and", "&&"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else Conjunction(parts)

    def term(self) -> Node:
        token = self.token
        if token.keyword in ("not", "!", "("):
            self.at += 1
            self.depth += 1
            if self.depth > MAX_NESTING:
                raise self.error(f"more than {MAX_NESTING} levels of parentheses and negations", token)
            if token.keyword == "(":
                part = self.either()
                if not self.take(")"):
                    if self.token.kind == "end":
                        raise self.error("this ( is never closed", token)
                    raise self.unexpected()
            else:
                part = Negation(self.term())
            self.depth -= 1
            return part
        if self.take("exists"):
            opened = self.take("(")
            name = self.field("after 'exists'")
            if opened and not self.take(")"):
                raise self.error("this ( is never closed", opened)
            return ExistenceTest(name)
        return self.comparison(self.field("here"))

    def field(self, where: str) -> FieldName:
        token = self.token
        if token.kind == "end":
            raise self.error(f"expected a field name {where}, but the expression ends", token)
        if token.kind != "word" or token.keyword in RESERVED:
            hint = "write the field on the left: qos == 1" if token.kind in ("string", "atom") else ""
            raise self.error(f"expected a field name {where}, not {shown(token)}", token, hint)
        self.at += 1
        name = FieldName(token.text, token.position, len(token.text))
        while self.take("["):
            key = self.token
            if key.kind != "string" and not (key.kind == "atom" and key.text.removeprefix("-").isdecimal()):
                raise self.error("expected a quoted name in the brackets", key, 'for example: user_property["k"]')
            self.at += 1
            closing = self.take("]")
            if closing is None:
                raise self.error("expected ] here", self.token)
            name.keys.append(key)
            name.length = closing.position + 1 - token.position
            if self.token.kind == "member":
                name.keys.append(self.token)
                name.length = self.token.position + len(self.token.text) - token.position
                self.at += 1
        return name

    def comparison(self, name: FieldName) -> Node:
        negated = False
        sign = self.token
        if sign.keyword == "not" and self.tokens[self.at + 1].keyword in WORD_OPERATORS:
            self.at += 1
            negated, sign = True, self.token
        operator = sign.keyword
        if operator not in SYMBOLS and operator not in WORD_OPERATORS:
            return BareField(name)
        self.at += 1
        if operator == "in":
            return FieldComparison(name, "in", negated, sign, self.members(sign))
        if operator == "!=":
            operator, negated = "==", True
        elif operator == "~":
            operator = "like"
        value = self.value(sign)
        if self.token.keyword == "..":
            raise self.error("a range needs 'in'", self.token, f"{name.name} in {value.text}..…")
        return FieldComparison(name, operator, negated, sign, [ValueRange(value)])

    def members(self, sign: Token) -> list[ValueRange]:
        opened = self.take("{")
        if opened is None:
            if self.token.keyword in ("(", "["):
                raise self.error("a set is written in braces", self.token, "for example: qos in {1, 2}")
            return [self.item(sign)]
        if self.take("}"):
            raise self.error("this set is empty: nothing is in it", opened)
        items = [self.item(opened)]
        while self.take(","):
            items.append(self.item(opened))
        if not self.take("}"):
            if self.token.kind == "end":
                raise self.error("this { is never closed", opened)
            raise self.error(f"expected , or }} here, not {shown(self.token)}", self.token)
        return items

    def item(self, before: Token) -> ValueRange:
        low = self.value(before)
        dots = self.take("..")
        return ValueRange(low, self.value(dots) if dots else None)

    def value(self, before: Token) -> Token:
        token = self.token
        if token.kind == "end":
            raise self.error(f"expected a value after '{before.text}', but the expression ends", token)
        if token.kind not in ("string", "atom", "word"):
            hint = "sets and ranges need 'in'" if token.keyword == "{" else ""
            raise self.error(f"expected a value after '{before.text}', not {shown(token)}", token, hint)
        if token.keyword in RESERVED and token.keyword not in ("true", "false"):
            raise self.error(f"expected a value after '{before.text}', not {shown(token)}", token)
        self.at += 1
        return token


def shown(token: Token) -> str:
    return token.text if token.kind == "string" else f"'{token.text}'"
