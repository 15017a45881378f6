"""What a server changed of the properties of a message."""

from __future__ import annotations

import pytest

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.message_model import ForwardedProperties, PublishedMessage
from mqttscope.lint.properties_passed_on import PropertyDifference, doubt_of, is_unmarked
from mqttscope.lint.rule import V5

SENT = PublishedMessage(1, "a", 0, 0, 1, 0, "c1", ("x", 0, 0), 0, 0, "x", V5, 10, ())


def difference(before: ForwardedProperties, after: ForwardedProperties, *, is_sure: bool = True) -> PropertyDifference:
    return PropertyDifference(SENT, before, after, is_sure)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (((3, "t"),), (), [("content_type", "removed")]),
        ((), ((3, "t"),), [("content_type", "added")]),
        (((9, b"1"),), ((9, b"2"),), [("correlation_data", "changed")]),
        (((1, 1),), ((1, 0),), [("payload_format_indicator", "removed")]),
        (((1, 0),), (), []),
        (((8, "r"), (3, "t")), ((3, "t"), (8, "r")), []),
        (((3, "\ufefft"),), ((3, "t"),), []),
    ],
)
def test_changes_are_told_by_property(
    before: ForwardedProperties, after: ForwardedProperties, wanted: list[tuple[str, str]]
) -> None:
    assert list(difference(before, after).changes()) == wanted


def test_what_differs_by_the_mark_alone_is_told_apart() -> None:
    before: ForwardedProperties = ((3, "\ufefft"), (8, "r\ufeff"), (0x26, ("k\ufeff", "v")))
    after: ForwardedProperties = ((3, "t"), (8, "r"), (0x26, ("k", "v")))

    assert list(difference(before, after).unmarked()) == ["content_type", "response_topic", "user_property"]
    assert list(difference(before, before).unmarked()) == []
    assert list(difference(((0x26, ("k", "v")),), ()).unmarked()) == []


def test_a_mark_that_the_server_adds_is_none_that_it_drops() -> None:
    assert is_unmarked("\ufeffa", "a")
    assert not is_unmarked("a", "\ufeffa")
    assert not is_unmarked("\ufeffa", "b")
    assert not is_unmarked(b"\xef\xbb\xbf", b"")


def test_only_what_is_lost_of_this_very_message_is_an_error() -> None:
    assert doubt_of(difference((), ()), added=False) == {}
    assert doubt_of(difference((), ()), added=True) == {"severity": Severity.WARNING}
    unsure = doubt_of(difference((), (), is_sure=False), added=False)
    assert unsure == {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
