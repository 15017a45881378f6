"""Credentials in payloads: where they stand, the same for every output.

Hidden is what is a credential by its form (a JSON Web Token, a key of a provider, a private key) and the value of what
is called one: ``"password": "..."`` in JSON, ``token=...`` in a query, ``Authorization: ...``; and what stands in a
CONNECT or after an Authentication Method.  What may only be one,
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
REACH = 4_096
"""Bytes after those that are shown by which a credential is recognised that begins in them."""
_WORDS = b"|".join(
    re.escape(name.encode()).replace(b"key", b"[_-]?key").replace(b"access", b"access[_-]?", 1)
    if name != "accesskey" else b"access[_-]?key"
    for name in sorted(NAMES, key=len, reverse=True)
)  # fmt: skip
# Bounded, since every underscore of a payload may end such a part.
_NAME = rb"(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,40}[_-]){0,6}(?:" + _WORDS + rb")"
_CREDENTIAL = re.compile(
    # A CONNECT or an AUTH that a payload holds, as wrong lengths and bridges make it: all from its secret on.
    rb"(?i:\x00\x04MQTT|\x00\x06MQIsdp)(?P<connect>.+)"
    rb"|\x15(?:\x00[\x01-\x40])?[\x20-\x7e]{3,64}\x16\x00(?P<auth>.+)"
    rb"|(?P<jwt>(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
    rb"|(?P<aws>(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9]))"
    rb"|(?P<key>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*)"
    rb"|(?P<access>(?<![A-Za-z0-9])(?:gh[pousr]_\w{36,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{35}))"
    rb"|(?i:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+|(?<![a-z])bearer\s+)(?P<bearer>[^\s\"',;]{4,})"
    rb"|(?i:" + _NAME + rb")\\?[\"']?\s{0,8}[:=]\s{0,8}"
    rb"(?:\\\"(?P<inner>(?:[^\"\\]|\\[^\"])+)|\"(?P<quoted>(?:[^\"\\]|\\.)+)|'(?P<single>[^'\\]+)|(?<==)(?P<bare>[^\s&;,\"'<>{}\[\]]+))",
    re.DOTALL,
)


def is_suspect(text: str) -> bool:
    """Whether to look closer at a payload; its bytes as Latin-1 do, which are searched several times faster as text."""
    low = text.lower()
    return (
        "key" in low
        or "passw" in low
        or "token" in low
        or "secret" in low
        or "pwd" in low
        or "auth" in low
        or "bearer" in low
        or "\x04mqtt" in low
        or "\x06mqisdp" in low
        or "\x16\0" in text
        or "eyJ" in text
        or "AKIA" in text
        or "ASIA" in text
        or "AIza" in text
        or "xox" in text
        or ("gh" in text and "_" in text)
    )


def token_ranges(data: bytes, start: int = 0, shown: int | None = None) -> list[tuple[int, int]]:
    """Ranges of a payload, from some place on in its packet, that are credentials.

    Only those that the first ``shown`` bytes have a part of, where nobody is shown more.
    """
    if len(data) - start < SHORTEST:
        return []
    part = data[start : None if shown is None else start + shown + REACH]
    if not is_suspect(part.decode("latin-1")):
        return []
    found = []
    for hit in _CREDENTIAL.finditer(part):
        group = hit.lastgroup
        assert group is not None
        found.append((start + hit.start(group), start + hit.end(group)))
    return found


def without_tokens(data: bytes, shown: int | None = None) -> bytes:
    """A payload of the same length with an asterisk for each byte of a credential; itself where it has none.

    ``shown``: as many bytes at its beginning are looked at as it takes to show these.
    """
    found = token_ranges(data, shown=shown)
    if not found:
        return data
    covered = bytearray(data)
    for start, end in found:
        covered[start:end] = b"*" * (end - start)
    return bytes(covered)


def token_places(packet: ControlPacket, shown: int | None = None) -> list[tuple[int, int]]:
    """The same in the bytes of a PUBLISH."""
    if packet.packet_type != PacketType.PUBLISH:
        return []
    payload: bytes = packet.payload  # type: ignore[attr-defined]
    return token_ranges(packet.raw, len(packet.raw) - len(payload), shown) if len(payload) >= SHORTEST else []
