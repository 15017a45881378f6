import re
from dataclasses import dataclass, field
from typing import TypeVar

from mqttscope.lint.rules import Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.mqtt.packets import Publish

T = TypeVar("T")
MAX_SHAPES = 500
"""Maximum number of topic patterns kept per connection."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_TIME = re.compile(
    r"(?:1[2-9]|20)\d{8}(?:\d{3}|\d{6}|\d{9})?"  # since 1970, from 2008 on
    r"|20\d\d-?[01]\d-?[0-3]\d[T_-]?[0-2]\d[:-]?[0-5]\d(?:[:-]?[0-5]\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
)
_NUMBERS = re.compile(r"\d+")
_INTERESTING = re.compile(r"(?:^|/)\d+(?:/|$)|\d{4}-|\d{8}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")
"""A quick pattern that every reported level matches."""


@dataclass(slots=True)
class CounterRun:
    """Topics of one pattern with a number that may be a counter."""

    last: int
    run: int = 1
    """How many consecutive numbers there were."""


@dataclass(slots=True)
class TopicShapes:
    """Topic patterns: topics without the changing level."""

    reported: dict[str, bool] = field(default_factory=dict)
    counting: dict[str, CounterRun] = field(default_factory=dict)


class IdentityInTopic(Rule):
    """A topic level differs in every message: a time, a UUID or a counter.

    Such topics never repeat.  Clients cannot subscribe to a single one, Topic Aliases are useless, every retained
    message stays forever, and servers that store data per topic fill up.  A UUID that is part of the Client Identifier
    names the device and is not reported.  Each topic pattern is reported once per connection.

    Instead, put the time or number of a message into its payload or properties.
    """

    code = "TOP108"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    settings = {
        # Minimum number of consecutive numbers that count as a counter.
        "counter": 20,
    }
    Memory = TopicShapes

    good = examples("""
        a stable topic
            opened; > publish dev/1/temp x
        the UUID of the device
            opened client=meter-0b0e7c1a-3f5d-4c7e-9a5b-1f2e3d4c5b6a
            > publish dev/0b0e7c1a-3f5d-4c7e-9a5b-1f2e3d4c5b6a/temp x
        a few numbered devices behind a gateway
            opened
            > for 0..18: publish dev/{n}/temp & for 0..18: publish dev/{n}/temp & for 0..18: publish dev/{n}/temp &
                publish dev/0/temp & publish dev/1/temp & publish dev/2/temp
        serial numbers of other lengths
            opened; > publish dev/170000000/temp & publish dev/490154203237518/temp
    """)
    bad = examples("""
        a time, reported once for its pattern
            opened; > publish dev/1/1700000000123 x !topic_name; > publish dev/1/1700000000456 x
        a date
            opened; > publish log/2026-01-02T03:04:05Z/x !topic_name
        a UUID
            opened; > publish msg/550e8400-e29b-41d4-a716-446655440000 x !topic_name
        a counter
            opened; > for 0..18: publish msg/{n} & publish msg/19 !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check the levels of topics with numbers."""
        topic = packet.topic_name
        if not topic or _INTERESTING.search(topic) is None:
            return None
        memory: TopicShapes = at.memory(self)
        levels = topic.split("/")
        for index, level in enumerate(levels):
            content = self._identity(level, at)
            if not content and level.isascii() and level.isdigit() and len(level) < 20:
                content = self._counter(memory, "/".join((*levels[:index], "*", *levels[index + 1 :])), int(level))
            if content:
                shape = _NUMBERS.sub("*", "/".join((*levels[:index], "*", *levels[index + 1 :])))
                if shape in memory.reported:
                    return None
                _store(memory.reported, shape, True)
                text = f"topic {shown(topic)} changes with every message (contains {content})"
                return self.report("topic_name", text)
        return None

    def _identity(self, level: str, at: RuleContext) -> str:
        if len(level) >= 10:
            if _TIME.fullmatch(level):
                return "a time"
            uuid = _UUID.search(level)
            if uuid is not None and uuid[0].lower() not in (at.connection.client_identifier or "").lower():
                return "a UUID"
        return ""

    def _counter(self, memory: TopicShapes, shape: str, number: int) -> str:
        before = memory.counting.get(shape)
        if before is None:
            _store(memory.counting, shape, CounterRun(number))
            return ""
        if number != before.last:
            before.run = before.run + 1 if number == before.last + 1 else 1
            before.last = number
        return "a counter" if before.run >= self.set["counter"] else ""


def _store(table: dict[str, T], key: str, value: T) -> None:
    """Store an entry, and drop the oldest one if there are too many."""
    table[key] = value
    forget_oldest(table, MAX_SHAPES)
