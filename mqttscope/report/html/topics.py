"""Topics as a tree that opens level by level, with messages, rates and bytes of each level and all levels below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mqttscope.report.html.charts import share_bar
from mqttscope.report.html.pieces import paragraph, short
from mqttscope.report.numbers import number, per_second, plural, size
from mqttscope.secrets.credentials import starred_name

MAX_TOPICS = 1_000
"""Maximum number of topics in the tree, busiest first; further ones are counted."""
MAX_LEVELS = 32
"""Maximum depth of the tree; deeper levels are joined."""
MAX_OPEN = 30
"""Maximum number of lines that are open at first."""


@dataclass(slots=True)
class TopicAmount:
    """A topic with its messages and their bytes, both directions together."""

    name: str
    messages: int
    bytes: int


@dataclass(slots=True)
class _TopicLevel:
    messages: int = 0
    bytes: int = 0
    below: dict[str, _TopicLevel] = field(default_factory=dict)
    ends: bool = False
    """Whether a topic ends at this level."""


def topic_tree(topics: Iterable[TopicAmount], duration_ns: int) -> str:
    """The tree, with rates over the duration; empty without topics."""
    busiest = sorted(topics, key=lambda topic: (-topic.messages, topic.name))
    root = _TopicLevel()
    for topic in busiest[:MAX_TOPICS]:
        level = root
        for name in starred_name(topic.name).split("/", MAX_LEVELS - 1):
            level.messages += topic.messages
            level.bytes += topic.bytes
            level = level.below.setdefault(name, _TopicLevel())
        level.messages += topic.messages
        level.bytes += topic.bytes
        level.ends = True
    if not root.below:
        return ""
    head = "".join(f"<span{_NUMBER}>{title}</span>" for title in ("messages", "per s", "bytes"))
    out = [f'<div class="topics"><div class="leaf head"><span>topic</span>{head}<span></span></div>']
    _TopicTreeWriter(out, root.messages, duration_ns).write(root)
    left = len(busiest) - MAX_TOPICS
    more = f"And {plural(left, 'topic')} more, with fewer messages." if left > 0 else ""
    return "".join([*out, "</div>", paragraph(more)])


_NUMBER = ' class="number"'


class _TopicTreeWriter:
    """Writes levels, busiest first."""

    def __init__(self, out: list[str], total: int, duration_ns: int) -> None:
        self._out = out
        self._total = total
        self._duration_ns = duration_ns
        self._lines = 0

    def write(self, level: _TopicLevel) -> None:
        """Write all levels below a level."""
        for first, below in sorted(level.below.items(), key=lambda row: (-row[1].messages, row[0])):
            # A chain of levels without siblings is one line.
            name, last = first, below
            while len(last.below) == 1 and not last.ends:
                ((further, last),) = last.below.items()
                name += f"/{further}"
            cells = self._cells(name + ("/" if last.below and not last.ends else ""), last)
            self._lines += 1
            if not last.below:
                self._out.append(f'<div class="leaf">{cells}</div>')
                continue
            opened = " open" if self._lines + len(last.below) <= MAX_OPEN else ""
            self._out.append(f"<details{opened}><summary>{cells}</summary>")
            self.write(last)
            self._out.append("</details>")

    def _cells(self, name: str, level: _TopicLevel) -> str:
        seconds = self._duration_ns / 1e9
        rate = per_second(level.messages / seconds) if seconds > 0 else ""
        amounts = number(level.messages), rate, size(level.bytes)
        cells = "".join(f"<span{_NUMBER}>{amount}</span>" for amount in amounts)
        return f'<span class="name">{short(name)}</span>{cells}{share_bar([level.messages / max(1, self._total)])}'
