"""Secrets in URLs, HTTP requests and other details of transports.

In a URL, secrets are passwords in front of the host, and tokens in path parameters, query and fragment; in a request,
secrets of its path and headers.

A server may resolve percent-encoding before it searches for the ``?``; some do so twice, and proxies once more.  So
every URL is searched in its original form and after each decoding; secrets of all forms are hidden in the original,
which stays encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mqttscope.mqtt import view
from mqttscope.net.http_upgrade import SUBPROTOCOL_NAME
from mqttscope.secrets.forms import masked
from mqttscope.secrets.names import PAIRS, WORDS

REDACTED = "***"
MAX_DECODED = 8
"""Maximum number of decodings; text that is encoded more often is hidden."""
BROKER_SCHEMES = ("mqtt", "mqtts", "ws", "wss")
"""Schemes of broker URLs: everything in their paths that may be a token is hidden."""

Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]

_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_RUN = re.compile(r"[^\s'\"<>]+")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^\s'\"<>]*")
_PASSWORD = re.compile(
    r"(?:(?<![\w.~%+-])(?:[A-Za-z][A-Za-z0-9+.-]*://)?[\w.~%+-]*):(?!//)(?P<secret>[^\s'\"<>]*)@(?=[\w\[])"
)
"""User name and password in front of a host; they may contain anything except blanks and quotes."""
_VALUE = re.compile(r"[?&;#][\w.~%\[\]-]{1,64}=(?P<secret>[^\s&;#'\"<>]+)")
"""A parameter of a query or path."""
_PART = re.compile(r"[^&;?#]+")
_PART_NAME = re.compile(r"[\w.~%\[\]-]{1,64}")
_USER = re.compile(r"//(?P<secret>[^/@]*)@|/(?P<named>[^/@:]*:(?!//)[^?#]*)@")
_NAMED_SEGMENT = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(sorted((*WORDS, *map("[_-]?".join, PAIRS), "access[_-]?token", "key", "auth", "jwt", "bearer")))
    + r")"
    r"(?::|/+)(?P<secret>[^/?#;]+)",
    re.IGNORECASE,
)
"""A path segment with the name of a credential, and the next segment, its value."""
_TARGET = re.compile(r"[/?#;]|(?:https?|wss?)://|\Z", re.IGNORECASE)
"""Beginning of a request target (RFC 9112 section 3.2), or of the rest of a URL after the host."""
_PARAMETER = re.compile(r"[;=](?P<secret>[^/]*)")
"""A path parameter, up to the next path segment."""
_FRAGMENT = re.compile(r"#(?P<secret>.+)", re.DOTALL)
_USER_OF_NAME = re.compile(r"://(?:(?P<secret>[^/@:]*:(?!\d{0,5}/).*)@(?=[\w\[])|(?P<alone>[^/@]*)@)", re.DOTALL)
_BEHIND_HOST = re.compile("[/?#;]")
_QUERY = re.compile("[?#]")
_PARAMETER_OF_NAME = re.compile(r";[\w.~%\[\]-]{1,64}=(?P<secret>[^/;?#]+)")


def without_query_values(path: str) -> str:
    """The path of a request with asterisks for possible secrets: brokers accept tokens and passwords in it.

    Everything with the form of a query counts as one, because a broken request may have its ``?`` anywhere.
    """
    return _hidden(path, _spans_in_path(path))


def without_secrets(text: str) -> str:
    """The text without the passwords and tokens of its URLs."""
    if "@" not in text and "=" not in text and "%" not in text and "://" not in text:
        return text
    # A colon or comma after a URL in a sentence does not belong to the secret.
    spans = [
        (start, end - 1 if text[end - 1 : end] in ":," and text[end : end + 1].isspace() else end)
        for start, end in _everywhere(text, _in_text)
    ]
    return _hidden(text, spans)


def secrets_of_addresses(text: str) -> list[Span]:
    """Ranges of passwords and tokens in the URLs of a text, sorted and disjoint."""
    return _everywhere(text, _in_text)


def public_name(name: str) -> str:
    """The name of a capture for output.

    The name of a local file stays.  A URL loses its user, password, and the values of its query and parameters.  A
    ``file:`` URL loses only user and password, because ``?`` may be part of a file name.
    """
    scheme = _SCHEME.match(name)
    if scheme is None:
        return name
    find = _user_of_name if scheme["scheme"].lower() == "file" else _in_name
    return _hidden(name, _everywhere(name, find))


def _spans_in_path(path: str) -> list[Span]:
    """Ranges of secrets in the path of a request, sorted and disjoint."""
    return _everywhere(path, _in_path)


def _everywhere(text: str, find: Find) -> list[Span]:
    """Ranges that ``find`` returns for any decoding of a text, as offsets in the original text."""
    spans: list[Span] = []
    for reading, places in _readings(text):
        spans += [(places[start], places[end]) for start, end in find(reading) if start < end]
    # Text that is encoded more than `MAX_DECODED` times may contain a secret.
    spans += [(places[start], places[end]) for start, end in _encoded_runs(reading)]
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _encoded_runs(text: str) -> Iterator[Span]:
    """Runs of characters without blanks and quotes that contain percent-encoding."""
    if _ENCODED.search(text) is not None:
        yield from (run.span() for run in _RUN.finditer(text) if _ENCODED.search(run[0]) is not None)


def _readings(text: str) -> Iterator[tuple[str, list[int] | range]]:
    """The text and each decoded form, with the original offset of every character and of the end."""
    places: list[int] | range = range(len(text) + 1)
    yield text, places
    whole = text  # encoded slashes become "_", so that they stay part of the secret around them
    for _ in range(MAX_DECODED):
        parts: list[str] = []
        united: list[str] = []
        origins: list[int] = []
        at = 0
        for code in _ENCODED.finditer(text):
            char = _character(int(code[1], 16))
            parts += [text[at : code.start()], char]
            united += [whole[at : code.start()], "_" if char == "/" else char]
            origins += places[at : code.start() + 1]
            at = code.end()
        if not parts:
            return
        text, whole, places = "".join([*parts, text[at:]]), "".join([*united, whole[at:]]), [*origins, *places[at:]]
        yield text, places
        if whole != text:
            yield whole, places


def _character(code: int) -> str:
    """A decoded character; ``_`` for a character that would end the URL."""
    char = chr(code)
    return char if "!" <= char <= "~" and char not in "'\"<>" else "_"


def _hidden(text: str, spans: Iterable[Span]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], REDACTED]
        at = end
    return "".join([*parts, text[at:]]) if at else text


def _spans(pattern: re.Pattern[str], text: str, start: int = 0, end: int | None = None) -> list[Span]:
    hits = pattern.finditer(text, start, len(text) if end is None else end)
    return [hit.span(hit.lastgroup) for hit in hits if hit.lastgroup is not None]


def _in_path(path: str) -> Iterator[Span]:
    if not _TARGET.match(path):
        # The beginning is missing, so the text up to the query may be part of a secret.
        yield 0, len(re.split(_QUERY, path, maxsplit=1)[0])
    yield from _spans(_USER, path)
    yield from _spans(_NAMED_SEGMENT, path)
    yield from _spans(_FRAGMENT, path)
    query = path.find("?")
    yield from _spans(_PARAMETER, path, 0, len(path) if query < 0 else query)
    if query >= 0:
        yield from _in_query(path, query + 1, len(path))


def _in_query(text: str, start: int, end: int) -> Iterator[Span]:
    """Ranges of named values, and of parts without a name, such as a token with base64 padding."""
    for part in _PART.finditer(text, start, end):
        name, equals, value = part[0].partition("=")
        named = equals and value.strip("=") and _PART_NAME.fullmatch(name)
        yield (part.start() + len(name) + 1 if named else part.start()), part.end()


def _in_text(text: str) -> Iterator[Span]:
    if "@" in text:
        yield from _spans(_PASSWORD, text)
    if "=" in text:
        yield from _spans(_VALUE, text)
    if "://" in text:
        for url in _URL.finditer(text):
            yield from _behind_host(text, url)


def _behind_host(text: str, url: re.Match[str]) -> Iterator[Span]:
    # A password may contain the characters that begin a path or query.
    user = _USER_OF_NAME.search(text, url.end("scheme"), url.end())
    host = user.end() if user else url.end("scheme") + 3
    begins = _BEHIND_HOST.search(text, host, url.end())
    if begins is None:
        return
    if url["scheme"].lower() in BROKER_SCHEMES:
        yield from ((begins.start() + a, begins.start() + b) for a, b in _in_path(text[begins.start() : url.end()]))
        return
    query = _QUERY.search(text, host, url.end())
    if query is not None:
        yield from _in_query(text, query.end(), url.end())


def _in_name(name: str) -> Iterator[Span]:
    yield from _user_of_name(name)
    user = _USER_OF_NAME.search(name)
    at = user.end() if user else 0
    yield from _spans(_PARAMETER_OF_NAME, name, at)
    query = _QUERY.search(name, at)
    if query is not None:
        yield from _in_query(name, query.end(), len(name))


def _user_of_name(name: str) -> list[Span]:
    user = _USER_OF_NAME.search(name)
    return [] if user is None else [user.span(user.lastgroup or 0)]


_HOST = re.compile(r"(?:[\w-]{1,63}(?:\.[\w-]{1,63})*|\[[0-9A-Fa-f:.%]+\])?(?::\d{1,5})?")
_SUBPROTOCOL = re.compile(rf"{SUBPROTOCOL_NAME.pattern}|(?!mqtt)[\w.-]{{0,16}}", re.IGNORECASE)
_EXTENSION = re.compile(r"(?:permessage|x-webkit)-[\w-]{1,24}(?:;\s*[a-z_]{1,30}(?:=\"?\d{1,3}\"?)?)*")


def public_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a transport without possible tokens: in the request path, and in values that are not valid names."""
    shown = dict(details)
    path, host, chosen, extensions = (shown.get(name) for name in ("path", "host", "subprotocol", "extensions"))
    if isinstance(path, str):
        shown["path"] = masked(without_query_values(path))
    if isinstance(host, str) and not _HOST.fullmatch(host):
        shown["host"] = REDACTED
    if isinstance(chosen, str) and not _SUBPROTOCOL.fullmatch(chosen):
        shown["subprotocol"] = REDACTED
    if isinstance(extensions, list):
        shown["extensions"] = [extension if _EXTENSION.fullmatch(extension) else REDACTED for extension in extensions]
    inside = shown.get("websocket")
    if isinstance(inside, Mapping):
        shown["websocket"] = public_details(inside)
    return shown


