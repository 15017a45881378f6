"""What drivers share: the rate of messages, and timers that start with steps."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.replay.drivers.client import LESS, MonotonicClock, ReplayContext, Timeline, Timeouts
from mqttscope.replay.order import ConnectionEnd, Gates, make_order
from mqttscope.replay.script import Script
from tests.replay.talk import OPENED, record

COUNT = 100
TALK = OPENED + "\n".join(f"sub < publish t/{number} x" for number in range(COUNT)) + "\nsub < publish other x"


def test_what_did_not_come_is_waited_for_less_and_less() -> None:
    scripts = record(TALK)
    messages = [script_entry for script_entry in scripts[0].entries if script_entry.type == "publish"]
    suback = next(script_entry for script_entry in scripts[0].entries if script_entry.type == "suback")
    timeouts = Timeouts(scripts, 8.0)
    assert timeouts.for_steps([messages[0]]) == 8.0

    assert timeouts.time_out([messages[0]]) == []
    assert timeouts.for_steps([messages[1]]) == 8.0 / LESS
    assert timeouts.for_steps([messages[1], suback]) == 8.0
    assert timeouts.for_steps([messages[-1]]) == 8.0, "another Topic Filter"
    assert timeouts.time_out([messages[1]]) == messages[2 : 2 + LESS**2]
    assert timeouts.time_out([messages[18]]) == messages[19 : 19 + LESS**3]
    assert timeouts.time_out([messages[83]]) == messages[84:COUNT]
    assert timeouts.learned == {(0, "t/#"): COUNT - 1}
    assert timeouts.awaited_on(messages[5]) == "t/#"
    assert timeouts.awaited_on(messages[-1]) == "other"


def test_what_comes_is_waited_for_again() -> None:
    scripts = record(TALK)
    messages = [script_entry for script_entry in scripts[0].entries if script_entry.type == "publish"]
    timeouts = Timeouts(scripts, 8.0)
    for message in messages[:3]:
        timeouts.time_out([message])
    timeouts.note_arrival(messages[3])

    assert timeouts.for_steps([messages[4]]) == 8.0
    assert Timeouts(scripts, 8.0).for_steps([]) == 0


SECOND = 1_000_000_000


def test_recorded_time_and_faster() -> None:
    times = [10 * SECOND, 12 * SECOND, 20 * SECOND]
    assert [Timeline(times).due_ns(time) for time in times] == [0, 2 * SECOND, 10 * SECOND]
    assert Timeline(times, 4.0).due_ns(times[2]) == 10 * SECOND // 4
    assert Timeline(times, None).due_ns(times[2]) == 0
    assert Timeline(times).length_ns == 10 * SECOND
    assert Timeline([]).length_ns == 0


def test_long_silences_are_cut() -> None:
    times = [0, SECOND, 100 * SECOND, 101 * SECOND, 500 * SECOND]
    line = Timeline(times, max_gap_ns=2 * SECOND)

    assert [line.due_ns(time) // SECOND for time in times] == [0, 1, 3, 4, 6]
    assert line.cut_ns == (97 + 397) * SECOND


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=50),
    st.integers(1, 10**12),
    st.floats(0.01, 10_000),
)
def test_order_is_kept_and_no_silence_is_longer_than_it_may(times: list[int], gap: int, speed: float) -> None:
    line = Timeline(times, speed, gap)
    due = [line.due_ns(time) for time in sorted(times)]

    assert due == sorted(due)
    assert all(after - before <= gap / speed + 2 for before, after in pairwise(due))


class Clock(MonotonicClock):
    """Time that stands still until it is moved."""

    now = 0

    def now_ns(self) -> int:
        return self.now

    def since_start_ns(self) -> int:
        return self.now


def lasting() -> list[Script]:
    """A session of a second, which has expired before the client returns."""
    first = "a > connect session_expiry_interval=1\na < connack\na > fin\n"
    scripts = record(first + "a > connect resume\na < connack\na > fin")
    scripts[1].opened_ns += 1_500_000_000
    for entry in scripts[1].entries:
        entry.timestamp_ns += 1_500_000_000
    return scripts


def context(clock: Clock, rate: float | None = None) -> ReplayContext:
    return ReplayContext(Gates(make_order(lasting())), Timeline(()), clock, 1.0, rate)


def test_the_rate_is_kept_on_average() -> None:
    clock = Clock()
    replay_context = context(clock, 1_000.0)
    sent = 0
    for clock.now in range(0, 2_000_000_000, 300_000):
        sent += not replay_context.may_publish()

    assert 1_990 <= sent <= 2_010
    assert not context(clock).may_publish()


def test_a_pause_is_not_made_up_for() -> None:
    clock = Clock()
    replay_context = context(clock, 10.0)
    assert not replay_context.may_publish()
    clock.now = 60_000_000_000
    assert [bool(replay_context.may_publish()) for _ in range(3)] == [False, True, True]


def test_timers_run_from_their_step_and_count_as_something_that_happens() -> None:
    async def scene() -> tuple[int, int, bool]:
        replay_context = context(Clock())
        for timers in replay_context.gates.order.timers.values():
            timers[:] = [type(timer)(timer.number, 10_000_000) for timer in timers]
            replay_context.gates.order.milestones.update({timer: (timer.number, None) for timer in timers})
        replay_context.start_timers(ConnectionEnd(0))
        running = replay_context.pending
        await asyncio.sleep(0.1)
        return running, replay_context.pending, replay_context.progress == 1

    assert asyncio.run(scene()) == (1, 0, True)


def test_what_is_not_done_starts_no_timer() -> None:
    replay_context = context(Clock())
    (timer,) = replay_context.gates.order.timers[ConnectionEnd(0)]
    replay_context.drop_timers(ConnectionEnd(0))

    assert not replay_context.gates.reach(timer)
    assert replay_context.pending == 0
