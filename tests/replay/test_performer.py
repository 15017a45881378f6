"""What performers share: the rate of messages, and timers that start with steps."""

from __future__ import annotations

import asyncio

from mqttscope.mqtt import Properties
from mqttscope.replay.order import End, Gates, make_order
from mqttscope.replay.performer import Stage
from mqttscope.replay.script import Script
from mqttscope.replay.timeline import Timeline
from tests.replay.recordings import connack, connect, recordings


class Clock:
    """Time that stands still until it is moved."""

    now = 0

    def now_ns(self) -> int:
        return self.now

    def since_start_ns(self) -> int:
        return self.now


def lasting() -> list[Script]:
    """A session of a second, which has expired before the client returns."""
    scripts = recordings(
        (0, ">", connect("a", properties=Properties(session_expiry_interval=1))),
        (0, "<", connack()),
        (1, ">", connect("a", clean_start=False)),
        (1, "<", connack()),
    )
    scripts[1].opened_ns += 1_500_000_000
    for entry in scripts[1].entries:
        entry.timestamp_ns += 1_500_000_000
    return scripts


def stage(clock: Clock, rate: float | None = None) -> Stage:
    return Stage(Gates(make_order(lasting())), Timeline(()), clock, 1.0, rate)


def test_the_rate_is_kept_on_average() -> None:
    clock = Clock()
    one = stage(clock, 1_000.0)
    sent = 0
    for clock.now in range(0, 2_000_000_000, 300_000):
        sent += not one.may_publish()

    assert 1_990 <= sent <= 2_010
    assert not stage(clock).may_publish()


def test_a_pause_is_not_made_up_for() -> None:
    clock = Clock()
    one = stage(clock, 10.0)
    assert not one.may_publish()
    clock.now = 60_000_000_000
    assert [bool(one.may_publish()) for _ in range(3)] == [False, True, True]


def test_timers_run_from_their_step_and_count_as_something_that_happens() -> None:
    async def scene() -> tuple[int, int, bool]:
        one = stage(Clock())
        for timers in one.gates.order.timers.values():
            timers[:] = [type(timer)(timer.number, 10_000_000) for timer in timers]
            one.gates.order.milestones.update({timer: (timer.number, None) for timer in timers})
        one.start_timers(End(0))
        running = one.pending
        await asyncio.sleep(0.1)
        return running, one.pending, one.progress == 1

    assert asyncio.run(scene()) == (1, 0, True)


def test_what_is_not_done_starts_no_timer() -> None:
    one = stage(Clock())
    (timer,) = one.gates.order.timers[End(0)]
    one.drop_timers(End(0))

    assert not one.gates.reach(timer)
    assert one.pending == 0
