"""Mappings of clients, topics and filters with the laws that they keep, and many clients out of one recording."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import is_valid_topic_name, matches
from mqttscope.replay.rewrite.links import Changes, RewriteError
from mqttscope.replay.rewrite.names import ClientMapping, TopicMapping, map_clients, map_topics, multiply
from mqttscope.replay.script import Script
from tests.each import each
from tests.replay.recordings import (
    NAMES,
    V3_1,
    Recorder,
    captured,
    certain,
    changed,
    check_links,
    packets,
    recorded,
    snapshot,
)


@pytest.mark.parametrize(
    ("mapping", "client", "wanted"),
    [
        ("a=b", "a", "b"),
        ("a=b", "ab", None),
        ("*=load-*", "a", "load-a"),
        ("sensor-*=*-load", "sensor-1", "1-load"),
        ("*-*=*.*", "a-b-c", "a.b-c"),
        ("a.c=x", "abc", None),
        (r"a\=*=*", "a=b", "b"),
    ],
)
def test_mappings(mapping: str, client: str, wanted: str | None) -> None:
    assert ClientMapping.parse(mapping).client(client) == wanted


@pytest.mark.parametrize("mapping", ["a", "*=a", "a=*", "a=b=c", "*="])
def test_mappings_that_are_refused_of_clients(mapping: str) -> None:
    with pytest.raises(RewriteError):
        ClientMapping.parse(mapping)


def mapped_clients(scripts: list[Script], *mappings: str) -> tuple[list[Script], list[str]]:
    parsed = [ClientMapping.parse(mapping) for mapping in mappings]
    copies, changes = changed(scripts, lambda copies, changes: map_clients(copies, parsed, changes))
    return copies, changes.sentences


def test_connect_and_connection_have_the_new_name() -> None:
    scripts = recorded()
    (script,), texts = mapped_clients(scripts, "c*=d*", "*=never-*")

    assert script.name == "d1"
    assert isinstance(script.entries[0].packet, Connect)
    assert script.entries[0].packet.client_identifier == "d1"
    assert script.entries[0].raw != scripts[0].entries[0].raw
    assert script.entries[1].raw is scripts[0].entries[1].raw
    assert scripts[0].name == "c1"
    assert texts == ["1 Client Identifier mapped", "the client mapping *=never-* applied to no client"]


def test_an_assigned_client_identifier_is_mapped_and_an_empty_one_stays_empty() -> None:
    hello = Connect(protocol_level=5)
    connack = Connack(properties=Properties(assigned_client_identifier="auto-1"))
    (script,), texts = mapped_clients(recorded((">", hello), ("<", connack), client=None), "*=x-*")

    assert packets(script) == [hello, Connack(properties=Properties(assigned_client_identifier="x-auto-1"))]
    assert script.name == "x-auto-1"
    assert texts == ["1 Client Identifier mapped that a server assigned"]


def test_clients_that_become_one_are_told() -> None:
    recorder = Recorder()
    recorder.connection(client="a")
    recorder.connection(client="b")
    _, texts = mapped_clients(recorder.scripts, "a=b")

    assert texts[-1] == "'a', 'b' are all 'b' now: they will take each other's sessions over"


def test_limits_of_client_identifiers() -> None:
    _, texts = mapped_clients(recorded(version=V3_1), f"*={'x' * 23}*")
    assert "1 Client Identifier longer than the 23 characters of MQTT 3.1: servers may refuse it" in texts
    with pytest.raises(RewriteError, match="not a Client Identifier"):
        mapped_clients(recorded(), f"*={'x' * 65_535}*")


NAMES_MAPPED = [
    ("site/+/temp=lab/+/temp", "site/1/temp", "lab/1/temp"),
    ("site/+/temp=lab/+/temp", "site/1/2/temp", None),
    ("site/+/temp=lab/+/temp", "site//temp", "lab//temp"),
    ("site/#=lab/#", "site/1/temp", "lab/1/temp"),
    ("site/#=lab/#", "site", "lab"),
    ("site/#=lab/#", "site/", "lab/"),
    ("site/#=lab/#", "sites/1", None),
    ("site/#=#", "site/1", "1"),
    ("site/#=#", "site", None),
    ("site/#=#", "site/", None),
    ("site/#=#", "site/$SYS/x", None),
    ("#=lab/#", "a", "lab/a"),
    ("#=lab/#", "/a", "lab//a"),
    ("#=lab/#", "$SYS/a", None),
    ("+/a=x/+", "$SYS/a", None),
    ("$SYS/#=system/#", "$SYS/a", "system/a"),
    ("a/+/b/+/#=+/x/+/#", "a/1/b/2/3/4", "1/x/2/3/4"),
    ("a=b/c", "a", "b/c"),
    ("a=b", "a/b", None),
    (r"a\=1=b\=2", "a=1", "b=2"),
    ("site/=lab/", "site/", "lab/"),
]


@each("mapping, topic, wanted", NAMES_MAPPED)
def test_names(mapping: str, topic: str, wanted: str | None) -> None:
    assert TopicMapping.parse(mapping).name(topic) == wanted


FILTERS_MAPPED = [
    ("site/+/temp=lab/+/temp", "site/+/temp", "lab/+/temp"),
    ("site/+/temp=lab/+/temp", "site/1/temp", "lab/1/temp"),
    ("site/+/temp=lab/+/temp", "site/#", None),
    ("site/+/temp=lab/+/temp", "site/+/+", None),
    ("site/+=lab/+", "site/#", None),
    ("site/#=lab/#", "site/#", "lab/#"),
    ("site/#=lab/#", "site", "lab"),
    ("site/#=lab/#", "site/+/#", "lab/+/#"),
    ("site/#=lab/#", "#", None),
    ("site/#=lab/#", "+/x", None),
    ("#=lab/#", "#", "lab/#"),
    ("#=lab/#", "+/x", "lab/+/x"),
    ("#=lab/#", "$SYS/#", None),
    ("site/#=#", "site/#", "#"),
    ("site/#=#", "site", None),
    ("site/#=#", "site/$SYS/#", None),
    ("a=b", "a", "b"),
    ("a=b", "a/#", None),
    ("a=b", "a/#/c", None),
]


@pytest.mark.parametrize(("mapping", "asked", "wanted"), FILTERS_MAPPED)
def test_filters(mapping: str, asked: str, wanted: str | None) -> None:
    assert TopicMapping.parse(mapping).topic_filter(asked) == wanted


@pytest.mark.parametrize(
    ("mapping", "asked", "wanted"),
    [
        ("site/+/temp=x/+", "site/#", True),
        ("site/+/temp=x/+", "#", True),
        ("site/+/temp=x/+", "+/1/+", True),
        ("site/#=x/#", "site", True),
        ("site/#=x/#", "+", True),
        ("site/#=x/#", "lab/+", False),
        ("site/a=x", "site", False),
        ("#=x/#", "$SYS/#", False),
        ("$SYS/a=x", "#", False),
    ],
)
def test_filters_that_may_match_the_same(mapping: str, asked: str, wanted: bool) -> None:
    assert TopicMapping.parse(mapping).touches(asked) == wanted


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("a", "write FROM=TO"),
        ("a=b=c", r"\= for an equals sign"),
        ("=a", "write FROM=TO"),
        ("a/+=b", "the same wildcards in the same order"),
        ("a/+/#=b/#", "the same wildcards"),
        ("a/#/b=c/#/b", "# must be the last level"),
        ("a+=b+", r"\+ must be alone in its level"),
        ("$share/g/a=b", "leave out \\$share"),
    ],
)
def test_mappings_that_are_refused(mapping: str, expected: str) -> None:
    with pytest.raises(RewriteError, match=expected.replace("\\=", "\\\\=")):
        TopicMapping.parse(mapping)


def mapped(scripts: list[Script], *mappings: str) -> tuple[list[Script], Changes]:
    parsed = [TopicMapping.parse(mapping) for mapping in mappings]
    return changed(scripts, lambda copies, changes: map_topics(copies, parsed, changes))


def test_the_first_mapping_that_applies_is_used_in_both_directions() -> None:
    scripts = recorded(
        "> publish site/a topic_alias=1 response_topic=site/r",
        "> publish - topic_alias=1",
        "< publish site/b",
        "> subscribe 1 site/b $share/g/site/# #",
        "> unsubscribe 2 other",
    )
    (script,), changes = mapped(scripts, "site/a=first", "site/#=lab/#", "nobody=none")
    actual_packets = packets(script)[2:]

    assert actual_packets == [
        Publish(topic_name="first", properties=Properties(topic_alias=1, response_topic="lab/r")),
        Publish(topic_name="", properties=Properties(topic_alias=1)),
        Publish(topic_name="lab/b"),
        Subscribe(1, subscriptions=[Subscription("lab/b"), Subscription("$share/g/lab/#"), Subscription("#")]),
        Unsubscribe(2, topic_filters=["other"]),
    ]
    assert [entry.topic for entry in script.entries[2:5]] == ["first", "first", "lab/b"]
    assert script.entries[3].raw is scripts[0].entries[3].raw
    assert changes.sentences == [
        "2 Topic Names mapped",
        "1 Response Topic mapped",
        "1 Topic Name mapped where an alias stands for it",
        "2 Topic Filters mapped",
        "1 Topic Filter wider than 'site/a': 'site/#' may receive more than was recorded, or less",
        "1 Topic Filter wider than 'site/a': '#' may receive more than was recorded, or less",
        "the topic mapping nobody=none applied to nothing; for all topics below it write nobody/#=none/#",
    ]


@each("name", NAMES)
def test_there_and_back_again(name: str) -> None:
    """Everything below a new level and back is what it was, byte for byte."""
    scripts = captured(name)
    there, _ = mapped(scripts, "#=there/#")
    back, _ = mapped(there, "there/#=#")

    for old, new in zip(scripts, back, strict=True):
        if not certain(old):
            continue
        for script_entry, other in zip(old.entries, new.entries, strict=True):
            assert (other.topic, other.packet) == (script_entry.topic, script_entry.packet)
            if not getattr(script_entry.packet, "missing", 0):
                assert other.raw == script_entry.raw


level = st.sampled_from(["", "a", "b", "site", "1", "é"])
topics = st.lists(level, min_size=1, max_size=5).map("/".join).filter(bool)
wild = st.lists(st.one_of(level, st.just("+")), min_size=1, max_size=4)


@st.composite
def mappings(draw: st.DrawFn) -> TopicMapping:
    source = draw(wild)
    target = [text for text in source if text == "+"]
    for extra in draw(st.lists(level, max_size=3)):
        target.insert(draw(st.integers(0, len(target))), extra)
    target = target or ["x"]
    if draw(st.booleans()):
        source, target = [*source, "#"], [*target, "#"]
    if not any(source) or not any(target):
        source, target = ["#"], ["new", "#"]
    return TopicMapping("/".join(source), "/".join(target))


@given(mappings(), topics)
def test_what_matched_the_left_side_matches_the_right_side_afterwards(mapping: TopicMapping, topic: str) -> None:
    text = mapping.name(topic)

    if not matches(mapping.source, topic, shared=False):
        assert text is None
    elif text is not None:
        assert is_valid_topic_name(text)
        assert matches(mapping.target, text, shared=False)
        assert TopicMapping(mapping.target, mapping.source).name(text) == topic


@given(mappings(), topics, st.data())
def test_a_filter_that_matched_a_topic_matches_the_mapped_one(
    mapping: TopicMapping, topic: str, data: st.DataObject
) -> None:
    levels = topic.split("/")
    asked = [data.draw(st.sampled_from([text, "+"])) for text in levels]
    if data.draw(st.booleans()):
        asked = [*asked[: data.draw(st.integers(0, len(asked)))], "#"]
    assume(any(asked))
    new_filter, new_topic = mapping.topic_filter("/".join(asked)), mapping.name(topic)

    assert matches("/".join(asked), topic, shared=False)
    if new_filter is not None and new_topic is not None:
        assert matches(new_filter, new_topic, shared=False)
    if new_filter is not None:
        assert matches(mapping.source, topic, shared=False)
    elif matches(mapping.source, topic, shared=False):
        assert mapping.touches("/".join(asked))


@each("name", NAMES)
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
            for script_entry, other in zip(script.entries, copy.entries, strict=True):
                assert (other.place, other.timestamp_ns) == (script_entry.place * 3 + index, script_entry.timestamp_ns)
                if script_entry.type not in ("connect", "connack"):
                    assert other.packet is script_entry.packet
                    assert other.raw is script_entry.raw


def test_names_get_numbers_and_topics_follow_their_template() -> None:
    recorder = Recorder()
    hello = Connect(protocol_level=5, client_identifier="c", will=Will("will"))
    recorder.connection(
        (">", hello),
        "> publish a topic_alias=1 response_topic=r",
        "> publish - topic_alias=1",
        "> subscribe 1 # $SYS/# $share/g/+",
        client=None,
    )
    copies, changes = multiply(recorder.scripts, 2, "load/{n:02}/{topic}")
    second = packets(copies[1])

    assert [script.name for script in copies] == ["c-1", "c-2"]
    assert second == [
        Connect(protocol_level=5, client_identifier="c-2", will=Will("load/02/will")),
        Publish(topic_name="load/02/a", properties=Properties(topic_alias=1, response_topic="load/02/r")),
        Publish(topic_name="", properties=Properties(topic_alias=1)),
        Subscribe(
            1,
            subscriptions=[Subscription("load/02/#"), Subscription("$SYS/#"), Subscription("$share/g/load/02/+")],
        ),
    ]
    assert [entry.topic for entry in copies[1].entries] == [None, "load/02/a", "load/02/a", None]
    assert copies[1].entries[2].packet is recorder.scripts[0].entries[2].packet
    assert changes.sentences == ["2 connections made of 1 recorded"]


def test_a_client_without_a_name_gets_none() -> None:
    connack = Connack(properties=Properties(assigned_client_identifier="auto"))
    copies, _ = multiply(recorded("> connect client=", ("<", connack), client=None), 2)

    assert [script.name for script in copies] == ["auto-1", "auto-2"]
    assert [packets(script)[0] for script in copies] == [Connect(protocol_level=5)] * 2
    copies, changes = multiply(recorded("> connect 3.1.1 client=", client=None), 2)
    assert changes.sentences[0] == "2 connections without a Client Identifier of its own"


@pytest.mark.parametrize(
    ("count", "topic", "expected"),
    [
        (0, "{topic}", "0 copies"),
        (2, "load", "ends with {topic}"),
        (2, "{topic}/{n}", "ends with {topic}"),
        (2, "{n}-{topic}", "after a slash"),
        (2, "+/{topic}", "no wildcards"),
        (2, "$x/{topic}", "no \\$"),
        (2, "{client}/{topic}", "nothing else in braces"),
        (2, "{n/{topic}", "nothing else in braces"),
        (2, f"{'x' * 65_535}/{{topic}}", "too long"),
    ],
)
def test_templates_that_are_refused(count: int, topic: str, expected: str) -> None:
    with pytest.raises(RewriteError, match=expected.replace("{", r"\{")):
        multiply(recorded("> publish a"), count, topic)
