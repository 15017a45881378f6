from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt.topics import (
    MAX_PATTERN_LEVELS,
    MAX_TOPIC_BYTES,
    compile_filter,
    is_valid_topic_filter,
    is_valid_topic_name,
    matches,
    parse_shared,
    topic_filter_problem,
    topic_name_problem,
    utf8_length,
)
from tests import corpora
from tests.conftest import THOROUGH
from tests.each import each

NAMES: list[tuple[str, str, str | None]] = [
    ("an ordinary name", "a/b", None),
    ("a single slash is two empty levels", "/", None),
    ("spaces are allowed", " / ", None),
    ("case and accents are allowed", "Ä/é", None),
    ("a dollar name", "$SYS/broker/uptime", None),
    ("no character at all", "", "empty"),
    ("a plus as a level", "a/+/b", "wildcard"),
    ("a plus inside a level", "a+b", "wildcard"),
    ("a hash as a level", "a/#", "wildcard"),
    ("a hash inside a level", "a#", "wildcard"),
    ("the null character", "a\0b", "null_character"),
    ("the null character beside a wildcard", "+\0", "null_character"),
    ("too long in bytes though not in characters", "é" * 32_768, "too_long"),
    ("two-byte characters up to the limit", "é" * 32_767 + "x", None),
    ("four-byte characters over the limit", "😀" * 16_384, "too_long"),
    ("four-byte characters up to the limit", "😀" * 16_383 + "xyz", None),
    ("ill-formed bytes count one each", "\udcff" * MAX_TOPIC_BYTES, None),
]


