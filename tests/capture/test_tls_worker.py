"""One tshark that is fed: answers in order, what it says when it fails, and nobody who waits for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqttscope.capture import tls_worker
from mqttscope.capture.tls_worker import Tshark
from mqttscope.net.frame import Frame

FRAME = Frame(1, 1, 101, bytes(1_000), 1_000, "a")


def running(tmp_path: Path, script: str) -> Tshark[str]:
    path = tmp_path / "tshark"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tshark([str(path), "keys={keys}"])


def answers(tshark: Tshark[str], count: int) -> list[tuple[str, list[bytes]]]:
    found: list[tuple[str, list[bytes]]] = []
    deadline = time.monotonic() + 20
    while len(found) < count and tshark.fault is None and time.monotonic() < deadline:
        found += tshark.answers()
        time.sleep(0.005)
    return found


def test_answers(tmp_path: Path) -> None:
    """Data right inside TCP is none that was decrypted."""
    tshark = running(tmp_path, r"printf '1\ta:tls:data\t0102,03\n2\ta:tcp:data\t04\n3\ta:tcp:tls\t\n'; exec sleep 60")
    for name in "abc":
        tshark.feed(FRAME, name)

    assert answers(tshark, 3) == [("a", [b"\1\2", b"\3"]), ("b", []), ("c", [])]
    assert (tshark.unanswered, list(tshark.waiting), tshark.cost) == (0, [], 3 * (1_000 + tls_worker.FRAME_COST))
    assert len(tshark.watched()) == 2
    tshark.close()


def test_keys_are_there_for_it_alone(tmp_path: Path) -> None:
    tshark = running(
        tmp_path,
        r"""read line <&0; printf '1\t\t'; f=${1#keys=}; od -An -v -tx1 "$f" | tr -d ' \n'; echo; exec sleep 60""",
    )
    tshark.keys(b"CLIENT_RANDOM a\nRSA b\n")
    tshark.keys(b"CLIENT_RANDOM c\nRSA b\n")
    tshark.feed(FRAME, "a")
    tshark._process.write(b"\n")

    assert answers(tshark, 1) == [("a", [b"CLIENT_RANDOM a\nRSA b\nCLIENT_RANDOM c\n"])]
    tshark.close()


def test_what_it_does_not_take_is_kept(tmp_path: Path) -> None:
    tshark = running(tmp_path, "exec sleep 60")
    for _ in range(2_000):
        tshark.feed(FRAME, "a")
    started = time.monotonic()

    assert not list(tshark.answers())
    assert time.monotonic() - started < 5
    assert tshark.unanswered == 2_000_000
    tshark.close()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo out of memory >&2; exit 3", "ended early; exit code 3): out of memory"),
        ("kill -9 $$", "ended early; signal 9)"),
        ("echo nonsense; exec sleep 60", "said b'nonsense')"),
        (r"printf '2\t\t\n'; exec sleep 60", "said b'2"),
    ],
)
def test_how_it_fails(script: str, told: str, tmp_path: Path) -> None:
    tshark = running(tmp_path, script)
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == []
    assert tshark.fault is not None
    assert told in tshark.fault
    assert list(tshark.waiting) == ["a"]
    assert tshark.watched() == []
    tshark.feed(FRAME, "b")
    assert list(tshark.waiting) == ["a", "b"]
    tshark.close()


def test_one_that_is_silent_for_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_worker, "STALL_SECONDS", 0.1)
    tshark = running(tmp_path, "exec sleep 60")
    assert not list(tshark.answers())
    time.sleep(0.15)
    assert not list(tshark.answers())
    assert tshark.fault is None
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == []
    assert "silent for" in str(tshark.fault)
    tshark.close()
