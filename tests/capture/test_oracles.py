"""Collections of captures, read like the index, dpkt and tshark read it."""

from __future__ import annotations

import io
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import dpkt
import pytest

from mqttscope.capture import open_capture
from mqttscope.net.frame import CaptureError, Frame
from tests import corpora
from tests.capture.test_pcap import read
from tests.conftest import EXHAUSTIVE

PAHO = "paho-v5-live"
DERIVED = f"captures/derived/{PAHO}"
DAMAGED = {
    "container-gopacket/be_test901.pcapng",
    "container-libpcap/shb-option-too-long.pcapng",
    "derived/paho-v5-live/file-cut-mid-record.pcap",
    "derived/suricata-mqtt5-props/file-cut-mid-record.pcap",
    "trials/time-jumps-back.pcap",
}
"""Files with an error beside their frames."""
each_collection = pytest.mark.parametrize("root", corpora.collections(corpora.INDEX))


# What tshark 4.0 refuses and is read here: file and number of frames.
READ_BEYOND_TSHARK = {
    "container-gopacket/be_test901.pcapng": 1,
    "container-libpcap/pcap-invalid-version-1.pcap": 1,
    "container-libpcap/pcapng-invalid-vers-2.pcapng": 1,
    "container-libpcap/shb-option-too-long.pcapng": 0,
}


@each_collection
def test_every_capture_gives_the_number_of_frames_of_the_index(root: Path) -> None:
    differing = {}
    damaged = set()
    rows = corpora.index(root)
    assert len(rows) > 300
    for row in rows:
        actual_frames = list(open_capture([root / "captures" / row["file"]]))
        frames = sum(isinstance(item, Frame) for item in actual_frames)
        wanted = READ_BEYOND_TSHARK.get(row["file"])
        if frames != (int(row["packets"]) if wanted is None else wanted):
            differing[row["file"]] = frames
        if any(isinstance(item, CaptureError) for item in actual_frames):
            damaged.add(row["file"])

    assert differing == {}
    assert damaged == DAMAGED & {row["file"] for row in rows}


def without_identification(ethernet: bytes) -> bytes:
    """An IPv4 frame without the identification and checksum of its header: each file counts on from the one before."""
    return ethernet[:18] + ethernet[20:24] + ethernet[26:]


@pytest.mark.parametrize("stream", ["suricata-mqtt5-props", *corpora.cases(f"{DERIVED}/*", [PAHO])])
def test_all_file_formats_of_one_stream_hold_the_same_frames(stream: str) -> None:
    directory = corpora.path("captures", "derived", stream)
    files = sorted(directory.glob("file-*"))
    assert len(files) == 19
    plain = list(open_capture([directory / "file-be.pcap"]))
    other = {"file-snap64.pcap", "file-zero-length-records.pcap", "file-cut-mid-record.pcap", "file-ng-2if.pcapng"}

    for file in files:
        if file.name in other:
            continue
        for number, (item, like) in enumerate(zip(open_capture([file]), plain, strict=True), 1):
            assert isinstance(item, Frame)
            assert isinstance(like, Frame)
            assert (item.number, item.link_type) == (number, like.link_type), file.name
            assert without_identification(item.data) == without_identification(like.data), file.name
            if "spb" not in file.name:
                # Powers of two cannot say microseconds exactly.
                assert abs(item.timestamp_ns - like.timestamp_ns) < 2000, file.name


BEFORE_1970 = "trials/time-jumps-back.pcap"
"""dpkt reads seconds as unsigned numbers."""


def kinds_of_blocks(content: bytes) -> list[int]:
    """The block types of a pcapng file."""
    order = "<"
    position = 0
    kinds = []
    while position + 8 <= len(content):
        if content[position : position + 4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if content[position + 8 : position + 9] == b"\x4d" else ">"
        kind, length = struct.unpack_from(order + "II", content, position)
        kinds.append(kind)
        position += max(length, 12)
    return kinds


def dpkt_frames(content: bytes) -> list[tuple[Decimal, bytes]] | None:
    """Times and bytes as dpkt reads them; ``None`` when it cannot.

    It knows the clock of the first interface alone, and no Simple Packet Blocks.
    """
    try:
        if content[:4] != b"\x0a\x0d\x0d\x0a":
            return [(Decimal(time), data) for time, data in dpkt.pcap.Reader(io.BytesIO(content))]
        kinds = kinds_of_blocks(content)
        if kinds.count(1) != 1 or 3 in kinds:
            return None
        return [(Decimal(time), bytes(data)) for time, data in dpkt.pcapng.Reader(io.BytesIO(content))]
    except (ValueError, dpkt.Error, struct.error):
        return None


@each_collection
def test_dpkt_reads_the_same_from_every_capture_that_it_can_read(root: Path) -> None:
    compared = 0
    for row in corpora.index(root):
        content = (root / "captures" / row["file"]).read_bytes()
        wanted = dpkt_frames(content)
        if wanted is None or row["file"] == BEFORE_1970:
            continue
        compared += 1
        frames = [item for item in read(content) if isinstance(item, Frame)]
        if row["file"].endswith("file-cut-mid-record.pcap"):
            wanted.pop()  # dpkt takes a cut record for a whole one
        assert [item.data for item in frames] == [data for _, data in wanted], row["file"]
        for item, (time, _) in zip(frames, wanted, strict=True):
            # dpkt keeps microseconds as floating point numbers.
            assert abs(Decimal(item.timestamp_ns) / 10**9 - time) < Decimal("0.000001"), row["file"]

    assert compared > 250


# tshark counts these as frames.
CUSTOM_BLOCKS = {0x0BAD, 0x40000BAD}
TSHARK_FIELDS = ("frame.time_epoch", "frame.cap_len", "frame.len")


def tshark_fields(path: Path) -> list[str]:
    fields = [argument for field in TSHARK_FIELDS for argument in ("-e", field)]
    # It fails on cut files, after the frames before the cut.
    ran = subprocess.run(["tshark", "-n", "-r", path, "-T", "fields", *fields], capture_output=True, check=False)
    return ran.stdout.decode().splitlines()


@pytest.mark.long
@pytest.mark.tshark
@each_collection
def test_tshark_reads_the_same_times_and_lengths(root: Path) -> None:
    folders = ("container-pcapng", "derived/suricata-mqtt5-props/file-", f"derived/{PAHO}/file-")
    rows = [row["file"] for row in corpora.index(root) if row["file"].startswith(folders)]
    paths = [
        path
        for path in (root / "captures" / name for name in rows)
        if path.suffix != ".pcapng" or CUSTOM_BLOCKS.isdisjoint(kinds_of_blocks(path.read_bytes()))
    ]
    paths = paths if EXHAUSTIVE else paths[::3]
    assert len(paths) > 15
    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(tshark_fields, paths))
    for path, lines in zip(paths, outputs, strict=True):
        frames = [item for item in open_capture([path]) if isinstance(item, Frame)]
        assert len(lines) == len(frames), path
        for line, frame in zip(lines, frames, strict=True):
            epoch, captured, length = line.split("\t")
            assert (int(captured), int(length)) == (len(frame.data), frame.original_length), path
            # Frames of Simple Packet Blocks have no time.
            if epoch:
                assert int(Decimal(epoch) * 10**9) == frame.timestamp_ns, path
