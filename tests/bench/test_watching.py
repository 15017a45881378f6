"""The measurements of ``sniff`` work; what they measure here is too little to say anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import live, soak
from tests.live import need_capture
from tests.tools import program

pytestmark = [pytest.mark.broker, pytest.mark.tshark]


@pytest.fixture(autouse=True)
def tools() -> None:
    need_capture()
    program("mosquitto")


@pytest.mark.parametrize("lint", [False, True])
def test_every_message_is_shown(lint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.2)
    lines: list[str] = []

    assert live.measure(lines.append, 100, 0.5, lint=lint), lines

    rows = [line for line in lines if line.startswith("| ") and "seconds" not in line]
    # How many there are depends on the machine.
    assert rows
    assert all(row.count("|") == lines[0].splitlines()[0].count("|") for row in rows)
    assert any("50 published, 50 delivered: 100 PUBLISH packets, 100 shown; 0 frames dropped" in line for line in lines)
    assert any("From the time of the frame" in line for line in lines)


@pytest.mark.long
def test_what_many_clients_sent_is_shown() -> None:
    lines: list[str] = []

    assert soak.measure(lines.append, 30, 300.0), lines

    # Each third one goes with DISCONNECT.
    text = "30 connections, 220 packets sent, 220 shown; 0 frames dropped; at most 1 files at a time, 1 read at the end"
    assert any(text in line for line in lines)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ring_00001.pcapng"
    path.write_bytes(b"none")

    wrong = soak.unreadable(path, 1883)

    assert len(wrong) > 1
    assert all(text.startswith("ring_00001.pcapng: ") for text in wrong)
