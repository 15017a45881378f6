"""Meaning of the operators: absent fields, relative times, bytes, and laws between operators."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope import filter as filters
from mqttscope.events import Event, PacketEvent
from mqttscope.filter.operators import pattern
from mqttscope.mqtt import Publish
from mqttscope.mqtt.topics import matches
from mqttscope.session import Connection
from tests.filter.samples import SAMPLES, SECOND, START_NS, old, packet

ABSENT = ["qos", "topic", "type", "frame", "will_qos", "topic_alias", "payload", "client", "client.address", "time"]


@pytest.mark.parametrize("field", ABSENT)
def test_all_comparisons_of_a_field_that_is_absent_are_false_and_their_opposites_true(field: str) -> None:
    value = {"type": "publish", "client": "10.0.0.4:51234", "client.address": "10.0.0.4", "time": "+0s"}.get(field, "1")
    if field in ("topic", "payload"):
        value = '"1"'
    error = SAMPLES["error"]
    for operator in ("==", "!=", "in", "not in"):
        assert not filters.compile(f"{field} {operator} {value}").matches(error)
        assert filters.compile(f"not ({field} {operator} {value})").matches(error)
    assert not filters.compile(f"exists {field}").matches(error)


class TestRelativeTimes:
    def at(self, seconds: float) -> Event:
        event = packet(Publish(topic_name="a"), topic="a")
        event.timestamp_ns = START_NS + int(seconds * SECOND)
        return event

    def test_count_from_the_first_event_asked_about_even_where_the_rest_decides(self) -> None:
        compiled = filters.compile("connect and time < +30s or publish and time >= +30s")
        assert compiled.start_ns is None
        assert not compiled.matches(self.at(0))
        assert compiled.start_ns == START_NS
        assert not compiled.matches(self.at(29.999_999))
        assert compiled.matches(self.at(30))

    def test_are_false_until_an_event_has_a_time(self) -> None:
        compiled = filters.compile("time >= +0s")
        assert not compiled.matches(SAMPLES["error"])
        assert compiled.start_ns is None
        assert compiled.matches(self.at(5))
        assert compiled.start_ns == START_NS + 5 * SECOND
        assert not compiled.matches(self.at(4))

    def test_may_be_given_another_start(self) -> None:
        compiled = filters.compile("time == +2s")
        compiled.start_ns = START_NS - 2 * SECOND
        assert compiled.matches(self.at(0))

    def test_leave_an_expression_without_them_no_start(self) -> None:
        compiled = filters.compile("qos == 0")
        compiled.matches(self.at(0))
        compiled.start_ns = START_NS
        assert compiled.start_ns is None

    def test_survive_pickling_with_their_start(self) -> None:
        compiled = filters.compile("time < +3s")
        compiled.matches(self.at(0))
        again = pickle.loads(pickle.dumps(compiled))
        assert (again.text, again.start_ns) == (compiled.text, START_NS)
        assert again.matches(self.at(2))
        assert not again.matches(self.at(3))
        assert repr(again) == "Filter('time < +3s')"


def test_two_filters_of_one_text_have_starts_of_their_own() -> None:
    first, second = filters.compile("time < +1s"), filters.compile("time < +1s")
    first.matches(SAMPLES["opened"])
    assert second.start_ns is None


def publish(topic: str = "a/b", payload: bytes = b"", qos: int = 0) -> PacketEvent:
    new_publish = Publish(qos=qos, topic_name=topic, payload=payload, packet_identifier=1 if qos else None)
    return PacketEvent(old, SAMPLES["publish"].direction, 0, 1, START_NS, "a.pcap", new_publish, topic)  # type: ignore[union-attr]


BYTES: list[tuple[str, bytes, bool]] = [
    (r'payload == "\xff\x00"', b"\xff\x00", True),
    (r'payload contains "\x00"', b"a\x00b", True),
    (r'payload contains "\0"', b"ab", False),
    (r'payload == "\n\r\t\\\"\'\/"', b"\n\r\t\\\"'/", True),
    (r'payload == "\U0001f600"', "😀".encode(), True),
    (r'payload like "[\x80-\xff]"', b"abc\x80", True),
    (r'payload like "[\x80-\xff]"', b"abc", False),
    (r"payload like '(?i)ERROR'", b"an error", True),
    (r"payload like 'say \"hi\"'", b'say "hi"', True),
    ("payload like 'é'", "é".encode(), True),
    ("payload contains 0xC3a9", "é".encode(), True),
    ("payload in {0xff, 'x'}", b"x", True),
    ("payload == 0x", b"", True),
]


@pytest.mark.parametrize(("expression", "payload", "expected"), BYTES, ids=[row[0] for row in BYTES])
def test_payloads_are_compared_as_bytes(expression: str, payload: bytes, expected: bool) -> None:
    assert filters.compile(expression).matches(publish(payload=payload)) is expected


def test_networks_and_addresses_tell_hosts_that_are_no_addresses_apart() -> None:
    named = publish()
    named.connection = Connection(3, "localhost:5000", "broker.example:1883", "a.pcap", 1, START_NS)
    assert not filters.compile("server.address in 10.0.0.0/8").matches(named)
    assert filters.compile('server.address not in {10.0.0.0/8, "::/0"}').matches(named)
    assert filters.compile('server.address == "broker.example" and server == "broker.example:1883"').matches(named)


def test_a_regular_expression_that_is_too_large_is_refused() -> None:
    for expression in ("a{99999999999999999999}", "(" * 2_000 + ")" * 2_000):
        with pytest.raises(filters.FilterError, match="not a regular expression"):
            filters.compile(f"topic like '{expression}'")


def test_a_lone_surrogate_is_found_by_its_three_bytes() -> None:
    event = publish(payload=b"x\xed\xa0\x80")
    assert filters.compile("payload endswith '\ud800'").matches(event)


def test_text_of_ill_formed_utf_8_is_found_by_its_bytes() -> None:
    ill_formed = publish(topic=b"a/\xc3\x28".decode("utf-8", "surrogateescape"))
    assert filters.compile(r'topic == "a/\xc3("').matches(ill_formed)
    assert filters.compile(r'topic contains "\xc3"').matches(ill_formed)
    assert filters.compile("topic.length == 4").matches(ill_formed)
    assert not filters.compile(r'topic contains "\xc3"').matches(publish(topic="a/é"))


def test_payload_length_counts_bytes_that_the_capture_lost() -> None:
    event = publish(payload=b"12345")
    event.packet.missing = 100
    assert filters.compile("payload.length == 105").matches(event)
    assert filters.compile("missing == 100 and topic.length == 3").matches(event)


@settings(max_examples=200, deadline=None)
@given(
    topic=st.lists(st.sampled_from(["", "a", "b", "$x", "+"]), min_size=1, max_size=4).map("/".join).filter(bool),
    wanted=st.lists(st.sampled_from(["a", "b", "+", "$x"]), min_size=1, max_size=4).map("/".join),
    qos=st.integers(0, 3),
    low=st.integers(0, 3),
    high=st.integers(0, 3),
)
def test_operators_agree_with_each_other(topic: str, wanted: str, qos: int, low: int, high: int) -> None:
    event = publish(topic=topic, qos=qos)

    def true(expression: str) -> bool:
        return filters.compile(expression).matches(event)

    assert true(f'topic matches "{wanted}"') is matches(wanted, topic)
    assert true(f'topic not matches "{wanted}"') is not matches(wanted, topic)
    assert true(f"qos == {low} or qos < {low}") is true(f"qos <= {low}") is (qos <= low)
    assert true(f"qos >= {low} && qos != {low}") is true(f"qos > {low}") is (qos > low)
    assert true(f"qos in {{{low}, {high}}}") is (qos in (low, high))
    if low <= high:
        assert true(f"qos in {low}..{high}") is true(f"not qos not in {low}..{high}") is (low <= qos <= high)
    assert true(f"not (qos == {low} or qos == {high})") is true(f"qos != {low} and not qos == {high}")


def test_and_binds_closer_than_or_in_long_chains() -> None:
    terms = [f"frame == {number} and qos == 9" for number in range(5_000)]
    event = publish()
    assert not filters.compile(" or ".join(terms[:2_000])).matches(event)
    assert filters.compile(" or ".join([*terms[:1_500], "qos == 0"])).matches(event)
    assert filters.compile(" and ".join(["qos == 0"] * 3_000)).matches(event)
    assert not filters.compile(" and ".join(["qos == 0"] * 3_000 + ["dup"])).matches(event)


@pytest.mark.parametrize(("written", "place"), [("(?", 1), ("a(", 1), ("", None), ("a", None), ("[a", 0), ("*", 0)])
def test_the_place_of_a_mistake_lies_in_the_expression(written: str, place: int | None) -> None:
    compiled = pattern(written, binary=False)

    assert (compiled[1] if isinstance(compiled, tuple) else None) == place
