"""Folds the ends of one stop of a server into one event."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS
from mqttscope.explain.model import Cause, Certainty, Evidence, Explanation
from mqttscope.report.base import Sink

MAX_NAMED = 8
_COUNTED = re.compile(r"it ended (?:[\w, ]+ connections together|the connection)")


@dataclass(slots=True)
class Restart:
    """Connections of one server that a stop of it ended."""

    first: Explanation
    from_ns: int
    until_ns: int
    count: int = 0
    named: list[Explanation] = field(default_factory=list)
    """The first of them."""
    back: int = 0
    """Clients that came back."""
    first_back: Evidence | None = None

    def add(self, one: Explanation) -> None:
        """One more connection that ended."""
        self.count += 1
        self.from_ns, self.until_ns = min(self.from_ns, one.ended_ns), max(self.until_ns, one.ended_ns)
        if one.first.certainty.rank > self.first.first.certainty.rank:
            self.first = one
        if len(self.named) < MAX_NAMED:
            self.named.append(one)
        if one.came_back is not None:
            self.back += 1
            if self.first_back is None or (one.came_back.timestamp_ns or 0) < (self.first_back.timestamp_ns or 0):
                self.first_back = one.came_back

    @property
    def title(self) -> str:
        return f"{self.count:,} connections to {self.first.server}"

    @property
    def headline(self) -> str:
        """What happened to all of them."""
        first = self.first.first
        if first.certainty is Certainty.CERTAIN:
            return first.headline
        return _COUNTED.sub(f"it ended {self.count:,} connections together", first.headline)

    @property
    def lasted(self) -> str:
        return f"ended within {describe.span(self.until_ns - self.from_ns)}"

    @property
    def reasons(self) -> tuple[Evidence, ...]:
        found = (one for one in self.first.first.reasons if not one.text.startswith("the broker ended "))
        return tuple(replace(one, text=f"#{self.first.connection}: {one.text}") for one in found)

    @property
    def afterwards(self) -> tuple[Evidence, ...]:
        """How many came back, and the first of them."""
        if self.first_back is None:
            return ()
        verb = "client" if self.back == 1 else "clients"
        return (replace(self.first_back, text=f"{self.back:,} {verb} came back, the first at this time"),)

    @property
    def more(self) -> int:
        return self.count - len(self.named)


class Restarts:
    """Events that may get more connections."""

    def __init__(self) -> None:
        self._open: dict[str, Restart] = {}
        """By the endpoint of the server."""

    def takes(self, one: Explanation) -> bool:
        """Whether a connection belongs to an event; it is noted then."""
        if one.cause is not Cause.SERVER_RESTART:
            return False
        known = self._open.get(one.server)
        if known is None:
            known = self._open[one.server] = Restart(one, one.ended_ns, one.ended_ns)
        known.add(one)
        return True

    def due(self, now_ns: int | None = None) -> Iterator[Restart]:
        """Events that are complete when ends of this time are told; all without a time."""
        for server, one in list(self._open.items()):
            if now_ns is None or abs(now_ns - one.until_ns) > MOMENT_NS:
                del self._open[server]
                yield one


class Folding:
    """A report that tells connections which one stop of a server ended as one, unless ``every`` end was asked for."""

    def __init__(self, sink: Sink, *, every: bool) -> None:
        self.sink = sink
        self.every = every
        self.shown: Counter[Cause] = Counter()
        self._restarts = Restarts()

    def feed(self, explanation: Explanation) -> None:
        """Write one explanation, or take note of it."""
        self.shown[explanation.cause] += 1
        if not self.every:
            self.tell_restarts(explanation.ended_ns)
            if self._restarts.takes(explanation):
                return
        self.tell(explanation)

    def tell_restarts(self, now_ns: int | None = None) -> None:
        """Write the stops that are complete when ends of this time are told; all without a time."""
        for event in self._restarts.due(now_ns):
            if event.count == 1:
                self.tell(event.first)
            else:
                self.tell_restart(event)

    def tell(self, explanation: Explanation) -> None:
        """Write one explanation."""
        raise NotImplementedError

    def tell_restart(self, event: Restart) -> None:
        """Write one stop of a server."""
        raise NotImplementedError
