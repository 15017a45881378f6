"""Grouping of ends: the summary lines at the top of a report, and one event for one stop of a server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS
from mqttscope.explain.causes.case import RETURN_NS
from mqttscope.explain.causes.mqtt import GONE_NS
from mqttscope.explain.model import PLAIN, Candidate, Cause, Certainty, Evidence, Explanation, Totals, UnresolvedName
from mqttscope.report.base import Sink
from mqttscope.report.deferred import DeferredOutput
from mqttscope.report.explanations.base import TITLES, protocol_text
from mqttscope.report.numbers import plural

MAX_NAMED = 8
MAX_CLIENTS = 100_000
"""Maximum number of clients counted by name."""
MAX_TOLD = 5
"""Maximum number of clients and causes named in the first lines."""
MAX_SENTENCES = 64
"""Maximum number of sentences of one cause with counted ends."""
PLAIN_PART = 4
"""A cause comes before ends without a known cause, unless these are more than this many times as many."""
_BROKE = "What broke"
_NUMBER = re.compile(r"#?\d[\d.,]*")
_COUNTED = re.compile(r"it ended (?:[\w, ]+ connections together|the connection)")


@dataclass(slots=True)
class RestartEvent:
    """Connections that ended because their server stopped."""

    first: Explanation
    from_ns: int
    until_ns: int
    count: int = 0
    named: list[Explanation] = field(default_factory=list)
    """The first of these connections."""
    back: int = 0
    """Number of clients that came back."""
    first_back: Evidence | None = None
    versions: set[str] = field(default_factory=set)
    """Protocols of the connections."""
    refused: list[Evidence] = field(default_factory=list)
    """The first and the last failed attempt to connect."""
    refusals: int = 0
    """Number of failed attempts to connect."""
    unanswered: int = 0
    """Number of these that had no answer."""

    def add(self, explanation: Explanation) -> None:
        """Add a connection that ended."""
        self.count += 1
        self.versions.add(protocol_text(explanation))
        self.from_ns, self.until_ns = min(self.from_ns, explanation.ended_ns), max(self.until_ns, explanation.ended_ns)
        rank, event_ns = explanation.first.certainty.rank, explanation.first.event_ns
        if rank > self.first.first.certainty.rank or event_ns > self.first.first.event_ns:
            self.first = explanation  # the last explanation of an event counts most of its ends
        if len(self.named) < MAX_NAMED:
            self.named.append(explanation)
        back = explanation.came_back
        if back is not None:
            self.back += 1
            if self.first_back is None or (back.timestamp_ns or 0) < (self.first_back.timestamp_ns or 0):
                self.first_back = back

    def refuse(self, explanation: Explanation) -> None:
        """Add an attempt to connect that failed."""
        self.refusals += 1
        self.unanswered += explanation.of_stop
        place = Evidence("", explanation.ended_frame, explanation.ended_ns, explanation.ended_capture)
        self.refused = [*self.refused[:1], place]

    @property
    def last_ns(self) -> int:
        """Time of the last sign of the stop."""
        return max(
            [self.until_ns, self.first.first.event_ns[1], *(attempt.timestamp_ns or 0 for attempt in self.refused)]
        )

    @property
    def title(self) -> str:
        if not self.count:
            return f"{self.refusals:,} attempts to connect to {self.first.server}"
        return f"{plural(self.count, 'connection')} to {self.first.server}"

    @property
    def protocols(self) -> str:
        """Protocols of the connections: ``MQTT 3.1.1 and MQTT 5.0``."""
        return " and ".join(sorted(self.versions)) or protocol_text(self.first)

    @property
    def headline(self) -> str:
        """Headline for all connections of the event."""
        first = self.first.first
        if first.certainty is Certainty.CERTAIN or not self.count:
            return first.headline
        if self.count == 1 or first.event_ns[0]:
            return first.headline
        return _COUNTED.sub(f"it ended {self.count:,} connections together", first.headline)

    @property
    def lasted(self) -> str:
        """How long the ends, and the attempts to connect after them, took together."""
        if self.count == 1:
            return f"with the attempts to connect after it within {describe.span(self.last_ns - self.from_ns)}"
        until_ns = self.until_ns if self.count else self.last_ns
        return f"ended within {describe.span(until_ns - self.from_ns)}"

    @property
    def reasons(self) -> tuple[Evidence, ...]:
        """Evidence of the event, or of the first of its connections."""
        if self.first.first.event_ns[0]:
            return self.first.first.reasons
        reasons = (reason for reason in self.first.first.reasons if not reason.text.startswith("the broker ended "))
        return tuple(replace(reason, text=f"#{self.first.connection}: {reason.text}") for reason in reasons)

    @property
    def afterwards(self) -> tuple[Evidence, ...]:
        """Refused attempts, number of clients that came back, and the first of them."""
        evidences = []
        if self.refused and self.count:
            attempts = plural(self.refusals, "attempt")
            how = f"failed, {self.unanswered:,} of them without an answer" if self.unanswered else "refused"
            evidences.append(replace(self.refused[0], text=f"{attempts} to connect {how}, the first at this time"))
            if self.refusals > 1:
                evidences.append(replace(self.refused[-1], text="the last of them"))
        if self.first_back is not None:
            missing = self.count - self.back
            others = f"; {missing:,} did not within two minutes" if missing else ""
            clients = plural(self.back, "client")
            evidences.append(replace(self.first_back, text=f"{clients} came back, the first at this time{others}"))
        return tuple(sorted(evidences, key=lambda evidence: evidence.timestamp_ns or 0))

    @property
    def more(self) -> int:
        return self.count - len(self.named)


class RestartEvents:
    """Events that may still grow."""

    def __init__(self) -> None:
        self._open: dict[str, list[RestartEvent]] = {}
        """Events by the endpoint of the server."""

    def absorb(self, explanation: Explanation) -> RestartEvent | None:
        """Add a connection to the event that it belongs to, if any; returns the event."""
        events = self._open.setdefault(explanation.server, [])
        if explanation.cause is Cause.NOT_LISTENING or explanation.of_stop:
            for known in reversed(events):
                if known.first.first.event_ns[0]:
                    continue  # the server had not stopped
                back = known.first_back
                if back is not None and explanation.ended_ns > (back.timestamp_ns or 0):
                    continue  # the server was back before: this refusal belongs to another event
                if known.from_ns <= explanation.ended_ns <= known.last_ns + GONE_NS:
                    known.refuse(explanation)
                    return known
            events.append(event := RestartEvent(explanation, explanation.ended_ns, explanation.ended_ns))
            event.refuse(explanation)
            return event
        began_ns = explanation.first.event_ns[0]
        if explanation.cause is not Cause.SERVER_RESTART and not began_ns:
            return None
        for known in events:
            if known.first.cause is not explanation.cause or abs(known.first.first.event_ns[0] - began_ns) > MOMENT_NS:
                continue
            if began_ns or known.from_ns - MOMENT_NS <= explanation.ended_ns <= known.until_ns + MOMENT_NS:
                known.add(explanation)
                return known
        events.append(event := RestartEvent(explanation, explanation.ended_ns, explanation.ended_ns))
        event.add(explanation)
        return event

    def complete_events(self, now_ns: int | None = None) -> Iterator[RestartEvent]:
        """Events that are complete when ends of this time are written; all if no time is given.

        Explanations come up to `RETURN_NS` after the ends of their connections.
        """
        for server, events in list(self._open.items()):
            done = [event for event in events if now_ns is None or now_ns - event.last_ns > RETURN_NS]
            self._open[server] = [event for event in events if event not in done]
            yield from done


@dataclass(slots=True)
class _CauseCount:
    """Number of ends with one cause."""

    count: int = 0
    clients: set[str] = field(default_factory=set)
    sentences: dict[str, Candidate] = field(default_factory=dict)
    """By the sentence without its numbers: the surest end, of the first `MAX_SENTENCES` sentences."""
    of_stop: int = 0
    """Number of attempts to connect while a server was stopped."""
    counts: Counter[str] = field(default_factory=Counter)
    """Ends with each of these sentences."""

    def add(self, candidate: Candidate) -> None:
        """Count an end and its sentence."""
        self.count += 1
        shape = _NUMBER.sub("#", candidate.headline)
        known = self.sentences.get(shape)
        if known is not None or len(self.sentences) < MAX_SENTENCES:
            self.counts[shape] += 1
            if known is None or candidate.certainty.rank > known.certainty.rank:
                self.sentences[shape] = candidate

    @property
    def first(self) -> Candidate:
        """An end with the sentence that most ends have."""
        return max(self.sentences.items(), key=lambda row: (self.counts[row[0]], row[1].certainty.rank))[1]

    def rank(self, cause: Cause) -> tuple[float, float, bool, int]:
        """Clients and ends; ends without a known cause have a fraction of the weight."""
        part = 1 / PLAIN_PART if cause in PLAIN else 1
        return part * len(self.clients), part * self.count, cause not in PLAIN, self.first.certainty.rank


class EndSummary:
    """Summary of ends: feed it each end, then call `lines`."""

    def __init__(self) -> None:
        self._kinds: dict[Cause, _CauseCount] = {}
        self._clients: dict[str, None] = {}
        self._beyond = 0
        """Number of ends of clients beyond `MAX_CLIENTS`."""
        self._from_ns: int | None = None
        self._until_ns = 0

    def add(self, explanation: Explanation) -> None:
        """Count an end, unless it is an ordinary one."""
        if explanation.is_quiet:
            return
        known = self._kinds.setdefault(explanation.cause, _CauseCount())
        known.add(explanation.first)
        known.of_stop += explanation.of_stop
        name = explanation.client_identifier or explanation.client.rpartition(":")[0]
        if name in self._clients or len(self._clients) < MAX_CLIENTS:
            self._clients[name] = None
            known.clients.add(name)
        else:
            self._beyond += 1
        self._from_ns = explanation.ended_ns if self._from_ns is None else min(self._from_ns, explanation.ended_ns)
        self._until_ns = max(self._until_ns, explanation.ended_ns)

    def lines(self, when: Callable[[int], str], totals: Totals | None = None) -> list[tuple[str, str]]:
        """Titles and sentences, with times formatted by ``when``; empty if nothing broke.

        ``totals`` have the clients that failed to resolve names, and a message that circulates.
        """
        lost = [] if totals is None else totals.unresolved
        loop = [("Loop", totals.loop)] if totals is not None and totals.loop else []
        unresolved = f"{plural(len(lost), 'client')} could not resolve a name" if lost else ""
        if not self._kinds or self._from_ns is None:
            return (_of_lookups(lost, unresolved, when) if lost else []) + loop
        kinds = sorted(self._kinds.items(), key=lambda row: self._rank(*row), reverse=True)
        causes = ", ".join(f"{kind.count:,} × {TITLES[cause]}" for cause, kind in kinds[:MAX_TOLD])
        more = "" if len(kinds) <= MAX_TOLD else f", {plural(len(kinds) - MAX_TOLD, 'other cause')}"
        total = sum(kind.count for _, kind in kinds)
        names = list(self._clients)
        named = ", ".join(names[:MAX_TOLD]) + (", …" if len(names) > MAX_TOLD else "")
        first = kinds[0][1].first
        since = when(self._from_ns)
        if self._until_ns != self._from_ns:
            since += f", the last at {when(self._until_ns)}"
        return [
            (_BROKE, f"{plural(total, 'connection')}: {causes}{more}{unresolved and '; '}{unresolved}"),
            ("Clients", f"{'at least ' if self._beyond else ''}{len(names):,}: {named}"),
            ("Since", since),
            ("Why", f"{first.certainty}: {first.headline}"),
            ("Look at", first.advice[0] if first.advice else "the ends below"),
            *loop,
        ]

    def _rank(self, cause: Cause, kind: _CauseCount) -> tuple[bool, bool, tuple[float, float, bool, int]]:
        """Order of causes: a certain one comes before hypotheses.

        A stopped server refuses connections or leaves them without an answer: that is not a separate cause.
        """
        is_separate = Cause.SERVER_RESTART not in self._kinds or (
            cause is not Cause.NOT_LISTENING and kind.of_stop < kind.count
        )
        is_certain = any(
            other.first.certainty is Certainty.CERTAIN and other is not self._kinds.get(Cause.NOT_LISTENING)
            for other in self._kinds.values()
        )
        return is_separate, not (is_certain and kind.first.certainty is Certainty.HYPOTHESIS), kind.rank(cause)


def _of_lookups(lost: list[UnresolvedName], headline: str, when: Callable[[int], str]) -> list[tuple[str, str]]:
    """As `EndSummary.lines`, for failed lookups alone."""
    clients = [row.client for row in lost]
    return [
        (_BROKE, headline),
        ("Clients", f"{len(clients):,}: {', '.join(clients[:MAX_TOLD])}{', …' * (len(clients) > MAX_TOLD)}"),
        ("Since", when(min(row.timestamp_ns for row in lost))),
        ("Why", f"{lost[0].reason}."),
        ("Look at", lost[0].advice),
    ]


class FoldingReport:
    """A report that shows connections ended by one stop of a server as one event, unless ``every`` end is shown."""

    def __init__(self, sink: Sink, *, every: bool) -> None:
        self.sink = self._spool = DeferredOutput(sink)
        self.every = every
        self.overview = EndSummary()
        self.shown: Counter[Cause] = Counter()
        self._restarts = RestartEvents()

    def feed(self, explanation: Explanation) -> None:
        """Write an explanation, or add it to an event."""
        self.shown[explanation.cause] += 1
        self.overview.add(explanation)
        if not self.every:
            self.write_restarts(explanation.ended_ns)
            event = self._restarts.absorb(explanation)
            if event is not None:
                self.write_absorbed(event, explanation)
                return
        self.write_end(explanation)

    def write_restarts(self, now_ns: int | None = None) -> None:
        """Write the stops that are complete when ends of this time are written; all if no time is given."""
        for event in self._restarts.complete_events(now_ns):
            if event.count + event.refusals == 1:
                self.write_end(event.first)
            else:
                self.write_restart(event)

    def release(self, first: bytes) -> None:
        """Write the first lines, and everything else after them."""
        self._spool.release(first)

    def write_end(self, explanation: Explanation) -> None:
        raise NotImplementedError

    def write_absorbed(self, event: RestartEvent, explanation: Explanation) -> None:
        """Write an end that an event contains; most reports write only the event."""

    def write_restart(self, event: RestartEvent) -> None:
        """Write the end of several connections as one event."""
        raise NotImplementedError
