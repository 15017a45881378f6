"""TLS conversations made by hand: real TLS of Python's ssl module, with the keys of its sessions."""

from __future__ import annotations

import ssl
import tempfile
from contextlib import suppress
from pathlib import Path

from mqttscope.capture.write import PcapngWriter
from mqttscope.mqtt import ControlPacket, ProtocolVersion
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.dissect.talk import V3_1_1, Talk, Tape, wire
from tests.dissect.test_dissector import in_frame, ip_header, tcp

CERTIFICATE = ROOT / "tests" / "material" / "self-signed.pem"
"""A certificate with its key, for tests alone."""
TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


class Secure:
    """Both ends of TLS connections, which share the log of keys and the sessions."""

    def __init__(self, version: ssl.TLSVersion = TLS_1_3, alpn: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.keylog = self.folder / "keys.txt"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.context.keylog_filename = str(self.keylog)
        self.serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.serving.load_cert_chain(CERTIFICATE)
        for ssl_context in (self.context, self.serving):
            ssl_context.minimum_version = ssl_context.maximum_version = version
            if alpn:
                ssl_context.set_alpn_protocols([alpn])
        self.session: ssl.SSLSession | None = None

    def connection(self, talk: Talk, *, chunk: int = 0) -> SecureTalk:
        """A connection, its handshake done; its segments hold at most ``chunk`` bytes (0: no limit)."""
        return SecureTalk(self, talk, chunk)


class SecureTalk:
    """One TLS connection on a `Talk`."""

    def __init__(self, secure: Secure, talk: Talk, chunk: int) -> None:
        self.talk, self.chunk = talk, chunk
        self.pipes = {"client": ssl.MemoryBIO(), "server": ssl.MemoryBIO()}
        up, down = self.pipes["client"], self.pipes["server"]
        ends = {
            "client": secure.context.wrap_bio(down, up, server_hostname="broker.example", session=secure.session),
            "server": secure.serving.wrap_bio(up, down, server_side=True),
        }
        self.ends = ends
        done: set[str] = set()
        while len(done) < 2:
            for who, end in ends.items():
                try:
                    end.do_handshake()
                    done.add(who)
                except ssl.SSLWantReadError:
                    pass
                self.flush(who)
        self.secure = secure

    def flush(self, who: str) -> None:
        """Put what one end has written on the wire, and let the other end have it."""
        data = self.pipes[who].read()
        for start in range(0, len(data), self.chunk or max(len(data), 1)):
            (self.talk.client if who == "client" else self.talk.server)(data[start : start + (self.chunk or len(data))])
        if data:
            self.pipes[who].write(data)

    def say(
        self, who: str, *packets: bytes | ControlPacket, version: ProtocolVersion = V3_1_1, records: int = 1
    ) -> None:
        """Packets of one side in one flight of this many records."""
        data = wire(*packets, version=version)
        size = -(-len(data) // records)
        for start in range(0, len(data), size):
            self.ends[who].write(data[start : start + size])
        self.flush(who)
        other = self.ends["server" if who == "client" else "client"]
        left = len(data)
        while left > 0:
            left -= len(other.read(left))
        self._tickets(who)

    def _tickets(self, who: str) -> None:
        """A silent side may have read what TLS itself sent meanwhile."""
        with suppress(ssl.SSLWantReadError):
            self.ends[who].read(1)
        self.secure.session = self.ends["client"].session


def write(tape: Tape, target: Path) -> Path:
    """The tape as a capture file."""
    with PcapngWriter(target) as writer:
        for segment in tape.segments:
            writer.write(as_frame(segment))
    return target


def as_frame(segment: Segment) -> Frame:
    """The frame of a segment."""
    return in_frame(segment.frame, segment, ip_header(segment, tcp(segment)))
