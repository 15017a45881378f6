"""Drives the browser as a user does: keys and the mouse in, what stands on the screen out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from mqttscope.browse.app import Browser
from mqttscope.browse.building import IndexFiller
from mqttscope.browse.settings import BrowserSettings
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
        """Press keys, and wait for the answer of the browser to each."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Type a text."""
        await self.press(*(NAMES.get(character, character) for character in text))

    async def settle(self) -> None:
        """Wait until everything is read, looked through and drawn."""
        for _ in range(int(SECONDS / 0.01)):
            await self.pilot.pause(0.01)
            if self.browser.is_settled and self._is_drawn:
                return
        raise AssertionError(f"the browser does not come to rest:\n{self.text}")

    @property
    def _is_drawn(self) -> bool:
        """Whether no message waits and no widget has to be drawn again; after the end there is no screen."""
        if self.browser._exit:
            return True
        screen = self.browser.screen
        if any(node.message_queue_size for node in (self.browser, *screen.walk_children(with_self=True))):
            return False
        is_dirty = screen._layout_required or screen._scroll_required or screen._repaint_required
        return not (is_dirty or screen._dirty_widgets or screen._callbacks)

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
    filling: IndexFiller | None = None, **more: Any,
) -> Browser:  # fmt: skip
    """Browse captures, or what ``filling`` fills, take some steps, and leave."""

    async def run() -> Browser:
        filler = filling or builder(*paths, lint=lint)
        opened = BrowserSettings(
            paths[0].parent.name if paths else "", filler, view or View(colour=True, time="relative"), **more
        )
        browser = Browser(opened)
        async with browser.run_test(size=size) as pilot:
            driver = Driver(browser, pilot)
            await driver.settle()
            await steps(driver)
        filler.stop()
        return browser

    return asyncio.run(run())
