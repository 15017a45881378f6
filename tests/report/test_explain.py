"""Rules in words."""

from __future__ import annotations

import pytest

from mqttscope.lint.catalogue import find
from mqttscope.lint.finding import Confidence, Scope
from mqttscope.lint.rule import Needs
from mqttscope.report import explain

UTF8, SECOND, QOS = find("ENC101"), find("CON212"), find("PUB209")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", ""),
        ("client", "of the client"),
        ("client publish", "PUBLISH of the client"),
        ("connect.client_identifier", "client_identifier of CONNECT"),
        ("any.properties.user_property", "properties.user_property of any packet"),
        ("server suback, server unsuback", "SUBACK of the server or UNSUBACK of the server"),
    ],
)
def test_where_a_statement_applies(where: str, words: str) -> None:
    assert explain.in_words(where) == words


def test_statements_come_newest_version_first_and_partly_seen_ones_last() -> None:
    pairs = [(cited_statement.statement.version, cited_statement.partly) for cited_statement in explain.cited(SECOND)]
    assert pairs == [("5.0", True), ("3.1.1", True), ("3.1", False)]
    where = {cited_statement.statement.key: cited_statement.where for cited_statement in explain.cited(UTF8)}
    assert where["5.0 MQTT-3.1.3-12"] == "user_name of CONNECT"


def test_facts_and_help() -> None:
    assert explain.versions(UTF8) == "3.1, 3.1.1, 5.0"
    assert explain.area(QOS) == "publish"
    assert explain.needs(QOS) == ["the CONNECT and the answer to it"]
    assert explain.needs(UTF8) == []
    assert explain.is_on(UTF8)
    assert explain.activation_note(UTF8) == ""
    assert explain.help_text(SECOND).startswith("A client sends CONNECT twice on one connection.\n\n")
    assert "\n\n* **5.0 MQTT-3.1.0-2** (section 3.1): " in explain.help_markdown(SECOND)
    assert explain.markdown("a*b ``x_y`` <c> [d]") == "a\\*b `x_y` \\<c\\> \\[d\\]"


def test_every_word_of_a_rule_has_words_for_people() -> None:
    assert set(explain.CONFIDENCES) == set(Confidence)
    assert set(explain.SCOPES) == set(Scope)
    whole = Needs.NOTHING
    for need in explain.NEEDS:
        whole |= need
    assert whole == ~Needs.NOTHING
