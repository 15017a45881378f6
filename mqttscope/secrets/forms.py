"""Recognises secrets and personal data by their form, in texts of findings and in payloads, and hides them.

In payloads, every output hides credentials of a known form (a JSON Web Token, a key of a provider, a private key), the
values of secrets by their names (`notations`), and what stands in a CONNECT or after an Authentication Method inside
the payload.  Nearly no payload has any of these, and a few searches over its bytes rule it out (`suspicions`).

In findings, texts that may be secrets (long random ones) and personal data are hidden as well.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from mqttscope.compressed import FIRST_BYTES, recognised, unpack
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.secrets.names import more_stems

_PRIVATE_KEY = "a private key"
_BEHIND_ESCAPE = r"(?<=\\[abefnrtv0])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})"
"""Where an escape ends whose last character is no beginning of a word."""
_ACCESS_TOKENS = (
    rf"(?:(?<![A-Za-z0-9])|{_BEHIND_ESCAPE})"
    r"(?:gh[pousr]_\w{36,}|github_pat_\w{22,}|gl(?:pat|rt|dt|ptt|cbt)-[\w-]{20,}|npm_\w{36,}|xox[a-eprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|AIza[\w-]{35}|[sr]k_(?:live|test)_\w{16,}|sk-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|hf_\w{30,}|ya29\.[\w-]{20,}"
    r"|GOCSPX-[\w-]{20,}|whsec_[\w+/=-]{20,})"
)
"""GitHub, GitLab, npm, Slack, Google, Stripe, OpenAI, SendGrid, Hugging Face."""
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_KEYS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("an AWS access key", "IA", re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9])")),
    ("a JSON Web Token", "eyJ", re.compile(r"eyJ[\w-]{8,512}\.[\w-]{8,}(?:\.[\w-]*)?")),
    (_PRIVATE_KEY, "-----BEGIN ", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)),
)
"""What it is, what it has in it, and its form."""
_ACCESS_TOKEN = re.compile(_ACCESS_TOKENS)
_ADDRESS = re.compile(r"[\w.%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_PHONE_NUMBER = re.compile(r"(?<![\w+])(?:tel:\+?|\+)[1-9](?:[ ().-]?\d){7,14}(?!\d)")
_LONG = re.compile(r"[A-Za-z0-9+_=-]{24,}")
_SUSPICION = re.compile(
    rb"A[KS]IA|eyJ|-----BEGIN|gh[pousr]_|xox|xapp-|AIza|SG\.|ya29|@|tel:|\+[1-9]|[A-Za-z0-9+_=-]{24}"
)
"""What every secret has in it: nearly all texts have none of it."""
_OF_WORDS = bytes(120 if re.match(rb"[A-Za-z0-9+_=-]", bytes((one,))) else 32 for one in range(256))
_LONG_WORD = b"x" * 24
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_BASE64 = re.compile(r"[A-Za-z0-9+_-]+={0,2}")
MAX_SEARCHED = 4_096
"""Characters of a text that are looked at together."""
OVERLAP = 512
"""Characters that are looked at again with those after them, so that few secrets are seen in halves."""
LENGTH = 40
"""From how many characters on random hexadecimal digits or base64 count."""


@dataclass(slots=True)
class Secret:
    """Something in a text that should not be there."""

    what: str
    """``a JSON Web Token``."""
    masked: str
    """The text with keys hidden but for their first characters, and personal data altogether."""


@dataclass(slots=True, frozen=True)
class Hidden:
    """A part of a text that is not to be shown."""

    start: int
    end: int
    shown: str
    """What is shown instead."""


def is_suspect_bytes(raw: bytes) -> bool:
    """Whether bytes that hold texts have in them what every secret of a text has."""
    if _LONG_WORD in raw.translate(_OF_WORDS):
        return True
    # Looking for a few words takes a fraction of the time of the pattern, and a loop over them three times as long.
    return (
        b"@" in raw
        or b"+" in raw
        or b"gh" in raw
        or b"IA" in raw
        or b"eyJ" in raw
        or b"-----" in raw
        or b"xox" in raw
        or b"xapp-" in raw
        or b"AIza" in raw
        or b"SG." in raw
        or b"ya29" in raw
        or b"tel:" in raw
    ) and _SUSPICION.search(raw) is not None


def find_secret(text: str, *, length: int = LENGTH) -> Secret | None:
    """The first secret of a text; random hexadecimal digits or base64 count from ``length`` characters on."""
    secrets = [*_secrets(text, length)]
    return Secret(secrets[0][0], without(text, _joined([part for _, part in secrets]))) if secrets else None


def find_all(text: str, *, length: int = LENGTH) -> list[Hidden]:
    """All secrets of a text of any length, in order; they do not overlap."""
    if len(text) <= MAX_SEARCHED and not is_suspect_bytes(text.encode("utf-8", "replace")):
        return []
    return _joined([part for _, part in _secrets(text, length)])


def _secrets(text: str, length: int) -> Iterator[tuple[str, Hidden]]:
    """What each secret of a text is, and its part of the text; not in order, and they may overlap."""
    for start in range(0, max(1, len(text) - OVERLAP), MAX_SEARCHED - OVERLAP):
        part = text[start : start + MAX_SEARCHED]
        if not is_suspect_bytes(part.encode("utf-8", "replace")):
            continue
        for what, sign, pattern in _KEYS:
            for hit in pattern.finditer(part) if sign in part else ():
                end = len(text) if what == _PRIVATE_KEY else start + hit.end()
                yield what, Hidden(start + hit.start(), end, hide(text[start + hit.start() : end]))
        for hit in _ACCESS_TOKEN.finditer(part) if _may_hold_access_token(part) else ():
            yield "an access token", Hidden(start + hit.start(), start + hit.end(), hide(hit[0]))
        for hit in _ADDRESS.finditer(part) if "@" in part else ():
            yield "an e-mail address", Hidden(start + hit.start(), start + hit.end(), f"***({len(hit[0])} characters)")
        for hit in _PHONE_NUMBER.finditer(part) if "+" in part or "tel:" in part else ():
            yield "a phone number", Hidden(start + hit.start(), start + hit.end(), f"***({len(hit[0])} characters)")
        for hit in _LONG.finditer(part):
            what = _random(hit[0], length)
            if what:
                yield what, Hidden(start + hit.start(), start + hit.end(), hide(hit[0]))


def _joined(found: list[Hidden]) -> list[Hidden]:
    """Parts that overlap as one; the first of them says what is shown."""
    made: list[Hidden] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if made and one.start < made[-1].end:
            made[-1] = Hidden(made[-1].start, max(made[-1].end, one.end), made[-1].shown)
        else:
            made.append(one)
    return made


def without(text: str, hidden: Iterable[Hidden]) -> str:
    """The text without the parts that are not to be shown."""
    parts, at = [], 0
    for one in hidden:
        parts += [text[at : one.start], one.shown]
        at = one.end
    return "".join([*parts, text[at:]])


def hide(text: str) -> str:
    """The first characters of a secret, at most four and a quarter of it, and its length."""
    return f"{text[: min(4, len(text) // 4)]}***({len(text)} characters)"


def masked(text: str) -> str:
    found = find_secret(text)
    return text if found is None else found.masked


def _random(word: str, length: int) -> str:
    """What a long word is if it is random, empty when it may be a name."""
    if len(word) < length or _UUID.search(word):
        return ""
    if _HEXADECIMAL.fullmatch(word):
        return f"{len(word)} hexadecimal digits" if len(set(word)) >= 8 and not word.isdigit() else ""
    body = word.rstrip("=")
    kinds = (any(map(str.islower, body)), any(map(str.isupper, body)), sum(map(str.isdigit, body)) > 1)
    if all(kinds) and _BASE64.fullmatch(word) and len(set(body)) >= 16 and _changes(body) * 4 >= len(body):
        return f"{len(word)} characters of base64"
    return ""


def _changes(word: str) -> int:
    """How often the kind of character changes: rarely in words, all the time in random text."""
    kinds = [0 if one.islower() else 1 if one.isupper() else 2 if one.isdigit() else 3 for one in word]
    return sum(one != other for one, other in pairwise(kinds))


SHORTEST = 5
"""Bytes of the shortest payload that a credential with its name fits into: ``pwd=a``."""
REACH = 4_096
"""Bytes after those that are shown by which a credential is recognised that begins in them."""
CONNECT_INSIDE: Final = 1
AUTH_INSIDE: Final = 2
WEB_TOKEN: Final = 4
AWS_KEY: Final = 8
PRIVATE_KEY: Final = 16
ACCESS_TOKEN: Final = 32
BEARER: Final = 64
NAMED: Final = 128
COMPRESSED: Final = 256
"""Kinds of credentials that a payload may hold, for `suspicions`."""
_BASIC = r"(?i:(?<![a-z])basic)\s+(?P<basic>[A-Za-z0-9+/]{8,}={1,2}|[A-Za-z0-9+/]{12,})(?![\w+/])"
_FORMS: Final[dict[int, bytes]] = {
    # A CONNECT or an AUTH that a payload holds, as wrong lengths and bridges make it: all from its secret on.
    CONNECT_INSIDE: rb"(?i:\x00\x04MQTT|\x00\x06MQIsdp)(?P<connect>.+)",
    AUTH_INSIDE: rb"\x15(?:\x00[\x01-\x40])?[\x20-\x7e]{3,64}\x16\x00(?P<auth>.+)",
    # One that is encrypted has five parts, of which the second may be empty.
    WEB_TOKEN: (
        rb"(?P<jwt>(?:(?<![\w-])|" + _BEHIND_ESCAPE.encode() + rb")"
        rb"eyJ[\w-]{8,}\.(?:[\w-]{4,}|\.[\w-]{4,})(?:\.[\w-]*){0,3})"
    ),
    AWS_KEY: rb"(?P<aws>(?:(?<![A-Z0-9])|"
    + _BEHIND_ESCAPE.encode()
    + rb")(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9]))",
    PRIVATE_KEY: (
        rb"(?P<key>-----BEGIN(?:[A-Z +]|%20){1,40}PRIVATE(?:[ +]|%20)KEY(?:(?:[ +]|%20)BLOCK)?-----"
        rb".*?(?:-----END(?:[A-Z +]|%20){1,40}PRIVATE(?:[ +]|%20)KEY(?:(?:[ +]|%20)BLOCK)?-----|\Z))"
    ),
    ACCESS_TOKEN: rb"(?P<access>" + _ACCESS_TOKENS.encode() + rb")",
    BEARER: (
        rb"(?i:authori[sz]ation[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+|(?<![a-z])bearer\s+)(?P<bearer>[^\s\"',;]{4,})"
        rb"|" + _BASIC.encode()
    ),
}


_BASIC_IN_TEXT = re.compile(_BASIC)


@cache
def _credentials(kinds: int) -> re.Pattern[bytes]:
    """Finds credentials of some kinds: a search for all of them takes a hundred times longer than for one."""
    return re.compile(b"|".join(form for kind, form in _FORMS.items() if kind & kinds), re.DOTALL)


_WITH_LINE: Final = (
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "npm_",
    "k_live_",
    "k_test_",
    "hf_",
    "whsec_",
)
"""How access tokens with an underscore begin: less would be in many payloads of a few kilobytes."""
_WITH_DASH: Final = ("sk-", "glpat-", "glrt-", "gldt-", "glptt-", "glcbt-", "xapp-", "xox", "GOCSPX-")
_FIRST_BYTES: Final = frozenset(bytes((one,)) for one in FIRST_BYTES)
MAX_UNPACKED: Final = 1 << 18
"""Bytes of what comes out of a compressed payload that are looked at; a payload that holds more is hidden."""
_ESCAPED: Final = re.compile("%[2-7]|&(?:#|[qalg])|\\\\[ux]")
_COMMAND_OPTIONS: Final = (" -P", " -p ", " -u", " -pw ", "--user", "--pw", "sshpass", '"-P"', "'-P'")


def suspicions(data: bytes) -> int:
    """The kinds of credentials that a payload may hold."""
    # Text is searched faster than bytes, and small letters are made faster of bytes.
    found = _suspicions(data.decode("latin-1"), data.lower().decode("latin-1"))
    return found | COMPRESSED if data[:1] in _FIRST_BYTES and recognised(data) else found


def _suspicions(text: str, low: str) -> int:
    # A search for one character takes a tenth of the time of one for a word, and nearly all payloads lack some.
    found = 0
    if (
        ("p" in low and ("pass" in low or "pin" in low))
        or ("k" in low and ("key" in low or "token" in low or "psk" in low))
        or ("c" in low and ("secret" in low or "credential" in low))
        or ("g" in low and "sig" in low)
        or ("h" in low and "auth" in low)
        or ("w" in low and "pwd" in low)
        or ("@" in low and "/" in low and ("://" in low or ":\\" in low))
        or ("-" in text and any(one in text for one in _COMMAND_OPTIONS))
        or (("%" in low or "&" in low or "\\" in low) and _ESCAPED.search(low) is not None)
        or (more_stems() and any(one in low for one in more_stems()))
    ):
        found = NAMED
    if "-" in text and "B" in text and "-----BEGIN" in text:
        found |= PRIVATE_KEY
    if "b" in low and ("bearer" in low or "basic" in low):
        found |= BEARER
    if "q" in low and ("\x04mqtt" in low or "\x06mqisdp" in low):
        found |= CONNECT_INSIDE
    if "\x16" in text and "\x16\0" in text:
        found |= AUTH_INSIDE
    if "J" in text and "eyJ" in text:
        found |= WEB_TOKEN
    if "A" in text and ("AKIA" in text or "ASIA" in text):
        found |= AWS_KEY
    return found | ACCESS_TOKEN if _may_hold_access_token(text) else found


def _may_hold_access_token(text: str) -> bool:
    return (
        ("_" in text and any(sign in text for sign in _WITH_LINE))
        or ("-" in text and any(sign in text for sign in _WITH_DASH))
        or ("A" in text and "AIza" in text)
        or ("G" in text and "SG." in text)
        or ("y" in text and ("ya29." in text or "ya." in text))
    )


def is_suspect(text: str) -> bool:
    return _suspicions(text, text.lower()) != 0


def token_ranges(data: bytes, start: int = 0, shown: int | None = None) -> list[tuple[int, int]]:
    """Ranges of a payload, from some place on in its packet, that are credentials, in order.

    Only those that the first ``shown`` bytes have a part of, where nobody is shown more.
    """
    if len(data) - start < SHORTEST:
        return []
    part = data[start : None if shown is None else start + shown + REACH]
    kinds = suspicions(part)
    if not kinds:
        return []
    if kinds & COMPRESSED and _may_hold_credential(part):
        # Whoever has the bytes can unpack them.
        return [(start, len(data))]
    return [(start + first, start + last) for first, last in _plain_ranges(part, kinds)]


def _plain_ranges(part: bytes, kinds: int) -> list[tuple[int, int]]:
    """Ranges of bytes that are credentials of some kinds, but for those that are compressed."""
    found = []
    others = kinds & ~(NAMED | COMPRESSED)
    if others:
        for hit in _credentials(others).finditer(part):
            group = hit.lastgroup
            assert group is not None
            if group != "basic" or _is_basic(hit[group]):
                found.append(hit.span(group))
    if kinds & NAMED:
        # Nearly no payload needs it.
        from mqttscope.secrets.notations import named_values

        found += named_values(part.decode("latin-1"))
    return joined(found)


def _may_hold_credential(compressed: bytes) -> bool:
    """Whether a credential comes out of compressed bytes, or more than is looked at."""
    unpacked = unpack(compressed, MAX_UNPACKED + 1)
    if unpacked is None or not unpacked.steps:
        return False
    content = unpacked.data
    again = unpack(content, 1)
    if len(content) > MAX_UNPACKED or (again is not None and again.steps):
        return True
    return bool(_plain_ranges(content, suspicions(content)))


def _is_basic(encoded: bytes) -> bool:
    """Whether base64 is a user name and a password (RFC 7617)."""
    try:
        return b":" in b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return False


def basic_ranges(text: str) -> list[tuple[int, int]]:
    """Where a text has base64 of a user name and a password after ``Basic``."""
    return [hit.span(1) for hit in _BASIC_IN_TEXT.finditer(text) if _is_basic(hit[1].encode())]


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch as one."""
    made: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((start, end))
    return made


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
