"""What may come next in an expression."""

from __future__ import annotations

import pytest

from mqttscope import filter as filters
from mqttscope.filter.completion import complete
from tests.each import each


@each(
    "text, words",
    [
        ("typ", ["type"]),
        ("type ", ["==", "in", "contains", "startswith", "endswith", "like", "not in", "and", "or"]),
        ("type == pub", ["puback", "pubcomp", "publish", "pubrec", "pubrel"]),
        ("type in {publish, pubr", ["pubrec", "pubrel"]),
        ("publish a", ["and"]),
        ("publish and dup == ", ["true", "false"]),
        ("version == 3", ["3.1", "3.1.1"]),
        ("topic m", ["matches"]),
        ("== topic ", ["and", "or"]),
        ("exists will_t", ["will_topic"]),
        ("qos == 1 o", ["or"]),
        ("qos == 1 ", ["and", "or"]),
        ('topic == "a', []),
        ("qos = ", []),
        ("nothing_like_it", []),
        ("client_identifier == ", []),
        ("fier ==", []),
    ],
)
def test_words_that_fit(text: str, words: list[str]) -> None:
    texts = complete(text).words

    assert texts[: len(words)] == words if words == ["type"] else sorted(texts) == sorted(words)


def test_the_word_that_was_begun_is_replaced() -> None:
    completion = complete("publish and top")

    assert completion.start == len("publish and ")
    assert completion.words[0] == "topic"
    assert complete("publish ").start == len("publish ")


def test_every_field_can_be_begun_with() -> None:
    words = complete("").words

    assert {"not", "exists", *filters.names()} == set(words)
    # A part of a name is enough where none begins with it.
    assert "client_identifier" in complete("identifier").words


def test_what_is_offered_can_be_written() -> None:
    for word in filters.names():
        for operator in complete(f"{word} ").words:
            if operator in ("and", "or"):
                continue
            # All but the value is right: the place of the mistake is the end.
            text = f"{word} {operator} "
            with pytest.raises(filters.FilterError) as caught:
                filters.compile(text)
            assert caught.value.position >= len(text.rstrip())
