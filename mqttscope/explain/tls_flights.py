"""Certificates in the clear handshake of TLS up to 1.2: requests, answers, and times of validity.

`FlightReader` reads one direction from its first byte, record by record, until ChangeCipherSpec or until a segment is
missing.  Of a certificate it keeps the times of its validity only (RFC 5280 section 4.1.2.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

_HANDSHAKE, _ALERT = 22, 21
_CERTIFICATE, _CERTIFICATE_REQUEST = 11, 13
_RECORD_HEADER, _MESSAGE_HEADER, _LIST_LENGTH = 5, 4, 3
"""Bytes of headers (RFC 5246 sections 6.2.1 and 7.4.2)."""
EMPTY, SENT = "empty", "sent"
"""Answers of a client to a CertificateRequest: an empty list, or certificates."""
_SEQUENCE, _VERSION, _TIMES = 0x30, 0xA0, {0x17: "%y%m%d%H%M%S%z", 0x18: "%Y%m%d%H%M%S%z"}
"""Tags of DER (X.690): SEQUENCE, the version of a certificate, and the forms of UTCTime and GeneralizedTime."""
MAX_FLIGHT_BYTES = 65_536
"""Maximum number of bytes of a direction that are read."""


@dataclass(slots=True)
class FlightReader:
    """Feed it the bytes of one direction in order."""

    next: int | None = None
    """Sequence number of the next byte; ``None`` before the first one."""
    is_request: bool = False
    """Whether the direction has a CertificateRequest."""
    certificates: int | None = None
    """Bytes of the certificates in the Certificate message; ``None`` without such a message."""
    valid: list[tuple[int, int]] = field(default_factory=list)
    """When each of these certificates is valid, as seconds since 1970: from, until."""
    is_done: bool = False
    _bytes: int = 0
    _data: bytearray = field(default_factory=bytearray)
    """The beginning of a record header."""
    _kind: int = 0
    _record_left: int = 0
    _header: bytes = b""
    """The beginning of a message header."""
    _message_left: int = 0
    _list: bytearray | None = None
    """The beginning of the list of certificates, while it is read."""

    def feed(self, payload: bytes, sequence: int) -> None:
        """Read the data of one segment; a repeated segment is ignored, and a missing one ends the reading."""
        expected = sequence if self.next is None else self.next
        if self.is_done or (sequence - expected) & 0x80000000:
            return
        self._bytes += len(payload)
        self.is_done = sequence != expected or self._bytes > MAX_FLIGHT_BYTES
        self.next = (sequence + len(payload)) & 0xFFFFFFFF
        self._data += payload
        while self._data and not self.is_done:
            if not self._record_left:
                if len(self._data) < _RECORD_HEADER:
                    return
                self._kind, self._record_left = self._data[0], int.from_bytes(self._data[3:_RECORD_HEADER])
                self.is_done = self._kind not in (_HANDSHAKE, _ALERT) or not self._record_left
                del self._data[:_RECORD_HEADER]
                continue
            content = bytes(self._data[: self._record_left])
            del self._data[: len(content)]
            self._record_left -= len(content)
            if self._kind == _HANDSHAKE:
                self._read(content)

    def _read(self, content: bytes) -> None:
        """Read handshake messages, which may be split over records."""
        while content:
            if self._message_left:
                count = min(self._message_left, len(content))
                if self._list is not None:
                    self._list += content[:count]
                self._message_left, content = self._message_left - count, content[count:]
                if self._list is not None and not self._message_left:
                    self.valid, self._list = list(_validities(bytes(self._list))), None
                continue
            need = self._needed() - len(self._header)
            self._header, content = self._header + content[:need], content[need:]
            if len(self._header) == self._needed():
                self._begin()

    def _needed(self) -> int:
        """Bytes of the header; the one of a Certificate message includes the length of its list."""
        header = self._header
        if len(header) < _MESSAGE_HEADER or header[0] != _CERTIFICATE:
            return _MESSAGE_HEADER
        return _MESSAGE_HEADER + min(_LIST_LENGTH, int.from_bytes(header[1:_MESSAGE_HEADER]))

    def _begin(self) -> None:
        """A header is complete."""
        kind, length = self._header[0], int.from_bytes(self._header[1:_MESSAGE_HEADER])
        if kind == _CERTIFICATE_REQUEST:
            self.is_request = True
        elif kind == _CERTIFICATE:
            self.certificates = int.from_bytes(self._header[_MESSAGE_HEADER:])
            self._list = bytearray()
        self._message_left = length - (len(self._header) - _MESSAGE_HEADER)
        self._header = b""


def _validities(certificates: bytes) -> Iterator[tuple[int, int]]:
    """When the certificates of a list are valid, up to an empty one; unreadable ones are left out."""
    while (end := _LIST_LENGTH + int.from_bytes(certificates[:_LIST_LENGTH])) > _LIST_LENGTH:
        valid = validity(certificates[_LIST_LENGTH:end])
        certificates = certificates[end:]
        if valid is not None:
            yield valid


def validity(certificate: bytes) -> tuple[int, int] | None:
    """When a certificate in DER is valid, as seconds since 1970: from, until; ``None`` if it cannot be read."""
    fields = _elements(next(_elements(certificate), (0, b""))[1])
    signed = [element for element in _elements(next(fields, (0, b""))[1]) if element[0] != _VERSION]
    # Serial number, algorithm, issuer, validity.
    times = list(_elements(signed[3][1])) if len(signed) > 3 and signed[3][0] == _SEQUENCE else []
    if len(times) != 2 or any(tag not in _TIMES for tag, _ in times):
        return None
    try:
        first, last = (_time(text.decode("ascii"), _TIMES[tag]) for tag, text in times)
    except (ValueError, OverflowError):  # the first year, minus an offset
        return None
    return first, last


def _time(text: str, form: str) -> int:
    """Seconds since 1970; two digits are a year from 1950 to 2049."""
    date = datetime.strptime(text, form)  # noqa: DTZ007 - the form has a time zone
    if form == _TIMES[0x17] and date.year >= 2050:
        date = date.replace(year=date.year - 100)
    return int(date.astimezone(UTC).timestamp())


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of the elements in a row, up to one that is cut."""
    while len(data) >= 2:
        start, length = 2, data[1]
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[2:start])
        if len(data) < start + length:
            return
        yield data[0], data[start : start + length]
        data = data[start + length :]


@dataclass(slots=True)
class Flights:
    """Both directions of a handshake."""

    client: FlightReader
    server: FlightReader

    @property
    def is_done(self) -> bool:
        return self.client.is_done and self.server.is_done

    @property
    def certificate(self) -> str:
        """Answer of the client to a CertificateRequest, or an empty text."""
        if not self.server.is_request or self.client.certificates is None:
            return ""
        return SENT if self.client.certificates else EMPTY
