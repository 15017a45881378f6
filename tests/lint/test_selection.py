"""Which findings are wanted, and when that is known."""

from __future__ import annotations

import pytest

from mqttscope import filter as filters
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.lint.selection import Selection
from mqttscope.mqtt import Connect, Publish, encode
from tests.dissect.talk import V3_1_1, Talk


def talk() -> Talk:
    said = Talk()
    said.handshake()
    said.client(encode(Connect(client_identifier="pump-1"), V3_1_1))
    said.client(encode(Publish(topic_name="a", payload=b"b"), V3_1_1))
    return said


def taken(selection: Selection[str]) -> list[list[str]]:
    """What is given out at each event, where each has one finding named by what happens."""
    dissector = Dissector()
    made = []
    for event in dissect_segments(talk().tape.segments, dissector=dissector):
        name = getattr(getattr(event, "packet", None), "packet_type", type(event).__name__)
        made.append(selection.take(event, [str(name)]))
    return made


def test_what_waits_for_the_client_comes_where_it_is_known() -> None:
    selection = Selection[str](clients=("pump-*",))

    assert taken(selection) == [[], ["ConnectionOpened", "1"], ["3"], ["ConnectionClosed"]]
    assert (selection.events, selection.packets, selection.left_out) == (4, 2, 0)
    assert selection.spoken == {"a.pcap"}


def test_room_for_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.selection.MAX_WAITING", 0)
    cut, roomy = Selection[str](clients=("*",)), Selection[str](clients=("*",), most=5)

    assert taken(cut)[1] == ["1"]
    assert cut.left_out == 1
    assert taken(roomy)[1] == ["ConnectionOpened", "1"]
    assert roomy.left_out == 0


def test_a_filter_and_connections() -> None:
    assert taken(Selection(wanted=filters.compile("publish"))) == [[], [], ["3"], []]
    assert not any(taken(Selection(connections=(1,))))
    assert Selection[str](connections=(3,)).missing(1) == "there is no connection 3: the only one is number 0"


def test_other_clients() -> None:
    selection = Selection[str](clients=("valve",))

    assert not any(taken(selection))
    assert selection.missing(1) == "no packet of a client 'valve'"


@pytest.mark.parametrize(
    ("expression", "of_the_run"),
    [("publish", False), ("connection == 1", True), ("not (qos > 0 or packet < 3)", True), ("time < +3s", True)],
)
def test_filters_that_ask_for_what_only_the_run_knows(expression: str, of_the_run: bool) -> None:
    assert filters.compile(expression).is_of_the_run is of_the_run
