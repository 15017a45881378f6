"""The kernel gives the tables of one run in process, however its input was cut and shared out."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.lake.kernel import KEY_STATE, cross_kernel, errors_of, kernel, state_row
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.memory import FlowMemory
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, event_schema
from mqttscope.lake.state import dump, load
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.failures import RuleFailures
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Findings
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.net.checksum import WRONG
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import Segment, group_key
from mqttscope.secrets.findings import HidingOptions, conceal
from tests.conftest import ROOT
from tests.dissect.scenes import mixed_tape
from tests.dissect.talk import CONNACK, Talk, Tape, connect, publish, wire
from tests.dissect.test_transports import anonymous
from tests.each import sampled
from tests.lake.failing import FAILING
from tests.lake.parts import at_random
from tests.lake.reading import (
    CAPTURES,
    Fold,
    Row,
    batches_of,
    by_kernel,
    collect,
    in_process,
    in_runs,
    options,
    ordered,
    read_segments,
    remembered_row,
    segment_rows,
    usual,
)
from tests.lake.telling import BOTH, OfBroker
from tests.lint.lint_help import steps_of, talked
from tests.lint.test_misread_packets import HEAD, JOINT, SHORT


def in_files(segments: list[Segment], files: int, seed: int) -> list[tuple[Any, ...]]:
    """The rows of a capture that was cut into so many files, whose rows come in any order."""
    rows = []
    for number, some in enumerate(at_random(segments, files, seed)):
        part = [
            dataclasses.replace(segment, capture=f"part{number}", frame=frame) for frame, segment in enumerate(some, 1)
        ]
        rows.append(segment_rows(part, number))
    random.Random(seed).shuffle(rows)
    return [row for part in rows for row in part]


@pytest.mark.long
@sampled("path", CAPTURES, ids=lambda path: path.parent.name)
def test_tables_do_not_depend_on_files(path: Path) -> None:
    segments, lake_options = read_segments(path), options()
    whole = ordered(by_kernel(segment_rows(segments), lake_options))

    assert whole == ordered(usual(path))
    bare = ordered(whole, places=False)
    for files in (3, len(segments)):
        assert ordered(by_kernel(in_files(segments, files, files), lake_options), places=False) == bare


def test_other_transports() -> None:
    lake_options = options(dissect=Options(ports={8080: "ws", 22: "mqtt"}))
    segments = mixed_tape().segments

    wanted = collect(dissect_segments(segments, lake_options.reading()), lake_options)
    assert ordered(by_kernel(segment_rows(segments), lake_options)) == ordered(wanted)


def is_in_order(segments: list[Segment]) -> bool:
    """What comes late in time is no part of a stream."""
    return [segment.timestamp_ns for segment in segments] == sorted(segment.timestamp_ns for segment in segments)


@pytest.mark.long
@sampled("path", CAPTURES, ids=lambda path: path.parent.name)
def test_a_stream_of_runs_gives_what_one_run_gives(path: Path) -> None:
    segments, lake_options = read_segments(path), options()
    if not is_in_order(segments):
        pytest.skip("what comes late in time is no part of a stream")

    assert ordered(in_runs(at_random(segments, 6, 3), lake_options)) == ordered(
        by_kernel(segment_rows(segments), lake_options)
    )


def test_damaged_segments_wait_between_runs_as_in_one() -> None:
    path = ROOT / "tests/data/captures/live/damaged.pcap"
    segments, lake_options = read_segments(path), options()
    whole = ordered(by_kernel(segment_rows(segments), lake_options))
    edges = [place + 1 for place, segment in enumerate(segments) if segment.checksum == WRONG]
    parts = [segments[start:stop] for start, stop in pairwise([0, *edges, len(segments)])]

    assert len(edges) == 17
    assert whole == ordered(in_process([path], lake_options))
    assert ordered(in_runs(parts, lake_options)) == whole


def nameless() -> list[Segment]:
    """A WebSocket that only its first message shows to carry MQTT."""
    data = wire(connect())
    talk = anonymous(("C", data[:5]), ("C", data[5:]), ("S", wire(CONNACK)))
    return talk.tape.segments


def misread() -> list[Segment]:
    """A PUBLISH that is shorter than it announces, and what is read out of the bytes after it."""
    sent = f"> raw {HEAD} {SHORT} {HEAD[:8]}", f"> raw {HEAD[8:]}", "> pingreq"
    return talked(*steps_of(JOINT, *sent, "> fin; < fin"))


@pytest.mark.parametrize("expected", [nameless(), misread()], ids=["a WebSocket without names", "a misread stream"])
def test_what_decides_later_is_remembered_between_runs(expected: list[Segment]) -> None:
    lake_options = options()
    whole = ordered(by_kernel(segment_rows(expected), lake_options))

    assert len(whole["packets"]) > 1
    for cut in range(1, len(expected)):
        assert ordered(in_runs([expected[:cut], expected[cut:]], lake_options)) == whole, cut


def test_what_is_open_has_rows_as_if_it_ended() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "session-taken-over")
    segments, lake_options = read_segments(path), options()
    for stop in (len(segments) // 3, len(segments) // 2):
        rows = segment_rows(segments[:stop])
        wanted, got = by_kernel(rows, lake_options), by_kernel(rows, lake_options, more=True)

        assert {name for name in got if name.startswith("open/")} >= {"open/connections"}
        for row in got["open/connections"]:
            assert (row["closed_how"], row["closed_ns"]) == ("open", None)
        for name in ("packets", "findings", "gaps"):
            together = {name: [*got.get(name, []), *got.get(f"open/{name}", [])]}
            assert ordered(together)[name] == ordered(wanted)[name]


def test_state_is_of_what_is_open_alone() -> None:
    tape = Tape()
    other_talk, other = Talk(tape), Talk(tape, client_port=50_001)
    for talk in (other_talk, other):
        talk.handshake()
        talk.client(connect())
    other_talk.close()
    tape.wait(4 * 3600)
    last = Talk(tape, client_port=50_002)
    last.handshake()
    last.client(connect(), publish())
    got = by_kernel(segment_rows(tape.segments), LakeOptions(), more=True, watermark_ns=tape.now_ns)

    (row,) = got["state"]
    memory = load(row["state"])
    assert isinstance(memory, FlowMemory)
    assert memory.flow.context.connection.client.endswith(":50002")  # type: ignore[attr-defined]
    assert Counter(row["closed_how"] for row in got["connections"]) == {"fin": 1, "idle": 1}
    assert row["last_ns"] == memory.flow.last_timestamp_ns
    assert state_row(memory)[0] == row["flow"] == group_key(memory.flow.key)


def test_ports_that_are_used_again_are_connections_of_their_own() -> None:
    tape = Tape()
    for _ in range(3):
        talk = Talk(tape)
        talk.handshake()
        talk.client(connect(), Publish(topic_name="a", qos=1, packet_identifier=1))
        tape.wait(24 * 3600)
    got = by_kernel(segment_rows(tape.segments), LakeOptions())

    assert len({row["connection_id"] for row in got["connections"]}) == 3
    assert [row["closed_how"] for row in got["connections"]] == ["idle", "idle", "capture_end"]
    assert [row["packet_in_connection"] for row in got["packets"]] == [0, 1] * 3


def test_what_is_idle_at_the_watermark_is_over() -> None:
    tape = Tape()
    early = Talk(tape).handshake()
    early.client(connect())
    tape.wait(4 * 3600)
    late = Talk(tape, client_port=50_001).handshake()
    late.client(connect())
    rows, lake_options = segment_rows(tape.segments), LakeOptions()

    wanted = collect(dissect_segments(tape.segments, lake_options.reading()), lake_options)
    assert ordered(by_kernel(rows, lake_options, watermark_ns=tape.now_ns)) == ordered(wanted)
    assert [row["closed_how"] for row in wanted["connections"]] == ["idle", "capture_end"]


def test_batches_hold_one_kind_and_bounded_rows() -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.handshake()
    talk.client(connect())
    for _ in range(100):
        talk.client(publish())
    rows = segment_rows(tape.segments)
    for batch in kernel(batches_of(rows, 7), LakeOptions(batch_rows=10)):
        assert batch.schema == event_schema()
        assert batch.num_rows <= 10
        kind = batch.column("kind")[0].as_py()
        for name in event_schema().names[1:]:
            assert batch.column(name).null_count == (0 if name == kind else batch.num_rows)


def test_other_rows_are_passed_over() -> None:
    rows = segment_rows(mixed_tape().segments)
    noise = [("error", b"", 0, 0, 0, None, None, None, None, None, None, None, "a.pcap", 0, None, None)] * 3

    assert by_kernel(noise + rows, LakeOptions()) == by_kernel(rows, LakeOptions())
    assert not list(kernel([], LakeOptions()))


def test_what_is_wrong_with_captures_is_a_row() -> None:
    batch = errors_of([CaptureError("a\udcff.pcap", "is cut off", 12, 3), CaptureDrops("b.pcap", 0, 10, 2)])

    rows = batch.to_pylist()
    assert [row["event"] for row in rows] == ["capture_error", "capture_drops"]
    assert rows[0] | {"capture": None} == {
        "capture": None, "event": "capture_error", "message": "is cut off", "offset": 12, "frames": 3,
        "interface": None, "received": None, "dropped": None, "healed": None,
    }  # fmt: skip
    assert rows[1]["dropped"] == 2


def test_a_dissector_that_has_more_to_come_leaves_flows_open() -> None:
    dissector = Dissector(Options())
    events = list(dissect_segments(mixed_tape().segments, dissector=dissector, more=True))

    assert dissector.flows.flows
    assert len(events) < len(list(dissect_segments(mixed_tape().segments)))
    assert set(EVENT_TABLES) < set(event_schema().names)


def across(**changes: Any) -> LakeOptions:
    return dataclasses.replace(LakeOptions(rules=BOTH), **changes)


def said(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["rule"], row["message"], row["frame"], row["fingerprint"], row["confidence"]) for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.BROKER])
@sampled("path", CAPTURES, ids=lambda path: path.parent.name)
def test_rules_across_connections_see_what_one_engine_sees_that_reads_everything(path: Path, scope: Scope) -> None:
    """By session where no rule needs more, by server otherwise; at once, and in several ingests."""
    rules = tuple(rule for rule in BOTH if scope is Scope.BROKER or rule.scope is scope)
    lake_options = across(rules=rules)
    linter, segments = Linter(rules, strict=True), read_segments(path)
    hiding = HidingOptions(lake_options.secret_length, 256)
    events = dissect_segments(segments, lake_options.reading())
    wanted = [conceal(finding, hiding) for event in events for finding in linter.feed(event)]

    whole = Fold(lake_options)
    whole.ingest(segments)
    rows = whole.rows
    assert said(rows) == sorted(
        (finding.rule, finding.message, finding.frame, finding.fingerprint, str(finding.confidence))
        for finding in wanted
    )

    if CAPTURES.index(path) % 6 or not is_in_order(segments):
        return
    parts = Fold(lake_options)
    for some in at_random(segments, 5, 5):
        parts.ingest(some)
    assert said(parts.rows) == said(rows)
    numbers = Counter((row["connection_id"], row["scope"]) for row in rows)
    wanted_numbers = [(*key, number) for key, count in numbers.items() for number in range(count)]
    found_numbers = [(row["connection_id"], row["scope"], row["finding_in_connection"]) for row in parts.rows]
    assert sorted(found_numbers) == sorted(wanted_numbers)


def test_rules_of_one_connection_beside_change_nothing() -> None:
    path = next(path for path in CAPTURES if path.parent.name == "planted-violations")
    alone, beside = Fold(across()), Fold(across(rules=(*BOTH, *options().narrow_rules())))
    for fold in (alone, beside):
        fold.ingest(read_segments(path))

    codes = {rule.code for rule in BOTH}
    assert said([row for row in beside.findings if row["rule"] in codes]) == said(alone.findings) != []


def test_a_flow_is_read_with_the_session_that_its_connack_gave_it() -> None:
    talk = Talk(Tape())
    talk.handshake()
    talk.client(connect(5, ""), version=ProtocolVersion.V5)
    fold = Fold(across(rules=BOTH[:1]))
    fold.ingest(list(talk.tape.segments))
    ((flow, before),) = fold.flow_keys.items()
    assert all("\\" in key for key in before), "nobody shares a session without a name"

    at = len(talk.tape.segments)
    talk.server(Connack(properties=Properties(assigned_client_identifier="made-up")), version=ProtocolVersion.V5)
    fold.ingest(talk.tape.segments[at:])
    assert fold.flow_keys == {flow: {"192.0.2.2:1883 made-up"}}
    assert [row["key"] for row in fold.keys] == ["192.0.2.2:1883 made-up"]


def test_endings_are_supposed_only() -> None:
    talk = Talk(Tape())
    talk.handshake()
    talk.client(connect())
    talk.server(Connack())
    fold = Fold(across())
    fold.ingest(list(talk.tape.segments))
    closing = [row for row in fold.open if "'closed'" in row["message"]]
    assert {row["scope"] for row in closing} == {"session", "broker"}

    at = len(talk.tape.segments)
    talk.client(publish())
    fold.ingest(talk.tape.segments[at:])
    assert not [row for row in fold.findings if "'closed'" in row["message"]]
    talk.close()
    fold.ingest(talk.tape.segments[at + 1 :])
    assert [row["scope"] for row in fold.findings if "'closed'" in row["message"]] == ["session", "broker"]
    assert not fold.open
    for scope in ("session", "broker"):
        numbers = [row["finding_in_connection"] for row in fold.findings if row["scope"] == scope]
        assert numbers == list(range(len(numbers)))


def test_a_key_to_which_nothing_happens_is_remembered() -> None:
    fold = Fold(across())
    fold.ingest(read_segments(CAPTURES[0]))
    rows = [remembered_row(row["key"].encode(), row["state"], KEY_STATE) for row in fold.keys]

    again = by_kernel(rows, across(), cross_kernel, more=True)
    assert [(row["key"], load(row["state"])) for row in again["scope_state"]] == [
        (row["key"], load(row["state"])) for row in fold.keys
    ]
    assert not by_kernel(rows, across(), cross_kernel)


@pytest.mark.parametrize("state", [b"whatever", dump(5)])
def test_state_of_a_key_that_cannot_be_read_is_said(state: bytes) -> None:
    with pytest.raises(LakeError, match="the memory of rules cannot be read: the lake is damaged"):
        by_kernel([remembered_row(b"key", state, KEY_STATE)], across(), cross_kernel)


def failed_with_kernels(
    lake_options: LakeOptions, segments: list[Segment], *, more: bool = False
) -> tuple[RuleFailures, RuleFailures]:
    """The rules that failed in the first stage, and in the second."""
    rows, narrow, wide = segment_rows(segments), RuleFailures(), RuleFailures()
    last = segments[-1].timestamp_ns if more else None
    keys = by_kernel(rows, lake_options, more=more, watermark_ns=last, failures=narrow).get("flow_keys", [])
    again = [(row[0], key["key"].encode(), *row[2:]) for row in rows for key in keys if key["flow"] == row[1]]
    by_kernel(again, lake_options, cross_kernel, more=more, watermark_ns=last, failures=wide)
    return narrow, wide


@pytest.mark.parametrize("more", [False, True])
def test_rules_that_fail_come_out_as_in_one_engine(more: bool) -> None:
    segments = read_segments(next(path for path in CAPTURES if path.parent.name == "v5-qos"))
    if more:
        # Its connections are open, and end as far as anybody knows.
        segments = segments[: len(segments) // 2]
    lake_options, wanted = LakeOptions(rules=FAILING), RuleFailures()
    linter = Linter(FAILING)
    for event in dissect_segments(segments, lake_options.reading()):
        linter.feed(event)
    wanted.take(linter)

    narrow, wide = failed_with_kernels(lake_options, segments, more=more)

    assert narrow.counts.keys() == {"TST291", "TST292"}
    assert wide.counts.keys() == {"TST491"}
    assert narrow.counts | wide.counts == wanted.counts
    assert RuleFailures.together([narrow, wide]) == RuleFailures.together([wanted])


def test_a_rule_that_runs_for_a_wide_one_as_well_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> Findings:
        raise ValueError("odd")

    class Reads(OfBroker):
        code = "TST492"
        reads_findings = True

    rule = all_rules()["PUB101"]
    for name, value in {"check": check, "looks_at": Publish, "sender": None, "when": None, "signs": ()}.items():
        monkeypatch.setattr(rule, name, value)
    segments = read_segments(next(path for path in CAPTURES if path.parent.name == "v5-qos"))

    narrow, wide = failed_with_kernels(LakeOptions(rules=(rule(), Reads())), segments)
    assert narrow.counts["PUB101"] > 1
    assert not wide
    _, alone = failed_with_kernels(LakeOptions(rules=(Reads(),)), segments)
    assert alone.counts == narrow.counts


def test_batches_of_findings_are_bounded() -> None:
    segments = read_segments(CAPTURES[0])
    key = by_kernel(segment_rows(segments), across())["flow_keys"][0]["key"].encode()
    rows = [(row[0], key, *row[2:]) for row in segment_rows(segments)]
    sizes = [each.num_rows for each in cross_kernel(batches_of(rows), across(batch_rows=3))]

    assert len(sizes) > 3
    assert max(sizes) == 3
