"""Long work in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from mqttscope.broker_test.turns import unhurried


def counting(number: int) -> Generator[None, None, int]:
    for _ in range(number):
        yield
    return number


def test_others_get_their_turns() -> None:
    async def run() -> tuple[int, list[int]]:
        turns: list[int] = []

        async def other() -> None:
            for number in range(5):
                turns.append(number)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        found = await unhurried(counting(20))
        await task
        return found, turns

    assert asyncio.run(run()) == (20, [0, 1, 2, 3, 4])
