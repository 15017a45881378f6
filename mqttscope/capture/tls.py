"""Looking into TLS with the keys of its sessions: tshark decrypts, our decoder reads.

tshark is asked for the content of each record as an exported PDU: a frame of link type 252
(https://www.tcpdump.org/linktypes/LINKTYPE_WIRESHARK_UPPER_PDU.html) with the number of the frame that completed the
record.  Nothing is lost where several records or several MQTT packets share a frame, as equal layers of a frame are in
tshark's JSON.

The captures are read twice: first the frames of TLS flows are copied to a temporary capture, so that tshark can decrypt
whatever `open_capture` can read, sessions that run over several files included; then its plaintexts are joined with the
segments of the second reading.

tshark gets the segments in frames of plain IPv4, whatever they came in.  Each connection gets a client address of its
own and all servers the same address and port.  So tshark need not be told ports, and ports that are used again, VLANs,
tunnels and IP fragments do not concern it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.pcapng import PCAPNG_MAGIC, read_pcapng
from mqttscope.capture.tshark import NOISE, decrypting, find_tshark
from mqttscope.capture.write import LINK_TYPE_RAW, PcapngWriter, ip_frame
from mqttscope.net.frame import CaptureError, CaptureNotice, CaptureSecrets, Frame, Plaintext
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import ACK, FIN, MASK, PSH, RST, SYN, Fragment, Segment, ports, reverse_key

SERVER_PORT = 443
MAX_PAYLOAD = 32 * 1024
"""Payload of one frame: a segment that the network card put together may be longer than an IPv4 datagram can be."""
MAX_CONNECTIONS = 1 << 24
"""So many have addresses of their own."""

_CLIENT_PORT = 49_152
_SERVER = bytes((192, 0, 2, 1))
_PREFERENCES_OFF = ("ip.check_checksum:FALSE", "tcp.check_checksum:FALSE")
ARGUMENTS = tuple(word for preference in _PREFERENCES_OFF for word in ("-o", preference))
"""For tshark: the frames have no checksums."""


def frames(segment: Segment, connection: int, *, from_client: bool) -> Iterator[Frame]:
    """Frames with the payload of a segment; none for one without.

    ``connection``: a number that no other connection has which the same tshark knows.
    """
    client = (0x0A000000 | connection % MAX_CONNECTIONS).to_bytes(4, "big")
    addresses = (client, _SERVER) if from_client else (_SERVER, client)
    ports = (_CLIENT_PORT, SERVER_PORT) if from_client else (SERVER_PORT, _CLIENT_PORT)
    first = segment.sequence + bool(segment.flags & SYN)
    payload, whole = segment.payload, len(segment.payload) + segment.missing
    for start in range(0, len(payload), MAX_PAYLOAD):
        part = payload[start : start + MAX_PAYLOAD]
        missing = min(whole - start, MAX_PAYLOAD) - len(part)
        data = ip_frame(
            *addresses, ports, sequence=(first + start) & MASK, acknowledgment=segment.acknowledgment, flags=PSH | ACK,
            window=0xFFFF, payload=part, missing=missing,
        )  # fmt: skip
        yield Frame(segment.frame, segment.timestamp_ns, LINK_TYPE_RAW, data, len(data) + missing, segment.capture)


TLS_KEY_LOG = 0x544C534B
"""Secrets type of key log lines in a Decryption Secrets Block (pcapng, section 4.7)."""
_HELLO = b"\x16\x03"
_ORIGINAL_FRAME, _END_OF_TAGS = 30, 0


@dataclass(slots=True)
class _Copy:
    """The frames of TLS flows in a temporary capture, and where each came from."""

    captures: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Index of the first frame of each capture."""
    frames: array[int] = field(default_factory=lambda: array("Q"))
    keys: list[bytes] = field(default_factory=list)
    """Direction key of each frame."""
    servers: set[int] = field(default_factory=set)
    """Ports that a ClientHello was sent to."""
    secrets: bytes = b""
    sessions: int = 0
    """How many TLS sessions there are in frames that were made of segments: these have no checksums."""

    def take(self, frame: Frame, key: bytes) -> None:
        if not self.captures or self.captures[-1] != frame.capture:
            self.captures.append(frame.capture)
            self.starts.append(len(self.frames))
        self.frames.append(frame.number)
        self.keys.append(key)


