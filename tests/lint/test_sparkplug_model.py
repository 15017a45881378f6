"""Edge nodes, devices and hosts as a connection shows them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Rule
from mqttscope.lint.sparkplug_model import EdgeNode, SparkplugModel
from mqttscope.mqtt.packets import Pingreq
from tests.lint.lint_help import steps_of, talked

NBIRTH = '> publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T#7:Int32=20)'
DBIRTH = "> publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S#8:Double=1.5)"


class Reader(Rule):
    """Makes the engine follow the model."""

    code = "TST290"
    severity = Severity.INFO
    looks_at: ClassVar[Any] = Pingreq
    models = (SparkplugModel,)

    def check(self, packet: Any, at: Any) -> None:
        """Nothing to report."""


def model(*lines: str) -> SparkplugModel:
    """The model after the last packet of a conversation."""
    linter = Linter([usual_rule(Reader)], strict=True)
    states: list[SparkplugModel] = []
    for event in dissect_segments(talked(*steps_of("opened 3.1.1", *lines))):
        linter.feed(event)
        states += event.connection.history.memories.values()  # type: ignore[union-attr]
    return states[-1]


def node(*lines: str) -> EdgeNode:
    return model(*lines).published["g/e"]


def test_births_have_metrics_aliases_and_numbers() -> None:
    edge = node(NBIRTH, DBIRTH)
    assert (edge.seq, edge.is_alive, edge.is_whole, edge.has_data) == (1, True, True, False)
    assert edge.devices[""].metrics == {"bdSeq": 4, "Node Control/Rebirth": 11, "T": 3}
    assert edge.devices["d"].metrics == {"S": 10}
    assert edge.aliases == {7: ("", "T"), 8: ("d", "S")}
    assert edge.definition({"alias": 8}, "d") == edge.definition({"name": "S"}, "d") == ("S", 10)
    assert edge.definition({"alias": 8}, "") is edge.definition({"name": "T"}, "d") is None
    assert edge.definition({"name": "other", "alias": 7}, "") == ("T", 3)


def test_an_nbirth_begins_again_and_a_dbirth_replaces_its_device() -> None:
    edge = node(NBIRTH, DBIRTH, "> publish spBv1.0/g/DBIRTH/e/d spb(seq=2 X#9:Int8=1)")
    assert (edge.devices["d"].metrics, edge.aliases) == ({"X": 1}, {7: ("", "T"), 9: ("d", "X")})
    edge = node(NBIRTH, DBIRTH, "> publish spBv1.0/g/NDATA/e spb(seq=2 #7=1)", NBIRTH)
    assert (list(edge.devices), edge.aliases, edge.seq, edge.has_data) == ([""], {7: ("", "T")}, 0, False)


def test_deaths() -> None:
    edge = node(NBIRTH, DBIRTH, "> publish spBv1.0/g/DDEATH/e/d spb(seq=2)")
    assert (edge.is_alive, edge.devices["d"].is_alive, edge.seq) == (True, False, 2)
    edge = node(NBIRTH, DBIRTH, "> publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0)")
    assert (edge.is_alive, edge.seq) == (False, 1)


@pytest.mark.parametrize(
    "lost",
    [
        "lost > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5)",
        "> publish spBv1.0/g/DBIRTH/e/d broken",
        '> raw 36 08 0003 "a/b" 0005 "x"',
    ],
)
def test_what_cannot_be_read_makes_numbers_and_metrics_unknown_until_the_next_birth(lost: str) -> None:
    edge = node(NBIRTH, lost, "> publish spBv1.0/g/DDATA/e/d spb(S=1)")
    assert (edge.seq, edge.is_whole) == (None, False)
    edge = node(NBIRTH, lost, NBIRTH)
    assert (edge.seq, edge.is_whole) == (0, True)


def test_a_message_that_is_sent_again_changes_nothing() -> None:
    data = "> publish spBv1.0/g/NDATA/e spb(seq={}) qos=1 id={}"
    assert node(NBIRTH, data.format(1, 5), data.format(2, 6), data.format(1, 5) + " dup").seq == 2


def test_a_rebirth_request_waits_for_the_nbirth() -> None:
    request = '< publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)'
    edge = node(NBIRTH, request, request)
    assert edge.rebirth is not None
    assert edge.rebirth.request.packet == 3
    assert node(NBIRTH, '< publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=false)').rebirth is None
    assert node(NBIRTH, request, NBIRTH).rebirth is None


def test_a_host_sees_births_apart_from_what_it_publishes() -> None:
    known = model(NBIRTH.replace(">", "<", 1), "> publish spBv1.0/g/NCMD/e spb(T=1)")
    assert known.published == {}
    assert known.received["g/e"].seq == 0


def test_states_of_hosts() -> None:
    known = model(
        "< publish spBv1.0/STATE/h state(online=true timestamp=5)",
        "< publish spBv1.0/STATE/h state(online=false timestamp=7)",
        "< publish spBv1.0/STATE/h ONLINE",
        "> publish spBv1.0/STATE/own state(online=true timestamp=9) retain",
        "> publish spBv1.0/STATE/own - retain",
    )
    state = known.states["h"]
    assert (state.online, state.timestamp, state.online_timestamp) == (False, 7, 5)
    assert (known.own_states["own"].online, list(known.states)) == (True, ["h"])


def test_topics_that_are_not_of_a_message_are_not_followed() -> None:
    topics = ("spBv1.0/g/NBIRTH/e/d", "spBv1.0/g/DBIRTH/e", "spBv1.0/g/NFOO/e", "spBv1.0/STATE", "spBv1.0/STATE/a/b")
    known = model(*(f"> publish {topic} spb(seq=0)" for topic in topics))
    assert known == SparkplugModel()
