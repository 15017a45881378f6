"""What waits for what: recorded order across connections."""

from __future__ import annotations

from mqttscope.mqtt import Disconnect, Properties, Puback, Pubcomp, Pubrel, Suback, Subscribe, Subscription
from mqttscope.replay.order import ConnectionEnd, ConnectionOpening, Gates, Step, StepOrder, Timer, make_order
from mqttscope.replay.script import Script, ScriptEntry
from tests.replay.recordings import V5, Line, connack, connect, publish, recordings


def opened(number: int, name: str, **fields: object) -> tuple[Line, Line]:
    """CONNECT and CONNACK of a connection."""
    return (number, ">", connect(name, V5, **fields)), (number, "<", connack())


def conversation() -> list[Script]:
    """One subscribes; the other publishes, and leaves; the first one leaves."""
    return recordings(
        *opened(0, "sub"),
        (0, ">", Subscribe(1, subscriptions=[Subscription("a", 1)])),
        (1, ">", connect("pub")),
        (0, "<", Suback(1, reason_codes=[1])),
        (1, "<", connack()),
        (1, ">", publish("a", qos=1, packet_identifier=1)),
        (0, "<", publish("a", qos=1, packet_identifier=9)),
        (1, "<", Puback(1)),
        (1, ">", publish("b", qos=1, packet_identifier=1)),
        (1, "<", Puback(1)),
        (1, ">", Disconnect()),
        (0, ">", Puback(9)),
        (0, ">", Disconnect()),
    )


def before(order: StepOrder, gates: Gates, step: Step) -> set[int]:
    """Places of the milestones that a step waits for."""
    need = order.needs[step]
    return {
        what.place
        for what, (number, change) in order.milestones.items()
        if isinstance(what, ScriptEntry) and (number < need.all or (change is not None and change < need.changes))
    }


def test_messages_wait_for_subscriptions_and_ends_for_everything() -> None:
    sub, pub = scripts = conversation()
    order = make_order(scripts)
    gates = Gates(order)

    assert before(order, gates, pub.entries[0]) == {1}
    assert before(order, gates, pub.entries[2]) == {1, 4, 5}
    assert before(order, gates, pub.entries[4]) == {1, 4, 5}
    assert before(order, gates, pub.entries[6]) == {1, 4, 5, 7, 8, 10}
    assert before(order, gates, sub.entries[-1]) == {1, 4, 5, 7, 8, 10}


def test_causal_makes_every_step_wait_for_everything() -> None:
    scripts = conversation()
    order = make_order(scripts, causal=True)

    assert before(order, Gates(order), scripts[1].entries[4]) == {1, 4, 5, 7, 8}


def test_gates_open_when_what_was_recorded_before_has_come_in_any_order() -> None:
    sub, pub = scripts = conversation()
    gates = Gates(make_order(scripts))
    step = pub.entries[2]
    called: list[str] = []
    gates.when_open(step, lambda: called.append("message"))
    for entry in (pub.entries[1], sub.entries[3]):
        assert gates.reach(entry)
        assert not gates.open_for(step)
    assert not gates.reach(sub.entries[3])
    gates.reach(sub.entries[1])

    assert gates.open_for(step)
    assert called == ["message"]
    assert not gates.waiting


def test_what_never_comes_is_given_up_only_as_far_as_somebody_waits() -> None:
    sub, pub = scripts = conversation()
    gates = Gates(make_order(scripts))
    for entry in (sub.entries[1], pub.entries[1]):
        gates.reach(entry)
    gates.when_open(pub.entries[2], lambda: None)

    assert gates.give_up() == [sub.entries[3]]
    assert gates.missed == 1
    assert gates.open_for(pub.entries[2])
    assert not gates.open_for(sub.entries[-1])


