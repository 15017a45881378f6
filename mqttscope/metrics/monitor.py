"""Feeds `LiveFacts` from a capture or a proxy, and lets other threads read them.

The events, the findings of the linter and the explanations of ends come from one thread.  Others only read, under a
lock that each event takes for a moment; slow work, such as linting and writing, happens outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock
from typing import TypeVar

from mqttscope.capture.live import LiveCapture
from mqttscope.events import ConnectionClosed, Event
from mqttscope.explain import Explainer, Explanation
from mqttscope.explain.explainer import is_used
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.metrics.facts import LiveFacts
from mqttscope.net.frame import CaptureNotice, Decrypted, Frame, SegmentItem
from mqttscope.net.segment import Segment
from mqttscope.secrets.findings import HidingOptions

T = TypeVar("T")
SILENCE_NS = 1_000_000_000
"""During silence, frames up to this long ago were read; later ones may still be in transit."""
MAX_LAG_NS = 2_000_000_000
"""Maximum lag of reading; beyond it, the explainer rests."""
REST_NS = 10_000_000_000
"""Minimum time of a rest, from the last lag on."""


class LiveMonitor:
    """Facts about one run, with the causes of ended connections as `explain` finds them.

    `frames` and `segments`, or `segment`, must see the traffic before the dissector does.  Causes take more time than
    everything else here: if reading lags, the explainer rests, so that no frame is lost to it.  Then
    a new one begins; it also gets the packets of older connections, which show that a broker lives, but explains only
    connections that opened since.
    """

    def __init__(self, capture: str, *, linted: Collection[str] = (), hiding: HidingOptions | None = None) -> None:
        """``linted``: codes of the rules of the run, with findings for `feed`; further rules for causes run here."""
        self.capture = capture
        self.facts = LiveFacts()
        self.explained: Callable[[Explanation], object] = lambda explanation: None
        """Gets each explanation that is final."""
        self._hiding = hiding or HidingOptions()
        self._lock = Lock()
        self._rules = [usual_rule(rule) for code, rule in select().items() if code not in linted and is_used(rule)]
        self._latest_ns: int | None = None
        """Time of the latest frame."""
        self._least_delay_ns: int | None = None
        """Minimum time from a frame to its reading: clocks differ."""
        self._explainer: Explainer | None = None
        self._rested_ns = 0
        """When reading last lagged."""
        self._begin()

    def _begin(self) -> None:
        self._explainer = Explainer(is_live=True)
        self._first = self.facts.opened
        """Number of the first connection that opened since."""
        self._linter = Linter(self._rules) if self._rules else None

    def frames(self, frames: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on; the explainer looks at them."""
        for frame in frames:
            if type(frame) is Frame:
                self._latest_ns = frame.timestamp_ns
                if self._explainer is not None:
                    self._explainer.watch.frame(frame)
            yield frame

    def segments(self, items: Iterable[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass segments on; the explainer looks at them."""
        for item in items:
            if type(item) is Segment:
                self.segment(item)
            yield item

    def segment(self, segment: Segment) -> None:
        """Look at a segment."""
        if self._explainer is not None:
            self._explainer.watch.feed(segment)

    def feed(self, event: Event, findings: Iterable[Finding] = ()) -> None:
        """Count an event; ``findings``: all findings about it, also suppressed ones."""
        explainer = self._explainer
        if explainer is not None and self._linter is not None:
            findings = [*findings, *self._linter.feed(event)]
        with self._lock:
            self.facts.feed(event)
            if explainer is not None:
                for explanation in explainer.feed(event, findings):
                    self._end(explanation)
            elif type(event) is ConnectionClosed:
                self.facts.unexplained += 1

    def finding(self, finding: Finding) -> None:
        """Count a finding that is neither suppressed nor hidden."""
        with self._lock:
            self.facts.finding(finding, self._hiding)

    def pass_time(self, now_ns: int, silent_ns: int | None = None, *, lag_ns: int = 0) -> None:
        """Advance to this time.

        ``silent_ns``: all traffic up to this time was fed, if that is certain.  ``lag_ns``: the lag of reading.
        """
        with self._lock:
            self.facts.pass_time(now_ns)
            self._rest(now_ns, lag_ns)
            explainer = self._explainer
            if explainer is None:
                return
            if silent_ns is not None:
                for explanation in explainer.pass_time(silent_ns):
                    self._end(explanation)
            for explanation, is_decided in explainer.early():
                self._end(explanation, is_decided=is_decided)
            self.facts.undecided = explainer.undecided

    def _end(self, explanation: Explanation, *, is_decided: bool = True) -> None:
        if explanation.connection >= self._first:
            self.facts.end(explanation, is_decided=is_decided)
            if is_decided:
                self.explained(explanation)
        else:
            self.facts.unexplained += is_decided

    def _rest(self, now_ns: int, lag_ns: int) -> None:
        """Let the explainer rest, or begin again."""
        if lag_ns > MAX_LAG_NS:
            if self._explainer is not None:
                self.facts.give_up(self._explainer.undecided)
                self._explainer = None
            self._rested_ns = now_ns
        elif self._explainer is None and now_ns - self._rested_ns >= REST_NS:
            self._begin()

    def pass_live_time(self, capture: LiveCapture, frames: int) -> None:
        """Advance to the current time of an interface; ``frames``: number of frames read."""
        now_ns = capture.clock.now_ns()
        has_more, self.facts.frames = frames > self.facts.frames, frames
        lag_ns = 0
        # If nothing was read since the last call, the latest frame is old because the link is silent.
        if self._latest_ns is not None and has_more and not capture.silent:
            # Frames have the time of the machine, also if its clock was set.
            delay_ns = now_ns + capture.clock.set_by_ns() - self._latest_ns
            self._least_delay_ns = delay_ns if self._least_delay_ns is None else min(delay_ns, self._least_delay_ns)
            lag_ns = delay_ns - self._least_delay_ns
        self.pass_time(now_ns, now_ns - SILENCE_NS if capture.silent else None, lag_ns=lag_ns)

    def read(self, reader: Callable[[LiveFacts], T]) -> T:
        """The result of a function that reads the facts; the function must copy what changes."""
        with self._lock:
            return reader(self.facts)
