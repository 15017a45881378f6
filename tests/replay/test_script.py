"""Scripts from captures: what answers what, what is sent again, how connections ended."""

from __future__ import annotations

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.replay.script import read_scripts
from tests import corpora
from tests.replay.recordings import captured
from tests.replay.talk import MS, START_NS, record


def test_each_answer_names_what_it_answers() -> None:
    _, sensor = captured("v5-qos")
    answered = [
        (script_entry.type, script_entry.answers and script_entry.answers.type)
        for script_entry in sensor.entries
        if script_entry.type != "publish"
    ]
    acknowledgements = [(name, "publish") for name in ("puback", "pubrec", "pubrel", "pubcomp")]

    assert answered == [("connect", None), ("connack", "connect"), *acknowledgements, ("disconnect", None)]
    places = {script_entry.place for script in captured("v5-qos") for script_entry in script.entries}
    assert places == set(range(len(places)))


def test_endings_say_who_ended_it() -> None:
    slow, office, again = captured("v311-redelivery")

    assert (slow.ending.how, slow.ending.by) == ("fin", "client")
    assert (office.ending.how, again.opened_place, slow.ended_place) == ("fin", 16, 16)
    assert [script.name for script in (slow, office, again)] == ["slow", "office", "slow"]


def test_bytes_that_were_lost_are_counted() -> None:
    assert all(not script.lost for script in captured("v5-qos"))
    assert sum(script.lost for script in captured("lost-in-payload")) > 0


def test_the_first_end_is_the_end() -> None:
    """A FIN of the client later on moves neither its time nor its place, and says nothing of who ended it."""
    script, other = record("a > connect\na < connack\na < half-fin\nb > connect\n+6 a < fin")
    ended_ns = START_NS + 3 * MS

    assert (script.ending.how, script.ending.by, script.ending.timestamp_ns) == ("fin", "server", ended_ns)
    assert (script.ended_place, other.opened_place) == (2, 2)


def test_what_a_client_says_behind_the_end_of_its_server_is_nobodys() -> None:
    late = "a > publish a qos=1 id=1\na > disconnect\n"
    (script,) = record(f"a > connect\na < connack\na < half-fin\n{late}a < fin")

    assert [script_entry.type for script_entry in script.entries] == ["connect", "connack"]
    assert script.late == 2


def test_what_a_server_still_answers_comes_before_the_end() -> None:
    """Who sends FIN first may read on."""
    (script,) = record("a > connect\na > half-fin\na < connack\na > fin")

    assert [script_entry.type for script_entry in script.entries] == ["connect", "connack"]
    assert (script.ended_place, script.late, script.ending.by) == (2, 0, "client")


def test_the_half_closed_connection_of_the_trials_ends_after_a_second() -> None:
    (script,) = read_scripts(dissect(open_capture([str(corpora.path("captures", "trials", "half.pcap"))])))

    assert (script.ending.how, script.ending.by) == ("fin", "server")
    assert 0.9e9 < script.ending.timestamp_ns - script.opened_ns < 1.1e9