def test_a_fence_stands_behind_the_last_unanswered_message_before_a_change() -> None:
    scripts = recordings(
        *opened(0, "pub"),
        *opened(1, "sub"),
        (0, ">", publish("a")),
        (0, ">", publish("b", retain=True)),
        (1, ">", Subscribe(1, subscriptions=[Subscription("b", 1)])),
        (1, "<", Suback(1, reason_codes=[1])),
        (0, ">", publish("a")),
        (0, ">", publish("a", qos=1, packet_identifier=1)),
        (0, "<", Puback(1)),
        (1, ">", Disconnect()),
        (0, ">", Disconnect()),
    )
    order = make_order(scripts)
    last = scripts[0].entries[3]

    assert order.fences == [{last}, set()]
    gates = Gates(order)
    subscribe = scripts[1].entries[2]
    for entry in (scripts[0].entries[1], scripts[1].entries[1]):
        gates.reach(entry)
    assert not gates.open_for(subscribe)
    gates.reach(last)
    assert gates.open_for(subscribe)
    assert make_order(scripts, fenced=False).fences == [set(), set()]


def test_the_end_of_a_connection_is_a_milestone() -> None:
    scripts = recordings(
        *opened(0, "a"),
        (0, ">", Disconnect()),
        *opened(1, "b"),
    )
    gates = Gates(make_order(scripts))
    gates.reach(scripts[0].entries[1])

    assert not gates.open_for(ConnectionOpening(1))
    gates.reach(ConnectionEnd(0))
    assert gates.open_for(ConnectionOpening(1))


def test_what_expired_in_the_recording_is_given_the_time_to_expire() -> None:
    lasting = Properties(session_expiry_interval=1)
    scripts = recordings(
        *opened(0, "a", properties=lasting),
        *opened(1, "b"),
        (1, ">", publish("t", qos=1, packet_identifier=1, properties=Properties(message_expiry_interval=1))),
        (1, "<", Puback(1)),
        *opened(2, "a", clean_start=False),
    )
    late = 1_500_000_000
    scripts[2].opened_ns += late
    for entry in scripts[2].entries:
        entry.timestamp_ns += late
    order = make_order(scripts)
    message = scripts[1].entries[2]

    assert set(order.timers) == {ConnectionEnd(0), message}
    gates = Gates(order)
    for each in [milestone for milestone in order.milestones if not isinstance(milestone, Timer)]:
        gates.reach(each)
    assert not gates.open_for(ConnectionOpening(2))
    for timers in order.timers.values():
        assert all(1_000_000_000 < timer.wait_ns <= 3_000_000_000 for timer in timers)
        for timer in timers:
            gates.reach(timer)
    assert gates.open_for(ConnectionOpening(2))


def test_nobody_waits_for_what_cannot_come_again() -> None:
    """An answer to nothing, and what a broker tells of itself."""
    scripts = recordings(
        *opened(0, "a"),
        (0, ">", Pubrel(99)),
        (0, "<", Pubcomp(99, reason_code=0x92)),
        (0, "<", publish("$SYS/broker/uptime", payload=b"7 seconds")),
        (0, "<", publish("a")),
        (0, ">", Disconnect()),
    )
    order = make_order(scripts)

    assert [what.type for what in order.milestones if isinstance(what, ScriptEntry)] == ["connack", "publish"]
    assert scripts[0].entries[5] in order.milestones


def test_a_retained_message_waits_for_the_one_that_it_replaces() -> None:
    scripts = recordings(
        *opened(0, "a"),
        *opened(1, "b"),
        (0, ">", publish("t", retain=True)),
        (0, ">", publish("u", retain=True)),
        (1, ">", publish("t", retain=True)),
        (1, ">", publish("t", retain=True)),
        (0, ">", Disconnect()),
        (1, ">", Disconnect()),
    )
    order = make_order(scripts)
    fence, again, further = scripts[0].entries[3], *scripts[1].entries[2:4]

    assert fence in order.fences[0]
    assert before(order, Gates(order), again) == {1, 3, 5}
    assert before(order, Gates(order), further) == {1, 3}
