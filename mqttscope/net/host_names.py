"""Host names from DNS answers (RFC 1035, RFC 3596) over UDP: the name that a client resolved to an address.

An address counts if its record belongs to the name in the question, directly or through CNAME records of one
answer.  Ignored are answers to several questions, names that are not clean host names, and cut records.
A hostile message costs time linear in its length: names have at most 255 bytes, pointers only lead back, and the
numbers of pointers and records are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from mqttscope.net.segment import DnsMessage, is_ipv4_key

MAX_NAMES: Final = 20_000
"""Maximum number of remembered names, the latest ones.  An answer adds two: for its receiver, and for all clients."""
MAX_RECORDS: Final = 128
"""Maximum number of records read from one message."""
MAX_POINTERS: Final = 16
"""Maximum number of compression pointers in one name."""
_MAX_BYTES: Final = 255
A: Final = 1
_CNAME: Final = 5
AAAA: Final = 28
_INTERNET: Final = 1
_LENGTHS: Final = {A: 4, AAAA: 16}
_ANSWERED: Final = 0x8000
"""The flag of a response."""
_OPERATION: Final = 0x7800
"""Bits of the flags that are 0 in a standard query and its response."""
_HEADER: Final = Struct("!2xHHH4x").unpack_from
_RECORD: Final = Struct("!HH4xH").unpack_from
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


@dataclass(slots=True, frozen=True)
class DnsQuestion:
    """The question of a standard query, or of the response to it (RFC 1035 section 4.1)."""

    name: str
    kind: int
    """Type of the record: 1 for A, 28 for AAAA."""
    is_response: bool
    code: int
    """Response Code; 0 without an error."""
    end: int
    """Offset after the question."""


class HostNames:
    """The latest name of each address, in the answers to each client and in all answers."""

    def __init__(self) -> None:
        self._names: dict[tuple[bytes, bytes], str] = {}
        """Names by client and address, and by address alone, the oldest first."""

    def __len__(self) -> int:
        return len(self._names)

    def feed(self, message: DnsMessage) -> None:
        """Read a DNS message, which may be an answer."""
        names = self._names
        for address, name in answers(message.data):
            for key in ((message.client, address), (b"", address)):
                names.pop(key, None)
                names[key] = name
        while len(names) > MAX_NAMES:
            del names[next(iter(names))]

    def name(self, client: bytes, address: bytes) -> str | None:
        """The name that a client resolved to an address last, or else the name that any client resolved to it."""
        return self._names.get((client, address)) or self._names.get((b"", address))

    def of_flow(self, key: bytes) -> tuple[str | None, str | None]:
        """The names of the responder and the initiator of a flow, by its direction key."""
        size = 4 if is_ipv4_key(key) else 16
        initiator, responder = key[:size], key[size : 2 * size]
        return self.name(initiator, responder), self.name(responder, initiator)


def answers(data: bytes) -> Iterator[tuple[bytes, str]]:
    """The addresses in a DNS message, each with the name in the question; empty if the answer is not clean."""
    question = read_question(data)
    if question is None or not question.is_response or question.code:
        return
    name, asked, at, records = question.name, question.name.encode(), question.end, _HEADER(data)[2]
    aliases: dict[bytes, bytes] = {}
    addresses: list[tuple[bytes, bytes]] = []
    for _ in range(min(records, MAX_RECORDS)):
        owner, at = _name(data, at)
        if at + 10 > len(data):
            break
        kind, internet, length = _RECORD(data, at)
        at += 10
        if at + length > len(data):
            break
        if internet == _INTERNET and length == _LENGTHS.get(kind):
            addresses.append((owner, data[at : at + length]))
        elif internet == _INTERNET and kind == _CNAME:
            aliases.setdefault(owner, _name(data, at)[0])
        at += length
    target, reached = asked, {asked}
    while (target := aliases.get(target, b"")) and target not in reached:
        reached.add(target)
    for owner, address in addresses:
        if owner in reached:
            yield address, name


def read_question(data: bytes) -> DnsQuestion | None:
    """The question of a DNS message; ``None`` if it is not a standard query, or not for a single host name."""
    if len(data) < 12:
        return None
    flags, questions, _ = _HEADER(data)
    name, at = _name(data, 12)
    if flags & _OPERATION or questions != 1 or not is_host_name(name.decode("latin-1")):
        return None
    return DnsQuestion(
        name.decode("latin-1"), int.from_bytes(data[at : at + 2]), bool(flags & _ANSWERED), flags & 0xF, at + 4
    )


def is_host_name(text: str) -> bool:
    """Whether text consists of letters, digits, hyphens and underscores, separated by dots."""
    return len(text) <= _MAX_BYTES and _HOST_NAME.fullmatch(text) is not None


def _name(data: bytes, at: int) -> tuple[bytes, int]:
    """The name at an offset, in lower case, and the offset after it; empty for the root or a broken name."""
    labels: list[bytes] = []
    size, pointers, after, before = 1, 0, -1, at
    while at < len(data):
        length = data[at]
        if length >= 0xC0 and at + 1 < len(data):
            target = (length & 0x3F) << 8 | data[at + 1]
            pointers += 1
            if target >= before or pointers > MAX_POINTERS:
                break
            after = at + 2 if after < 0 else after
            at = before = target
            continue
        at += 1
        if not length:
            return b".".join(labels), at if after < 0 else after
        label = data[at : at + length]
        size += length + 1
        # A dot inside a label would change the name.
        if length >= 0x40 or size > _MAX_BYTES or len(label) < length or b"." in label:
            break
        labels.append(label.lower())
        at += length
    return b"", len(data)
