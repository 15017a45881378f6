"""What the writer writes, read back by this package, by dpkt and by tshark."""

from __future__ import annotations

import io
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import dpkt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.net.frame import Frame
from tests.capture.test_pcap import read

FRAMES = [
    Frame(1, 1_700_000_000_123_456_789, 1, b"ethernet", 8, "a.pcap"),
    Frame(2, 1_700_000_000_123_456_790, 113, b"cooked", 1500, "a.pcap"),
    Frame(3, 1_700_000_001_000_000_001, 1, b"", 0, "a.pcap"),
    Frame(4, 0, 276, bytes(range(256)) * 300, 76_800, "a.pcap"),
    Frame(5, (1 << 63) - 1, 65535, b"x", 0, "a.pcap"),
    Frame(6, -1, 1, b"before the epoch", 16, "a.pcap"),
    Frame(7, -(1 << 63), 1, b"long before", 11, "a.pcap"),
    Frame(8, 1_700_000_002_999_999_999, 1, b"ethernet again", 14, "a.pcap"),
]


def written(frames: list[Frame], *, nanoseconds: bool = True) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file, nanoseconds=nanoseconds) as writer:
        for frame in frames:
            writer.write(frame)
    return file.getvalue()


def test_frames_are_read_back_as_they_were_written() -> None:
    assert read(written(FRAMES)) == FRAMES


def test_microseconds_cut_the_time_and_nothing_else() -> None:
    cut = [
        Frame(f.number, f.timestamp_ns // 1000 * 1000, f.link_type, f.data, f.original_length, f.capture)
        for f in FRAMES[:6]
    ]

    assert read(written(FRAMES[:6], nanoseconds=False)) == cut


@settings(deadline=None, derandomize=True)
@given(
    st.lists(
        st.builds(
            Frame,
            st.just(0),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.sampled_from([1, 113, 101, 228]),
            st.binary(max_size=40),
            st.integers(0, (1 << 32) - 1),
            st.just("a.pcap"),
        )
    )
)
def test_any_frames_are_read_back_as_they_were_written(frames: list[Frame]) -> None:
    for number, frame in enumerate(frames, 1):
        frame.number = number

    assert read(written(frames)) == frames


def test_comments_stand_beside_the_frames() -> None:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for frame in FRAMES:
            writer.write(frame, comment=f"number {frame.number}" if frame.number % 2 else "")
    data = file.getvalue()

    assert read(data) == FRAMES
    assert data.count(b"number ") == 4


def test_a_path_is_created_overwritten_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    path.write_bytes(bytes(100_000))
    for target in (path, str(path)):
        with PcapngWriter(target) as writer:
            writer.write(FRAMES[0])
        with pytest.raises(ValueError, match="closed"):
            writer.write(FRAMES[0])
        writer.close()
        found = list(open_capture([path]))
        assert [item.data for item in found if isinstance(item, Frame)] == [b"ethernet"]


def test_an_open_file_is_flushed_and_stays_open(tmp_path: Path) -> None:
    with (tmp_path / "out.pcapng").open("wb") as file:
        writer = PcapngWriter(file)
        writer.write(FRAMES[0])
        writer.close()

        assert not file.closed
        assert len(list(open_capture([tmp_path / "out.pcapng"]))) == 1


def test_a_file_without_frames_is_a_capture() -> None:
    assert written([]) != b""
    assert read(written([])) == []


def test_a_path_that_cannot_be_written_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        PcapngWriter(tmp_path / "missing" / "out.pcapng")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(Frame(1, 0, 65536, b"", 0, "a"), id="link type of more than 16 bits"),
        pytest.param(Frame(1, 0, -1, b"", 0, "a"), id="negative link type"),
        pytest.param(Frame(1, 1 << 64, 1, b"", 0, "a"), id="time of more than 64 bits"),
        pytest.param(Frame(1, -(1 << 65), 1, b"", 0, "a"), id="time too early"),
        pytest.param(Frame(1, 0, 1, b"", 1 << 32, "a"), id="length of more than 32 bits"),
    ],
)
def test_what_pcapng_cannot_hold_is_refused_and_harms_nothing(frame: Frame) -> None:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        with pytest.raises(ValueError, match="does not fit into pcapng"):
            writer.write(frame)
        writer.write(FRAMES[0])

    assert read(file.getvalue()) == FRAMES[:1]


def test_dpkt_reads_the_same() -> None:
    frames = [frame for frame in FRAMES if frame.link_type == 1 and frame.timestamp_ns > 0]

    found = list(dpkt.pcapng.Reader(io.BytesIO(written(frames))))

    assert [bytes(data) for _, data in found] == [frame.data for frame in frames]
    assert [time for time, _ in found] == pytest.approx([frame.timestamp_ns / 10**9 for frame in frames], abs=1e-6)


@pytest.mark.tshark
def test_tshark_and_capinfos_show_the_comments(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with PcapngWriter(path, comment="of the file") as writer:
        writer.write(FRAMES[0], "one: äöü")
        writer.write(FRAMES[7])
    words = ["tshark", "-r", str(path), "-T", "fields", "-e", "frame.comment"]
    about = subprocess.run(["capinfos", "-k", str(path)], capture_output=True, check=True).stdout

    assert subprocess.run(words, capture_output=True, check=True).stdout.decode().splitlines() == ["one: äöü", ""]
    assert b"of the file" in about


@pytest.mark.tshark
@pytest.mark.parametrize("nanoseconds", [True, False], ids=["nanoseconds", "microseconds"])
def test_tshark_reads_the_same(tmp_path: Path, nanoseconds: bool) -> None:
    frames = [frame for frame in FRAMES if 0 <= frame.timestamp_ns < 1 << 62]
    path = tmp_path / "out.pcapng"
    path.write_bytes(written(frames, nanoseconds=nanoseconds))
    fields = ("frame.time_epoch", "frame.cap_len", "frame.len", "frame.encap_type")

    ran = subprocess.run(
        ["tshark", "-n", "-r", path, "-T", "fields", *(a for field in fields for a in ("-e", field))],
        capture_output=True,
        check=True,
    )

    rows = [line.split("\t") for line in ran.stdout.decode().splitlines()]
    unit = 1 if nanoseconds else 1000
    # Wireshark's own numbers of link types: wiretap/wtap.h.
    encapsulations = {1: 1, 113: 25, 276: 210}
    assert [(int(Decimal(time) * 10**9), int(cap), int(full), int(kind)) for time, cap, full, kind in rows] == [
        (f.timestamp_ns // unit * unit, len(f.data), f.original_length, encapsulations[f.link_type]) for f in frames
    ]


@pytest.mark.tshark
def test_capinfos_finds_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    path.write_bytes(written(FRAMES[:4]))

    ran = subprocess.run(["capinfos", "-M", "-c", "-I", path], capture_output=True, check=True, env={**os.environ})

    text = ran.stdout.decode()
    assert "Number of packets:   4" in text
    assert "Number of interfaces in file: 3" in text
    assert ran.stderr == b"" or b"root" in ran.stderr
