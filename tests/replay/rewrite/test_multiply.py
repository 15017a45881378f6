"""Many clients out of one recording."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.rewrite.links import RewriteError
from mqttscope.replay.rewrite.multiply import multiply
from tests.replay.recordings import NAMES, Recorder, captured, check_links, packets, recorded, snapshot


@pytest.mark.parametrize("name", NAMES)
def test_copies_interleave_and_share_what_is_equal(name: str) -> None:
    scripts = captured(name)
    before = snapshot(scripts)
    copies, _ = multiply(scripts, 3)

    assert snapshot(scripts) == before
    check_links(copies)
    assert len(copies) == 3 * len(scripts)
    assert len({script.connection.number for script in copies}) == len(copies)
    by_number = {script.connection.number: script for script in copies}
    step = 1 + max((script.connection.number for script in scripts), default=0)
    for script in scripts:
        number = script.connection.number
        for index in range(3):
            copy = by_number[number + index * step]
            assert (copy.opened_ns, copy.opened_place) == (script.opened_ns, script.opened_place * 3)
            for one, other in zip(script.entries, copy.entries, strict=True):
                assert (other.place, other.timestamp_ns) == (one.place * 3 + index, one.timestamp_ns)
                if one.type not in ("connect", "connack"):
                    assert other.packet is one.packet
                    assert other.raw is one.raw


def test_names_and_topics_follow_their_templates() -> None:
    recorder = Recorder()
    hello = Connect(protocol_level=5, client_identifier="c", will=Will("will"))
    recorder.connection(
        (">", hello),
        (">", Publish(topic_name="a", properties=Properties(topic_alias=1, response_topic="r"))),
        (">", Publish(topic_name="", properties=Properties(topic_alias=1))),
        (">", Subscribe(1, subscriptions=[Subscription("#"), Subscription("$SYS/#"), Subscription("$share/g/+")])),
        client=None,
    )
    copies, changes = multiply(recorder.scripts, 2, "{n:03}:{client}", "load/{n}/{topic}")
    second = packets(copies[1])

    assert [script.name for script in copies] == ["001:c", "002:c"]
    assert second == [
        Connect(protocol_level=5, client_identifier="002:c", will=Will("load/2/will")),
        Publish(topic_name="load/2/a", properties=Properties(topic_alias=1, response_topic="load/2/r")),
        Publish(topic_name="", properties=Properties(topic_alias=1)),
        Subscribe(
            1,
            subscriptions=[Subscription("load/2/#"), Subscription("$SYS/#"), Subscription("$share/g/load/2/+")],
        ),
    ]
    assert [entry.topic for entry in copies[1].entries] == [None, "load/2/a", "load/2/a", None]
    assert copies[1].entries[2].packet is recorder.scripts[0].entries[2].packet
    assert changes.sentences == ["2 connections made of 1 recorded"]


def test_a_client_without_a_name_gets_none() -> None:
    given = Connack(properties=Properties(assigned_client_identifier="auto"))
    copies, _ = multiply(recorded((">", Connect(protocol_level=5)), ("<", given), client=None), 2)

    assert [script.name for script in copies] == ["auto-1", "auto-2"]
    assert [packets(script)[0] for script in copies] == [Connect(protocol_level=5)] * 2
    copies, changes = multiply(recorded((">", Connect()), client=None), 2)
    assert changes.sentences[0] == "2 connections without a Client Identifier of its own"


@pytest.mark.parametrize(
    ("count", "client", "topic", "told"),
    [
        (0, "{client}-{n}", "{topic}", "0 copies"),
        (2, "{client}", "{topic}", "no {n}"),
        (2, "x-{n}", "{topic}", "no {client}"),
        (2, "{client}{n}{topic}", "{topic}", "nothing else in braces"),
        (2, "{client}{n", "{topic}", "nothing else in braces"),
        (2, "{client}{n}", "load", "ends with {topic}"),
        (2, "{client}{n}", "{topic}/{n}", "ends with {topic}"),
        (2, "{client}{n}", "{n}-{topic}", "after a slash"),
        (2, "{client}{n}", "+/{topic}", "no wildcards"),
        (2, "{client}{n}", "$x/{topic}", "no \\$"),
        (2, "{client}{n}", "{client}/{topic}", "nothing else in braces"),
        (2, "{client}{n}", f"{'x' * 65_535}/{{topic}}", "too long"),
    ],
)
def test_templates_that_are_refused(count: int, client: str, topic: str, told: str) -> None:
    with pytest.raises(RewriteError, match=told.replace("{", r"\{")):
        multiply(recorded((">", Publish(topic_name="a"))), count, client, topic)
