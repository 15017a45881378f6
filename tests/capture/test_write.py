"""What the writer writes and frames that are built, read back by this package, by dpkt and by tshark."""

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

from mqttscope.capture import PcapngWriter, open_capture, write
from mqttscope.capture.read import read_capture
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, endpoints
from tests.capture.test_pcap import read
from tests.transport.wires import tshark

START_NS = 1_767_323_045_123_456_789


def frame(number: int, size: int = 100) -> Frame:
    return Frame(number, START_NS + number, 1, bytes([number % 256]) * size, size, "lo")


def recorded(path: Path, count: int, **options: int) -> write.Recorder:
    """A recorder that has written some frames."""
    recorder = write.Recorder(str(path), **options)
    for number in range(1, count + 1):
        recorder.write(frame(number))
    recorder.close()
    return recorder


def read_files(*paths: Path) -> list[Frame | CaptureNotice]:
    return list(open_capture([str(path) for path in paths]))


def test_what_was_flushed_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    recorder = write.Recorder(str(path))
    assert read_files(path) == []
    recorder.write(frame(1))
    recorder.flush()

    frames = read_files(path)

    assert [type(frame) for frame in frames] == [Frame]
    recorder.close()
    assert recorder.summary() == f"wrote 1 frame to {path}"


def test_a_file_cut_anywhere_keeps_the_frames_before(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    recorded(path, 5)
    data = path.read_bytes()

    for end in range(len(data) - 1, 200, -37):
        cut.write_bytes(data[:end])
        frames = [read_file for read_file in read_files(cut) if isinstance(read_file, Frame)]
        assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
        assert len(frames) >= (end - 100) // 132 - 1


def test_a_ring_keeps_the_newest_files_and_each_reads_by_itself(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "ring.pcapng", 100, ring_bytes=1_000, ring_files=3)

    files = sorted(tmp_path.iterdir())

    assert len(files) == 3
    assert recorder.files - recorder.removed == 3
    assert all(file.name.startswith("ring_000") and file.name.endswith("_20260102T030405.pcapng") for file in files)
    payloads = [frame.data[0] for path in files for frame in read_files(path) if isinstance(frame, Frame)]
    assert payloads == list(range(101 - len(payloads), 101))
    assert not any(isinstance(read_file, CaptureError) for path in files for read_file in read_files(path))
    assert all(path.stat().st_size <= 1_000 + 132 for path in files)
    assert "3 removed" not in recorder.summary()
    assert f"{recorder.removed} of them removed again" in recorder.summary()


def test_a_ring_without_a_number_of_files_keeps_all(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "ring", 30, ring_bytes=1_000)

    assert len(list(tmp_path.iterdir())) == recorder.files > 3
    assert all(path.suffix == ".pcapng" for path in tmp_path.iterdir())


def test_foreign_files_are_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "ring_00001_20250101T000000.pcapng"
    path.write_bytes(b"mine")
    recorded(tmp_path / "ring.pcapng", 3, ring_bytes=1, ring_files=1)

    assert path.read_bytes() == b"mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("ring_bytes", [None, 1_000])
def test_a_folder_that_is_not_there(tmp_path: Path, ring_bytes: int | None) -> None:
    with pytest.raises(OSError, match=r"folder|No such"):
        write.Recorder(str(tmp_path / "none" / "a.pcapng"), ring_bytes=ring_bytes)
    with pytest.raises(OSError, match="No such file"):
        PcapngWriter(tmp_path / "none" / "a.pcapng")


def test_a_ring_leaves_files_alone_that_are_there_and_lets_only_their_owner_read(tmp_path: Path) -> None:
    for _ in range(2):
        recorded(tmp_path / "ring.pcapng", 1, ring_bytes=1_000)

    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 2
    assert paths[0].name.removesuffix(".pcapng") == paths[1].name.removesuffix(".pcapng").removesuffix("-2") or (
        paths[1].name.removesuffix(".pcapng") == paths[0].name.removesuffix(".pcapng").removesuffix("-2")
    )
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    os.close(write.open_alone(path))

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_another_program_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    first = write.open_alone(path)
    os.write(first, b"written")

    with pytest.raises(OSError, match="another program is writing it") as caught:
        write.open_alone(path)

    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"written"
    os.close(first)
    os.close(write.open_alone(path))
    assert path.read_bytes() == b""


def test_a_fresh_file_takes_the_place_of_none(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(b"kept")

    with pytest.raises(FileExistsError):
        write.open_alone(path, fresh=True)
    assert path.read_bytes() == b"kept"


def test_a_device_may_be_written_by_many() -> None:
    both = [write.open_alone("/dev/null"), write.open_alone("/dev/null")]

    for descriptor in both:
        os.close(descriptor)


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_new_is_for_its_owner_alone_and_what_is_there_keeps_its_rights(tmp_path: Path) -> None:
    write.make_folder(tmp_path / "a" / "b")
    assert [rights(tmp_path / "a"), rights(tmp_path / "a" / "b")] == [0o700, 0o700]

    path = tmp_path / "a" / "report.json"
    with open(path, "w", encoding="utf-8", opener=write.opener) as file:
        file.write("1")
    assert rights(path) == 0o600

    path.chmod(0o644)
    tmp_path.joinpath("a").chmod(0o755)
    with open(path, "w", encoding="utf-8", opener=write.opener) as file:
        file.write("2")
    write.make_folder(tmp_path / "a")
    assert (rights(path), rights(tmp_path / "a"), path.read_text()) == (0o644, 0o755, "2")


def test_a_file_takes_over_the_rights_of_the_one_it_replaces(tmp_path: Path) -> None:
    for name, wanted in (("old", 0o640), ("none", 0o600)):
        path, new = tmp_path / name, tmp_path / "new"
        if name == "old":
            path.touch()
            path.chmod(0o640)
        with open(new, "wb", opener=write.opener) as file:
            file.write(b"1")
        write.replace_file(new, path)
        assert rights(path) == wanted


def test_the_umask_of_the_program_stays(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with open(tmp_path / "a", "wb", opener=write.opener):
            pass
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_file_that_is_written_whole_is_for_its_owner_and_keeps_links_and_rights(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)

    write.write_file(link, b"one")

    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"one", 0o600)
    file.chmod(0o640)
    write.write_file(file, b"two")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError, match="directory"):
        write.write_file(folder, b"one")
    write.write_file("/dev/null", b"one")
    assert list(tmp_path.iterdir()) == [folder]


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
        frames = list(open_capture([path]))
        assert [item.data for item in frames if isinstance(item, Frame)] == [b"ethernet"]


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

    result = list(dpkt.pcapng.Reader(io.BytesIO(written(frames))))

    assert [bytes(data) for _, data in result] == [frame.data for frame in frames]
    assert [time for time, _ in result] == pytest.approx([frame.timestamp_ns / 10**9 for frame in frames], abs=1e-6)


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


V4 = bytes((192, 0, 2, 7)), bytes((198, 51, 100, 9))
V6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
NUMBERS = st.integers(0, 2**32 - 1)


def made_frame(data: bytes, missing: int = 0) -> Frame:
    return Frame(1, 0, write.LINK_TYPE_RAW, data, len(data) + missing, "made.pcapng")


@given(
    addresses=st.sampled_from([V4, V6]), sequence=NUMBERS, acknowledgment=NUMBERS, flags=st.integers(0, 63),
    payload=st.binary(max_size=70), words=st.integers(0, 10), missing=st.integers(0, 50),
)  # fmt: skip
def test_a_frame_is_read_as_it_was_meant(
    addresses: tuple[bytes, bytes],
    sequence: int,
    acknowledgment: int,
    flags: int,
    payload: bytes,
    words: int,
    missing: int,
) -> None:
    options = b"\x01" * (4 * words)
    missing = missing if payload else 0
    data = write.ip_frame(
        *addresses, (50_000, 1883), sequence=sequence, acknowledgment=acknowledgment, flags=flags, window=4_096,
        payload=payload, options=options, missing=missing,
    )  # fmt: skip
    actual_segment = segment(made_frame(data, missing))

    assert isinstance(actual_segment, Segment)
    source, destination = endpoints(actual_segment.key)
    assert source.endswith(":50000")
    assert destination.endswith(":1883")
    assert (actual_segment.sequence, actual_segment.acknowledgment, actual_segment.flags & 63) == (
        sequence,
        acknowledgment,
        flags,
    )
    assert (actual_segment.payload, actual_segment.missing, actual_segment.options, actual_segment.window) == (
        payload,
        missing,
        options,
        4_096,
    )


@pytest.mark.parametrize("addresses", [V4, V6], ids=["ipv4", "ipv6"])
def test_checksums_are_right(addresses: tuple[bytes, bytes], tmp_path: Path) -> None:
    path = tmp_path / "made.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for size in (0, 1, 2, 999, 16_384):
            data = write.ip_frame(
                *addresses, (50_000, 1883), sequence=7, acknowledgment=8, flags=24, window=512, payload=b"\xff" * size
            )
            writer.write(made_frame(data))
    fields = ("-T", "fields", "-e", "ip.checksum.status", "-e", "tcp.checksum.status")
    good = "1\t1" if addresses is V4 else "\t1"
    assert tshark(path, *fields) == [good] * 5


def test_frames_that_an_interface_dropped_are_told() -> None:
    out = io.BytesIO()
    with PcapngWriter(out) as writer:
        writer.write_drops(9, 1)
        writer.write(Frame(1, 5, 1, b"frame", 5, "a"))
        writer.write_drops(100, 7)
        writer.write_drops(None, 9)
    out.seek(0)
    capture_dropses = [frame for frame in read_capture(out, "b") if isinstance(frame, CaptureDrops)]

    assert [
        (capture_drops.interface, capture_drops.received, capture_drops.dropped) for capture_drops in capture_dropses
    ] == [(0, 100, 7), (0, None, 2)]
