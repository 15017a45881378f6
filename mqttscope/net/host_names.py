"""Names of hosts, from answers of DNS (RFC 1035, RFC 3596) over UDP: the name for which a client got an address.

An address counts if its record belongs to the name in the question, directly or through CNAME records of the same
answer.  All else is left out: answers to several questions, names that are not clean host names, records that are cut.
A hostile message costs time linear in its length: names have at most 255 bytes, pointers only lead back, and their
number is limited, as is that of records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final

from mqttscope.net.segment import DnsMessage, is_ipv4_key

MAX_NAMES: Final = 20_000
"""Names that are remembered; the oldest ones are dropped first.  An answer takes two: for its receiver, and for all."""
MAX_RECORDS: Final = 128
"""Records of one message that are read."""
MAX_POINTERS: Final = 16
"""Compression pointers in one name."""
_MAX_BYTES: Final = 255
_A: Final = 1
_CNAME: Final = 5
_AAAA: Final = 28
_INTERNET: Final = 1
_LENGTHS: Final = {_A: 4, _AAAA: 16}
_ANSWERED: Final = 0x8000
"""A response to a standard query without error, by `_DECIDING` bits of the flags."""
_DECIDING: Final = 0xF80F
_HEADER: Final = Struct("!2xHHH4x").unpack_from
_RECORD: Final = Struct("!HH4xH").unpack_from
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class HostNames:
    """The latest name of each address: what each client was answered, and what anyone was."""

    def __init__(self) -> None:
        self._names: dict[tuple[bytes, bytes], str] = {}
        """By client and address, and by address alone, the oldest first."""

    def __len__(self) -> int:
        return len(self._names)

    def feed(self, message: DnsMessage) -> None:
        """Take what may be an answer."""
        names = self._names
        for address, name in answers(message.data):
            for key in ((message.client, address), (b"", address)):
                names.pop(key, None)
                names[key] = name
        while len(names) > MAX_NAMES:
            del names[next(iter(names))]

    def name(self, client: bytes, address: bytes) -> str | None:
        """The name for which a client got an address last; if it was not seen to ask, what another one asked for."""
        return self._names.get((client, address)) or self._names.get((b"", address))

    def of_flow(self, key: bytes) -> tuple[str | None, str | None]:
        """The names of the responder and the initiator of a flow, by its direction key."""
        size = 4 if is_ipv4_key(key) else 16
        initiator, responder = key[:size], key[size : 2 * size]
        return self.name(initiator, responder), self.name(responder, initiator)


def answers(data: bytes) -> Iterator[tuple[bytes, str]]:
    """The addresses in a DNS message, each with the name that was asked for; none if it is not a good answer."""
    if len(data) < 12:
        return
    flags, questions, records = _HEADER(data)
    if flags & _DECIDING != _ANSWERED or questions != 1:
        return
    asked, at = _name(data, 12)
    name = asked.decode("latin-1")
    if not is_host_name(name):
        return
    at += 4
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


def is_host_name(text: str) -> bool:
    """Whether text consists of letters, digits, hyphens and underscores, with dots between."""
    return len(text) <= _MAX_BYTES and _HOST_NAME.fullmatch(text) is not None


def _name(data: bytes, at: int) -> tuple[bytes, int]:
    """The name at an offset, in small letters, and the offset after it; empty if it is the root or broken."""
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
        # A dot inside of a label would make another name of it.
        if length >= 0x40 or size > _MAX_BYTES or len(label) < length or b"." in label:
            break
        labels.append(label.lower())
        at += length
    return b"", len(data)
