"""What several ends are together: the first five lines of a report, and one event for one stop of a server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS
from mqttscope.explain.causes.case import RETURN_NS
from mqttscope.explain.causes.mqtt import GONE_NS
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence, Explanation
from mqttscope.report.base import Sink
from mqttscope.report.explanations.base import TITLES, spoken
from mqttscope.report.numbers import plural

MAX_NAMED = 8
MAX_CLIENTS = 100_000
"""Clients that are counted by name."""
MAX_TOLD = 5
"""Clients and causes that the first lines name."""
MAX_KEPT_BYTES = 1 << 20
"""Bytes of a report that are kept in memory."""
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
    versions: set[str] = field(default_factory=set)
    """What the connections spoke."""
    refused: list[Evidence] = field(default_factory=list)
    """The first and the last attempt to connect that was refused."""
    refusals: int = 0
    """How many were."""

    def add(self, one: Explanation) -> None:
        """One more connection that ended."""
        self.count += 1
        self.versions.add(spoken(one))
        self.from_ns, self.until_ns = min(self.from_ns, one.ended_ns), max(self.until_ns, one.ended_ns)
        if one.first.certainty.rank > self.first.first.certainty.rank:
            self.first = one
        if len(self.named) < MAX_NAMED:
            self.named.append(one)
        if one.came_back is not None:
            self.back += 1
            if self.first_back is None or (one.came_back.timestamp_ns or 0) < (self.first_back.timestamp_ns or 0):
                self.first_back = one.came_back

    def refuse(self, one: Explanation) -> None:
        """An attempt to connect was refused."""
        self.refusals += 1
        place = Evidence("", one.ended_frame, one.ended_ns, one.ended_capture)
        self.refused = [*self.refused[:1], place]

    @property
    def last_ns(self) -> int:
        """When it was noticed last."""
        return max(self.until_ns, *(one.timestamp_ns or 0 for one in self.refused)) if self.refused else self.until_ns

    @property
    def title(self) -> str:
        if not self.count:
            return f"{self.refusals:,} attempts to connect to {self.first.server}"
        return f"{self.count:,} connections to {self.first.server}"

    @property
    def spoken(self) -> str:
        """What the connections spoke: ``MQTT 3.1.1 and MQTT 5.0``."""
        return " and ".join(sorted(self.versions)) or spoken(self.first)

    @property
    def headline(self) -> str:
        """What happened to all of them."""
        first = self.first.first
        if first.certainty is Certainty.CERTAIN or not self.count:
            return first.headline
        return _COUNTED.sub(f"it ended {self.count:,} connections together", first.headline)

    @property
    def lasted(self) -> str:
        until_ns = self.until_ns if self.count else self.last_ns
        return f"ended within {describe.span(until_ns - self.from_ns)}"

    @property
    def reasons(self) -> tuple[Evidence, ...]:
        found = (one for one in self.first.first.reasons if not one.text.startswith("the broker ended "))
        return tuple(replace(one, text=f"#{self.first.connection}: {one.text}") for one in found)

    @property
    def afterwards(self) -> tuple[Evidence, ...]:
        """Refused attempts, how many came back, and the first of them."""
        told = []
        if self.refused and self.count:
            attempts = plural(self.refusals, "attempt")
            told.append(replace(self.refused[0], text=f"{attempts} to connect refused, the first at this time"))
            if self.refusals > 1:
                told.append(replace(self.refused[-1], text="the last of them"))
        if self.first_back is not None:
            missing = self.count - self.back
            others = f"; {missing:,} did not within two minutes" if missing else ""
            clients = plural(self.back, "client")
            told.append(replace(self.first_back, text=f"{clients} came back, the first at this time{others}"))
        return tuple(sorted(told, key=lambda one: one.timestamp_ns or 0))

    @property
    def more(self) -> int:
        return self.count - len(self.named)


class Restarts:
    """Events that may get more connections."""

    def __init__(self) -> None:
        self._open: dict[str, list[Restart]] = {}
        """By the endpoint of the server."""

    def takes(self, one: Explanation) -> bool:
        """Whether a connection belongs to an event; it is noted then."""
        events = self._open.setdefault(one.server, [])
        if one.cause is Cause.NOT_LISTENING:
            for known in reversed(events):
                back = known.first_back
                if back is not None and one.ended_ns > (back.timestamp_ns or 0):
                    continue  # it took clients before: what refused this one is another event
                if known.from_ns <= one.ended_ns <= known.last_ns + GONE_NS:
                    known.refuse(one)
                    return True
            events.append(made := Restart(one, one.ended_ns, one.ended_ns))
            made.refuse(one)
            return True
        if one.cause is not Cause.SERVER_RESTART:
            return False
        for known in events:
            if known.from_ns - MOMENT_NS <= one.ended_ns <= known.until_ns + MOMENT_NS:
                known.add(one)
                return True
        events.append(made := Restart(one, one.ended_ns, one.ended_ns))
        made.add(one)
        return True

    def due(self, now_ns: int | None = None) -> Iterator[Restart]:
        """Events that are complete when ends of this time are told; all without a time.

        Explanations come in the order in which their connections are over, which is up to `RETURN_NS` after their ends.
        """
        for server, events in list(self._open.items()):
            done = [one for one in events if now_ns is None or now_ns - one.last_ns > RETURN_NS]
            self._open[server] = [one for one in events if one not in done]
            yield from done


@dataclass(slots=True)
class _OneCause:
    """Ends with one cause."""

    first: Candidate
    count: int = 0
    clients: set[str] = field(default_factory=set)


class FirstLines:
    """Feed it each end in trouble, then ask for its `lines`."""

    def __init__(self) -> None:
        self._kinds: dict[Cause, _OneCause] = {}
        self._clients: dict[str, None] = {}
        self._beyond = 0
        """Ends of clients beyond `MAX_CLIENTS`."""
        self._from_ns: int | None = None
        self._until_ns = 0

    def add(self, one: Explanation) -> None:
        """Count an end, unless it is an ordinary one."""
        if one.is_quiet:
            return
        known = self._kinds.setdefault(one.cause, _OneCause(one.first))
        if one.first.certainty.rank > known.first.certainty.rank:
            known.first = one.first
        known.count += 1
        name = one.client_identifier or one.client.rpartition(":")[0]
        if name in self._clients or len(self._clients) < MAX_CLIENTS:
            self._clients[name] = None
            known.clients.add(name)
        else:
            self._beyond += 1
        self._from_ns = one.ended_ns if self._from_ns is None else min(self._from_ns, one.ended_ns)
        self._until_ns = max(self._until_ns, one.ended_ns)

    def lines(self, when: Callable[[int], str]) -> list[tuple[str, str]]:
        """Titles and sentences, with times in the words of ``when``; empty where nothing broke."""
        if not self._kinds or self._from_ns is None:
            return []
        # A server that has stopped refuses what comes: that is no cause of its own.
        refused = Cause.NOT_LISTENING if Cause.SERVER_RESTART in self._kinds else None
        kinds = sorted(
            self._kinds.items(),
            key=lambda one: (one[0] is refused, -len(one[1].clients), -one[1].count, -one[1].first.certainty.rank),
        )
        told = ", ".join(f"{kind.count:,} × {TITLES[cause]}" for cause, kind in kinds[:MAX_TOLD])
        more = "" if len(kinds) <= MAX_TOLD else f", {plural(len(kinds) - MAX_TOLD, 'other cause')}"
        total = sum(kind.count for _, kind in kinds)
        names = list(self._clients)
        named = ", ".join(names[:MAX_TOLD]) + (", …" if len(names) > MAX_TOLD else "")
        first = kinds[0][1].first
        since = when(self._from_ns)
        if self._until_ns != self._from_ns:
            since += f", the last at {when(self._until_ns)}"
        return [
            ("What broke", f"{plural(total, 'connection')}: {told}{more}"),
            ("Clients", f"{'at least ' if self._beyond else ''}{len(names):,}: {named}"),
            ("Since", since),
            ("Why", f"{first.certainty}: {first.headline}"),
            ("Look at", first.advice[0] if first.advice else "the ends below"),
        ]


class HeldOutput:
    """A sink that keeps what is written until the lines that go first are known; much of it in a file."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._kept = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Keep some bytes."""
        self._kept += data
        if len(self._kept) > MAX_KEPT_BYTES:
            self._file = self._file or TemporaryFile()  # noqa: SIM115
            self._file.write(self._kept)
            self._kept.clear()

    def release(self, first: bytes) -> None:
        """Write the first lines and all that was kept."""
        self._sink.write(first)
        if self._file is not None:
            self._file.seek(0)
            copyfileobj(self._file, self._sink)
            self._file.close()
        self._sink.write(bytes(self._kept))