@pytest.mark.parametrize(("topic", "problem"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_problem_of_a_topic_name(topic: str, problem: str | None) -> None:
    assert topic_name_problem(topic) == problem
    assert is_valid_topic_name(topic) is (problem is None)


FILTERS: list[tuple[str, str, str | None]] = [
    ("a filter without wildcards", "a/b", None),
    ("a hash alone", "#", None),
    ("a hash after a slash", "a/#", None),
    ("a hash after an empty level", "/#", None),
    ("a plus alone", "+", None),
    ("a plus in every place", "+/a/+/b/+", None),
    ("a plus before a hash", "+/#", None),
    ("no character at all", "", "empty"),
    ("a hash before the last level", "a/#/b", "hash_not_last"),
    ("a hash first of two levels", "#/a", "hash_not_last"),
    ("a hash before a trailing slash", "a/#/", "hash_not_last"),
    ("a hash after text", "a/b#", "hash_not_alone"),
    ("a hash before text", "a/#b", "hash_not_alone"),
    ("two hashes in a level", "a/##", "hash_not_alone"),
    ("a hash beside a plus", "a/+#", "hash_not_alone"),
    ("a plus after text", "a/b+", "plus_not_alone"),
    ("a plus before text", "a/+b/c", "plus_not_alone"),
    ("two pluses in a level", "++", "plus_not_alone"),
    ("the first broken level decides", "a+/b#", "plus_not_alone"),
    ("the null character", "a/\0", "null_character"),
    ("one byte too long", "a/" + "x" * (MAX_TOPIC_BYTES - 1), "too_long"),
    ("a shared filter", "$share/g/a", None),
    ("a shared filter with wildcards", "$share/g/+/b/#", None),
    ("a shared filter for dollar names", "$share/g/$SYS/#", None),
    ("a shared filter that begins with an empty level", "$share/g//", None),
    ("share without a name", "$share", "share_name_missing"),
    ("share with an empty rest", "$share/", "share_name_missing"),
    ("share with an empty name", "$share//a", "share_name_missing"),
    ("a share name with a plus", "$share/g+/a", "share_name_invalid"),
    ("a share name that is a hash", "$share/#/a", "share_name_invalid"),
    ("a share name that is a plus, and no filter", "$share/+", "share_name_invalid"),
    ("share without a filter", "$share/g", "share_filter_missing"),
    ("share with an empty filter", "$share/g/", "share_filter_missing"),
    ("a broken filter after a share name", "$share/g/a#", "hash_not_alone"),
    ("a hash in the middle after a share name", "$share/g/#/a", "hash_not_last"),
    ("a longer first level is an ordinary one", "$shared/+", None),
    ("capital letters make an ordinary level", "$SHARE/x", None),
]


@each("topic_filter, problem", [row[1:] for row in FILTERS], ids=[row[0] for row in FILTERS])
def test_problem_of_a_topic_filter(topic_filter: str, problem: str | None) -> None:
    assert topic_filter_problem(topic_filter) == problem
    assert is_valid_topic_filter(topic_filter) is (problem is None)


@pytest.mark.parametrize("topic_filter", ["$share", "$share/", "$share//a", "$share/+/a", "$share/g", "$share/#"])
def test_share_is_an_ordinary_level_before_5_0(topic_filter: str) -> None:
    assert topic_filter_problem(topic_filter) is not None
    assert topic_filter_problem(topic_filter, shared=False) is None
    assert is_valid_topic_filter(topic_filter, shared=False)


SHARED: list[tuple[str, tuple[str, str] | None]] = [
    ("$share/g/a/b", ("g", "a/b")),
    ("$share/g/#", ("g", "#")),
    ("$share/g//a", ("g", "/a")),
    ("$share/g/a#", ("g", "a#")),
    ("$share/$share/$share/x", ("$share", "$share/x")),
    ("$share/g", None),
    ("$share/g/", None),
    ("$share//a", None),
    ("$share/+/a", None),
    ("$share", None),
    ("$shared/g/a", None),
    ("a/$share/g/a", None),
    ("", None),
]


@pytest.mark.parametrize(("topic_filter", "parts"), SHARED, ids=[repr(row[0]) for row in SHARED])
def test_share_name_and_filter_of_a_shared_subscription(topic_filter: str, parts: tuple[str, str] | None) -> None:
    assert parse_shared(topic_filter) == parts


MATCHES: list[tuple[str, str, bool]] = [
    # The examples of 5.0 sections 4.7.1 and 4.7.2.
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("#", "$SYS/monitor/Clients", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor/Clients", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("$SYS/#", "$SYS", True),
    # Nothing is normalised (4.7.3).
    ("ACCOUNTS", "Accounts", False),
    ("a//b", "a/b", False),
    ("a/+/b", "a//b", True),
    ("/a", "a", False),
    ("a/", "a", False),
    ("a/b", "a/b/", False),
    ("\u00e9", "e\u0301", False),
    # A dollar matters at the first place of the first level only.
    ("+/$x", "a/$x", True),
    ("a/+", "a/$x", True),
    ("a/#", "a/$SYS/x", True),
    ("+/#", "$x/y", False),
    ("+/+", "$x/y", False),
    ("/+", "/$x", True),
    ("#", "/$x", True),
    # Empty levels.
    ("/#", "/", True),
    ("/#", "/a", True),
    ("/#", "a", False),
    ("+/#", "/", True),
    ("+/+/+", "//", True),
    ("+/+", "//", False),
    ("#", "/", True),
    ("+", "", False),
    ("#", "", False),
    ("/#", "", False),
    ("+/#", "", False),
    # The parent of a hash, and no further up.
    ("a/+/#", "a/b", True),
    ("a/+/#", "a/", True),
    ("a/+/#", "a", False),
    ("+/#", "a", True),
    ("+/+/#", "a", False),
    ("a/b/#", "a", False),
    ("ab/#", "abc", False),
    # Characters that mean something in patterns are ordinary ones.
    ("a.b/+", "axb/c", False),
    ("a.b/+", "a.b/c", True),
    ("[a]/+/(", "[a]/x/(", True),
    ("a/+/\\", "a/x/\\", True),
    ("+", "line\nbreak", True),
    ("a/+/#", "a/x\n/y\n", True),
    ("+/x", "a/x\n", False),
    # Shared subscriptions match by the filter after the share name.
    ("$share/g/a/#", "a/b", True),
    ("$share/g/a/#", "$share/g/a/b", False),
    ("$share/g/#", "$SYS/x", False),
    ("$share/g/$SYS/#", "$SYS/x", True),
    ("$share/g/a", "a", True),
    ("$shared/g/a", "$shared/g/a", True),
    # A filter that is not valid matches nothing.
    ("a#", "a#", False),
    ("a+/b", "a+/b", False),
    ("#/a", "b/a", False),
    ("$share/g", "$share/g", False),
    ("", "", False),
    ("", "a", False),
]


@each("topic_filter, topic, expected", MATCHES, ids=[f"{f!r} on {t!r}" for f, t, _ in MATCHES])
@each("how", ["matches", "compile_filter"])
def test_which_filter_matches_which_name(topic_filter: str, topic: str, expected: bool, how: str) -> None:
    result = matches(topic_filter, topic) if how == "matches" else compile_filter(topic_filter)(topic)
    assert result is expected


def test_share_prefix_is_matched_as_text_where_shares_do_not_exist() -> None:
    assert matches("$share/g/a", "$share/g/a", shared=False)
    assert not matches("$share/g/a", "a", shared=False)
    assert compile_filter("$share/+/a", shared=False)("$share/g/a")


@pytest.mark.parametrize("levels", [MAX_PATTERN_LEVELS, MAX_PATTERN_LEVELS + 1, 32_000])
def test_filters_of_many_levels_match_like_short_ones(levels: int) -> None:
    test = compile_filter("/".join(["+"] * levels))
    assert test("/".join(["a"] * levels))
    assert test("/" * (levels - 1))
    assert not test("/".join(["a"] * (levels + 1)))
    assert not test("/".join(["a"] * (levels - 1)))
    assert not test("$" + "/" * (levels - 1))
    deep = compile_filter("a/" + "+/" * levels + "#")
    assert deep("a/" + "/" * (levels + 5))
    assert not deep("b/" + "/" * (levels + 5))


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("é", 2), ("😀", 4), ("\udcff", 1), ("\ud800", 3)])
def test_length_in_bytes_of_utf_8(text: str, length: int) -> None:
    assert utf8_length(text) == length


def reference(topic_filter: str, topic: str) -> bool:
    """The wording of section 4.7, level by level and by recursion; for valid filters without share only."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False

    def walk(wanted: list[str], levels: list[str]) -> bool:
        if wanted == ["#"]:
            return True
        if not wanted or not levels:
            return not wanted and not levels
        return wanted[0] in ("+", levels[0]) and walk(wanted[1:], levels[1:])

    return walk(topic_filter.split("/"), topic.split("/"))


LEVELS = ["", "a", "b", "$", "$a", "a.", "\n"]
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6).map("/".join).filter(bool)
filters = (
    st.tuples(st.lists(st.sampled_from([*LEVELS, "+", "+"]), min_size=1, max_size=6), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)


@settings(max_examples=1500 if THOROUGH else 250, deadline=None)
@given(topic_filter=filters, topic=topics)
def test_matching_agrees_with_the_wording_of_the_specification(topic_filter: str, topic: str) -> None:
    expected = reference(topic_filter, topic)
    assert matches(topic_filter, topic) is expected
    assert compile_filter(topic_filter)(topic) is expected
    assert compile_filter(f"$share/name/{topic_filter}")(topic) is expected


def test_matching_agrees_with_the_wording_of_the_specification_on_all_short_ones() -> None:
    names = ["/".join(parts) for size in (1, 2, 3) for parts in product(["", "a", "$"], repeat=size)]
    wanted = ["/".join(parts) for size in (1, 2, 3) for parts in product(["", "a", "$", "+"], repeat=size)]
    wanted += ["#", *(text + "/#" for text in wanted)]
    for topic_filter, topic in product(filter(None, wanted), filter(None, names)):
        expected = reference(topic_filter, topic)
        assert matches(topic_filter, topic) is expected, (topic_filter, topic)
        assert compile_filter(topic_filter)(topic) is expected, (topic_filter, topic)


@settings(max_examples=500 if THOROUGH else 250, deadline=None)
@given(
    topic_filter=st.text(alphabet=st.sampled_from("a/+#$\0share\udcff"), max_size=12),
    topic=st.text(alphabet=st.sampled_from("a/+#$\0\udcff"), max_size=8),
)
def test_any_text_is_judged_and_matched_alike_by_both_forms(topic_filter: str, topic: str) -> None:
    result = matches(topic_filter, topic)
    assert compile_filter(topic_filter)(topic) is result
    if result:
        assert topic_filter_problem(topic_filter) is None
        assert topic


EXCEPTIONS: dict[tuple[str, str], str] = {
    ("filter_valid", "/" * 202 + "a"): "the source limits names to 200 levels; the specification has no such limit",
    ("topic_valid", "/" * 202 + "a"): "the source limits names to 200 levels; the specification has no such limit",
}
"""Rows with another result in the source than in the specification."""


def test_all_rows_of_the_public_suites_that_the_specification_decides() -> None:
    judged: dict[str, Callable[[dict[str, str]], bool]] = {
        "topic_valid": lambda row: is_valid_topic_name(row["topic"]),
        "filter_valid": lambda row: is_valid_topic_filter(row["filter"]),
        "shared_filter_valid": lambda row: is_valid_topic_filter(row["filter"]),
        "match": lambda row: matches(row["filter"], row["topic"]) and compile_filter(row["filter"])(row["topic"]),
    }
    rows = [json.loads(line) for line in corpora.path("vectors", "topics.jsonl").read_text().splitlines()]
    decided = [row for row in rows if row["spec"] is not None]
    assert len(decided) > 60
    differing = set()
    for row in decided:
        assert judged[row["kind"]](row) is row["spec"], row
        if row["spec"] is not row["expect"]:
            differing.add((row["kind"], row.get("filter", row.get("topic"))))
    assert differing == set(EXCEPTIONS)