def transport_view(details: Mapping[str, Any], *, decrypted: bool, show_secrets: bool = False) -> dict[str, Any]:
    """Details of a transport as plain JSON values, without TCP counters and PROXY header."""
    shown = {name: value for name, value in details.items() if name not in ("tcp", "proxy")}
    if shown and not show_secrets:
        shown = public_details(shown)
    if decrypted:
        shown["decrypted"] = True
    return {name: _plain(value) for name, value in shown.items()}


def _plain(value: Any) -> Any:
    """A value from the wire as plain JSON; its text may not be UTF-8."""
    if isinstance(value, str):
        return view.text(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


_SECRET_HEADER = re.compile(
    rb"((?:^|\n)(?:proxy-)?(?:authorization|set-cookie|cookie|x-[\w-]*(?:token|key|auth)[\w-]*)[ \t]*:[ \t]*)"
    rb"([^\r\n]+)",
    re.IGNORECASE,
)
_OFFERED = re.compile(rb"((?:^|\n)sec-websocket-protocol[ \t]*:)([^\r\n]+)", re.IGNORECASE)
_OTHER_NAME = re.compile(rb"[^\s,]+")
_METHOD_OR_VERSION = re.compile(rb"GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|HTTP/\d\.\d")
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d [1-5]\d\d(?: |\r?\Z)")
_WORD = re.compile(rb"\S+")


def without_http_secrets(head: bytes) -> bytes:
    """The beginning of an HTTP head with asterisks for possible tokens, in unchanged length."""
    line, newline, headers = head.partition(b"\n")
    if not _STATUS_LINE.match(line):
        line = _WORD.sub(lambda word: _starred(word[0], cut=not newline and word.end() == len(line)), line)
    headers = newline + headers
    headers = _SECRET_HEADER.sub(lambda match: match[1] + b"*" * len(match[2]), headers)
    return line + _OFFERED.sub(lambda match: match[1] + _OTHER_NAME.sub(_unless_mqtt, match[2]), headers)


def _starred(word: bytes, *, cut: bool) -> bytes:
    """A word of the request line with asterisks for secrets; a ``cut`` word may be a password before its ``@``."""
    if _METHOD_OR_VERSION.fullmatch(word):
        return word
    shown = bytearray(word)
    # Latin-1 has one character per byte, and non-ASCII characters are never delimiters.
    for start, end in _spans_in_path(word.decode("latin-1") + ("@" if cut else "")):
        end = min(end, len(word))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def _unless_mqtt(match: re.Match[bytes]) -> bytes:
    name = match[0].lower()
    # The rest of the name may be missing.
    return match[0] if name.startswith(b"mqtt") or b"mqtt".startswith(name) else b"*" * len(name)
