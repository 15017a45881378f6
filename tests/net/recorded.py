"""Captures taken apart by dpkt, as an independent reader."""

from __future__ import annotations

import gzip
import io
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import dpkt

from mqttscope.net.frame import Frame

Streams = dict[int, list[tuple[bool, bytes]]]


def capture_streams(path: Path) -> Streams:
    """The connections of an Ethernet capture: chunks of both directions in order, each byte once, client first seen."""
    streams: Streams = {}
    known: dict[tuple[bytes, bytes, int, int], tuple[int, bool]] = {}
    expected: dict[tuple[int, bool], int] = {}
    early: dict[tuple[int, bool], dict[int, bytes]] = {}
    for raw in _frames(path):
        ip = dpkt.ethernet.Ethernet(raw).data
        tcp = getattr(ip, "data", None)
        if not isinstance(tcp, dpkt.tcp.TCP):
            continue
        forward = (ip.src, ip.dst, tcp.sport, tcp.dport)
        if forward not in known or (tcp.flags & 0x12 == 0x02 and known[forward][1]):
            number = len(streams)
            streams[number] = []
            known[forward] = (number, True)
            known[ip.dst, ip.src, tcp.dport, tcp.sport] = (number, False)
            expected.pop((number, True), None)
        number, from_client = known[forward]
        key = (number, from_client)
        if tcp.flags & 0x02:
            expected[key] = tcp.seq + 1 & 0xFFFFFFFF
            continue
        payload = bytes(tcp.data)
        if not payload:
            continue
        expected.setdefault(key, tcp.seq)
        early.setdefault(key, {})[tcp.seq] = payload
        moved = True
        while moved:
            moved = False
            for sequence in sorted(early[key]):
                skip = expected[key] - sequence
                if skip < 0:
                    continue
                fresh = early[key].pop(sequence)[skip:]
                if fresh:
                    streams[number].append((from_client, fresh))
                    expected[key] += len(fresh)
                moved = True
    return streams


def _frames(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        reader = dpkt.pcapng.Reader(file) if path.suffix == ".pcapng" else dpkt.pcap.Reader(file)
        assert reader.datalink() == dpkt.pcap.DLT_EN10MB
        yield from (raw for _, raw in reader)


def read_frames(path: Path) -> Iterator[Frame]:
    """Frames of a capture as far as dpkt reads it."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    numbers = itertools.count(1)
    try:
        reader = dpkt.pcapng.Reader if content[:4] == b"\x0a\x0d\x0d\x0a" else dpkt.pcap.Reader
        source = io.BytesIO(content)
        capture = reader(source)
        for timestamp, data in capture:
            # The upper half of a pcap link type says whether there is a frame check sequence.
            yield Frame(next(numbers), int(timestamp * 10**9), capture.datalink() & 0xFFFF, data, len(data), path.name)
    except (ValueError, dpkt.UnpackError, struct.error, AttributeError):
        return
