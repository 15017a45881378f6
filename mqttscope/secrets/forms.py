"""Recognises secrets and personal data by their form, in texts and payloads, and hides them.

In payloads, every output hides credentials of a known form (a JSON Web Token, a key of a provider, a private key),
values with the name of a secret (`notations`), and the secrets of a CONNECT or AUTH inside the payload.  Very few
payloads contain any of these, and a few quick searches rule out the others (`suspicions`).

In findings, long random texts and personal data are hidden as well.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import ne
from typing import Final

from mqttscope.compressed import FIRST_BYTES, recognised, unpack
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.secrets.names import more_stems

_PRIVATE_KEY = "a private key"
_BEHIND_ESCAPE = r"(?<=\\[abefnrtv0])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})"
"""Matches after an escape sequence: its last character does not belong to the next word."""
_ACCESS_TOKENS = (
    rf"(?:(?<![A-Za-z0-9])|{_BEHIND_ESCAPE})"
    r"(?:gh[pousr]_\w{36,}|github_pat_\w{22,}|gl(?:pat|rt|dt|ptt|cbt)-[\w-]{20,}|npm_\w{36,}|xox[a-eprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|AIza[\w-]{35}|[sr]k_(?:live|test)_\w{16,}|sk-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|hf_\w{30,}|ya29\.[\w-]{20,}"
    r"|GOCSPX-[\w-]{20,}|whsec_[\w+/=-]{20,})"
)
"""Access tokens of GitHub, GitLab, npm, Slack, Google, Stripe, OpenAI, SendGrid and Hugging Face."""
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_KEYS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("an AWS access key", "IA", re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9])")),
    ("a JSON Web Token", "eyJ", re.compile(r"eyJ[\w-]{8,512}\.[\w-]{8,}(?:\.[\w-]*)?")),
    (_PRIVATE_KEY, "-----BEGIN ", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)),
)
"""Keys by description, a text that each key contains, and pattern."""
_ACCESS_TOKEN = re.compile(_ACCESS_TOKENS)
_ADDRESS = re.compile(r"[\w.%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_PHONE_NUMBER = re.compile(r"(?<![\w+])(?:tel:\+?|\+)[1-9](?:[ ().-]?\d){7,14}(?!\d)")
_LONG = re.compile(r"[A-Za-z0-9+_=-]{24,}")
_SUSPICION = re.compile(
    rb"A[KS]IA|eyJ|-----BEGIN|gh[pousr]_|xox|xapp-|AIza|SG\.|ya29|@|tel:|\+[1-9]|[A-Za-z0-9+_=-]{24}"
)
"""Signs of secrets: every secret contains at least one; very few other texts do."""
_OF_WORDS = bytes(120 if re.match(rb"[A-Za-z0-9+_=-]", bytes((byte,))) else 32 for byte in range(256))
_LONG_WORD = b"x" * 24
_CLASSES = bytes(
    97 if char.islower() else 65 if char.isupper() else 48 if char.isdigit() else 45 for char in map(chr, range(128))
).ljust(256, b"-")
"""Translates lower-case letters to ``a``, upper-case letters to ``A``, digits to ``0``, other bytes to ``-``."""
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_BASE64 = re.compile(r"[A-Za-z0-9+_-]+={0,2}")
MAX_SEARCHED = 4_096
"""Length of the parts of a text that are searched one by one, in characters."""
OVERLAP = 512
"""Overlap of the searched parts in characters, so that few secrets are cut in two."""
LENGTH = 40
"""Default minimum number of characters of a random text that counts as a secret."""


@dataclass(slots=True)
class DetectedSecret:
    """A secret found in a text."""

    what: str
    """Description: ``a JSON Web Token``."""
    masked: str
    """The text with keys reduced to their first characters, and personal data hidden completely."""


@dataclass(slots=True, frozen=True)
class HiddenPart:
    """A part of a text to be hidden."""

    start: int
    end: int
    shown: str
    """Text shown instead."""


def is_suspect_bytes(raw: bytes) -> bool:
    """Whether bytes contain one of the texts that every secret contains."""
    if _LONG_WORD in raw.translate(_OF_WORDS):
        return True
    # A few substring searches take a fraction of the pattern's time; a loop over them would take three times as long.
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


def find_secret(text: str, *, length: int = LENGTH) -> DetectedSecret | None:
    """The first secret of a text, or ``None``; ``length`` is the minimum number of characters of a random text."""
    secrets = [*_secrets(text, length)]
    return DetectedSecret(secrets[0][0], without(text, _joined([part for _, part in secrets]))) if secrets else None


def find_all(text: str, *, length: int = LENGTH) -> list[HiddenPart]:
    """All secrets of a text, in order and without overlaps."""
    if len(text) <= MAX_SEARCHED and not is_suspect_bytes(text.encode("utf-8", "replace")):
        return []
    return _joined([part for _, part in _secrets(text, length)])


def _secrets(text: str, length: int) -> Iterator[tuple[str, HiddenPart]]:
    """Description and part of each secret of a text, unordered and possibly overlapping."""
    for start in range(0, max(1, len(text) - OVERLAP), MAX_SEARCHED - OVERLAP):
        part = text[start : start + MAX_SEARCHED]
        if not is_suspect_bytes(part.encode("utf-8", "replace")):
            continue
        for what, sign, pattern in _KEYS:
            for hit in pattern.finditer(part) if sign in part else ():
                end = len(text) if what == _PRIVATE_KEY else start + hit.end()
                yield what, HiddenPart(start + hit.start(), end, hide(text[start + hit.start() : end]))
        for hit in _ACCESS_TOKEN.finditer(part) if _may_hold_access_token(part) else ():
            yield "an access token", HiddenPart(start + hit.start(), start + hit.end(), hide(hit[0]))
        for hit in _ADDRESS.finditer(part) if "@" in part else ():
            hidden = f"***({len(hit[0])} characters)"
            yield "an e-mail address", HiddenPart(start + hit.start(), start + hit.end(), hidden)
        for hit in _PHONE_NUMBER.finditer(part) if "+" in part or "tel:" in part else ():
            yield "a phone number", HiddenPart(start + hit.start(), start + hit.end(), f"***({len(hit[0])} characters)")
        for hit in _LONG.finditer(part):
            what = _random(hit[0], length)
            if what:
                yield what, HiddenPart(start + hit.start(), start + hit.end(), hide(hit[0]))


def _joined(parts: list[HiddenPart]) -> list[HiddenPart]:
    """The parts with overlapping ones merged; the first of them gives the text to show."""
    merged: list[HiddenPart] = []
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        if merged and part.start < merged[-1].end:
            merged[-1] = HiddenPart(merged[-1].start, max(merged[-1].end, part.end), merged[-1].shown)
        else:
            merged.append(part)
    return merged


def without(text: str, hidden: Iterable[HiddenPart]) -> str:
    """The text with the hidden parts replaced."""
    parts, at = [], 0
    for part in hidden:
        parts += [text[at : part.start], part.shown]
        at = part.end
    return "".join([*parts, text[at:]])


def hide(text: str) -> str:
    """The first characters of a secret (at most four, and at most a quarter of it), and its length."""
    return f"{text[: min(4, len(text) // 4)]}***({len(text)} characters)"


def masked(text: str) -> str:
    secret = find_secret(text)
    return text if secret is None else secret.masked


def _random(word: str, length: int) -> str:
    """Description of a long word that is random, else empty."""
    if len(word) < length or ("-" in word and _UUID.search(word)):
        return ""
    if _HEXADECIMAL.fullmatch(word):
        return f"{len(word)} hexadecimal digits" if len(set(word)) >= 8 and not word.isdigit() else ""
    body = word.rstrip("=")
    classes = body.encode().translate(_CLASSES)
    if (
        b"a" in classes
        and b"A" in classes
        and classes.count(b"0") > 1
        and _BASE64.fullmatch(word)
        and len(set(body)) >= 16
        # Few changes of the class in words, many in random text.
        and sum(map(ne, classes, classes[1:])) * 4 >= len(body)
    ):
        return f"{len(word)} characters of base64"
    return ""


SHORTEST = 5
"""Minimum size of a payload that contains a named credential: ``pwd=a``."""
REACH = 4_096
"""Number of bytes searched after the shown ones, to recognise credentials that begin in the shown bytes."""
CONNECT_INSIDE: Final = 1
AUTH_INSIDE: Final = 2
WEB_TOKEN: Final = 4
AWS_KEY: Final = 8
PRIVATE_KEY: Final = 16
ACCESS_TOKEN: Final = 32
BEARER: Final = 64
NAMED: Final = 128
COMPRESSED: Final = 256
"""Bits of `suspicions`: kinds of credentials that a payload may contain."""
_BASIC = r"(?i:(?<![a-z])basic)\s+(?P<basic>[A-Za-z0-9+/]{8,}={1,2}|[A-Za-z0-9+/]{12,})(?![\w+/])"
_FORMS: Final[dict[int, bytes]] = {
    # A CONNECT or AUTH inside a payload, caused by wrong lengths or bridges: hidden from its secret on.
    CONNECT_INSIDE: rb"(?i:\x00\x04MQTT|\x00\x06MQIsdp)(?P<connect>.+)",
    AUTH_INSIDE: rb"\x15(?:\x00[\x01-\x40])?[\x20-\x7e]{3,64}\x16\x00(?P<auth>.+)",
    # An encrypted token has five parts, and the second may be empty.
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
    """Pattern for some kinds of credentials: a search for all kinds takes a hundred times longer than for one."""
    return re.compile(b"|".join(form for kind, form in _FORMS.items() if kind & kinds), re.DOTALL)


_FIRST_BYTES: Final = frozenset(bytes((byte,)) for byte in FIRST_BYTES)
MAX_UNPACKED: Final = 1 << 18
"""Maximum number of unpacked bytes that are searched; larger compressed payloads are hidden."""
_ESCAPED: Final = re.compile("%[2-7]|&(?:#|[qalg])|\\\\[ux]")


def suspicions(data: bytes) -> int:
    """Kinds of credentials that a payload may contain, as bits."""
    # Searching is faster in text, and lowering is faster in bytes.
    kinds = _suspicions(data.decode("latin-1"), data.lower().decode("latin-1"))
    return kinds | COMPRESSED if data[:1] in _FIRST_BYTES and recognised(data) else kinds


def _suspicions(text: str, low: str) -> int:
    # A search for one character takes a tenth of the time of a search for a word, and most payloads lack some letter.
    kinds = 0
    if (
        ("p" in low and ("pass" in low or "pin" in low))
        or ("k" in low and ("key" in low or "token" in low or "psk" in low))
        or ("c" in low and ("secret" in low or "credential" in low))
        or ("g" in low and "sig" in low)
        or ("h" in low and "auth" in low)
        or ("w" in low and "pwd" in low)
        or ("@" in low and "/" in low and ("://" in low or ":\\" in low))
        or ("-" in text and _may_hold_option(text))
        or (("%" in low or "&" in low or "\\" in low) and _ESCAPED.search(low) is not None)
        or ("_" in low and "_compressed" in low)
        or (more_stems() and any(stem in low for stem in more_stems()))
    ):
        kinds = NAMED
    if "-" in text and "B" in text and "-----BEGIN" in text:
        kinds |= PRIVATE_KEY
    if "b" in low and ("bearer" in low or "basic" in low):
        kinds |= BEARER
    if "q" in low and ("\x04mqtt" in low or "\x06mqisdp" in low):
        kinds |= CONNECT_INSIDE
    if "\x16" in text and "\x16\0" in text:
        kinds |= AUTH_INSIDE
    if "J" in text and "eyJ" in text:
        kinds |= WEB_TOKEN
    if "A" in text and ("AKIA" in text or "ASIA" in text):
        kinds |= AWS_KEY
    return kinds | ACCESS_TOKEN if _may_hold_access_token(text) else kinds


# Searches for one text after the other take a third of the time of a loop over them.
def _may_hold_option(text: str) -> bool:
    """Whether a text contains a command line option for a credential."""
    return (
        (" -" in text and (" -P" in text or " -p " in text or " -u" in text or " -pw " in text))
        or ("--" in text and ("--user" in text or "--pw" in text))
        or "sshpass" in text
        or ("-P" in text and ('"-P"' in text or "'-P'" in text))
    )


def _may_hold_access_token(text: str) -> bool:
    return (
        # Beginnings with an underscore or a dash; shorter ones would occur in many payloads.
        (
            "_" in text
            and (
                ("gh" in text and any(sign in text for sign in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")))
                or "github_pat_" in text
                or "npm_" in text
                or ("k_" in text and ("k_live_" in text or "k_test_" in text))
                or "hf_" in text
                or "whsec_" in text
            )
        )
        or (
            "-" in text
            and (
                "sk-" in text
                or ("gl" in text and any(sign in text for sign in ("glpat-", "glrt-", "gldt-", "glptt-", "glcbt-")))
                or "xapp-" in text
                or "xox" in text
                or "GOCSPX-" in text
            )
        )
        or ("A" in text and "AIza" in text)
        or ("G" in text and "SG." in text)
        or ("y" in text and ("ya29." in text or "ya." in text))
    )


def is_suspect(text: str) -> bool:
    return _suspicions(text, text.lower()) != 0


def token_ranges(data: bytes, start: int = 0, shown: int | None = None) -> list[tuple[int, int]]:
    """Ranges of credentials in a payload that begins at ``start``, in order.

    With ``shown``, the search is limited to credentials that may begin in the first ``shown`` bytes.
    """
    if len(data) - start < SHORTEST:
        return []
    part = data[start : None if shown is None else start + shown + REACH]
    kinds = suspicions(part)
    if not kinds:
        return []
    if kinds & COMPRESSED and _may_hold_credential(part):
        # The reader could unpack the bytes.
        return [(start, len(data))]
    return [(start + first, start + last) for first, last in _plain_ranges(part, kinds)]


def _plain_ranges(part: bytes, kinds: int) -> list[tuple[int, int]]:
    """Ranges of credentials of some kinds, without compressed ones."""
    ranges = []
    others = kinds & ~(NAMED | COMPRESSED)
    if others:
        for hit in _credentials(others).finditer(part):
            group = hit.lastgroup
            assert group is not None
            if group != "basic" or _is_basic(hit[group]):
                ranges.append(hit.span(group))
    if kinds & NAMED:
        # Imported late: very few payloads need it.
        from mqttscope.secrets.notations import named_values
        from mqttscope.secrets.sparkplug import sparkplug_values

        ranges += [*named_values(part.decode("latin-1")), *sparkplug_values(part, MAX_UNPACKED)]
    return joined(ranges)


def _may_hold_credential(compressed: bytes) -> bool:
    """Whether compressed bytes unpack to a credential, or to more than `MAX_UNPACKED` bytes."""
    unpacked = unpack(compressed, MAX_UNPACKED + 1)
    if unpacked is None or not unpacked.steps:
        return False
    content = unpacked.data
    again = unpack(content, 1)
    if len(content) > MAX_UNPACKED or (again is not None and again.steps):
        return True
    return bool(_plain_ranges(content, suspicions(content)))


def _is_basic(encoded: bytes) -> bool:
    """Whether base64 contains a user name and password (RFC 7617)."""
    try:
        return b":" in b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return False


def basic_ranges(text: str) -> list[tuple[int, int]]:
    """Ranges of base64 with a user name and password after ``Basic``."""
    return [hit.span(1) for hit in _BASIC_IN_TEXT.finditer(text) if _is_basic(hit[1].encode())]


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges sorted, with adjacent and overlapping ones merged."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((start, end))
    return result


def without_tokens(data: bytes, shown: int | None = None) -> bytes:
    """The payload with an asterisk for each byte of a credential; the payload itself without credentials.

    ``shown`` limits the search to credentials in the first bytes.
    """
    ranges = token_ranges(data, shown=shown)
    if not ranges:
        return data
    covered = bytearray(data)
    for start, end in ranges:
        covered[start:end] = b"*" * (end - start)
    return bytes(covered)


def token_places(packet: ControlPacket, shown: int | None = None) -> list[tuple[int, int]]:
    """Ranges of credentials in the payload of a PUBLISH, as offsets in the packet."""
    if packet.packet_type != PacketType.PUBLISH:
        return []
    payload: bytes = packet.payload  # type: ignore[attr-defined]
    return token_ranges(packet.raw, len(packet.raw) - len(payload), shown) if len(payload) >= SHORTEST else []