def _copy(items: Iterable[Frame | Segment | CaptureNotice], target: Path) -> _Copy:
    """Copy what belongs to TLS flows, from their ClientHello on; segments as frames of their own."""
    made, flows, known = _Copy(), set[bytes](), dict[bytes, bytes]()
    clients: dict[bytes, tuple[int, int]] = {}
    with PcapngWriter(target) as writer:
        for item in items:
            if isinstance(item, CaptureSecrets) and item.secrets_type == TLS_KEY_LOG:
                made.secrets += item.data.rstrip(b"\0\n") + b"\n"
            if isinstance(item, Segment):
                key = item.key
                if _is_hello(item) and clients.get(key, (0, -1))[1] != item.sequence:
                    # A number of its own for each session: ports are used again.
                    clients.pop(reverse_key(key), None)
                    clients[key] = made.sessions, item.sequence
                    made.sessions += 1
                    made.servers.add(SERVER_PORT)
                from_client = key in clients
                session = clients.get(key if from_client else reverse_key(key))
                if session is not None:
                    for frame in frames(item, session[0], from_client=from_client):
                        writer.write(frame)
                        made.take(frame, known.setdefault(key, key))
                continue
            if not isinstance(item, Frame):
                continue
            found = segment_of(item)
            if isinstance(found, Fragment):
                # Which flow it belongs to is in the first one only.
                writer.write(item)
                made.take(item, b"")
            elif isinstance(found, Segment):
                key = found.key
                if _is_hello(found) and key not in flows:
                    flows.add(key)
                    flows.add(reverse_key(key))
                    made.servers.add(ports(key)[1])
                if key in flows:
                    writer.write(item)
                    made.take(item, known.setdefault(key, key))
    return made


def _is_hello(segment: Segment) -> bool:
    return segment.payload[:2] == _HELLO and segment.payload[5:6] == b"\x01"


