"""Whole replays over sockets, against the broker of the simulation."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Disconnect, Properties, Puback, Suback, Subscribe, Subscription, Will
from mqttscope.replay.client.player import ClientOptions
from mqttscope.replay.run import MAX_NAMED, BrokerTarget, Pace, make_plan
from mqttscope.replay.script import Script
from mqttscope.transport.client import Address
from mqttscope.transport.target import parse_broker
from tests.replay.recordings import connack, connect, publish, recordings
from tests.replay.served import replayed
from tests.replay.simulation import Broker


def test_what_others_notice_is_named() -> None:
    will = Will(will_topic="gone", will_payload=b"x", properties=Properties())
    plan = make_plan(
        recordings(
            (0, ">", connect("dev", will=will)),
            (0, "<", connack()),
            (0, ">", publish("kept", retain=True, payload=b"1")),
            (0, ">", publish("kept", retain=True, payload=b"2")),
            (0, ">", publish("cleared", retain=True, payload=b"1")),
            (0, ">", publish("cleared", retain=True)),
            (0, ">", publish("$SYS/mine")),
            (0, ">", Subscribe(1, subscriptions=[Subscription("$share/g/a", 0), Subscription("b", 0)])),
            (0, ">", Disconnect()),
        )
    )

    assert plan.connections == 1
    assert plan.packets == {"connect": 1, "publish": 5, "subscribe": 1, "disconnect": 1}
    assert (plan.retained, plan.cleared, plan.system) == (["kept"], ["cleared"], ["$SYS/mine"])
    assert plan.wills == [("dev", "gone")]
    assert plan.shared == ["$share/g/a"]
    assert [len(plan.warnings), plan.warnings[2]] == [5, "wills are left for gone (dev)"]


def test_nothing_to_notice_is_nothing_to_say() -> None:
    plan = make_plan(recordings((0, ">", connect()), (0, "<", connack()), (0, ">", publish("a"))))

    assert plan.warnings == []


def test_long_lists_are_cut() -> None:
    count = MAX_NAMED + 3
    lines = [(0, ">", publish(f"t/{number}", retain=True, payload=b"x")) for number in range(count)]
    plan = make_plan(recordings((0, ">", connect()), (0, "<", connack()), *lines))

    assert len(plan.retained) == count
    assert plan.warnings[0].endswith("t/19 and 3 more")


def conversation(*, spread_ns: int = 0) -> list[Script]:
    """One subscribes, another publishes three messages; ``spread_ns`` is put before each message."""
    said = [
        (1, arrow, packet)
        for number in range(1, 4)
        for arrow, packet in (
            (">", publish("a", qos=1, packet_identifier=number, payload=b"%d" % number)),
            ("<", Puback(number)),
        )
    ]
    scripts = recordings(
        (0, ">", connect("sub")),
        (0, "<", connack()),
        (0, ">", Subscribe(1, subscriptions=[Subscription("a", 0)])),
        (0, "<", Suback(1, reason_codes=[0])),
        (1, ">", connect("pub")),
        (1, "<", connack()),
        *said,
        (1, ">", Disconnect()),
        (0, "<", publish("a", payload=b"1")),
        (0, "<", publish("a", payload=b"2")),
        (0, "<", publish("a", payload=b"3")),
        (0, ">", Disconnect()),
    )
    for script in scripts:
        for entry in script.entries:
            before = sum(one.place <= entry.place for one in scripts[1].entries if one.type == "publish")
            entry.timestamp_ns += spread_ns * (3 if script is scripts[0] and entry.place > 6 else before)
        script.ending.timestamp_ns += 3 * spread_ns
    return scripts


def payloads(script: Script) -> list[bytes]:
    return [one.packet.payload for one in script.entries if one.type == "publish"]  # type: ignore[union-attr]


@pytest.mark.parametrize("pace", [Pace(None), Pace(None, causal=True), Pace(1.0), Pace(4.0)])
def test_everything_is_said_and_delivered(pace: Pace) -> None:
    replay = replayed(conversation(), pace)
    sub, pub = replay.drivers

    assert payloads(sub.player.live.script) == payloads(pub.player.live.script) == [b"1", b"2", b"3"]
    assert [one.failure for one in replay.drivers] == ["", ""]
    assert (replay.context.sent, replay.context.received) == (8, 9)
    assert replay.context.gates.missed == replay.stalled == 0


def test_the_recorded_pace_takes_its_time() -> None:
    assert replayed(conversation(spread_ns=200_000_000), Pace(1.0)).seconds >= 0.6


@pytest.mark.parametrize(("pace", "least"), [(Pace(None), 0), (Pace(36_000.0), 0.3), (Pace(1.0, max_gap_ns=1), 0)])
def test_three_hours_pass_faster(pace: Pace, least: float) -> None:
    """`replayed` gives up long before they have passed at the recorded pace."""
    replay = replayed(conversation(spread_ns=3_600_000_000_000), pace)

    assert replay.seconds >= least
    assert payloads(replay.drivers[0].player.live.script) == [b"1", b"2", b"3"]


def test_no_more_messages_than_the_rate_allows() -> None:
    assert replayed(conversation(), Pace(None, rate=5)).seconds >= 0.4


def test_a_server_that_does_not_answer_is_given_up() -> None:
    replay = replayed(conversation(), broker=Broker(silent=frozenset({Subscribe})), patience_s=1.0)

    assert replay.context.gates.missed >= 1
    assert replay.stalled >= 1
    assert payloads(replay.drivers[1].player.live.script) == [b"1", b"2", b"3"]


def test_it_can_be_stopped() -> None:
    replay = replayed(conversation(spread_ns=10_000_000_000), Pace(1.0), meanwhile=lambda one: one.stop())

    assert replay.stopped
    assert replay.seconds < 5
    assert all(one.finished.is_set() for one in replay.drivers)
    assert [one.player.live.script.ending.by for one in replay.drivers] == ["client", "client"]


def test_a_slow_replay_keeps_its_connections_alive() -> None:
    scripts = recordings(
        (0, ">", connect("dev", keep_alive=1)),
        (0, "<", connack()),
        (0, ">", publish("a")),
        (0, ">", Disconnect()),
    )
    for entry in scripts[0].entries[2:]:
        entry.timestamp_ns += 500_000_000
    replay = replayed(scripts, Pace(0.25))
    pings = [one for one in replay.drivers[0].player.live.script.entries if one.type == "pingreq"]

    assert len(pings) in (1, 2), "after 0.75 and 1.5 seconds of two, unless the connection took long to make"
    faithful = replayed(scripts, Pace(0.5), options=ClientOptions(faithful=True)).drivers[0].player
    assert not any(one.type == "pingreq" for one in faithful.live.script.entries)


def test_ports_lead_elsewhere() -> None:
    goal = BrokerTarget(
        parse_broker("mqtt://localhost:1884"), ports={1883: 1885}, addresses=[Address(2, ("127.0.0.1", 1884))]
    )

    assert goal.of(8883) == (goal.target, goal.addresses)
    target, addresses = goal.of(1883)
    assert target.port == 1885
    assert addresses == [Address(2, ("127.0.0.1", 1885))]
