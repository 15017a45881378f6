"""Topics where there is little room: what all of them have in common goes first, their last level stays."""

from __future__ import annotations

from mqttscope.report.escape import cells
from mqttscope.report.style import Painter

MAX_LEVELS = 32
"""Levels that are compared between topics; deeper ones are one text."""
SHORTEST_LEVEL = 5
"""Columns that a level keeps that differs between topics."""


class TopicNames:
    """Remembers, level by level, whether the topics so far differ in it."""

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._common: list[str | None] = []
        """What all topics so far have at a level; ``None`` where they differ."""

    def learn(self, topic: str) -> None:
        """Take note of a topic."""
        common = self._common
        for at, level in enumerate(topic.split("/", MAX_LEVELS)):
            if at == len(common):
                common.append(level[:256])
            elif common[at] is not None and common[at] != level[:256]:
                common[at] = None

    def short(self, topic: str, room: int) -> str:
        """A topic as escaped text in at most ``room`` columns.

        Levels that are the same in all topics are left out first, the longest of them before others; then the ones
        that differ are shortened.  The last level is kept as long as it fits, if it is not the same everywhere too.
        """
        painter = self.painter
        if len(topic) > 16 * room:
            return painter.name(topic, room)
        levels = topic.split("/", MAX_LEVELS)
        shown = [painter.safe(level) for level in levels]
        if len(shown) > 1:
            same = [
                at for at, level in enumerate(levels[:-1]) if at < len(self._common) and self._common[at] == level[:256]
            ]
            for at in sorted(same, key=lambda at: -cells(shown[at])):
                shown[at] = painter.ellipsis
                if cells(text := self._joined(shown)) <= room:
                    return text
            for at in range(len(shown) - 1):
                if at not in same:
                    shown[at] = painter.name(levels[at], SHORTEST_LEVEL)
                    if cells(text := self._joined(shown)) <= room:
                        return text
            at = len(levels) - 1
            last, before = f"{painter.ellipsis}/{shown[-1]}", f"{self._joined(shown[:-1])}/"
            differs = at >= len(self._common) or self._common[at] is None
            if differs and cells(last) <= room:
                return last
            left = room - cells(before)
            if left >= SHORTEST_LEVEL - 1:
                return before + painter.name(levels[-1], left)
            if cells(last) <= room:
                return last
        return painter.name(topic, room)

    def _joined(self, shown: list[str]) -> str:
        """Levels as one text; neighbours that were left out are one."""
        ellipsis = self.painter.ellipsis
        kept = [one for at, one in enumerate(shown) if one != ellipsis or not at or shown[at - 1] != ellipsis]
        return "/".join(kept)
