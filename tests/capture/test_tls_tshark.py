"""A tshark that decrypts: the frames that it gets, its answers, its keys, and how it fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mqttscope.capture.tls_tshark import FRAME_COST, MAX_PAYLOAD, PAGE_BYTES, SERVER_PORT, Tshark, frames
from mqttscope.net.flow import Flow, StreamData
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Segment, endpoints

FLOW = Flow(b"k" * 12, True, 0, 1, "a", 0, 1, "a")


def read_frames(data: bytes, offset: int = 5, *, from_client: bool = True) -> list[Segment]:
    """The segments of the frames of some bytes of a stream."""
    piece = StreamData(FLOW, from_client, data, offset, 9, 1_000, "a")
    segments = [segment_of(frame) for frame in frames(piece, offset, 258, 2**32 + 7, from_client=from_client)]
    assert all(isinstance(segment, Segment) for segment in segments)
    return segments  # type: ignore[return-value]


def test_both_directions() -> None:
    (up,), (down,) = read_frames(b"abc"), read_frames(b"abc", from_client=False)

    assert endpoints(up.key) == ("10.0.1.2:49152", f"192.0.2.1:{SERVER_PORT}")
    assert endpoints(down.key) == endpoints(up.key)[::-1]
    assert (up.sequence, up.acknowledgment, up.payload, up.missing, up.timestamp_ns, up.frame) == (
        5,
        7,
        b"abc",
        0,
        1_000,
        9,
    )


def test_long_pieces_and_sequence_numbers_that_wrap() -> None:
    parts = read_frames(bytes(2 * MAX_PAYLOAD) + b"x", 2**32 - 2)

    assert [len(part.payload) for part in parts] == [MAX_PAYLOAD, MAX_PAYLOAD, 1]
    assert [part.sequence for part in parts] == [2**32 - 2, MAX_PAYLOAD - 2, 2 * MAX_PAYLOAD - 2]


FRAME = Frame(1, 1, 101, bytes(1_000), 1_000, "a")


def running(tmp_path: Path, script: str) -> Tshark[str]:
    path = tmp_path / "tshark"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tshark([str(path), "keys={keys}"])


def answers(tshark: Tshark[str], count: int) -> list[tuple[str, list[bytes], bool]]:
    rows: list[tuple[str, list[bytes], bool]] = []
    deadline = time.monotonic() + 20
    while len(rows) < count and tshark.fault is None and time.monotonic() < deadline:
        rows += tshark.answers()
        time.sleep(0.005)
    return rows


def answer(number: int, protocols: str, *fields: tuple[str, str]) -> str:
    """A part of a shell script that prints what tshark does of a frame."""
    values = "".join(
        f'<field name="{name}" value="{value}"/>' for name, value in (("frame.protocols", protocols), *fields)
    )
    return f'echo \'<packet><field name="num" pos="0" show="{number}"/>{values}</packet>\'; '


HEAD = "echo '<?xml version=\"1.0\"?><pdml>'; "


def test_answers(tmp_path: Path) -> None:
    """Data right inside TCP is none that was decrypted."""
    text = (
        answer(1, "a:tls:data", ("data.data", "0102"), ("data.data", "03"))
        + answer(2, "a:tcp:data", ("data.data", "04"))
        + answer(3, "a:tcp:tls")
    )
    tshark = running(tmp_path, f"{HEAD}{text}exec sleep 60")
    for name in "abc":
        tshark.feed(FRAME, name)

    assert answers(tshark, 3) == [("a", [b"\1\2", b"\3"], True), ("b", [], False), ("c", [], False)]
    assert (tshark.unanswered, list(tshark.waiting), tshark.cost) == (0, [], 3 * (1_000 + FRAME_COST))
    assert len(tshark.watched()) == 2
    tshark.close()


@pytest.mark.parametrize(
    ("name", "value", "readable"),
    [("tls.handshake.type", "20", True), ("tls.handshake.type", "2", False), ("tls.alert_message.desc", "0", True)],
)
def test_what_only_keys_make_readable(name: str, value: str, readable: bool, tmp_path: Path) -> None:
    tshark = running(tmp_path, f"{HEAD}{answer(1, 'a:tls', (name, value))}exec sleep 60")
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == [("a", [], readable)]
    tshark.close()


def test_keys_are_there_for_it_alone(tmp_path: Path) -> None:
    tshark = running(
        tmp_path,
        r"""read line <&0; f=${1#keys=}; keys=$(od -An -v -tx1 "$f" | tr -d ' \n'); """
        rf"""{HEAD}{answer(1, "a", ("data.data", "'$keys'"))}exec sleep 60""",
    )
    tshark.keys(b"CLIENT_RANDOM a\nRSA b\n")
    tshark.keys(b"CLIENT_RANDOM c\nRSA b\n")
    tshark.feed(FRAME, "a")
    tshark._process.write(b"\n")

    assert answers(tshark, 1) == [("a", [b"CLIENT_RANDOM a\nRSA b\nCLIENT_RANDOM c\n"], True)]
    tshark.close()


def test_no_line_of_keys_crosses_a_page(tmp_path: Path) -> None:
    """A reader sees what crosses it in two parts."""
    tshark = running(tmp_path, "exec sleep 60")
    lines = [b"CLIENT_RANDOM %064x %s\n" % (number, b"ab" * (40 + number % 9)) for number in range(200)]
    for line in lines:
        tshark.keys(line)
    data = os.pread(tshark._keys, 1 << 20, 0)
    tshark.close()

    assert [line + b"\n" for line in data.split(b"\n") if line] == lines
    assert len(data) > 4 * PAGE_BYTES
    for start in range(0, len(data), PAGE_BYTES):
        assert data[start : start + PAGE_BYTES].endswith(b"\n")


def test_what_it_does_not_take_is_kept(tmp_path: Path) -> None:
    tshark = running(tmp_path, "exec sleep 60")
    for _ in range(2_000):
        tshark.feed(FRAME, "a")

    assert not list(tshark.answers())
    # Who waits for it waits until it has ended.
    assert not tshark._process.ended
    assert tshark.unanswered == 2_000_000
    tshark.close()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo out of memory >&2; exit 3", "ended early; exit code 3): out of memory"),
        ("kill -9 $$", "ended early; signal 9)"),
        ("echo nonsense; exec sleep 60", "printed b'nonsense')"),
        (f"{HEAD}{answer(2, 'a')}exec sleep 60", "printed b'<?xml"),
    ],
)
def test_how_it_fails(script: str, expected: str, tmp_path: Path) -> None:
    tshark = running(tmp_path, script)
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == []
    assert tshark.fault is not None
    assert expected in tshark.fault
    assert list(tshark.waiting) == ["a"]
    assert tshark.watched() == []
    tshark.feed(FRAME, "b")
    assert list(tshark.waiting) == ["a", "b"]
    tshark.close()
