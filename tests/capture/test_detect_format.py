"""Captures are known by what they begin with.  What is in them: test_pcap.py and test_pcapng.py."""

from __future__ import annotations

import gzip
import io

import pytest

from mqttscope.capture.detect_format import NO_FRAME, first_time
from mqttscope.net.frame import CaptureError
from tests.capture.test_pcap import pcap_file, read
from tests.capture.test_pcapng import enhanced, interface, section

LIMITS = "; pcap and pcapng are read, plain or compressed with gzip, zstd or lz4"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"\x89PNG\r\n\x1a\n", f"is not a capture file (starts with 89 50 4e 47){LIMITS}", id="picture"),
        pytest.param(b"ab", f"is not a capture file (starts with 61 62){LIMITS}", id="two bytes"),
        pytest.param(
            b"snoop\0\0\0\0\0\0\2",
            "is a snoop file, which is not read (starts with 73 6e 6f 6f); convert it to pcap or pcapng",
            id="snoop",
        ),
        pytest.param(
            b"GMBU\0\2" + bytes(100),
            "is a Microsoft Network Monitor file, which is not read (starts with 47 4d 42 55);"
            " convert it to pcap or pcapng",
            id="Network Monitor",
        ),
        pytest.param(
            b"PK\x03\x04" + bytes(30),
            "is a zip archive, which is not read (starts with 50 4b 03 04); convert it to pcap or pcapng",
            id="zip archive",
        ),
        pytest.param(
            gzip.compress(gzip.compress(pcap_file(), mtime=0), mtime=0),
            "is compressed more than once (starts with 1f 8b 08 00)",
            id="gzip twice",
        ),
        pytest.param(gzip.compress(b""), "is empty", id="gzip of nothing"),
    ],
)
def test_what_is_no_capture_says_so(content: bytes, message: str) -> None:
    assert read(content) == [CaptureError("a.pcap", message, 0, 0)]
    assert read(content, chunk_size=1) == [CaptureError("a.pcap", message, 0, 0)]


def test_the_time_of_the_first_frame() -> None:
    assert first_time(io.BytesIO(pcap_file([(7, 8, b"data")]))) == 7_000_008_000
    assert first_time(io.BytesIO(gzip.compress(section() + interface() + enhanced(b"data", 9)))) == 9_000
    assert first_time(io.BytesIO(pcap_file([]))) == NO_FRAME
    assert first_time(io.BytesIO(b"")) == NO_FRAME