class Decryption:
    """Plaintexts of TLS flows, to be joined with the segments of the same captures.

    ``read`` opens the captures again for the first reading, as frames or as the segments of another front end; ``keys``
    are key log lines, those in pcapng secrets are added.  `MissingToolError` where tshark is not installed.
    """

    def __init__(self, read: Callable[[], Iterable[Frame | Segment | CaptureNotice]], keys: bytes) -> None:
        self.records = 0
        """Records that were decrypted so far."""
        self._folder = Path(tempfile.mkdtemp(prefix="mqttscope-tls-"))
        self._errors = self._folder / "errors.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.fault: str | None = None
        """What tshark failed at."""
        try:
            tshark = find_tshark()
            self._copy = _copy(read(), self._folder / "tls.pcapng")
            log = self._folder / "keys.txt"
            log.touch(mode=0o600)
            log.write_bytes(keys + self._copy.secrets)
            self._run(tshark, log)
            self._next: Plaintext | None = None
            self._next_index = -1
            self._plaintexts = self._exported()
            self._advance()
        except BaseException:
            self.close()
            raise

    def join(self, segments: Iterable[Segment | CaptureNotice]) -> Iterator[Segment | CaptureNotice | Plaintext]:
        """The segments, each followed by what it completed; before it where it ends the flow."""
        pointer, places = 0, self._places()
        place = next(places, None)
        order = {name: number for number, name in enumerate(self._copy.captures)}
        try:
            for segment in segments:
                if type(segment) is not Segment:
                    yield segment
                    continue
                here = (segment.capture, segment.frame)
                if place == here and self._copy.keys[pointer] in (segment.key, b""):
                    while place == here and self._copy.keys[pointer] in (segment.key, b""):
                        pointer, place = pointer + 1, next(places, None)
                    ends = segment.flags & (FIN | RST)
                    if not ends:
                        yield segment
                    while self._next is not None and self._next_index < pointer:
                        yield self._next
                        self._advance()
                    if ends:
                        yield segment
                else:
                    yield segment
                    at = (order.get(segment.capture, -1), segment.frame)
                    while place is not None and (order[place[0]], place[1]) < at:
                        pointer, place = pointer + 1, next(places, None)
            while self._next is not None:
                yield self._next
                self._advance()
            if self.fault is not None:
                yield CaptureError("tshark", self.fault)
        finally:
            self.close()

    def close(self) -> None:
        """End tshark and remove what was copied."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                with suppress(OSError):
                    self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, tshark: str, log: Path) -> None:
        arguments = decrypting(tshark, str(self._folder / "tls.pcapng"), str(log), self._copy.servers)
        arguments += ARGUMENTS if self._copy.sessions else ()
        arguments += ["-Q", "-U", "OSI layer 7", "-w", "-"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)

    def _places(self) -> Iterator[tuple[str, int]]:
        made = self._copy
        ends = [*made.starts[1:], len(made.frames)] if made.starts else []
        for capture, start, end in zip(made.captures, made.starts, ends, strict=True):
            for number in made.frames[start:end]:
                yield capture, number

    def _place(self, index: int) -> tuple[str, int]:
        made = self._copy
        at = max(number for number, start in enumerate(made.starts) if start <= index)
        return made.captures[at], made.frames[index]

    def _advance(self) -> None:
        found = next(self._plaintexts, None)
        self._next = None if found is None else found[1]
        self._next_index = -1 if found is None else found[0]

    def _exported(self) -> Iterator[tuple[int, Plaintext]]:
        """Index of the copied frame and plaintext of each PDU."""
        assert self._process is not None
        assert self._process.stdout is not None
        source = ByteSource(cast(BinaryIO, self._process.stdout))
        head = source.fill(b"", 4)
        if head[:4] != PCAPNG_MAGIC:
            self.fault = self._why(f"begins with {head[:4].hex(' ')}" if head else "gave nothing")
            return
        for item in read_pcapng(source, head, "tshark"):
            if isinstance(item, CaptureError):
                self.fault = self._why(item.message)
            if not isinstance(item, Frame):
                continue
            number, data = exported_pdu(item.data)
            if number and data and number <= len(self._copy.frames) and self._copy.keys[number - 1]:
                self.records += 1
                capture, frame = self._place(number - 1)
                yield number - 1, Plaintext(self._copy.keys[number - 1], data, frame, item.timestamp_ns, capture)
        if self.fault is None and self._process.wait():
            self.fault = self._why("ended early")

    def _why(self, what: str) -> str:
        """What is wrong with tshark, in one sentence."""
        assert self._process is not None
        code = self._process.wait()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        said = self._errors.read_text("utf-8", "replace").splitlines() if self._errors.exists() else []
        told = [line for line in said if not line.startswith(NOISE)]
        last = f": {told[-1]}" if told else ""
        return f"failed while it decrypted TLS ({what}; {how}){last}; what it had not decrypted is missing"


def exported_pdu(data: bytes) -> tuple[int, bytes]:
    """Number of the original frame and content of a Wireshark Upper PDU; 0 where it names none."""
    at, number = 0, 0
    while at + 4 <= len(data):
        tag, length = int.from_bytes(data[at : at + 2], "big"), int.from_bytes(data[at + 2 : at + 4], "big")
        value = data[at + 4 : at + 4 + length]
        at += 4 + length
        if tag == _END_OF_TAGS:
            break
        if tag == _ORIGINAL_FRAME and length == 4:
            number = int.from_bytes(value, "big")
    return number, data[at:]
