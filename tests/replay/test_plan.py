"""What is told before anything is sent."""

from __future__ import annotations

from mqttscope.mqtt import Disconnect, Properties, Subscribe, Subscription, Will
from mqttscope.replay.plan import MAX_NAMED, make_plan
from tests.replay.recordings import connack, connect, publish, recordings


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