class Folding:
    """A report that tells connections which one stop of a server ended as one, unless ``every`` end was asked for."""

    def __init__(self, sink: Sink, *, every: bool) -> None:
        self.sink = self._spool = HeldOutput(sink)
        self.every = every
        self.overview = FirstLines()
        self.shown: Counter[Cause] = Counter()
        self._restarts = Restarts()

    def feed(self, explanation: Explanation) -> None:
        """Write one explanation, or take note of it."""
        self.shown[explanation.cause] += 1
        self.overview.add(explanation)
        if not self.every:
            self.tell_restarts(explanation.ended_ns)
            if self._restarts.takes(explanation):
                return
        self.tell(explanation)

    def tell_restarts(self, now_ns: int | None = None) -> None:
        """Write the stops that are complete when ends of this time are told; all without a time."""
        for event in self._restarts.due(now_ns):
            if event.count + event.refusals == 1:
                self.tell(event.first)
            else:
                self.tell_restart(event)

    def release(self, first: bytes) -> None:
        """Write some lines, and all others after them."""
        self._spool.release(first)

    def tell(self, explanation: Explanation) -> None:
        """Write one explanation."""
        raise NotImplementedError

    def tell_restart(self, event: Restart) -> None:
        """Write one stop of a server."""
        raise NotImplementedError
