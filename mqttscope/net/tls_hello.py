"""Observes TLS from outside: the hellos and record headers that are readable without keys.

Record layer: RFC 8446 section 5.1 and RFC 5246 section 6.2.1; hellos: section 4.1 and section 7.4.1; server_name:
RFC 6066 section 3; ALPN: RFC 7301; names of content types, versions and alerts: RFC 8446 sections 5.1 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

CONTENT_TYPES: Final = {20: "change_cipher_spec", 21: "alert", 22: "handshake", 23: "application_data", 24: "heartbeat"}
VERSIONS: Final = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}
ALERT_LEVELS: Final = {1: "warning", 2: "fatal"}
_ALERT_NAMES: Final = (
    "0 close_notify, 10 unexpected_message, 20 bad_record_mac, 21 decryption_failed, 22 record_overflow, "
    "30 decompression_failure, 40 handshake_failure, 41 no_certificate, 42 bad_certificate, "
    "43 unsupported_certificate, 44 certificate_revoked, 45 certificate_expired, 46 certificate_unknown, "
    "47 illegal_parameter, 48 unknown_ca, 49 access_denied, 50 decode_error, 51 decrypt_error, "
    "60 export_restriction, 70 protocol_version, 71 insufficient_security, 80 internal_error, "
    "86 inappropriate_fallback, 90 user_canceled, 100 no_renegotiation, 109 missing_extension, "
    "110 unsupported_extension, 111 certificate_unobtainable, 112 unrecognized_name, "
    "113 bad_certificate_status_response, 114 bad_certificate_hash_value, 115 unknown_psk_identity, "
    "116 certificate_required, 120 no_application_protocol"
)
ALERTS: Final = {int(number): name for number, name in (entry.split() for entry in _ALERT_NAMES.split(", "))}
"""Alert descriptions by number (RFC 8446 section 6 and the RFCs before it)."""

MAX_HANDSHAKE_BYTES: Final = 64 * 1024
"""Maximum handshake bytes of one direction collected for its hello."""
MAX_ALERTS: Final = 16
"""Maximum number of alerts kept; later ones are counted."""
MAX_LISTED: Final = 256
"""Maximum number of entries kept of each list in a hello; ``problems`` reports the excess."""
MAX_EXPANSION: Final = 2048
"""Maximum number of bytes that encryption adds to a record (RFC 5246 section 6.2.3)."""
MAX_RECORD_BYTES: Final = 16384 + MAX_EXPANSION
"""Longest record payload (RFC 5246 section 6.2.3)."""

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
CLIENT_HELLO, SERVER_HELLO = 1, 2

_SERVER_NAME: Final = 0
_FRAGMENT_LENGTH: Final = 1
_FRAGMENT_CODES: Final = range(1, 5)
_ALPN: Final = 16
_SESSION_TICKET: Final = 35
_PRE_SHARED_KEY: Final = 41
_EARLY_DATA: Final = 42
_SUPPORTED_VERSIONS: Final = 43
_ECH: Final = 0xFE0D
_RETRY_RANDOM: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


@dataclass(slots=True)
class TlsSide:
    """One direction: the position in its records, and counts of them."""

    header: bytes = b""  # the start of a record header
    content_type: int = 0
    remaining: int = 0  # payload bytes of the record in progress that are still to come
    alert: bool = False  # an alert of two bytes is in progress: encrypted ones are longer in every cipher suite
    short: bytes = b""  # received bytes of that alert
    offset: int = 0
    framed: bool = True
    collecting: bool = True
    handshake: bytearray = field(default_factory=bytearray)
    records: dict[int, int] = field(default_factory=dict)
    payload_bytes: dict[int, int] = field(default_factory=dict)
    unframed_bytes: int = 0
    missing_bytes: int = 0


@dataclass(slots=True)
class TlsObserver:
    """One TLS connection.  Feed the ordered bytes of both directions; the fields are the result."""

    client: TlsSide = field(default_factory=TlsSide)
    server: TlsSide = field(default_factory=TlsSide)
    client_hello: bool = False
    server_hello: bool = False
    server_name: str | None = None
    alpn_offered: list[str] = field(default_factory=list)
    alpn: str | None = None
    """Protocol chosen in the ServerHello; TLS 1.3 sends it encrypted."""
    versions_offered: list[int] = field(default_factory=list)
    """From supported_versions; without that extension, the legacy version, which means "up to"."""
    version: int | None = None
    cipher_suites_offered: list[int] = field(default_factory=list)
    cipher_suite: int | None = None
    session_id: bytes = b""
    random: bytes = b""
    """The client random, which identifies the session in key logs."""
    early_data: bool = False
    """The client may send data before the ServerHello."""
    resumption_offered: bool = False
    """The client has a ticket, a pre-shared key or, below TLS 1.3, a session identifier of an earlier session."""
    resumed: bool | None = None
    """Whether the server resumed the session, as its ServerHello shows; ``None`` without one."""
    retried: bool = False
    """The server sent a HelloRetryRequest."""
    encrypted_client_hello: bool = False
    """The client sent encrypted_client_hello (maybe only as GREASE): ``server_name`` may be a public front."""
    alerts: list[tuple[bool, int, int]] = field(default_factory=list)
    """Alerts in clear: from the client, level, description."""
    alerts_dropped: int = 0
    encrypted_alert_by_client: bool | None = None
    """Whether the client sent the first recognisable encrypted alert (impossible in TLS 1.3)."""
    fragment_bytes: int = 0
    """Maximum bytes of the plaintext of a record that both hellos agree on (RFC 6066 section 4); 0 without.  TLS 1.3
    agrees on it where only the two sides can read it."""
    fragment_offered: int = 0
    """The code of the client for it."""
    overlong_record: tuple[bool, int] | None = None
    """The first record longer than any cipher suite makes it: whether the client sent it, and its length."""
    problems: list[str] = field(default_factory=list)

    def feed(self, from_client: bool, data: bytes) -> None:
        """Read the next bytes of one direction: records, hellos and alerts."""
        side = self.client if from_client else self.server
        start = side.offset - len(side.header)
        side.offset += len(data)
        if side.header:
            data = side.header + data
            side.header = b""
        at, end = 0, len(data)
        while at < end and side.framed:
            if side.remaining:
                piece = data[at : at + side.remaining]
                side.remaining -= len(piece)
                at += len(piece)
                if side.content_type == HANDSHAKE and side.collecting:
                    self._collect(from_client, side, piece)
                elif side.alert:
                    side.short += piece
                    if not side.remaining and len(self.alerts) < MAX_ALERTS:
                        self.alerts.append((from_client, side.short[0], side.short[1]))
                    elif not side.remaining:
                        self.alerts_dropped += 1
                continue
            if end - at < 5:
                side.header = data[at:]
                return
            content_type, length = data[at], data[at + 3] << 8 | data[at + 4]
            if content_type not in CONTENT_TYPES or data[at + 1] != 3 or data[at + 2] > 4 or length > MAX_RECORD_BYTES:
                side.framed = False
                who = "client" if from_client else "server"
                self.problems.append(f"no record begins at offset {start + at} of the {who}: {data[at : at + 5].hex()}")
                break
            side.content_type, side.remaining, side.short = content_type, length, b""
            side.alert = content_type == ALERT and length == 2
            if self.fragment_bytes and length > self.fragment_bytes + MAX_EXPANSION and self.overlong_record is None:
                self.overlong_record = from_client, length
            if content_type == ALERT and length > 2 and self.encrypted_alert_by_client is None:
                self.encrypted_alert_by_client = from_client
            side.records[content_type] = side.records.get(content_type, 0) + 1
            side.payload_bytes[content_type] = side.payload_bytes.get(content_type, 0) + length
            if content_type in (CHANGE_CIPHER_SPEC, APPLICATION_DATA) and (from_client or not self.retried):
                self._stop(side)
            at += 5
        side.unframed_bytes += end - at

    def gap(self, from_client: bool, length: int) -> None:
        """Take a gap: the next ``length`` bytes of one direction were not captured."""
        side = self.client if from_client else self.server
        if length <= 0:
            return
        side.offset += length
        side.missing_bytes += length
        if not side.framed:
            return
        within = min(length, side.remaining)
        side.remaining -= within
        side.alert, side.short = False, b""
        if side.content_type == HANDSHAKE or within < length:
            self._stop(side)
        if within < length:
            side.framed = False
            side.unframed_bytes += len(side.header)
            side.header = b""
            who = "client" if from_client else "server"
            self.problems.append(f"a gap of {length} bytes from the {who}; its records cannot be followed after it")

    def summary(self) -> dict[str, Any]:
        """All fields as plain values: names if known, else numbers in hexadecimal."""
        return {
            "server_name": self.server_name,
            "alpn_offered": list(self.alpn_offered),
            "alpn": self.alpn,
            "versions_offered": [_version(number) for number in self.versions_offered],
            "version": None if self.version is None else _version(self.version),
            "cipher_suite": self.cipher_suite,
            "client_hello": self.client_hello,
            "server_hello": self.server_hello,
            "hello_retry_request": self.retried,
            "encrypted_client_hello": self.encrypted_client_hello,
            "resumption_offered": self.resumption_offered,
            "resumed": self.resumed,
            "client": _side_summary(self.client),
            "server": _side_summary(self.server),
            "alerts": [
                {
                    "from": "client" if from_client else "server",
                    "level": ALERT_LEVELS.get(level, str(level)),
                    "description": ALERTS.get(description, str(description)),
                }
                for from_client, level, description in self.alerts
            ],
            "alerts_dropped": self.alerts_dropped,
            "encrypted_alert_from": {None: None, True: "client", False: "server"}[self.encrypted_alert_by_client],
            **self._fragments(),
            "problems": list(self.problems),
        }

    def _fragments(self) -> dict[str, Any]:
        """The agreed maximum length of records, and the first record that is longer; empty without an agreement."""
        if not self.fragment_bytes:
            return {}
        overlong = self.overlong_record
        record = None if overlong is None else {"from": "client" if overlong[0] else "server", "length": overlong[1]}
        return {"maximum_fragment_bytes": self.fragment_bytes, "overlong_record": record}

    def _stop(self, side: TlsSide) -> None:
        side.collecting = False
        side.handshake.clear()

    def _collect(self, from_client: bool, side: TlsSide, piece: bytes) -> None:
        """Add handshake bytes and read the hello when it is complete."""
        who, wanted = ("client", CLIENT_HELLO) if from_client else ("server", SERVER_HELLO)
        side.handshake += piece
        while len(side.handshake) >= 4 and side.collecting:
            kind, size = side.handshake[0], 4 + int.from_bytes(side.handshake[1:4], "big")
            if kind not in (0, wanted):
                # After the hello of its direction, or ciphertext of a connection joined in the middle.
                self._stop(side)
            elif size > MAX_HANDSHAKE_BYTES:
                self.problems.append(f"the {who}'s hello has {size} bytes, more than {MAX_HANDSHAKE_BYTES}")
                self._stop(side)
            elif len(side.handshake) < size:
                return
            else:
                body = bytes(side.handshake[4:size])
                del side.handshake[:size]
                if kind == wanted:
                    good = self._client_hello(body) if from_client else self._server_hello(body)
                    if not good:
                        self.problems.append(f"the {who}'s hello is malformed")
                    if from_client or not good or self.server_hello:
                        self._stop(side)

    def _client_hello(self, body: bytes) -> bool:
        reader = _Reader(body)
        legacy = reader.number(2)
        self.random, self.session_id = reader.take(32), reader.vector(1)
        suites = reader.vector(2)
        reader.vector(1)
        self.client_hello = reader.good
        self.cipher_suites_offered = self._numbers(suites)
        self.versions_offered = [legacy] if reader.good else []
        old = bool(self.session_id)
        for kind, data in reader.extensions():
            part = _Reader(data)
            if kind == _SERVER_NAME:
                names = _Reader(part.vector(2))
                for name_type, name in names.entries(1, 2):
                    if name_type == 0 and self.server_name is None:
                        self.server_name = _text(name)
                part.good &= names.good
            elif kind == _ALPN:
                self.alpn_offered = self._protocols(part)
            elif kind == _SUPPORTED_VERSIONS:
                numbers = self._numbers(part.vector(1))
                self.versions_offered = [number for number in numbers if number & 0x0F0F != 0x0A0A]
                # TLS 1.3 clients send a random identifier so that the exchange looks like a resumption.
                old = old and 0x0304 not in numbers
            elif kind in (_SESSION_TICKET, _PRE_SHARED_KEY):
                self.resumption_offered |= bool(data) or kind == _PRE_SHARED_KEY
            elif kind == _EARLY_DATA:
                self.early_data = True
            elif kind == _ECH:
                self.encrypted_client_hello = True
            elif kind == _FRAGMENT_LENGTH:
                self.fragment_offered = part.number(1)
            reader.good &= part.good
        self.resumption_offered |= old
        return reader.good

    def _server_hello(self, body: bytes) -> bool:
        reader = _Reader(body)
        version, random, session_id, suite = reader.number(2), reader.take(32), reader.vector(1), reader.number(2)
        reader.number(1)
        if not reader.good:
            return False
        retry = random == _RETRY_RANDOM
        if retry and self.retried:
            return False
        self.retried |= retry
        self.server_hello = not retry
        shared_key = False
        for kind, data in reader.extensions():
            part = _Reader(data)
            if kind == _SUPPORTED_VERSIONS:
                version = part.number(2)
            elif kind == _ALPN:
                chosen = self._protocols(part)
                self.alpn = chosen[0] if chosen else None
            elif kind == _PRE_SHARED_KEY:
                shared_key = True
            elif kind == _FRAGMENT_LENGTH:
                agreed = part.number(1)
                if agreed == self.fragment_offered and agreed in _FRAGMENT_CODES:
                    self.fragment_bytes = 256 << agreed
            reader.good &= part.good
        self.version, self.cipher_suite = version, suite
        if not retry:
            echoed = bool(session_id) and session_id == self.session_id
            self.resumed = shared_key if version >= 0x0304 else echoed
        return reader.good

    def _numbers(self, raw: bytes) -> list[int]:
        if len(raw) > 2 * MAX_LISTED:
            self.problems.append(f"a list in the client's hello has {len(raw) // 2} entries, {MAX_LISTED} are kept")
        return [raw[at] << 8 | raw[at + 1] for at in range(0, min(len(raw) - 1, 2 * MAX_LISTED), 2)]

    def _protocols(self, part: _Reader) -> list[str]:
        names = _Reader(part.vector(2))
        protocols = [_text(name) for _, name in islice(names.entries(0, 1), MAX_LISTED)]
        if names.left() and names.good:
            self.problems.append(f"more than {MAX_LISTED} protocols are offered, {MAX_LISTED} are kept")
        part.good &= names.good
        return protocols


@dataclass(slots=True)
class _Reader:
    """A cursor that sets ``good`` to false instead of raising when bytes are missing."""

    data: bytes
    at: int = 0
    good: bool = True

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        raw = self.data[self.at : self.at + size]
        self.at += len(raw)
        self.good &= len(raw) == size
        return raw

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    def entries(self, kind_size: int, length_size: int) -> Iterator[tuple[int, bytes]]:
        """Read kinds with a vector each, up to the end or to the first incomplete one."""
        while self.left() and self.good:
            kind, data = self.number(kind_size), self.vector(length_size)
            if self.good:
                yield kind, data

    def extensions(self) -> Iterator[tuple[int, bytes]]:
        """Read the extensions after a hello; they are optional."""
        if self.good and self.left():
            block = _Reader(self.vector(2))
            yield from block.entries(2, 2)
            self.good &= block.good


def looks_like_tls(head: bytes) -> bool | None:
    """Whether a stream begins with a ClientHello or a ServerHello; ``None``: more bytes are needed (at most 10)."""
    for byte, allowed in zip(head, ((HANDSHAKE,), (3,), range(5)), strict=False):
        if byte not in allowed:
            return False
    if len(head) < 6:
        return None
    length = head[3] << 8 | head[4]
    if not 0 < length <= 16384 or head[5] not in (CLIENT_HELLO, SERVER_HELLO):
        return False
    # The message fits the handshake buffer and has a version 3.x, as far as the first record shows it.
    if (length > 1 and head[6:7] > b"\x00") or (length > 4 and head[9:10] not in (b"", b"\x03")):
        return False
    return True if len(head) >= min(10, 5 + length) else None


def looks_like_tls_records(head: bytes) -> bool | None:
    """Whether all record headers in ``head`` are plausible, for joined flows; ``None``: more bytes are needed."""
    if len(head) < 5:
        good = (not head or head[0] in CONTENT_TYPES) and head[1:2] in (b"", b"\x03") and head[2:3] <= b"\x04"
        return None if good else False
    at = 0
    while at + 5 <= len(head):
        kind, length = head[at], head[at + 3] << 8 | head[at + 4]
        if kind not in CONTENT_TYPES or head[at + 1] != 3 or head[at + 2] > 4 or length > MAX_RECORD_BYTES:
            return False
        # Only application data may be empty (RFC 8446 section 5.1).
        if (
            (not length and kind != APPLICATION_DATA)
            or (kind == CHANGE_CIPHER_SPEC and length != 1)
            or (kind == ALERT and length > 256)
        ):
            return False
        at += 5 + length
    return True


def _side_summary(side: TlsSide) -> dict[str, Any]:
    return {
        "records": {CONTENT_TYPES[kind]: count for kind, count in sorted(side.records.items())},
        "bytes": {CONTENT_TYPES[kind]: size for kind, size in sorted(side.payload_bytes.items())},
        "well_framed": side.framed,
        "unframed_bytes": side.unframed_bytes,
        "missing_bytes": side.missing_bytes,
    }


def _version(number: int) -> str:
    return VERSIONS.get(number, f"0x{number:04x}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
