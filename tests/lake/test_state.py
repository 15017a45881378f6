"""What a flow remembers, written down and taken up again."""

from __future__ import annotations

import dataclasses
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.dissect import Dissector, Options
from mqttscope.lake import state
from mqttscope.lake.memory import connection_of
from mqttscope.lake.state import MAGIC, VERSION, NotSerializableError, StateError, dump, load
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import Linter
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties
from mqttscope.net.segment import Segment, reverse_key
from mqttscope.net.websocket import Inflater
from mqttscope.report.findings.json import FINDING
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.session.inflight import Exchange
from tests.dissect.scenes import mixed_tape
from tests.each import sampled
from tests.lake.reading import CAPTURES, read_segments
from tests.report.make import Lines

CUTS = 25
"""Cuts of each flow, at most."""

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None), max_size=40)
    | st.binary(max_size=40)
    | st.binary(max_size=9).map(bytearray)
    | st.sampled_from([*PacketType, *ProtocolVersion, *Direction]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
        | st.frozensets(st.binary(max_size=3), max_size=3)
        | st.builds(Exchange, st.integers(), st.integers(), st.integers(), st.integers(), st.text(max_size=4))
        | st.builds(lambda value: Properties.of([(1, value)]), inner)
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    for compress in (True, False):
        document = load(dump(value, compress=compress))

        assert document == value
        assert type(document) is type(value)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        load(data)
    with pytest.raises(StateError):
        load(MAGIC + bytes((VERSION,)) + data)


def signed(plain_bytes: bytes) -> bytes:
    body = b"z" + zlib.compress(plain_bytes)
    return MAGIC + bytes((VERSION,)) + zlib.crc32(body).to_bytes(4, "big") + body


@given(st.binary(max_size=40))
@settings(max_examples=300)
def test_bytes_that_are_sealed_well_make_a_value_or_are_refused(data: bytes) -> None:
    with suppress(StateError):
        load(signed(data))


def written(name: str) -> bytes:
    raw = name.encode()
    named = b"s" + len(raw).to_bytes(4, "big") + raw + b"(\0\0\0\0"
    return b"O\0\0" + len(named).to_bytes(4, "big") + named


@pytest.mark.parametrize(
    "name", ["os.system", "net.os.path", "lint.engine.Linter", "net.flows.FlowTable", "cli.main.cli", "lint.rule.Rule",
             "session..Connection", "subprocess.Popen", "net.segment.direction_key", "net.flows.HalfStream"]
)  # fmt: skip
def test_only_plain_classes_of_this_program_are_made(name: str) -> None:
    with pytest.raises(StateError):
        load(signed(written(name)))


def test_what_ends_early_nests_too_deeply_or_goes_on_is_refused() -> None:
    body = dump([1, "two", {"three": 3}], compress=False)[10:]
    for cut in range(len(body)):
        with pytest.raises(StateError):
            load(signed(body[:cut]))
    with pytest.raises(StateError):
        load(signed(body + b"N"))
    with pytest.raises(StateError):
        load(signed(b"[\0\0\0\1" * 100_000))
    with pytest.raises(StateError, match="version 12"):
        load(MAGIC + b"\x0c" + dump(1)[5:])
    with pytest.raises(StateError, match="damaged"):
        load(dump([1])[:-1] + b"x")


def test_other_objects_are_no_plain_data() -> None:
    @dataclasses.dataclass
    class Local:
        value: int = 0

    for value in (object(), open, Local(), Linter([]), 1j, 1 << 2040):
        with pytest.raises(NotSerializableError):
            dump([value])
    assert state.allow(Local) is Local
    assert load(dump(Local(3))) == Local(3)


def test_what_is_shared_stays_shared() -> None:
    exchange = Exchange(1, 2, 3, 4, "publish")
    document = load(dump([exchange, {"again": exchange}, dataclasses.replace(exchange)]))

    assert document[0] is document[1]["again"]
    assert document[0] is not document[2]
    assert document[0] == document[2]


def test_fields_that_came_since_have_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    names = state.field_names
    # What is known of classes is kept, but they are others here.
    monkeypatch.setattr(state, "_described", state._described.__wrapped__)
    monkeypatch.setattr(state, "_stored_class", state._stored_class.__wrapped__)
    with monkeypatch.context() as patched:
        patched.setattr(state, "field_names", lambda cls, name: names(cls, name)[:-2])
        old = dump(Exchange(1, 2, 3, 4, "publish", filters=9, retransmissions=8))
        bare = dump(packets.Publish(topic_name="a"))
    with monkeypatch.context() as patched:
        patched.setattr(state, "field_names", lambda cls, name: names(cls, name)[:3])
        unusable = dump(Exchange(1, 2, 3, 4, "publish"))
    with monkeypatch.context() as patched:
        patched.setattr(state, "field_names", lambda cls, name: (*names(cls, name), "kind_of"))
        patched.setattr(state, "attrgetter", lambda *_: lambda _: range(12))
        newer = dump(Exchange(1, 2, 3, 4, "publish"))

    assert load(old) == Exchange(1, 2, 3, 4, "publish")
    assert load(bare).topic_name == "a"
    with pytest.raises(StateError, match="needs timestamp_ns"):
        load(unusable)
    with pytest.raises(StateError, match="has no kind_of"):
        load(newer)


def test_objects_of_a_library_are_made_anew() -> None:
    inflater = Inflater(True)
    out: list[bytes] = []
    packed = zlib.compressobj(wbits=-15)
    data = packed.compress(b"hello " * 50) + packed.flush(zlib.Z_SYNC_FLUSH)
    inflater.feed(data[:9], False, out)
    assert inflater.zlib_object is not None

    other: Inflater = load(dump(inflater))
    other_out = list(out)
    inflater.feed(data[9:-4], True, out)
    other.feed(data[9:-4], True, other_out)

    assert b"".join(other_out) == b"".join(out) == b"hello " * 50


# --- flows -----------------------------------------------------------------------------------------------------------


def flows(segments: list[Segment]) -> Iterator[list[Segment]]:
    """The segments of each flow."""
    apart = defaultdict[bytes, list[Segment]](list)
    for segment in segments:
        apart[min(segment.key, reverse_key(segment.key))].append(segment)
    yield from apart.values()


class Run:
    """One flow, with everything that is remembered of it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.sink = Lines()
        # One report for all of it: which packets it wrote is not remembered with a flow.
        self.report = EventJsonLines(self.sink)
        self.findings: list[dict[str, Any]] = []
        self.begin()

    def begin(self) -> None:
        self.dissector = Dissector(self.options)
        # What rules remember beyond a connection is kept apart from flows.
        self.linter = Linter([usual_rule(rule) for rule in all_rules().values() if rule.scope not in WIDE], strict=True)

    def feed(self, segment: Segment | None) -> None:
        for event in self.dissector.close() if segment is None else self.dissector.feed(segment):
            self.report.feed(event)
            self.findings += map(FINDING.view, self.linter.feed(event))
        self.report.close()

    def again(self) -> None:
        """Continue in another process, so to speak."""
        chunks = [dump(flow) for flow in self.dissector.flows.flows.values()]
        numbers = self.dissector.connections
        self.begin()
        self.dissector.connections = numbers
        for raw in chunks:
            flow = load(raw)
            connection = connection_of(flow)
            if connection is not None:
                connection.alarm = self.dissector.alarm(flow)
                self.linter.adopt(connection)
            self.dissector.flows.adopt(flow)


def check(segments: list[Segment], options: Options) -> int:
    cuts = 0
    for flow in flows(segments):
        whole = Run(options)
        for segment in (*flow, None):
            whole.feed(segment)
        step = max(1, len(flow) // CUTS)
        cut = Run(options)
        for number, segment in enumerate((*flow, None)):
            if number % step == 0:
                cut.again()
                cuts += 1
            cut.feed(segment)
        assert cut.sink.data == whole.sink.data
        assert cut.findings == whole.findings
    return cuts


@sampled("path", CAPTURES, ids=lambda path: path.parent.name, every=16)
def test_a_flow_goes_on_wherever_it_was_cut(path: Path) -> None:
    assert check(read_segments(path), Options(count_by_connection=True))


def test_other_transports_go_on_too() -> None:
    assert check(mixed_tape().segments, Options(ports={8080: "ws", 22: "mqtt"}, count_by_connection=True)) > 50
