"""Every example of docs/filters.md runs, and the fields it lists are the fields there are."""

from __future__ import annotations

import re
import shlex

import pytest

from mqttscope import filter as filters
from mqttscope.filter import FilterError, lookup
from mqttscope.filter.fields import common_fields
from mqttscope.filter.literals import DURATIONS, SIZES
from mqttscope.filter.parser import SYMBOLS, WORD_OPERATORS
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import PROPERTIES
from tests.conftest import ROOT
from tests.each import each
from tests.filter.samples import SAMPLES

TEXT = (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


EXAMPLES = [line for block in blocks("filter") for line in block.splitlines() if line and not line.startswith("# ")]
COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]
MISTAKES = blocks("error")
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL))
OPERATOR = re.compile(r"[a-z_\"\]] (?:==|!=|<=|>=|<|>|~|in|matches|contains|startswith|endswith|like) \S")


@each("expression", EXAMPLES)
def test_example_selects_some_samples_and_not_others(expression: str) -> None:
    compiled = filters.compile(expression)
    answers = {compiled.matches(event) for event in SAMPLES.values()}
    assert answers == {True, False}


@pytest.mark.parametrize("line", COMMANDS)
def test_filter_of_a_command_line_compiles(line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "mqttscope"
    compiled = filters.compile(words[words.index("--filter") + 1])
    assert any(compiled.matches(event) for event in SAMPLES.values())


@pytest.mark.parametrize("shown", MISTAKES, ids=[block.splitlines()[1].strip() for block in MISTAKES])
def test_mistake_is_shown_as_documented(shown: str) -> None:
    with pytest.raises(FilterError) as caught:
        filters.compile(shown.splitlines()[1].strip())
    assert str(caught.value) == shown.rstrip("\n")


@pytest.mark.parametrize("expression", sorted({each for each in INLINE if OPERATOR.search(each)}))
def test_expression_in_running_text_compiles(expression: str) -> None:
    compiled = filters.compile(expression)
    for event in SAMPLES.values():
        assert isinstance(compiled.matches(event), bool)


def test_there_are_examples_of_all_sorts() -> None:
    assert len(EXAMPLES) > 60
    assert len(COMMANDS) > 1
    assert len(MISTAKES) > 1
    assert len([each for each in INLINE if OPERATOR.search(each)]) > 5


def test_every_field_in_the_first_column_of_a_table_exists() -> None:
    rows = re.findall(r"^\| (`[a-z].*?) \|", TEXT, re.MULTILINE)
    words = {name for row in rows for name in re.findall(r"`([^`]+)`", row)} - set(WORD_OPERATORS) - {"exists", "~"}
    assert len(words) > 40
    for name in words:
        assert lookup(name) is not None, name


def test_every_field_of_events_packets_and_properties_is_documented() -> None:
    documented = set(INLINE)
    fields = {common_field.name for common_field in common_fields()}
    fields |= {row.name for cls in PACKETS.values() for row in cls.declaration}
    fields |= {row.name for row in PROPERTIES}
    assert fields - documented == set()


def test_every_operator_and_unit_is_documented() -> None:
    for sign in (*SYMBOLS, *WORD_OPERATORS, "exists"):
        assert f"`{sign}`" in TEXT
    values = TEXT[TEXT.index("# Sizes") : TEXT.index("# Text, in single")]
    for unit in (*SIZES, *DURATIONS):
        assert re.search(rf"\b{unit}\b", values, re.IGNORECASE), unit
