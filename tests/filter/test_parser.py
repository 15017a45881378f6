"""What expressions are made of and how they are built: tokens, trees, mistakes in the structure."""

from __future__ import annotations

import pytest

from mqttscope.filter.errors import FilterError
from mqttscope.filter.parser import (
    MAX_EXPRESSION_CHARACTERS,
    MAX_NESTING,
    All,
    Bare,
    Comparison,
    Exists,
    Node,
    Not,
    Some,
    parse,
    tokenize,
)


def error_of(expression: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        parse(expression)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "tokens"),
    [
        ("qos in 1..2", ["qos", "in", "1", "..", "2", ""]),
        ("version in 3.1..3.1.1", ["version", "in", "3.1", "..", "3.1.1", ""]),
        ("time in +1s..+2.5s", ["time", "in", "+1s", "..", "+2.5s", ""]),
        ("0x80..0xff", ["0x80", "..", "0xff", ""]),
        ("qos>=1&&!dup||retain", ["qos", ">=", "1", "&&", "!", "dup", "||", "retain", ""]),
        ("client==10.0.0.4:1883", ["client", "==", "10.0.0.4:1883", ""]),
        ("a.b['c']", ["a.b", "[", "'c'", "]", ""]),
        ('"it\'s"  \'say "x"\'', ['"it\'s"', "'say \"x\"'", ""]),
        (r'"a\"b" x', [r'"a\"b"', "x", ""]),
        ("2026-01-02T03:04:05+02:00", ["2026-01-02T03:04:05+02:00", ""]),
    ],
)
def test_tokens(expression: str, tokens: list[str]) -> None:
    found = tokenize(expression)
    assert [token.text for token in found] == tokens
    for token in found:
        assert expression[token.position : token.position + len(token.text)] == token.text


def drawn(node: Node) -> str:
    """A tree with parentheses around everything that has parts."""
    if isinstance(node, Comparison):
        sign = f"not {node.operator}" if node.negated else node.operator
        values = [item.low.text if item.high is None else f"{item.low.text}..{item.high.text}" for item in node.items]
        return f"{node.field.name} {sign} {','.join(values)}"
    if isinstance(node, All):
        return f"({' and '.join(map(drawn, node.parts))})"
    if isinstance(node, Some):
        return f"({' or '.join(map(drawn, node.parts))})"
    if isinstance(node, Not):
        return f"not({drawn(node.part)})"
    key = "" if node.field.key is None else f"[{node.field.key.text}]"
    return f"{'exists ' if isinstance(node, Exists) else ''}{node.field.name}{key}"


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("dup", "dup"),
        ("a and b or c and d", "((a and b) or (c and d))"),
        ("a && (b || c) && d", "(a and (b or c) and d)"),
        ("not a and b", "(not(a) and b)"),
        ("!(a or not b)", "not((a or not(b)))"),
        ("EXISTS (topic) AND NOT exists will", "(exists topic and not(exists will))"),
        ("qos >= 1", "qos >= 1"),
        ("qos != 1", "qos not == 1"),
        ("topic ~ 'a'", "topic like 'a'"),
        ("topic not matches 'a/#'", "topic not matches 'a/#'"),
        ("qos in {0, 2..3}", "qos in 0,2..3"),
        ("qos not in 1..2", "qos not in 1..2"),
        ("user_property['k'] == \"v\"", 'user_property == "v"'),
        ("exists user_property['k']", "exists user_property['k']"),
    ],
)
def test_trees(expression: str, tree: str) -> None:
    assert drawn(parse(expression)) == tree


def test_a_field_knows_its_place_and_its_key() -> None:
    node = parse("dup and user_property[ 'k' ] == 'v'")

    assert isinstance(node, All)
    bare, compared = node.parts
    assert isinstance(bare, Bare)
    assert isinstance(compared, Comparison)
    name = compared.field
    assert (name.position, name.length) == (8, len("user_property[ 'k' ]"))
    assert name.key is not None
    assert name.key.text == "'k'"


