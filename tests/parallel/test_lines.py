"""Lines that several processes make: those of one, byte for byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from mqttscope import filter as filters
from mqttscope.api.reading import select
from mqttscope.parallel.lines import SHARES
from mqttscope.parallel.walk import IndivisibleError
from tests.each import each, some
from tests.parallel.shared import CAPTURES, by_one, by_several, items_of, mixture


@pytest.mark.parametrize("form", SHARES)
@each("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_every_capture_gives_the_same_lines(path: Path, form: str) -> None:
    items = items_of(path)
    alone = by_one(items, form)

    assert alone
    assert by_several(items, form, 2 if form == "text" else 3)[0] == alone


@pytest.mark.parametrize("form", some(SHARES, 4))
def test_all_captures_together_give_the_same_lines(form: str) -> None:
    items = items_of(*CAPTURES)

    assert by_several(items, form, 3)[0] == by_one(items, form)


@pytest.mark.parametrize("form", SHARES)
@pytest.mark.parametrize("seed", some(range(6), 3))
def test_damage_copies_disorder_and_time_outs_give_the_same_lines(form: str, seed: int) -> None:
    items = mixture(seed)

    try:
        assert by_several(items, form, 2 + seed % 2)[0] == by_one(items, form)
    except IndivisibleError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("form", SHARES)
@pytest.mark.parametrize(
    "asked", some(["type == publish and qos > 0", 'client_identifier like "p"', "type == puback", "malformed"], 4)
)
def test_a_filter_leaves_the_same_lines_with_the_same_numbers(form: str, asked: str) -> None:
    items = items_of(*CAPTURES)
    chosen = partial(select, wanted=filters.compile(asked), connections=(), limit=None)
    alone = by_one(items, form, chosen)

    assert alone
    assert by_several(items, form, 2, chosen)[0] == alone
