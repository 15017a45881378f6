"""Pages made of the rules."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from tests import tools

tools.package("pyarrow")

from markdown_it import MarkdownIt

from mqttscope.dev.generate import CONFORMANCE, FOLDER, pages
from mqttscope.lint.catalogue import all_rules, coverage, find
from mqttscope.report.explain import cited


@pytest.fixture(scope="module")
def generated() -> dict[PurePosixPath, str]:
    """All pages by path, below the checkout."""
    return pages()


def test_a_page_for_every_rule_an_index_of_them_and_the_conformance(generated: dict[PurePosixPath, str]) -> None:
    assert {path.stem for path in generated if path.parent == FOLDER} == {*all_rules(), "README"}
    assert CONFORMANCE in generated
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\)", generated[FOLDER / "README.md"], re.M) == list(all_rules())


def test_a_page_has_everything_of_its_rule(generated: dict[PurePosixPath, str]) -> None:
    rule = find("PUB209")
    text = generated[FOLDER / "PUB209.md"]

    assert text.startswith("# PUB209 qos-exceeds-maximum\n\nA client publishes with a higher QoS than")
    assert "| reason code | 0x9B QoS not supported |" in text
    assert "Instead, wait for the CONNACK" in text
    for cited_statement in cited(rule):
        assert f"| {cited_statement.statement.key} | {cited_statement.statement.section} |" in text
    for example in (*rule.bad, *rule.good):
        assert f"{example.title[1:]}:" in text
    assert "^ PUB209 error: PUBLISH 'a' has QoS 2" in text


def test_settings_are_shown_as_the_configuration_has_them(generated: dict[PurePosixPath, str]) -> None:
    for code, rule in all_rules().items():
        text = generated[FOLDER / f"{code}.md"]
        assert (f"[rules.{code}]\n" in text) == bool(rule.settings)
        for name in rule.settings:
            assert f"\n{name} = " in text


def test_conformance_has_every_statement_and_links_that_lead_somewhere(generated: dict[PurePosixPath, str]) -> None:
    text = generated[CONFORMANCE]

    for row in coverage():
        assert f"| {row.statement.identifier} | {row.statement.section} |" in text
    assert set(re.findall(r"\(rules/(\w+)\.md\)", text)) <= set(all_rules())


def test_every_table_is_one(generated: dict[PurePosixPath, str]) -> None:
    reader = MarkdownIt("commonmark").enable("table")
    for path, text in generated.items():
        shown = reader.render(text)
        assert "|---" not in shown, path
        assert "<p>|" not in shown, path
