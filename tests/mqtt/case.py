"""One row of the table of packets: its bytes, and what they must mean.

A row is written as hex, with a comment after ``#`` where it has a line for each field.  Its id is a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mqttscope.mqtt import Connack, ControlPacket, MalformedReason, ProtocolVersion
from tests.packets import packet
from tests.tables import cases_of, titled

V3_1, V3_1_1, V5 = ProtocolVersion
V3 = (V3_1, V3_1_1)
ALL = (V3_1, V3_1_1, V5)
VERSIONS = {version.text: version for version in ALL}


@dataclass(slots=True)
class Case:
    """Bytes of one packet in one version with the expected packet, or the reason why they are malformed."""

    id: str
    version: ProtocolVersion
    raw: bytes
    packet: ControlPacket | None = None
    reason: MalformedReason | None = None
    field: str = ""
    offset: int = 0
    canonical: bool = True
    """Encoding the packet gives the bytes back: false where the bytes use a freedom that the encoder does not."""

    @property
    def framed(self) -> bool:
        """Whether the bytes are exactly what their fixed header announces."""
        return self.reason not in (MalformedReason.TRUNCATED, MalformedReason.REMAINING_LENGTH_TOO_LONG)


def parse(text: str) -> bytes:
    """The bytes of a commented hex text, or ``nothing``."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.removeprefix("nothing").splitlines()))


def _versions(text: str) -> tuple[ProtocolVersion, ...]:
    """The versions of a row: ``all``, or numbers such as ``3.1 3.1.1``."""
    return ALL if text == "all" else tuple(VERSIONS[word] for word in text.split())


def good(text: str, *, canonical: bool = True) -> list[Case]:
    """Well-formed packets: a title each, and under it versions, the packet in words, and its bytes."""
    rows = []
    for sentence, lines in titled(text):
        versions, words, raw = re.split(r"\s\|\s", "\n".join(lines), maxsplit=2)
        for version in _versions(versions):
            expected = packet(" ".join(words.split("\n")))
            if version is V3_1 and isinstance(expected, Connack):
                expected.session_present = None
            rows.append(Case(f"{version.text}: {sentence}", version, parse(raw), expected, canonical=canonical))
    return rows


def bad(text: str) -> list[Case]:
    """Malformed packets: a title each, and under it versions, bytes, and the first fault with its field and offset."""
    rows = []
    for row in cases_of(text, _versions, parse, str.split):
        versions, raw, (reason, *field, offset) = row.values
        for version in versions:
            fault = MalformedReason(reason), " ".join(field), int(offset)
            rows.append(Case(f"{version.text}: {row.id}", version, raw, None, *fault))
    return rows
