"""Expiry times of tokens that clients send as user name or password.

A JSON Web Token (RFC 7519) has its expiry time in its second part, in Base64url without encryption.  A token of Azure
(``SharedAccessSignature``) has it as parameter ``se``.  Only the times are read: nothing else of a token is kept or
shown.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from binascii import Error
from dataclasses import dataclass

from mqttscope.mqtt.packets import Connect

MAX_TOKEN_BYTES = 16_384
"""Maximum number of bytes of a user name or password that is read as a token."""
MAX_TIME_S = 1 << 33
"""Later times are in another unit than seconds since 1970."""
_JWT = re.compile(rb"[\w-]+\.([\w-]+)\.[\w-]*", re.ASCII)
_SAS = re.compile(rb"SharedAccessSignature .*[ &]se=([0-9]{1,10})(?:&|$)", re.ASCII)


@dataclass(slots=True, frozen=True)
class ExpiringToken:
    """A token with an expiry time."""

    kind: str
    """``JSON Web Token`` or ``SAS token``."""
    expires_s: int
    """Seconds since 1970."""


def token_of(connect: Connect | None) -> ExpiringToken | None:
    """The token in the password of a CONNECT, else in its user name; ``None`` without one."""
    if connect is None:
        return None
    name = (connect.user_name or "").encode("utf-8", "surrogateescape")
    return next(filter(None, map(_token, (connect.password or b"", name))), None)


def _token(text: bytes) -> ExpiringToken | None:
    if len(text) > MAX_TOKEN_BYTES:
        return None
    match = _SAS.match(text)
    if match is not None:
        return ExpiringToken("SAS token", int(match[1]))
    match = _JWT.fullmatch(text)
    if match is None:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(match[1] + b"=="))
    except (Error, ValueError, RecursionError):
        return None
    expires = claims.get("exp") if isinstance(claims, dict) else None
    is_time = isinstance(expires, int | float) and not isinstance(expires, bool) and 0 < expires < MAX_TIME_S
    return ExpiringToken("JSON Web Token", int(expires)) if is_time and expires is not None else None
