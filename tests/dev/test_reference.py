"""The pages of reference name everything that the program takes, and nothing else."""

from __future__ import annotations

import re
import tomllib

from tests import tools

tools.package("pyarrow")

import click

from mqttscope.dev import generate, reference
from mqttscope.dev.reference import MANY_WORDS
from mqttscope.filter import Filter
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.config import LINT_KEYS, parse
from mqttscope.mutate import catalogue
from mqttscope.payloads.settings import KEYS


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    return [re.split(r" *(?<!\\)\| *", line)[1:-1] for line in page.splitlines() if line.startswith("| `")]


def test_every_field_of_the_page_is_one_of_filters() -> None:
    texts = [row[0].strip("`") for row in rows(reference.filter_fields())]

    assert len(texts) == len(set(texts)) > 400
    for name in texts:
        Filter(f"exists {name}")
    assert {"publish.topic_name", "topic", "will_topic", "client.address", "malformed.reason"} <= set(texts)


def test_words_are_those_that_a_field_takes() -> None:
    words = {row[0].strip("`"): re.findall("`([^`]*)`", row[2]) for row in rows(reference.filter_fields())}

    assert words["transport"] == ["tcp", "websocket", "tls"]
    for name, those in words.items():
        assert len(those) <= MANY_WORDS
        for word in those:
            Filter(f"{name} == {word}")


def test_every_mutation_is_on_the_page() -> None:
    page = reference.mutations()
    listed = {f"{row[0].strip('`')}:{change}" for row in rows(page) for change in re.findall("`([^`]*)`", row[1])}

    assert listed == {mutation.name for mutation in catalogue()}
    assert "| `publish` | `qos-3` |" in page
    assert "breaks MQTT-3.3.1-4; close with 0x81" in page


def test_every_key_of_the_configuration_is_on_the_page() -> None:
    lint = generate.find_command("lint")
    page = reference.configuration(lint)
    texts = [row[0].strip("`") for row in rows(page)]

    assert texts == [*LINT_KEYS, *KEYS, "words"]
    assert '| `fail-on` | `"error"`, `"warning"`, `"info"` | Lowest severity that fails the run.' in page
    assert isinstance(lint, click.Command)


def test_defaults_of_rules_are_what_a_configuration_may_say() -> None:
    page = reference.configuration(generate.find_command("lint"))
    result = re.findall(r"^\| \[(\w+)\]\(rules/\w+\.md\) \| `([\w-]+)` \| `(.*?)` \| .*\|$", page, re.M)

    assert {code for code, _, _ in result} == {code for code, rule in all_rules().items() if rule.settings}
    tables = "\n".join(f"[rules.{code}]\n{name} = {value}" for code, name, value in dict.fromkeys(result))
    for code, name, value in result:
        document = tomllib.loads(f"[rules.{code}]\n{name} = {value}")
        assert parse(document).settings[code] == document["rules"][code]
    assert "[rules.TOP104]\nlevels = " in tables
