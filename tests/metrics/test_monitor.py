"""The monitor: causes as explain finds them, early ones for live traffic, and readers in other threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.explain import Cause
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.metrics.monitor import MAX_LAG_NS, REST_NS, LiveMonitor
from mqttscope.net.frame import Frame
from tests.lint.lint_help import steps_of
from tests.report.make import START_NS, Talk

SECOND = 1_000_000_000
KEEP_ALIVE = ("opened 3.1.1 client=sleepy keep_alive=2", "+4 < fin")


def heard(monitor: LiveMonitor, *lines: str, linter: Linter | None = None, first: int = 0) -> int:
    """Feed a conversation without the end of its capture; returns the time of its last event.

    ``first``: the number of its first connection.
    """
    dissector, last_ns = Dissector(), 0
    dissector.connections = first
    segments = monitor.segments(dissector.clock.follow(segments_of(conversation("", *steps_of(*lines)))))
    for event in dissect_segments(segments, dissector=dissector, more=True):
        monitor.feed(event, () if linter is None else linter.feed(event))
        last_ns = max(last_ns, getattr(event, "timestamp_ns", None) or 0)
    return last_ns


def interface(now_ns: int, set_by_ns: int = 0, *, silent: bool = False) -> Any:
    """What a monitor asks a live capture."""
    clock = SimpleNamespace(now_ns=lambda: now_ns, set_by_ns=lambda: set_by_ns)
    return SimpleNamespace(clock=clock, silent=silent)


def ends(monitor: LiveMonitor) -> dict[Cause, int]:
    return {cause: count for cause, count in monitor.facts.ends.items() if count}


def test_a_cause_with_evidence_before_the_end_is_counted_two_seconds_later() -> None:
    monitor = LiveMonitor("lo")
    last_ns = heard(monitor, *KEEP_ALIVE)
    monitor.pass_time(last_ns, last_ns + 2 * SECOND - 1)
    assert (ends(monitor), monitor.facts.undecided) == ({}, 1)
    monitor.pass_time(last_ns, last_ns + 2 * SECOND)

    assert (ends(monitor), monitor.facts.undecided) == ({Cause.KEEP_ALIVE: 1}, 0)
    (trouble,) = monitor.facts.troubles.values()
    assert (trouble.client, trouble.cause, trouble.undecided) == ("sleepy", Cause.KEEP_ALIVE, 0)


def test_a_cause_that_may_change_is_shown_early_and_counted_when_it_is_decided() -> None:
    monitor = LiveMonitor("lo")
    last_ns = heard(monitor, "opened 3.1.1 client=dev1; > fin")
    monitor.pass_time(last_ns, last_ns + 2 * SECOND)
    (trouble,) = monitor.facts.troubles.values()
    assert (trouble.cause, trouble.count, trouble.undecided) == (Cause.CLIENT_CLOSED, 1, 1)
    assert ends(monitor) == {}
    monitor.pass_time(last_ns, last_ns + 3_600 * SECOND)

    assert ends(monitor) == {Cause.CLIENT_CLOSED: 1}
    (trouble,) = monitor.facts.troubles.values()
    assert (trouble.count, trouble.undecided) == (1, 0)


def test_without_a_time_of_silence_nothing_is_decided() -> None:
    monitor = LiveMonitor("lo")
    last_ns = heard(monitor, *KEEP_ALIVE)
    monitor.pass_time(last_ns + 3_600 * SECOND)
    assert ends(monitor) == {}


def test_causes_do_not_depend_on_the_rules_of_the_run() -> None:
    rules = [usual_rule(rule) for rule in select().values()]
    for linted in ([], rules[:40], rules):
        monitor = LiveMonitor("lo", linted={rule.code for rule in linted})
        last_ns = heard(monitor, "opened 3.1.1 client=dev1; > publish a/+ x; < fin", linter=Linter(linted))
        monitor.pass_time(last_ns, last_ns + 2 * SECOND)
        assert ends(monitor) == {Cause.PROTOCOL_VIOLATION: 1}


def test_the_explainer_rests_while_reading_is_behind_and_begins_again() -> None:
    monitor = LiveMonitor("lo")
    last_ns = heard(monitor, "opened 3.1.1 client=dev1; > fin")
    monitor.pass_time(START_NS, last_ns + 2 * SECOND)
    (trouble,) = monitor.facts.troubles.values()
    assert (trouble.undecided, monitor.facts.undecided) == (1, 1)
    monitor.pass_time(START_NS, lag_ns=MAX_LAG_NS + 1)
    assert (trouble.undecided, monitor.facts.unexplained, monitor.facts.undecided) == (0, 1, 0)
    heard(monitor, *KEEP_ALIVE)
    assert (monitor.facts.unexplained, monitor.facts.opened, ends(monitor)) == (2, 2, {})
    monitor.pass_time(START_NS + REST_NS)
    last_ns = heard(monitor, *KEEP_ALIVE, first=2)
    monitor.pass_time(START_NS + REST_NS, last_ns + 2 * SECOND)
    assert (monitor.facts.unexplained, ends(monitor)) == (2, {Cause.KEEP_ALIVE: 1})


def test_a_connection_from_before_a_rest_is_not_explained() -> None:
    monitor, dissector = LiveMonitor("lo"), Dissector()
    segments = monitor.segments(segments_of(conversation("", *steps_of(*KEEP_ALIVE))))
    last_ns = 0
    for event in dissect_segments(segments, dissector=dissector, more=True):
        monitor.feed(event)
        last_ns = getattr(event, "timestamp_ns", None) or last_ns
        if isinstance(event, PacketEvent):
            monitor.pass_time(START_NS, lag_ns=MAX_LAG_NS + 1)
            monitor.pass_time(START_NS + REST_NS)
    monitor.pass_time(START_NS, last_ns + 3_600 * SECOND)
    assert (ends(monitor), monitor.facts.troubles, monitor.facts.unexplained) == ({}, {}, 1)


def test_old_captures_and_other_clocks_are_no_lag() -> None:
    monitor, delay_ns = LiveMonitor("lo"), 10**16
    cases = (
        (10**15, False, False), (0, False, False), (MAX_LAG_NS, False, False), (10**15, True, False),
        (MAX_LAG_NS + 1, False, True),
    )  # fmt: skip
    for number, (more_ns, silent, rests) in enumerate(cases):
        [_] = monitor.frames([Frame(1, START_NS - delay_ns - more_ns, 1, b"", 0, "lo")])
        monitor.pass_live_time(interface(START_NS, silent=silent), number + 1)
        monitor.feed(Talk().closed())
        assert bool(monitor.facts.unexplained) is rests


def test_a_link_without_traffic_and_a_clock_that_is_set_back_are_no_lag() -> None:
    monitor = LiveMonitor("lo")
    for at_ns, set_by_ns, frames in ((0, 0, 1), (3_600 * SECOND, 0, 1), (3_601 * SECOND, -60 * SECOND, 2)):
        if frames > monitor.facts.frames:
            [_] = monitor.frames([Frame(1, START_NS + at_ns + set_by_ns, 1, b"", 0, "lo")])
        monitor.pass_live_time(interface(START_NS + at_ns, set_by_ns), frames)
    monitor.feed(Talk().closed())
    assert monitor.facts.unexplained == 0


def test_a_reader_sees_no_half_counted_event() -> None:
    monitor, talk, broken = LiveMonitor("lo"), Talk(), []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            counts = monitor.read(lambda facts: (facts.total.packets, sum(facts.packets)))
            if counts[0] != counts[1]:
                broken.append(counts)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(2_000):
        monitor.feed(talk.say(b"\xc0\0"))
    stop.set()
    reader.join()
    assert broken == []
