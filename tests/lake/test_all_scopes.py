"""The findings of a lake are those of the linter, of all scopes, in whatever pieces the captures came."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tools

tools.package("pyarrow")

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.dissect import dissect
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lake.keys import connection_id
from mqttscope.lake.rows import finding_row
from mqttscope.lake.schemas import FINDINGS
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, segments
from mqttscope.lint.finding import Confidence
from mqttscope.lint.rule import Rule
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment, direction_key, flow_key
from mqttscope.secrets.findings import Hiding, conceal
from tests.capture.test_pcapng import statistics
from tests.conftest import EXHAUSTIVE
from tests.dissect.secure import as_frame
from tests.lake.reading import CAPTURES, Fold, Row, all_of_them, options, read_segments

SCOPES = {rule.code: str(rule.scope) if rule.scope in WIDE else "connection" for rule in all_of_them()}


def linted(paths: Sequence[Path], **changes: Any) -> list[Row]:
    """What the linter finds in all captures together, as rows."""
    given = options(**changes)
    linter, hiding = Linter(given.rules, strict=True, complete=given.complete), Hiding(given.secret_length, 256)
    numbers: Counter[tuple[int, str]] = Counter()
    rows = []
    for event in dissect(open_capture([*paths]), given.reading()):
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        for finding in linter.feed(event):
            name, scope = connection_id(event.connection), SCOPES[finding.rule]  # type: ignore[union-attr]
            row = finding_row(conceal(finding, hiding), name, scope, numbers[finding.connection, scope], offset)
            rows.append(dict(zip(FINDINGS.names, row, strict=True)))
            numbers[finding.connection, scope] += 1
    return rows


def in_lake(folder: Path) -> list[Row]:
    return [row | {"timestamp": row["timestamp_ns"] // 1000} for row in read_table(folder, "findings").to_pylist()]


def same(found: list[Row], wanted: list[Row]) -> None:
    def ordered(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (row["connection_id"], row["scope"], row["finding_in_connection"]))

    assert ordered(found) == ordered(wanted)


def frames_of(path: Path) -> list[Frame]:
    return [one for one in open_capture([path]) if isinstance(one, Frame)]


def cut(frames: list[Frame], folder: Path, files: int, seed: int) -> list[Path]:
    """A capture as several files, cut at random frames."""
    edges = sorted(random.Random(seed).sample(range(1, len(frames)), min(files, len(frames)) - 1))
    made = []
    for number, (start, stop) in enumerate(zip([0, *edges], [*edges, len(frames)], strict=True)):
        made.append(folder / f"{number:02d}.pcapng")
        with made[-1].open("wb") as file:
            out = PcapngWriter(file)
            for frame in frames[start:stop]:
                out.write(frame)
    return made


def begins(path: Path) -> int:
    return next(one.timestamp_ns for one in open_capture([path]) if isinstance(one, Frame))


def ingests(files: Sequence[Path], lake: Path, count: int, seed: int) -> None:
    """Take files into a lake one group after the other, in the order of time."""
    edges = sorted(random.Random(seed).sample(range(1, len(files)), count - 1))
    for start, stop in zip([0, *edges], [*edges, len(files)], strict=True):
        write_lake(files[start:stop], lake, options())


@pytest.mark.long
def test_all_captures_at_once(tmp_path: Path) -> None:
    write_lake(CAPTURES, tmp_path / "lake", options())

    same(in_lake(tmp_path / "lake"), linted(CAPTURES))


@pytest.mark.long
def test_all_captures_in_pieces(tmp_path: Path) -> None:
    files = []
    taken: set[bytes] = set()
    for number, path in enumerate(CAPTURES):
        flows = {flow_key(one.key) for one in read_segments(path)}
        if flows & taken:
            # Several are made at the same time between the same endpoints: of different ingests, one of them is late.
            continue
        taken |= flows
        (tmp_path / path.parent.name).mkdir()
        files += cut(frames_of(path), tmp_path / path.parent.name, 2 + number % 4, number)
    files.sort(key=begins)
    ingests(files, tmp_path / "lake", 6, 3)

    same(in_lake(tmp_path / "lake"), linted(files))


WIDE_RULES = [rule for rule in all_of_them() if rule.scope in WIDE]
MOST = 250
"""Conversations at a time; each has an address of its own."""
CONVERSATIONS = [one for rule in WIDE_RULES for one in (*rule.good, *rule.bad)]


def town(chance: random.Random, conversations: int | Sequence[Conversation]) -> list[Segment]:
    """Conversations of the rules of wide scope at a time, some with servers and Client Identifiers that they share.

    ``conversations``: which ones, or how many of all.
    """
    if isinstance(conversations, int):
        conversations = [chance.choice(CONVERSATIONS) for _ in range(conversations)]
    made = []
    for number, talk in enumerate(conversations):
        late_ns = chance.randrange(60_000_000_000)
        client, server = bytes((10, 0, number, 4)), bytes((198, 51, 100, chance.choice((0, 1, number + 2))))
        for one in segments(talk):
            out = one.key[:4] == bytes((10, 0, 0, 4))
            key = direction_key(client + server if out else server + client, one.key[8:12])
            made.append(replace(one, key=key, timestamp_ns=one.timestamp_ns + late_ns))
    made.sort(key=lambda one: one.timestamp_ns)
    return made


def ingested(
    chance: random.Random,
    conversations: int | Sequence[Conversation],
    files: int,
    *,
    drops: bool = False,
    **changes: Any,
) -> list[Row]:
    """Take a town into a lake, cut into files, one by one; returns the findings, which have to be the linter's.

    ``drops``: files say at their ends that frames were dropped.
    """
    found = [as_frame(replace(one, frame=number)) for number, one in enumerate(town(chance, conversations), 1)]
    with tempfile.TemporaryDirectory() as name:
        parts = cut(found, Path(name), files, chance.randrange(1_000_000))
        for part in parts:
            if drops:
                part.write_bytes(part.read_bytes() + statistics(interface_drops=3))
            write_lake([part], Path(name) / "lake", options(**changes))
        rows = in_lake(Path(name) / "lake")
        same(rows, linted(parts, **changes))
    return rows


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(chance=st.randoms(use_true_random=False), files=st.integers(1, 5), drops=st.booleans())
def test_several_clients_and_servers(chance: random.Random, files: int, drops: bool) -> None:
    ingested(chance, 6, files, drops=drops)


@pytest.mark.long
def test_what_is_certain_where_every_connection_was_captured() -> None:
    complete = frozenset({"198.51.100.0:1883"})
    for drops in (False, True):
        rows = ingested(random.Random(2), 60, 3, drops=drops, complete=complete)
        likely = {rule.code for rule in WIDE_RULES if rule.confidence is Confidence.LIKELY}
        certain = [row for row in rows if row["rule"] in likely and row["confidence"] == "certain"]

        assert {row["server"] for row in certain} == complete


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(chance=st.randoms(use_true_random=False), files=st.integers(1, 5))
def test_kernels_find_the_same(chance: random.Random, files: int) -> None:
    found = [as_frame(replace(one, frame=number)) for number, one in enumerate(town(chance, 6), 1)]
    fold = Fold(options())
    with tempfile.TemporaryDirectory() as name:
        parts = cut(found, Path(name), files, chance.randrange(1_000_000))
        for part in parts:
            fold.ingest(read_segments(part))
        same([row | {"timestamp": row["timestamp_ns"] // 1000} for row in [*fold.findings, *fold.open]], linted(parts))


@pytest.mark.long
@pytest.mark.parametrize("rule", WIDE_RULES, ids=lambda rule: rule.code)
def test_a_capture_may_be_read_in_two_goes(rule: Rule, tmp_path: Path) -> None:
    """What the stages write down in between is all that they need: cut in the middle, near the end, or everywhere."""
    for talk in rule.bad:
        path = tmp_path / "talk.pcapng"
        with PcapngWriter(path) as out:
            for number, one in enumerate(segments(talk), 1):
                out.write(as_frame(replace(one, frame=number)))
        found, wanted = read_segments(path), linted([path])
        last = len(found) - 1
        for edge in range(1, len(found)) if EXHAUSTIVE else sorted({len(found) // 2, last - 1, last} - {0}):
            fold = Fold(options())
            fold.ingest(found[:edge])
            fold.ingest(found[edge:])
            same([row | {"timestamp": row["timestamp_ns"] // 1000} for row in [*fold.findings, *fold.open]], wanted)


def test_passwords_are_told_apart_though_state_that_is_written_has_none(tmp_path: Path) -> None:
    """A file ends between each CONNECT and its answer."""
    talk = all_rules()["SEC305"].bad[0]
    found = [as_frame(replace(one, frame=number)) for number, one in enumerate(segments(talk), 1)]
    fold = Fold(options())
    parts = cut(found, tmp_path, len(found), 0)
    for part in parts:
        fold.ingest(read_segments(part))

    rows = [row for row in [*fold.findings, *fold.open] if row["rule"] == "SEC305"]
    assert [row["severity"] for row in rows] == ["warning"]
    assert "several passwords" in rows[0]["message"]


@pytest.mark.long
def test_every_rule_of_wide_scope_finds_something() -> None:
    among = [rule.bad[0] for rule in WIDE_RULES]
    # In the first town all find something but for one, in the second one that does.
    towns = ((2, MOST // len(among)), (9, 1))
    found = {row["rule"] for seed, times in towns for row in ingested(random.Random(seed), among * times, 3)}

    # Some need other settings than the usual ones for anything that is short.
    assert found >= {rule.code for rule in WIDE_RULES if not all(one.settings for one in rule.bad)}
