"""Topics as a tree that a reader opens level by level: messages, rates and bytes of a level with all below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mqttscope.report.html.pieces import note, short
from mqttscope.report.html.sheet import share_bar
from mqttscope.report.numbers import number, per_second, plural, size
from mqttscope.secrets.credentials import starred_name

MAX_TOPICS = 1_000
"""Topics in the tree, those with the most messages; further ones are counted."""
MAX_LEVELS = 32
"""Levels of a topic; deeper ones are one level."""
MAX_OPEN = 30
"""Lines that are open from the beginning."""


@dataclass(slots=True)
class Topic:
    """One topic, with its messages and their bytes in both directions."""

    name: str
    messages: int
    bytes: int


@dataclass(slots=True)
class _Level:
    messages: int = 0
    bytes: int = 0
    below: dict[str, _Level] = field(default_factory=dict)
    ends: bool = False
    """A topic ends here."""


def topic_tree(topics: Iterable[Topic], duration_ns: int) -> str:
    """The tree; rates are over the duration.  Empty without topics."""
    found = sorted(topics, key=lambda one: (-one.messages, one.name))
    root = _Level()
    for one in found[:MAX_TOPICS]:
        level = root
        for name in starred_name(one.name).split("/", MAX_LEVELS - 1):
            level.messages += one.messages
            level.bytes += one.bytes
            level = level.below.setdefault(name, _Level())
        level.messages += one.messages
        level.bytes += one.bytes
        level.ends = True
    if not root.below:
        return ""
    head = "".join(f"<span{_NUMBER}>{title}</span>" for title in ("messages", "per s", "bytes"))
    out = [f'<div class="topics"><div class="leaf head"><span>topic</span>{head}<span></span></div>']
    _Writer(out, root.messages, duration_ns).write(root)
    left = len(found) - MAX_TOPICS
    more = f"And {plural(left, 'topic')} more, none of them with more messages." if left > 0 else ""
    return "".join([*out, "</div>", note(more)])


_NUMBER = ' class="number"'


class _Writer:
    """Writes levels, the busiest first."""

    def __init__(self, out: list[str], total: int, duration_ns: int) -> None:
        self._out = out
        self._total = total
        self._duration_ns = duration_ns
        self._lines = 0

    def write(self, level: _Level) -> None:
        """Write everything below a level."""
        for first, below in sorted(level.below.items(), key=lambda one: (-one[1].messages, one[0])):
            # Levels with nothing beside them are one line.
            name, one = first, below
            while len(one.below) == 1 and not one.ends:
                ((further, one),) = one.below.items()
                name += f"/{further}"
            cells = self._cells(name + ("/" if one.below and not one.ends else ""), one)
            self._lines += 1
            if not one.below:
                self._out.append(f'<div class="leaf">{cells}</div>')
                continue
            opened = " open" if self._lines + len(one.below) <= MAX_OPEN else ""
            self._out.append(f"<details{opened}><summary>{cells}</summary>")
            self.write(one)
            self._out.append("</details>")

    def _cells(self, name: str, level: _Level) -> str:
        seconds = self._duration_ns / 1e9
        rate = per_second(level.messages / seconds) if seconds > 0 else ""
        told = "".join(f"<span{_NUMBER}>{one}</span>" for one in (number(level.messages), rate, size(level.bytes)))
        return f'<span class="name">{short(name)}</span>{told}{share_bar(level.messages / max(1, self._total))}'
