"""Copies of scripts, and their links after entries were taken out."""

from __future__ import annotations

import pytest

from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.links import (
    Changes,
    copy_scripts,
    drop,
    renumber,
    restore_aliases,
    set_packet,
    shared_too,
    with_client,
    with_topics,
)
from tests.each import each
from tests.replay.recordings import NAMES, Recorder, captured, check_links, check_untouched, recorded, snapshot, told


def test_changes_are_counted_and_said_in_the_order_in_which_they_came() -> None:
    changes = Changes()
    assert not changes
    changes.count("Topic Name", "mapped")
    changes.note("something else")
    changes.count("Topic Name", "mapped", 2)
    changes.count("delivery", "dropped", 2)
    changes.count("Topic Alias", "written out", 2)
    changes.count("packet", "dropped", 0)
    changes.note("something else")

    assert changes.sentences == [
        "3 Topic Names mapped",
        "something else",
        "2 deliveries dropped",
        "2 Topic Aliases written out",
    ]


def test_changes_of_several_steps_are_added() -> None:
    changes, other = Changes(), Changes()
    changes.count("packet", "dropped")
    other.count("packet", "dropped")
    other.note("done")
    changes.add(other)

    assert list(changes) == ["2 packets dropped", "done"]
    assert changes


def upper(text: str) -> str:
    return text.upper()


TOPICS = [
    ("publish a", "publish A", ["Topic Name"]),
    ("publish - topic_alias=1 response_topic=r", "publish - topic_alias=1 response_topic=R", ["Response Topic"]),
    (
        "connect will=a will.response_topic=r will.will_delay_interval=3",
        "connect will=A will.response_topic=R will.will_delay_interval=3",
        ["Will Topic", "Response Topic"],
    ),
    ("subscribe 1 a:1 $share/g/b:2,no_local", "subscribe 1 A:1 $share/g/B:2,no_local", ["Topic Filter"] * 2),
    ("unsubscribe 1 a A $share/g/a", "unsubscribe 1 A A $share/g/A", ["Topic Filter"] * 2),
]


@each("words, wanted, counted", TOPICS)
def test_topics_are_changed_wherever_they_stand(words: str, wanted: str, counted: list[str]) -> None:
    packet, texts = parse_packet(words.split()), list[str]()
    before = repr(packet)

    assert with_topics(packet, upper, shared_too(upper), texts.append) == parse_packet(wanted.split())
    assert texts == counted
    assert repr(packet) == before


@each(
    "words",
    [
        "publish A properties",
        "publish - content_type=a",
        "connect",
        "connect will=A",
        "subscribe 1 A",
        "unsubscribe 1 A",
        "pingreq",
    ],
)
def test_what_does_not_change_is_the_same_packet(words: str) -> None:
    packet = parse_packet(words.split())
    assert with_topics(packet, upper, upper, lambda thing: pytest.fail(thing)) is packet


def test_client_identifiers_are_changed_in_both_directions() -> None:
    assert with_client(packets.Connect(client_identifier="a"), upper) == packets.Connect(client_identifier="A")
    assigned = packets.Connack(properties=Properties(assigned_client_identifier="a", receive_maximum=3))
    assert with_client(assigned, upper) == packets.Connack(
        properties=Properties(assigned_client_identifier="A", receive_maximum=3)
    )
    for packet in (
        packets.Connect(),
        packets.Connect(client_identifier="A"),
        packets.Connack(),
        packets.Connack(properties=EMPTY),
        packets.Pingreq(),
    ):
        assert with_client(packet, lambda text: text.upper() or "x") is packet


@each("name", NAMES)
def test_a_copy_shares_packets_and_has_links_of_its_own(name: str) -> None:
    scripts = captured(name)
    before = snapshot(scripts)
    copies = copy_scripts(scripts)

    check_untouched(scripts, copies)
    check_links(copies)
    assert snapshot(scripts) == before


def test_a_dropped_publish_takes_its_answers_with_it() -> None:
    scripts = copy_scripts(recorded("> publish a qos=2 id=1", "> publish b", "< pubrec 1", "> pubrel 1", "< pubcomp 1"))
    out = drop(scripts, [scripts[0].entries[2]])
    renumber(scripts)

    assert len(out) == 4
    assert told(scripts[0]) == ">connect <connack >publish"
    check_links(scripts)
    assert scripts[0].ended_place == 3


def test_the_next_repetition_takes_the_place_of_a_dropped_publish() -> None:
    first = "publish a qos=1 id=1"
    scripts = copy_scripts(
        recorded(f"> {first}", "> publish a qos=1 id=1 dup", "> publish a qos=1 id=1 dup", "< puback 1")
    )
    (script,) = scripts
    drop(scripts, [script.entries[2]])
    renumber(scripts)
    heir, again, answer = script.entries[2:]

    assert heir.packet == parse_packet(first.split())
    assert heir.raw == encode(heir.packet, script.version)
    assert (heir.resends, again.resends, answer.answers) == (None, heir, heir)
    check_links(scripts)


def test_links_to_other_connections_are_kept_and_lost_with_them() -> None:
    recorder = Recorder()
    recorder.connection("> publish a qos=1 id=1")
    recorder.connection("> publish a qos=1 id=1 dup")
    first, second = copy_scripts(recorder.scripts)

    assert second.entries[2].resends is first.entries[2]
    (alone,) = copy_scripts(recorder.scripts[1:])
    assert alone.entries[2].resends is None


def test_entries_that_were_put_in_get_places_of_their_own() -> None:
    (script,) = copy_scripts(recorded("> publish a", "> publish b"))
    (more,) = copy_scripts([script])
    script.entries.insert(3, more.entries[2])
    renumber([script])

    assert [entry.place for entry in script.entries] == [0, 1, 2, 3, 4]
    assert script.ended_place == 5


def test_an_alias_gets_its_topic_back_when_what_set_it_is_gone() -> None:
    again = "> publish - topic_alias=1"
    scripts = recorded(
        "> publish a topic_alias=1", again, again, "> publish - topic_alias=2", "< publish - topic_alias=1"
    )
    (whole,) = copy_scripts(scripts)
    assert restore_aliases(whole) == 0
    (script,) = copies = copy_scripts(scripts)
    drop(copies, [script.entries[2]])

    assert restore_aliases(script) == 1
    texts = [entry.packet.topic_name for entry in script.entries if isinstance(entry.packet, packets.Publish)]
    assert texts == ["a", "", "", ""]


def test_bytes_follow_what_is_said() -> None:
    (script,) = copy_scripts(recorded("> publish a"))
    entry = script.entries[2]
    set_packet(entry, packets.Publish(topic_name="bc", payload=b"x"), script.version)

    assert entry.raw == entry.packet.raw == bytes.fromhex("30 06 0002 6263 00 78")
