"""Every capture of the project after ``redact``: the same findings, nothing that tshark minds, no secret left."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from mqttscope.dissect import dissect
from mqttscope.events import PacketEvent
from mqttscope.lint.catalogue import all_rules
from mqttscope.mqtt import Connect, Publish, Subscribe
from mqttscope.net.frame import Frame
from mqttscope.redact.check import SecretSearch
from tests.conftest import ROOT
from tests.corpus.tshark import moved, tshark_version
from tests.each import each
from tests.lake.parts import frames_of
from tests.redact.redacting import redacted, reread, shapes, written
from tests.secrets.leaks import Secrets

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))
OF_VALUES = {"TOP108", "OPS211", *(code for code in all_rules() if code.startswith("SPB"))}
"""Rules about values themselves: a level that counts up does not do so as another number.  Topics and payloads with
other names are not of Sparkplug.
"""
REPAIRED = {"example-alias-length-too-short": {"ENC107", "HDR102", "RSN101"}}
"""Rules about bytes that are read at wrong places: other bytes instead of them prove no repair."""
LONGEST = 24


@cache
def before(path: Path) -> tuple[Frame, ...]:
    return tuple(frames_of(path))


@cache
def after(path: Path) -> bytes:
    """The file that is shared."""
    return written(redacted(before(path)))


@cache
def values(path: Path) -> frozenset[bytes]:
    """What the packets of a capture hold of names, credentials and payloads."""
    chunks: set[bytes] = set()
    for event in dissect(before(path)):
        control_packet = event.packet if isinstance(event, PacketEvent) else None
        if isinstance(control_packet, Connect):
            texts = [control_packet.client_identifier, control_packet.user_name or ""]
            chunks |= {
                (control_packet.password or b"")[:LONGEST],
                control_packet.will.will_payload[:LONGEST] if control_packet.will else b"",
            }
        elif isinstance(control_packet, Publish):
            texts = control_packet.topic_name.split("/")
            chunks.add(control_packet.payload[:LONGEST])
        elif isinstance(control_packet, Subscribe):
            texts = [level for row in control_packet.subscriptions for level in row.topic_filter.split("/")]
        else:
            continue
        chunks |= {text.encode("utf-8", "surrogateescape") for text in texts}
    return frozenset(raw for raw in chunks if re.search(rb"[A-Za-z]{4}", raw) and not raw.startswith((b"$", b"{")))


def secrets() -> list[bytes]:
    """Forty values, those that are in most captures first, and in each of its captures."""
    known = Counter(raw for path in CAPTURES for raw in values(path) if len(raw) >= 6)
    return [raw for raw, _ in sorted(known.items(), key=lambda row: (-row[1], row[0]))[:40]]


@each("path", CAPTURES, ids=lambda path: str(path.parent.name))
@pytest.mark.long
def test_lint_finds_the_same_but_for_names(path: Path) -> None:
    old, new = shapes(before(path)), shapes(reread(after(path)))

    left_out = OF_VALUES | REPAIRED.get(path.parent.name, set())
    assert {shape for shape in (old - new) + (new - old) if shape[0] not in left_out} == set()


@each("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_frames_and_segments_keep_their_lengths_and_times(path: Path) -> None:
    old, new = before(path), reread(after(path))

    rows = [(frame.timestamp_ns, frame.link_type, len(frame.data), frame.original_length) for frame in old]
    assert [(frame.timestamp_ns, frame.link_type, len(frame.data), frame.original_length) for frame in new] == rows


def test_of_40_secrets_none_is_left_in_any_encoding() -> None:
    wanted = secrets()
    plain = b"".join(frame.data for path in CAPTURES for frame in before(path))
    assert len(wanted) == 40
    assert all(raw in plain for raw in wanted)

    check = SecretSearch(wanted)
    shared = b"".join(map(after, CAPTURES))
    check.take_bytes(shared, 0)
    for path in CAPTURES:
        for frame in reread(after(path)):
            check.take_frame(frame)
    assert check.close() == []
    assert Secrets(wanted).leak(shared) is None


@pytest.mark.tshark
def test_tshark_reads_all_without_a_new_expert_warning() -> None:
    old = experts(before(path) for path in CAPTURES)
    new = experts(reread(after(path)) for path in CAPTURES)

    assert sum(old.values()) > 100
    assert new - old == Counter()


def experts(captures: Iterable[Iterable[Frame]]) -> Counter[tuple[int, str, str]]:
    """Frame, severity and text of what tshark minds in captures that are read as one."""
    tshark_version()
    data = written(moved(frame, number) for number, frames in enumerate(captures) for frame in frames)
    fields = ("frame.number", "_ws.expert.severity", "_ws.expert.group", "_ws.expert.message")
    command = ["tshark", "-n", "-r", "-", "-T", "fields", "-Y", "_ws.expert.severity >= 0x600000", "-E", "separator=|"]
    for name in fields:
        command += ["-e", name]
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=120)
    rows = (line.split("|", 3) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return Counter((int(row[0]), row[1], row[2]) for row in rows)