# Expression with the offending characters between » and «; part of the message; part of the hint.
ERRORS: list[tuple[str, str, str]] = [
    ("»«", "the expression is empty", "type == publish"),
    ("   »«", "the expression is empty", ""),
    ("qos »=« 1", "unexpected character '='", "equality is =="),
    ("dup »&« retain", "unexpected character '&'", "&&"),
    ("dup »|« retain", "unexpected character '|'", "||"),
    ("topic == »\u201c«a\u201d", "unexpected character", "straight quotes"),
    ("topic == pl»ä«nt", "unexpected character 'ä'", "quotes"),
    ('topic == »"«abc', 'no closing "', ""),
    ("topic == »'«abc\\'", "no closing '", ""),
    ("»(«qos > 1", "never closed", ""),
    ("dup and »(«qos > 1 or (dup)", "never closed", ""),
    ("qos > 1»)«", "closes nothing", ""),
    ("(qos > 1 »dup«)", "expected 'and' or 'or' here", ""),
    ("exists »(«topic", "never closed", ""),
    ("qos > 0 »dup«", "expected 'and' or 'or' here", ""),
    ("qos > 0 »>« 1", "has no field on its left", "join comparisons with 'and'"),
    ("publish »qos« > 0", "'and' or 'or'", ""),
    ('topic »match« "a"', "expected an operator", "did you mean 'matches'?"),
    ("»1« < qos", "expected a field name here", "on the left"),
    ('»"a"« == topic', "expected a field name here", "on the left"),
    ("dup and »«", "expected a field name here, but the expression ends", ""),
    ("dup and »or« retain", "expected a field name here, not 'or'", ""),
    ("not »«", "the expression ends", ""),
    ("exists »«", "expected a field name after 'exists'", ""),
    ("qos == »«", "expected a value after '=='", ""),
    ("qos in »«", "expected a value after 'in'", ""),
    ("qos == »)«", "expected a value after '=='", ""),
    ("qos == »and« dup", "expected a value after '=='", ""),
    ("qos == »{«1}", "expected a value", "'in'"),
    ("qos == 1»..«2", "a range needs 'in'", "qos in 1.."),
    ("qos in 1..»«", "expected a value after '..'", ""),
    ("qos in »{«}", "this set is empty", ""),
    ("qos in »{«1, 2", "never closed", ""),
    ("qos in {1 »2«}", "expected , or } here", ""),
    ("qos in {1,»}«", "expected a value", ""),
    ("qos in »(«1, 2)", "a set is written in braces", "{1, 2}"),
    ("user_property[»k«] == 'a'", "expected a quoted name", 'user_property["k"]'),
    ('user_property["k" »==« "a"', "expected ] here", ""),
    ("dup »,« retain", "expected 'and' or 'or' here", ""),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message", "hint"), ERRORS, ids=[row[0] for row in ERRORS])
def test_a_mistake_in_the_structure_is_named_at_its_place(marked: str, message: str, hint: str) -> None:
    expression = marked.replace("»", "").replace("«", "")
    error = error_of(expression)
    position, end = marked.index("»"), marked.index("«") - 1
    assert message in error.message
    assert (error.position, error.length) == (position, end - position)
    assert hint in error.hint
    assert error.expression == expression


def test_nesting_is_limited() -> None:
    parse("(" * MAX_NESTING + "dup" + ")" * MAX_NESTING)
    assert "levels" in error_of("(" * (MAX_NESTING + 1) + "dup" + ")" * (MAX_NESTING + 1)).message
    assert "levels" in error_of("not " * 10_000 + "dup").message
    assert "levels" in error_of("(" * 60_000).message


def test_length_is_limited() -> None:
    error = error_of("dup".ljust(MAX_EXPRESSION_CHARACTERS + 1))
    assert str(MAX_EXPRESSION_CHARACTERS) in error.message
    parse("dup".ljust(MAX_EXPRESSION_CHARACTERS))
