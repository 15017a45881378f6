"""Credentials in payloads: where they stand, the same for every output.

Hidden is what is a credential by its form (a JSON Web Token, a key of a provider, a private key) and the value of what
is called one: ``"password": "..."`` in JSON, ``token=...`` in a query, ``Authorization: ...``.  What may only be one,
long random text, and data of people are hidden in findings alone (`redact.secrets`).  Nearly no payload has one: a few
looks at its bytes tell that.
"""

from __future__ import annotations

import re

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.redact.secrets import NAMES

SHORTEST = 8
"""Bytes of the shortest payload that a credential with its name fits into: ``pwd=abcd``."""
_WORDS = b"|".join(
    re.escape(name.encode()).replace(b"key", b"[_-]?key").replace(b"access", b"access[_-]?", 1)
    if name != "accesskey" else b"access[_-]?key"
    for name in sorted(NAMES, key=len, reverse=True)
)  # fmt: skip
_NAME = rb"(?<![A-Za-z0-9])(?:[A-Za-z0-9]+[_-])*(?:" + _WORDS + rb")"
_CREDENTIAL = re.compile(
    rb"(?P<jwt>eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
    rb"|(?P<aws>(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9]))"
    rb"|(?P<key>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*)"
    rb"|(?P<access>(?<![A-Za-z0-9])(?:gh[pousr]_\w{36,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{35}))"
    rb"|(?i:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+|(?<![a-z])bearer\s+)(?P<bearer>[^\s\"',;]{4,})"
    rb"|(?i:" + _NAME + rb")\\?[\"']?\s{0,8}[:=]\s{0,8}"
    rb"(?:\\\"(?P<inner>(?:[^\"\\]|\\[^\"])+)|\"(?P<quoted>(?:[^\"\\]|\\.)+)|'(?P<single>[^'\\]+)|(?<==)(?P<bare>[^\s&;,\"'<>{}\[\]]+))",
    re.DOTALL,
)


def is_suspect(data: bytes) -> bool:
    """Whether to look closer."""
    low = data.lower()
    return (
        b"eyj" in low
        or b"passw" in low
        or b"token" in low
        or b"secret" in low
        or b"key" in low
        or b"pwd" in low
        or b"auth" in low
        or b"bearer" in low
        or b"akia" in low
        or b"asia" in low
        or b"aiza" in low
        or b"xox" in low
        or (b"gh" in low and b"_" in low)
    )


def token_ranges(data: bytes, start: int = 0) -> list[tuple[int, int]]:
    """Ranges of a payload, from some place on in its packet, that are credentials."""
    part = data[start:] if start else data
    if len(part) < SHORTEST or not is_suspect(part):
        return []
    found = []
    for hit in _CREDENTIAL.finditer(part):
        group = hit.lastgroup
        assert group is not None
        found.append((start + hit.start(group), start + hit.end(group)))
    return found


def without_tokens(data: bytes) -> bytes:
    """A payload of the same length with an asterisk for each byte of a credential; itself where it has none."""
    found = token_ranges(data)
    if not found:
        return data
    shown = bytearray(data)
    for start, end in found:
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def token_places(packet: ControlPacket) -> list[tuple[int, int]]:
    """The same in the bytes of a PUBLISH."""
    if packet.packet_type != PacketType.PUBLISH:
        return []
    payload: bytes = packet.payload  # type: ignore[attr-defined]
    return token_ranges(packet.raw, len(packet.raw) - len(payload)) if len(payload) >= SHORTEST else []
