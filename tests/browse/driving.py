"""Drives the browser as a user does: keys and the mouse in, what stands on the screen out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from mqttscope.browse.app import Browser, Opened
from mqttscope.browse.building import Filling
from mqttscope.report.base import View
from tests.browse.made import builder

SIZE = (80, 24)
SECONDS = 30


class Driver:
    """The browser and what moves it."""

    def __init__(self, browser: Browser, pilot: Pilot[None]) -> None:
        self.browser = browser
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, and wait until the browser has answered."""
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """Type a text."""
        await self.pilot.press(*(NAMES.get(one, one) for one in text))
        await self.pilot.pause()

    async def settle(self) -> None:
        """Wait until all is read, looked through and shown."""
        for _ in range(int(SECONDS / 0.01)):
            await self.pilot.pause(0.01)
            if self.browser.is_settled:
                break
        await self.pilot.pause()

    async def until(self, part: str) -> None:
        """Wait until a text is on the screen, as long as a busy machine needs."""
        for _ in range(int(SECONDS / 0.05)):
            if part in self.text:
                break
            await self.pilot.pause(0.05)

    @property
    def screen(self) -> list[str]:
        """The lines that a user sees."""
        width, height = self.browser.size
        rows = self.browser.screen._compositor.render_strips()
        return ["".join(segment.text for segment in row)[:width] for row in rows][:height]

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self.screen)

    def line(self, part: str) -> str:
        """The first line that has a part."""
        return next((line for line in self.screen if part in line), "")

    @property
    def status(self) -> str:
        """The last line."""
        return self.screen[-1]


NAMES = {
    " ": "space", "/": "slash", "=": "equals_sign", "#": "number_sign", ".": "full_stop", "_": "underscore",
    "-": "minus", ":": "colon",
}  # fmt: skip
"""What textual calls keys that are no letters."""
Steps = Callable[[Driver], Awaitable[Any]]


def drive(
    steps: Steps, *paths: Path, size: tuple[int, int] = SIZE, lint: bool = False, view: View | None = None,
    filling: Filling | None = None, **more: Any,
) -> Browser:  # fmt: skip
    """Browse captures, or what ``filling`` fills, take some steps, and leave."""

    async def run() -> Browser:
        made = filling or builder(*paths, lint=lint)
        opened = Opened(paths[0].parent.name if paths else "", made, view or View(colour=True, time="relative"), **more)
        browser = Browser(opened)
        async with browser.run_test(size=size) as pilot:
            driver = Driver(browser, pilot)
            await driver.settle()
            await steps(driver)
        made.stop()
        return browser

    return asyncio.run(run())
