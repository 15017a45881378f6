"""The order of deliveries, as far as one is promised."""

from __future__ import annotations

import pytest

from tests.replay.talk import (
    ALL,
    OPENED,
    Different,
    Equal,
    check,
    delivered,
)

DIFFERENT: Different = {
    "an order": (delivered(*ALL), delivered(ALL[2], ALL[1], ALL[0]), [("order", "", 0)]),
}

EQUAL: Equal = {
    "order across topics": (delivered(*ALL), delivered(ALL[1], ALL[0], ALL[2])),
    "two clients overtake each other": (
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a one\nsub < publish t/a two",
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a two\nsub < publish t/a one",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    check(*EQUAL[name], [])
