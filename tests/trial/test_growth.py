"""Memory over a whole run."""

from __future__ import annotations

import os

import pytest

from mqttscope.trial.growth import MAX_SAMPLES, Growth
from mqttscope.trial.process import Process

MIB = 1 << 20


def told(*sizes: float) -> str:
    made = Growth(None)
    for size in sizes:
        made.add(int(size * MIB))
    return made.told()


def test_memory_that_grows_all_the_time_is_told_of() -> None:
    assert told(*(50 + place / 5 for place in range(200))).startswith(
        "the broker's memory grew all the time, by 39 MiB while cases were played 200 times (203 KiB for each)"
    )


@pytest.mark.parametrize(
    "sizes",
    [
        [50] * 200,
        [50 + place for place in range(60)],  # too few
        [50 + place / 50 for place in range(200)],  # too little
        [50 + min(place, 40) for place in range(200)],  # a cache that was warmed up
        [50 + place % 50 for place in range(200)],  # a heap that is collected
    ],
)
def test_what_comes_to_an_end_is_no_growth(sizes: list[float]) -> None:
    assert told(*sizes) == ""


def test_a_long_run_is_sampled() -> None:
    made = Growth(None)
    for place in range(MAX_SAMPLES):
        made.add((50 << 20) + place * 10_000)

    assert f"played {MAX_SAMPLES:,} times" in made.told()


def test_a_process_is_looked_at() -> None:
    made = Growth(Process(os.getpid()))
    for _ in range(100):
        made.looked()

    assert made.told() == ""
    Growth(None).looked()
