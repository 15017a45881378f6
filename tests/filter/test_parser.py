"""What expressions are made of and how they are built: tokens, trees, and what is wrong with one and where."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope import filter as filters
from mqttscope.filter import parser
from tests.conftest import EXHAUSTIVE
from tests.each import each


def error_of(expression: str) -> parser.FilterError:
    with pytest.raises(parser.FilterError) as caught:
        parser.parse(expression)
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
    actual_tokens = parser.tokenize(expression)
    assert [token.text for token in actual_tokens] == tokens
    for token in actual_tokens:
        assert expression[token.position : token.position + len(token.text)] == token.text


def drawn(node: parser.Node) -> str:
    """A tree with parentheses around everything that has parts."""
    if isinstance(node, parser.FieldComparison):
        sign = f"not {node.operator}" if node.negated else node.operator
        values = [item.low.text if item.high is None else f"{item.low.text}..{item.high.text}" for item in node.items]
        return f"{node.field.name} {sign} {','.join(values)}"
    if isinstance(node, parser.Conjunction):
        return f"({' and '.join(map(drawn, node.parts))})"
    if isinstance(node, parser.Disjunction):
        return f"({' or '.join(map(drawn, node.parts))})"
    if isinstance(node, parser.Negation):
        return f"not({drawn(node.part)})"
    key = "".join(token.text if token.kind == "member" else f"[{token.text}]" for token in node.field.keys)
    return f"{'exists ' if isinstance(node, parser.ExistenceTest) else ''}{node.field.name}{key}"


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
    assert drawn(parser.parse(expression)) == tree


def test_a_field_knows_its_place_and_its_key() -> None:
    node = parser.parse("dup and user_property[ 'k' ] == 'v'")

    assert isinstance(node, parser.Conjunction)
    bare, compared = node.parts
    assert isinstance(bare, parser.BareField)
    assert isinstance(compared, parser.FieldComparison)
    name = compared.field
    assert (name.position, name.length) == (8, len("user_property[ 'k' ]"))
    assert [key.text for key in name.keys] == ["'k'"]


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
    ("payload».« > 3", "expected a name after this dot", 'payload.name, payload["a name"] or payload[0]'),
    ("qos == 1 and payload».«3 > 3", "expected a name after this dot", "for example: payload.name"),
    ('payload["a"]».« > 3', "expected a name after this dot", "for example: payload.name"),
    ("topic == pump».«-1", "unexpected character '.'", 'text needs quotes: "pump.-1"'),
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


def test_nesting_is_limited() -> None:
    assert "levels" in error_of("not " * 10_000 + "dup").message
    assert "levels" in error_of("(" * 60_000).message


def mistake_in(expression: str) -> parser.FilterError:
    with pytest.raises(parser.FilterError) as caught:
        filters.compile(expression)
    return caught.value


# Expression with the offending characters between » and «; part of the message; part of the hint.
MISTAKES: list[tuple[str, str, str]] = [
    # Names.
    ('type == publish and »topik« == "a"', "unknown field 'topik'", "did you mean 'topic'?"),
    ('»client_id« == "x"', "unknown field", "'client_identifier'"),
    ("»publish.topic_nam« == 'x'", "unknown field", "'publish.topic_name'"),
    ("»mqtt.topic« == 'x'", "unknown field", "did you mean 'topic'?"),
    ("»payload.lenght« > 3", "unknown field", "did you mean 'payload.length'?"),
    ("»topic_filter.cuont« > 3", "unknown field", "did you mean 'topic_filter.count'?"),
    ("»TOPIC« == 'x'", "unknown field", "did you mean 'topic'?"),
    ("»zzzzzz« == 1", "unknown field 'zzzzzz'", ""),
    ("exists »topc«", "unknown field", "'topic'"),
    ("»qos.length« > 1", "unknown field", ""),
    ("»qos.count« > 1", "unknown field", ""),
    ("»password.length« > 1", "unknown field", ""),
    # Types.
    ('qos == »"x"«', "qos is a number", ""),
    ("qos > »high«", "qos is a number", ""),
    ("qos == »true«", "qos is a number", ""),
    ("qos > »1.5«", "whole number", ""),
    ("qos > »0xzz«", "'0xzz' is not a number", ""),
    ("qos > »010«", "'010' is not a number", ""),
    ("packet_identifier > »5s«", "not measured in time", ""),
    ("keep_alive > »10KB«", "not measured in bytes", ""),
    ("length > »10XB«", "not a number", "sizes"),
    ("keep_alive > »10parsecs«", "not a number", "durations"),
    ("topic »>« 3", "topic is text", "did you mean topic.length?"),
    ("topic == »3«", "topic is text", 'quotes around it: "3"'),
    ("topic == »plant«", "topic is text", 'quotes around it: "plant"'),
    ("payload »<« 3", "payload is binary", "payload.length"),
    ("payload == »0x123«", "not a sequence of bytes", "hex digits"),
    ("payload == »0xgg«", "not a sequence of bytes", "hex digits"),
    ("payload == »abc«", "payload is binary", "quotes"),
    ("dup »>« 0", "dup is a flag", "operators for it: == !="),
    ("dup == »maybe«", "not true or false", ""),
    ("dup »in« {true}", "dup is a flag", ""),
    ("qos »contains« 'x'", "qos is a number", "== != < <= > >= in"),
    ("qos »like« 'x'", "qos is a number", ""),
    ("user_name »matches« 'a/#'", "is not a topic", "'like'"),
    ("qos »matches« 'a/#'", "is not a topic", ""),
    ("malformed »==« true", "something that is there or not", "without a comparison"),
    ("will »contains« 'x'", "something that is there or not", "not will"),
    ('user_property »==« "k"', "a list of names and values", 'user_property["k"]'),
    ('»topic["k"]« == "a"', "no names to look up", "user_property"),
    ("»topic« and dup", "topic is text, not a condition", "exists topic"),
    ("dup and »qos«", "qos is a number, not a condition", "exists qos"),
    ("topic in »\"a\"«..\"b\"", "it has no ranges", ""),
    ("type in »connect«..publish", "it has no ranges", ""),
    # Words.
    ("type == »publsh«", "not a word that type can be", "did you mean 'publish'?"),
    ('type == »"publsh"«', "not a word that type can be", "did you mean 'publish'?"),
    ("type == »3«", "not a word that type can be", "connect, connack"),
    ("direction == »broker«", "not a word", "client_to_server"),
    ("malformed.reason == »truncate«", "not a word", "did you mean 'truncated'?"),
    ("gap.reason == »lost«", "not a word", "not_captured"),
    # Secrets.
    ("»password« == 'x'", "is a secret", "exists password"),
    ("»connect.password« like '.'", "is a secret", "exists connect.password"),
    ("»password« matches 'x'", "is a secret", "exists password"),
    ("»password«", "is a secret", "write 'exists password'"),
    # Versions, times, addresses.
    ("version >= »6«", "not an MQTT version", "3.1, 3.1.1, 5.0"),
    ("version == »publish«", "not an MQTT version", ""),
    ("time > »2026-01-02T03:04:05«", "no time zone", "2026-01-02T03:04:05Z"),
    ("time > »2026-01-02«", "not a time", "2026-01-02T03:04:05Z"),
    ("time > »2026-13-02T03:04:05Z«", "month", ""),
    ("time > »+30«", "not a time", "+30s"),
    ("time > »30s«", "not a time", "+30s"),
    ("time > »now«", "not a time", ""),
    ("time »in« {+1s, 2026-01-02T03:04:05Z}", "cannot be mixed", ""),
    ("time »in« +1s..2026-01-02T03:04:05Z", "cannot be mixed", ""),
    ("time »in« {2026-01-02T03:04:05Z, +1s..+2s}", "cannot be mixed", ""),
    ("time »contains« '2026'", "time is a time", ""),
    ("client == »10.0.0.4«", "not an address with a port", "client.address"),
    ('client == »"::1"«', "not an address with a port", "client.address"),
    ("client.address == »10.0.0.0/8«", "is a network", "client.address in 10.0.0.0/8"),
    ("client.address in {10.0.0.1, »10.0.0.0/99«}", "is a network", ""),
    # Topic filters, regular expressions, text.
    ('topic matches »"a/#/b"«', "# must be the last level", ""),
    ('topic matches »"a#"«', "# must be alone in its level", ""),
    ('topic matches »"a/b+"«', "+ must be alone in its level", ""),
    ('topic matches »""«', "it is empty", ""),
    ('topic matches »"$share/g"«', "must be followed by a filter", ""),
    ("topic matches »plant«", "not quoted text", "quotes"),
    ('topic like "a»(«"', "not a regular expression: missing )", ""),
    ("topic like '»*«a'", "nothing to repeat", ""),
    ("payload like '[»z«-a]'", "bad character range", ""),
    ("topic like »a«", "not a quoted regular expression", ""),
    (r'topic == "a»\q«"', r"unknown escape \q", r"\xNN"),
    (r'topic == "»\x«1"', r"unknown escape \x", ""),
    (r'topic == "»\U00110000«"', "unknown escape", ""),
    ("qos in »3..1«", "ends before it begins", "write 1..3"),
]  # fmt: skip


NAMED = [*((error_of, *row) for row in ERRORS), *((mistake_in, *row) for row in MISTAKES)]


@each("find, marked, message, hint", NAMED, ids=[row[1] for row in NAMED])
def test_mistake_is_named_at_its_place(
    find: Callable[[str], parser.FilterError], marked: str, message: str, hint: str
) -> None:
    expression = marked.replace("»", "").replace("«", "")
    error = find(expression)
    position, end = marked.index("»"), marked.index("«") - 1
    assert message in error.message
    assert (error.position, error.length) == (position, end - position)
    assert hint in error.hint
    assert error.expression == expression


def carets(error: parser.FilterError) -> str:
    """What stands above the carets of a rendered error."""
    lines = str(error).splitlines()
    start = lines[2].index("^")
    assert set(lines[2].strip()) == {"^"}
    return lines[1][start : len(lines[2])]


def test_rendering_marks_the_offending_characters() -> None:
    error = mistake_in('type == publish and topik == "a"')
    assert str(error) == (
        "unknown field 'topik'\n"
        '  type == publish and topik == "a"\n'
        "                      ^^^^^\n"
        "hint: did you mean 'topic'?"
    )
    assert error.render() == str(error)
    assert error.args == ("unknown field 'topik'",)


def test_rendering_marks_the_end_with_one_caret() -> None:
    assert str(mistake_in("qos ==")).splitlines()[1:] == ["  qos ==", "        ^"]


def test_rendering_of_an_error_without_an_expression_is_its_message() -> None:
    assert str(parser.FilterError("broken", 3, 1)) == "broken"


def test_rendering_shows_the_line_of_the_mistake_only() -> None:
    lines = str(mistake_in("dup and\n  topik == 'a'\n  and retain")).splitlines()
    assert lines[1:3] == ["    topik == 'a'", "    ^^^^^"]


def test_rendering_counts_columns_of_wide_and_combining_characters() -> None:
    lines = str(mistake_in("topic == '温度e\u0301' and topik")).splitlines()
    assert lines[2] == "  " + " " * len("topic == 'xxxxe' and ") + "^^^^^"


def test_rendering_replaces_characters_that_would_upset_a_terminal() -> None:
    error = mistake_in("topic == '\x1b[31m\t' and topik")
    assert "\x1b" not in str(error)
    assert carets(error) == "topik"


def test_rendering_of_a_long_line_shows_the_surroundings_of_the_mistake() -> None:
    error = mistake_in(" and ".join(["dup"] * 100 + ["topik"] + ["retain"] * 100))
    assert carets(error) == "topik"
    shown = str(error).splitlines()[1]
    assert len(shown) <= parser.MAX_SHOWN_COLUMNS + 4
    assert shown.startswith("  …")
    assert shown.endswith("…")


def test_rendering_of_a_long_line_with_the_mistake_at_its_end() -> None:
    error = mistake_in(" and ".join(["dup"] * 100) + " and ")
    assert str(error).splitlines()[2].endswith("^")


def test_error_survives_pickling() -> None:
    error = mistake_in("topik")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.position, again.length, again.hint) == (error.position, error.length, error.hint)


PIECES = [
    "qos", "topic", "payload", "type", "time", "version", "dup", "user_property", "password", "client.address", "will",
    "==", "!=", "<", "in", "matches", "like", "contains", "not", "and", "or", "exists", "(", ")", "{", "}", "[", "]",
    ",", "..", "1", "0x10", "10KB", "+3s", "2026-01-02T03:04:05Z", "5.0", "publish", "true", '"a/#"', "'(['", '"', "=",
    "10.0.0.0/8", "\\", "é", "\ud800",
]  # fmt: skip


@settings(max_examples=1500 if EXHAUSTIVE else 500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join) | st.text(max_size=20))
def test_any_text_is_compiled_or_refused_at_a_place_inside_it(expression: str) -> None:
    refused: parser.FilterError | None = None
    try:
        filters.compile(expression)
    except parser.FilterError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.position <= len(expression)
        assert refused.position + refused.length <= len(expression)
        assert refused.message
        assert str(refused).startswith(refused.message)
