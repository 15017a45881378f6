"""The findings of a lake are those of the linter, of all scopes, in whatever pieces the captures came."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lake.keys import connection_id
from mqttscope.lake.rows import finding_row
from mqttscope.lake.schemas import FINDINGS
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, segments
from mqttscope.lint.finding import Confidence
from mqttscope.lint.rule import Rule
from mqttscope.net.segment import Segment, direction_key, flow_key
from mqttscope.secrets.findings import HidingOptions, conceal
from tests.capture.test_pcapng import statistics
from tests.conftest import EXHAUSTIVE
from tests.dissect.secure import as_frame
from tests.lake.parts import at_random, cut, frames_of, write_frames, write_parts
from tests.lake.reading import CAPTURES, Fold, Row, all_of_them, options, read_segments

SCOPES = {rule.code: str(rule.scope) if rule.scope in WIDE else "connection" for rule in all_of_them()}


def linted(paths: Sequence[Path], **changes: Any) -> list[Row]:
    """What the linter finds in all captures together, as rows."""
    lake_options = options(**changes)
    linter, hiding = (
        Linter(lake_options.rules, strict=True, complete=lake_options.complete),
        HidingOptions(lake_options.secret_length, 256),
    )
    numbers: Counter[tuple[int, str]] = Counter()
    rows = []
    names: dict[int, str] = {}
    """Identifiers by number of the connection; connections with equal times and TCP numbers are counted."""
    alike: Counter[str] = Counter()
    for event in dissect(open_capture([*paths]), lake_options.reading()):
        connection = getattr(event, "connection", None)
        if connection is not None and connection.number not in names:
            plain = connection_id(connection)
            names[connection.number] = connection_id(connection, repetition=alike[plain])
            alike[plain] += 1
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        for finding in linter.feed(event):
            name, scope = names[finding.connection], SCOPES[finding.rule]
            row = finding_row(conceal(finding, hiding), name, scope, numbers[finding.connection, scope], offset)
            rows.append(dict(zip(FINDINGS.names, row, strict=True)))
            numbers[finding.connection, scope] += 1
    return rows


def timed(rows: list[Row]) -> list[Row]:
    """Rows with times in the form of those of `finding_row`."""
    return [row | {"timestamp": row["timestamp_ns"] // 1000} for row in rows]


def in_lake(folder: Path) -> list[Row]:
    return timed(read_table(folder, "findings").to_pylist())


def same(actual_rows: list[Row], wanted: list[Row]) -> None:
    def ordered(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (row["connection_id"], row["scope"], row["finding_in_connection"]))

    assert ordered(actual_rows) == ordered(wanted)


@pytest.mark.long
def test_all_captures_at_once(tmp_path: Path) -> None:
    write_lake(CAPTURES, tmp_path / "lake", options())

    same(in_lake(tmp_path / "lake"), linted(CAPTURES))


@pytest.mark.long
def test_all_captures_in_pieces(tmp_path: Path) -> None:
    files = []
    chunks: set[bytes] = set()
    for number, path in enumerate(CAPTURES):
        flows = {flow_key(read_segment.key) for read_segment in read_segments(path)}
        if flows & chunks:
            # Several are made at the same time between the same endpoints: of different ingests, one of them is late.
            continue
        chunks |= flows
        files += cut(path, tmp_path, 2 + number % 4, number)
    files.sort(key=lambda path: frames_of(path)[0].timestamp_ns)
    for some in at_random(files, 6, 3):
        write_lake(some, tmp_path / "lake", options())

    same(in_lake(tmp_path / "lake"), linted(files))


WIDE_RULES = [rule for rule in all_of_them() if rule.scope in WIDE]
MOST = 250
"""Conversations at a time; each has an address of its own."""
CONVERSATIONS = [conversation for rule in WIDE_RULES for conversation in (*rule.good, *rule.bad)]


def elsewhere(actual_segments: Iterable[Segment], client: bytes, server: bytes, later_ns: int) -> Iterator[Segment]:
    """The segments of a conversation between other hosts, later."""
    for segment in actual_segments:
        out = segment.key[:4] == bytes((10, 0, 0, 4))
        key = direction_key(client + server if out else server + client, segment.key[8:12])
        yield replace(segment, key=key, timestamp_ns=segment.timestamp_ns + later_ns)


def town(
    chance: random.Random, conversations: int | Sequence[ExampleConversation], *, apart: bool = False
) -> list[Segment]:
    """Conversations of the rules of wide scope at a time, some with servers and Client Identifiers that they share.

    ``conversations``: which ones, or how many of all; ``apart``: each has a server of its own.
    """
    if isinstance(conversations, int):
        conversations = [chance.choice(CONVERSATIONS) for _ in range(conversations)]
    new_segments: list[Segment] = []
    for number, talk in enumerate(conversations):
        late_ns = chance.randrange(60_000_000_000)
        client, server = (
            bytes((10, 0, number, 4)),
            bytes((198, 51, 100, number + 2 if apart else chance.choice((0, 1, number + 2)))),
        )
        new_segments += elsewhere(segments(talk), client, server, late_ns)
    new_segments.sort(key=lambda segment: segment.timestamp_ns)
    return new_segments


def ingested(
    chance: random.Random,
    conversations: int | Sequence[ExampleConversation],
    files: int,
    *,
    drops: bool = False,
    apart: bool = False,
    **changes: Any,
) -> list[Row]:
    """Take a town into a lake, cut into files, one by one; returns the findings, which have to be the linter's.

    ``drops``: files say at their ends that frames were dropped.
    """
    frames = [*map(as_frame, town(chance, conversations, apart=apart))]
    with tempfile.TemporaryDirectory() as name:
        parts = write_parts(frames, Path(name), files, chance.randrange(1_000_000))
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
        # These need no other connections where DUP repeats what this one never sent.
        likely = {rule.code for rule in WIDE_RULES if rule.confidence is Confidence.LIKELY} - {"PUB208", "SES306"}
        certain = [row for row in rows if row["rule"] in likely and row["confidence"] == "certain"]

        assert {row["server"] for row in certain} == complete


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(chance=st.randoms(use_true_random=False), files=st.integers(1, 5))
def test_kernels_find_the_same(chance: random.Random, files: int) -> None:
    frames, fold = [*map(as_frame, town(chance, 6))], Fold(options())
    with tempfile.TemporaryDirectory() as name:
        parts = write_parts(frames, Path(name), files, chance.randrange(1_000_000))
        for part in parts:
            fold.ingest(read_segments(part))
        same(timed(fold.rows), linted(parts))


@pytest.mark.long
@pytest.mark.parametrize("rule", WIDE_RULES, ids=lambda rule: rule.code)
def test_a_capture_may_be_read_in_two_goes(rule: Rule, tmp_path: Path) -> None:
    """What the stages write down in between is all that they need: cut in the middle, near the end, or everywhere."""
    for talk in rule.bad:
        path = write_frames(tmp_path / "talk.pcapng", map(as_frame, segments(talk)))
        actual_segments, wanted = read_segments(path), linted([path])
        last = len(actual_segments) - 1
        for edge in (
            range(1, len(actual_segments)) if EXHAUSTIVE else sorted({len(actual_segments) // 2, last - 1, last} - {0})
        ):
            fold = Fold(options())
            fold.ingest(actual_segments[:edge])
            fold.ingest(actual_segments[edge:])
            same(timed(fold.rows), wanted)


def test_passwords_are_told_apart_though_state_that_is_written_has_none(tmp_path: Path) -> None:
    """A file ends between each CONNECT and its answer."""
    talk = all_rules()["SEC305"].bad[0]
    frames, fold = [*map(as_frame, segments(talk))], Fold(options())
    for part in write_parts(frames, tmp_path, len(frames), 0):
        fold.ingest(read_segments(part))

    rows = [row for row in fold.rows if row["rule"] == "SEC305"]
    assert [row["severity"] for row in rows] == ["warning"]
    assert "several passwords" in rows[0]["message"]


@pytest.mark.long
def test_every_rule_of_wide_scope_finds_something() -> None:
    among = [rule.bad[0] for rule in WIDE_RULES]
    shared = ingested(random.Random(2), among * (MOST // len(among)), 3)
    result = {row["rule"] for row in (*shared, *ingested(random.Random(17), among, 1, apart=True))}

    # Some need other settings than the usual ones for anything that is short.
    assert result >= {rule.code for rule in WIDE_RULES if not all(conversation.settings for conversation in rule.bad)}
