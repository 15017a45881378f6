"""Parts of recordings."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import packets
from mqttscope.replay.rewrite.links import RewriteError
from mqttscope.replay.rewrite.select import RecordingTime, select
from tests.each import each
from tests.replay import recordings


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("90s", RecordingTime(90 * recordings.SECOND, relative=True)),
        ("1m30s", RecordingTime(90 * recordings.SECOND, relative=True)),
        ("+90s", RecordingTime(90 * recordings.SECOND, relative=True)),
        ("1.5", RecordingTime(1_500_000_000, relative=True)),
        ("0", RecordingTime(0, relative=True)),
        ("1970-01-01T00:01:30Z", RecordingTime(90 * recordings.SECOND)),
        ("1970-01-01T01:01:30+01:00", RecordingTime(90 * recordings.SECOND)),
    ],
)
def test_moments(text: str, wanted: RecordingTime) -> None:
    assert RecordingTime.parse(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "1970-01-01T00:01:30", "10x", "."])
def test_moments_that_are_refused(text: str) -> None:
    with pytest.raises(RewriteError):
        RecordingTime.parse(text)


@each("name", recordings.NAMES)
def test_nothing_asked_for_is_everything(name: str) -> None:
    scripts = recordings.captured(name)
    copies, changes = select(scripts)

    assert not changes
    recordings.check_untouched(scripts, copies)


@each("name", recordings.NAMES)
def test_what_is_left_holds_together(name: str) -> None:
    scripts = recordings.captured(name)
    before = recordings.snapshot(scripts)
    count = sum(len(script.entries) for script in scripts)
    half = RecordingTime.parse("0.7")
    for copies, _ in (
        select(scripts, start=half),
        select(scripts, end=half),
        select(scripts, start=RecordingTime.parse("0.3"), end=RecordingTime.parse("1.5")),
        select(scripts, places=range(0, count, 5)),
        select(scripts, places=range(count // 2), start=RecordingTime.parse("0.1")),
    ):
        recordings.check_links(copies)
        for script in copies:
            assert script.entries
    assert recordings.snapshot(scripts) == before


def test_clients_by_globs() -> None:
    recorder = recordings.Recorder()
    for name in ("sensor-1", "sensor-2", "other"):
        recorder.connection("> publish a", client=name)
    copies, changes = select(recorder.scripts, clients=["sensor-*", "nobody"])

    assert [script.name for script in copies] == ["sensor-1", "sensor-2"]
    recordings.check_links(copies)
    assert changes.sentences == ["1 connection of other clients left out", "no client is called 'nobody'"]


def seconds(number: int) -> RecordingTime:
    return RecordingTime(number * recordings.SECOND)


def test_a_connection_that_is_open_at_the_start_keeps_what_it_is() -> None:
    scripts = recordings.recorded(  # CONNECT at 1 s, CONNACK at 2 s
        "> subscribe 1 a b",  # 3
        "< suback 1 0 0",
        "> subscribe 2 c",  # 5
        "< suback 2 0",
        "> unsubscribe 3 b",  # 7
        "< unsuback 3 0",
        "> unsubscribe 4 c",  # 9
        "< unsuback 4 0",
        "> pingreq",  # 11
        "> publish x qos=1 id=5",  # 12
        "< pingresp",
        "< puback 5",
        "> publish y",  # 15
    )
    (script,), changes = select(scripts, start=seconds(13))

    assert recordings.told(script) == ">connect <connack >subscribe <suback >unsubscribe <unsuback >publish"
    assert [entry.timestamp_ns // recordings.SECOND for entry in script.entries] == [13] * 6 + [15]
    assert script.opened_ns == 13 * recordings.SECOND
    recordings.check_links([script])
    assert changes.sentences == [
        "6 packets from before the start kept and moved to it, of connections open then",
        "4 client packets left out by the span of time",
        "4 server packets no longer expected, left out by the span of time",
    ]


def test_answers_to_what_is_before_the_end_are_kept() -> None:
    scripts = recordings.recorded(
        "> publish a qos=1 id=1",  # 3
        "> publish b qos=1 id=2",
        "< puback 1",  # 5
        "< puback 2",
    )
    (script,), changes = select(scripts, end=seconds(4))

    assert recordings.told(script) == ">connect <connack >publish <puback"
    assert (script.ending.how, script.ending.by) == ("open", None)
    assert "1 connection open at the end of the span of time" in changes.sentences


def test_connections_outside_of_the_span_are_left_out() -> None:
    recorder = recordings.Recorder()
    for name in ("first", "second", "third"):  # 1 and 2, 3 and 4, 5 and 6 seconds
        recorder.connection(client=name)
    copies, _ = select(recorder.scripts, start=seconds(3), end=seconds(5))
    assert [script.name for script in copies] == ["second"]
    relative, _ = select(recorder.scripts, start=RecordingTime.parse("2s"), end=RecordingTime.parse("4s"))
    assert [script.name for script in relative] == ["second"]


def test_a_session_without_its_beginning_is_told() -> None:
    scripts = recordings.captured("v311-session-present")
    _, whole = select(scripts, clients=["*"])
    again = next(script for script in scripts if script.connection.session_present)
    left_scripts, changes = select(scripts, start=RecordingTime(again.opened_ns))

    assert not whole
    assert again.name in [script.name for script in left_scripts]
    assert "1 connection expected to find a session from a connection that is left out" in changes.sentences


def test_an_alias_whose_setting_was_cut_away_gets_its_topic() -> None:
    again = "> publish - topic_alias=1"
    recording = recordings.recorded("> publish a topic_alias=1", again, again)
    (script,), changes = select(recording, start=seconds(4))
    texts = [packet.topic_name for packet in recordings.packets(script) if isinstance(packet, packets.Publish)]

    assert texts == ["a", ""]
    assert changes.sentences[-1].endswith("topic written out: the packet that set the Topic Alias is left out")


def test_a_repetition_after_the_start_is_the_first() -> None:
    scripts = recordings.recorded(
        "> publish a qos=1 id=1",  # 3
        "> publish a qos=1 id=1 dup",
        "< puback 1",
    )
    (script,), _ = select(scripts, start=seconds(4))

    first = packets.Publish(qos=1, topic_name="a", packet_identifier=1)
    assert recordings.packets(script)[2:] == [first, packets.Puback(1)]
    assert script.entries[3].answers is script.entries[2]


def test_a_filter_keeps_what_the_protocol_needs() -> None:
    recorder = recordings.Recorder()
    recorder.connection(  # CONNECT has place 0
        "> subscribe 1 a/#",  # 2
        "< suback 1 0",
        "> subscribe 2 b",  # 4
        "< suback 2 0",
        "> publish a/1 qos=1 id=3",  # 6
        "< puback 3",
        "< publish a/1",  # 8
        "> publish b",  # 9
        "< publish b",
        "> pingreq",  # 11
        "< pingresp",
    )
    recorder.connection("> publish b", client="c2")
    (script,), changes = select(recorder.scripts, places={6, 8})

    assert (
        recordings.told(script) == ">connect <connack >subscribe <suback >publish <puback <publish >pingreq <pingresp"
    )
    recordings.check_links([script])
    assert changes.sentences == [
        "4 client packets left out by the filter",
        "3 server packets no longer expected, left out by the filter",
        "1 connection left out by the filter",
    ]
    (script,), _ = select(recorder.scripts, places={7})
    assert recordings.told(script) == ">connect <connack >publish <puback >pingreq <pingresp"
