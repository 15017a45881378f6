"""Recognises names of secrets: ``password``, ``wifiPassword``, ``X-API-Key``, ``mqtt_psk_base64``.

A name is split into words at changes of case, digits and separators, and its last words decide (docs/secrets.md lists
them).  One table applies to keys in payloads, User Properties, queries, headers and options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

WORDS: Final = frozenset((
    "password", "passwd", "pass", "pwd", "passphrase", "passkey", "passcode", "psk", "secret", "token", "credential",
    "sig", "signature", "authorization", "authorisation",
))  # fmt: skip
"""Last words of names of secrets, in the singular."""
PAIRS: Final = frozenset(
    (*((kind, "key") for kind in ("api", "access", "private", "shared", "secret", "account")), ("pin", "code"))
)
"""Last two words of names of secrets."""
GENERIC: Final = frozenset(["value", "plain", "raw", "text", "data", "base64"])
"""Last words without a meaning of their own, which are skipped."""
DOUBTFUL: Final = frozenset(("auth", "pin"))
"""Ambiguous last words: the value decides as well."""
STEMS: Final = ("pass", "pwd", "psk", "secret", "token", "credential", "sig", "auth", "key", "pin")
"""Every name of a secret contains one of these stems."""
VARIABLE: Final = "MQTTSCOPE_SECRET_WORDS"
"""Environment variable with further last words, separated by commas, set by the configuration or a library user."""
MAX_NAME: Final = 80
"""Maximum length of a name; of a longer one, only the last characters count."""
MIN_DIGITS: Final = 4
"""Minimum number of digits of a secret number: ``"tokens": 12`` is not a secret."""
_SPLIT = re.compile(r"(?i:base64)|[A-Z]?[a-z]+?(?=base64)|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", re.ASCII)
_JOINED = frozenset("".join(pair) for pair in PAIRS)
_ENDINGS = (*sorted(WORDS - {"pass", "sig"}), *sorted(_JOINED))
"""Endings of lower-case compounds: ``wifipassword``."""
MIN_DOUBTFUL: Final = 8
"""Minimum length of a non-numeric secret under an ambiguous name."""
_METHOD = (
    r"(?:wpa|wep|psk|sae|eap|peap|t?tls|mtls|leap|mschap|chap|pap|sasl|plain|scram|sha|md5|hmac|oauth|basic|digest|bearer"
    r"|ntlm|kerberos|x\.?509|enterprise|personal|mixed|open|shared|tkip|aes|ccmp|802\.1x)"
)
_NO_SECRET = re.compile(
    r"GPIO(?:_?(?:NUM|PIN))?_?\d{1,4}"
    rf"|{_METHOD}(?:[-_/+ ]?(?:{_METHOD}|(?<!\d)(?:v?[1-3](?:\.[0-3])?|64|128|192|256|384|512)(?!\d)))*",
    re.IGNORECASE | re.ASCII,
)
"""Values that are not secrets: pins of a chip and methods, such as ``GPIO_NUM_12`` and ``WPA2-Enterprise``."""
BEFORE_PASS = frozenset((
    "user", "my", "wifi", "mqtt", "db", "admin", "root", "login", "web", "ap", "sta", "ftp", "smtp",
))  # fmt: skip
_words: tuple[frozenset[str], tuple[str, ...]] = frozenset(), STEMS
"""Further words of `VARIABLE`, and all stems including them."""


def set_words(words: Iterable[str]) -> None:
    """Set the further last words of names of secrets for this process and its children; replaces earlier ones."""
    os.environ[VARIABLE] = ",".join(words)
    _take_words()


def _take_words() -> None:
    global _words
    more = frozenset(word.strip().lower() for word in os.environ.get(VARIABLE, "").split(",")) - {""}
    _words = more, (*STEMS, *sorted(more))
    _judge.cache_clear()
    stems_in_bytes.cache_clear()


def stems() -> tuple[str, ...]:
    """Lower-case stems; every name of a secret contains one."""
    return _words[1]


@cache
def stems_in_bytes() -> tuple[bytes, ...]:
    """The stems as bytes."""
    return tuple(stem.encode() for stem in stems())


def more_stems() -> tuple[str, ...]:
    """The stems that are not in `STEMS`."""
    return _words[1][len(STEMS) :]


def is_secret_name(name: str) -> bool:
    """Whether every value of this name is a secret."""
    return _judge(name[-MAX_NAME:], len(name) > MAX_NAME)[0]


def is_doubtful_name(name: str) -> bool:
    """Whether a value of this name is a secret only if it looks like one."""
    return _judge(name[-MAX_NAME:], len(name) > MAX_NAME)[1]


def looks_secret(value: str) -> bool:
    """Whether the value of an ambiguous name is a secret: a code of digits, or mixed letters and digits."""
    if value.isdigit():
        return len(value) >= MIN_DIGITS
    if len(value) < MIN_DOUBTFUL or not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    return _NO_SECRET.fullmatch(value) is None


def is_secret_value(name: str, value: str) -> bool:
    """Whether a complete value with this name is a secret."""
    return is_secret_name(name) or (is_doubtful_name(name) and looks_secret(value))


def secrecy(name: str, outer: bool | None) -> bool | None:
    """Whether the value of a name is a secret; ``None`` if the value decides.  ``outer``: the answer for its holder."""
    if outer:
        return outer
    if is_secret_name(name):
        return True
    return None if is_doubtful_name(name) else outer


@lru_cache(8192)
def _judge(name: str, is_cut: bool) -> tuple[bool, bool]:
    """Whether a name is the name of a secret, and whether its value decides; ``is_cut`` if its beginning is missing."""
    words = [word.lower() for word in _SPLIT.findall(name)]
    count = len(words)
    while words and words[-1] in GENERIC:
        words.pop()
    if is_cut and len(words) < count and len(words) <= 2:
        # The deciding words are cut or missing.
        return True, False
    if not words:
        return False, False
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    # "pass word" is sometimes written as two words.
    secret = any(map(_is_secret, (last, last.removesuffix("s"), before + last)))
    secret = secret or (before, last) in PAIRS or (before, last.removesuffix("s")) in PAIRS
    return secret, not secret and last in DOUBTFUL


def _is_secret(word: str) -> bool:
    if word in WORDS or word in _JOINED or word in _words[0] or word.endswith(_ENDINGS):
        return True
    return word.endswith("pass") and word[:-4] in BEFORE_PASS


_take_words()
