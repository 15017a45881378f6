"""Fields of what payloads hold: ``payload.temperature > 40``."""

from __future__ import annotations

import gzip
import pickle

import pytest

from tests import tools

tools.package("cbor2")

import cbor2

from mqttscope import filter as filters
from mqttscope.mqtt.properties import Properties
from mqttscope.payloads.decoders import Decoders, PayloadTable
from tests.each import each
from tests.payloads.samples import BIRTH, DATA, NBIRTH_TOPIC, NDATA_TOPIC, published
from tests.report.make import Talk, publish

JSON = b"""{"temperature": 41.5, "on": true, "off": false, "none": null, "name": "pump", "list": [1, 2, 3],
"m": [{"name": "T", "value": 4}], "a b": {"c": 1}, "deep": {"x": [{"y": 7}, {"y": 9}]}, "length": 5, "n": -3}"""


@each(
    "expression, matches",
    [
        ("payload.temperature > 40", True),
        ("payload.temperature > 41.5", False),
        ("payload.temperature >= 41.5 and payload.temperature < 0x30", True),
        ("publish.payload.temperature == 41.5", True),
        ("payload.temperature in {1, 40..42}", True),
        ("payload.temperature not in {1, 40..42}", False),
        ("payload.temperature in 1e3..2e3", False),
        ('payload.temperature == "41.5"', False),
        ("payload.temperature != 7", True),
        ("payload.lost != 7", False),
        ("payload.lost == null", False),
        ("payload.none == null", True),
        ("exists payload.none", True),
        ("exists payload.lost", False),
        ("payload.on", True),
        ("payload.off", False),
        ("not payload.off", True),
        ("payload.on == true and payload.off == false", True),
        ("payload.on == 1", False),
        ("payload.temperature", False),
        ("payload.name == 'pump'", True),
        ("payload.name startswith 'pu' and payload.name like 'u.p' and payload.name contains 'um'", True),
        ("payload.temperature contains '4'", False),
        ("payload.name > 'a' and payload.name < 'q'", True),
        ("payload.name in {'a', 'pump'}", True),
        ("payload.name in 'o'..'q'", True),
        ("payload.list == 2", True),
        ("payload.list[0] == 1 and payload.list[-1] == 3", True),
        ("payload.list[7] == 1", False),
        ("payload.list > 2", True),
        ("payload.deep.x.y > 8", True),
        ("payload.deep.x[0].y > 8", False),
        ('payload["a b"].c == 1 and payload["a b"]["c"] == 1', True),
        ('payload.m["T"].value == 4', True),
        ('payload.m["U"].value == 4', False),
        ('payload["length"] == 5', True),
        ("payload.length > 100", True),
        ("payload.n < -2 and payload.n == -3", True),
        ("payload.deep > 2", False),
    ],
)
def test_json_needs_no_configuration(expression: str, matches: bool) -> None:
    event = published(("a", JSON))[0]
    assert filters.compile(expression).matches(event) is matches


def test_other_formats_by_their_content_type_and_bytes_as_text() -> None:
    held = cbor2.dumps({"t": 1, "b": b"abc"})
    event = published(("a", held), properties=Properties(content_type="application/cbor"))[0]
    assert filters.compile("payload.t == 1 and payload.b == 'abc' and payload.b > 'a'").matches(event)
    assert filters.compile("payload.t == 1").matches(published(("a", gzip.compress(b'{"t":1}')))[0])


def test_events_without_such_a_payload_do_not_match() -> None:
    talk = Talk()
    damaged = talk.say(b"\x30\x05\x00\x09ab{")
    for event in (talk.opened(), *published(("a", b"on"), ("a", b"{"), ("a", b"")), damaged, talk.gap(3)):
        assert not filters.compile("payload.t == 1").matches(event)
        assert not filters.compile("exists payload.t").matches(event)


def test_tables_decode_by_topic() -> None:
    payloads = Decoders((PayloadTable("c", "cbor"),))
    good, other, bad = published(("c", cbor2.dumps({"t": 2})), ("j", b'{"t": 2}'), ("c", b'{"t": 2}'))
    test = filters.compile("payload.t == 2", payloads)
    assert [test.matches(event) for event in (good, other, bad)] == [True, True, False]
    again = pickle.loads(pickle.dumps(test))
    assert [again.matches(event) for event in (good, other, bad)] == [True, True, False]
    assert not test.is_of_the_run


def test_names_of_births_count_though_the_filter_passes_over_them() -> None:
    test = filters.compile(
        f'topic == "{NDATA_TOPIC}" and payload.metrics["Temperature"].value > 40',
        Decoders((PayloadTable("spBv1.0/#", "sparkplug-b"),)),
    )
    birth, data = published((NBIRTH_TOPIC, BIRTH), (NDATA_TOPIC, DATA))
    assert [test.matches(birth), test.matches(data)] == [False, True]
    # Only one process can know what came before.
    assert test.is_of_the_run


def test_whether_payloads_are_asked_for_is_known() -> None:
    assert filters.compile("payload.t == 1").asks_payloads
    assert not filters.compile("payload contains 'a' and payload.length > 1").asks_payloads
    plain = filters.compile("qos == 1")
    plain.use(Decoders((PayloadTable("#", "sparkplug-b"),)))
    assert not plain.is_of_the_run
    assert plain.matches(Talk().say(publish(qos=1, packet_identifier=1)))


@each(
    "expression, message, hint",
    [
        ("payload.lenght > 3", "unknown field 'payload.lenght'", "did you mean 'payload.length'?"),
        ("payload.t == x", "neither a number nor quoted text, true, false or null", 'text needs quotes: "x"'),
        ("payload.t == 1x", "neither a number", ""),
        ("payload.t == 0xzz", "neither a number", ""),
        ("payload.t > true", "cannot be compared by size", ""),
        ("payload.t contains 4", "is not quoted text", "put quotes around it"),
        ("payload.t matches 'a/#'", "is not a topic", "like"),
        ("payload.t like '('", "not a regular expression", ""),
        ("payload.t in 3..1", "ends before it begins", "write 1..3"),
        ("payload.t in 'a'..3", "from a number to a number", ""),
        ("payload[x] == 1", "expected a quoted name in the brackets", ""),
        ("payload['x' == 1", "expected ] here", ""),
        ("payload[1.5] == 1", "expected a quoted name in the brackets", ""),
        ("user_property[0] == 'a'", "expected a quoted name in the brackets", 'user_property["k"]'),
        ("user_property['a']['b'] == 'a'", "expected a quoted name in the brackets", ""),
        ("payload .t == 1", "unexpected character '.'", ""),
        (".t == 1", "unexpected character '.'", ""),
    ],
)
def test_mistakes(expression: str, message: str, hint: str) -> None:
    with pytest.raises(filters.FilterError) as caught:
        filters.compile(expression)
    assert message in caught.value.message
    assert hint in caught.value.hint
