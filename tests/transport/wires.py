"""Random stories of a TCP connection, told to a wire and read back."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mqttscope.net.flow import FlowClosed, FlowEvent, StreamClosed, StreamData
from mqttscope.net.flows import FlowTable
from mqttscope.transport.wire import Endpoint, FramedSegment, SyntheticConnection
from tests import tools

CLIENT, SERVER = True, False
V4 = (Endpoint.of(("192.0.2.10", 50_000)), Endpoint.of(("198.51.100.1", 1883)))
V6 = (Endpoint.of(("2001:db8::10", 50_000, 0, 0)), Endpoint.of(("2001:db8::1", 1883, 0, 0)))
START_NS = 1_767_323_045_123_456_789


def wire(
    ends: tuple[Endpoint, Endpoint] = V4, first: int = 1, sequences: tuple[int, int] = (1000, 5000)
) -> SyntheticConnection:
    """A wire whose frames count from ``first``."""
    return SyntheticConnection(*ends, "test.pcapng", itertools.count(first).__next__, *sequences)


def streams(segments: Sequence[FramedSegment]) -> tuple[bytes, bytes, list[str]]:
    """What our reassembly makes of segments: the bytes of both directions, and all else in words."""
    table = FlowTable()
    buffers: dict[bool, bytearray] = {CLIENT: bytearray(), SERVER: bytearray()}
    texts: list[str] = []

    def take(event: FlowEvent) -> None:
        if isinstance(event, StreamData):
            assert event.offset == len(buffers[event.from_initiator])
            buffers[event.from_initiator] += event.data
        elif isinstance(event, StreamClosed):
            texts.append(f"{'client' if event.from_initiator else 'server'} {event.how}")
        elif isinstance(event, FlowClosed):
            texts.append(f"closed {event.how}")
        else:
            texts.append(type(event).__name__)

    for framed_segment in segments:
        for event in table.feed(framed_segment.segment):
            take(event)
    for event in table.close():
        take(event)
    return bytes(buffers[CLIENT]), bytes(buffers[SERVER]), texts


def tshark(path: Path, *arguments: str) -> list[str]:
    """Lines that tshark prints about a file with its checks of checksums on; the test is skipped without it."""
    program = tools.program("tshark")
    preferences = ("ip.check_checksum", "tcp.check_checksum", "tcp.analyze_sequence_numbers")
    options = [word for name in preferences for word in ("-o", f"{name}:TRUE")]
    done = subprocess.run(
        [program, "-n", "-r", str(path), *options, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def complaints(path: Path) -> list[str]:
    """What tshark finds wrong with the frames of a file: bad checksums, and what its experts note."""
    fields = ("frame.number", "tcp.checksum.status", "ip.checksum.status", "_ws.expert.message", "_ws.expert.severity")
    wrong = []
    names = [word for name in fields for word in ("-e", name)]
    for line in tshark(path, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|", *names):
        number, tcp, ip, messages, severities = line.split("\t")
        if tcp != "1" or ip not in ("1", ""):
            wrong.append(f"frame {number}: checksums {tcp} {ip}")
        for message, severity in zip(messages.split("|"), severities.split("|"), strict=True):
            if severity and int(severity) >= NOTE and not re.search(HARMLESS, message):
                wrong.append(f"frame {number}: {message}")
    return wrong


NOTE = 0x00400000
"""Severity of tshark's notes; chats are below."""
HARMLESS = r"\(RST\)|connection closing"
"""What tshark says of every connection that ends."""
