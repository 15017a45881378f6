"""Secrets in addresses, in HTTP requests, and in what else transports say.

In an address they are passwords in front of the host, tokens in path parameters, query and fragment; in a request
there are those of its path, and of headers.

A server may decode what is percent-encoded before it looks for the ``?``, some do so twice, and proxies in front of it
once more.  So every address is read as it stands and as it reads after each decoding; what is secret in one of these
readings is hidden in the address as it stands, whose encoding stays.
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
"""Times a text is decoded; what is encoded more often is hidden."""
BROKER_SCHEMES = ("mqtt", "mqtts", "ws", "wss")
"""Schemes whose addresses name no files: of their paths, all that may be a token is hidden."""

Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]

_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_RUN = re.compile(r"[^\s'\"<>]+")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^\s'\"<>]*")
_PASSWORD = re.compile(
    r"(?:(?<![\w.~%+-])(?:[A-Za-z][A-Za-z0-9+.-]*://)?[\w.~%+-]*):(?!//)(?P<secret>[^\s'\"<>]*)@(?=[\w\[])"
)
"""A name and a password in front of a host, which may hold anything but blanks and quotes."""
_VALUE = re.compile(r"[?&;#][\w.~%\[\]-]{1,64}=(?P<secret>[^\s&;#'\"<>]+)")
"""One part of a query, or a path parameter."""
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
"""A segment of a path that is called a credential, and the one after it."""
_TARGET = re.compile(r"[/?#;]|(?:https?|wss?)://|\Z", re.IGNORECASE)
"""How the target of a request begins (RFC 9112 section 3.2), or what of an address is held against its host."""
_PARAMETER = re.compile(r"[;=](?P<secret>[^/]*)")
"""Up to the next segment of the path, whatever stands in it."""
_FRAGMENT = re.compile(r"#(?P<secret>.+)", re.DOTALL)
_USER_OF_NAME = re.compile(r"://(?:(?P<secret>[^/@:]*:(?!\d{0,5}/).*)@(?=[\w\[])|(?P<alone>[^/@]*)@)", re.DOTALL)
_BEHIND_HOST = re.compile("[/?#;]")
_QUERY = re.compile("[?#]")
_PARAMETER_OF_NAME = re.compile(r";[\w.~%\[\]-]{1,64}=(?P<secret>[^/;?#]+)")


def without_query_values(path: str) -> str:
    """The path of a request with asterisks for what may be a secret: brokers take tokens and passwords there.

    What has the form of a query counts as one, wherever it stands: nobody knows where a broken request has its ``?``.
    """
    return _hidden(path, _spans_in_path(path))


def without_secrets(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it."""
    if "@" not in text and "=" not in text and "%" not in text and "://" not in text:
        return text
    # A colon or comma that ends an address in a sentence is none of its secret.
    spans = [
        (start, end - 1 if text[end - 1 : end] in ":," and text[end : end + 1].isspace() else end)
        for start, end in _everywhere(text, _in_text)
    ]
    return _hidden(text, spans)


def secrets_of_addresses(text: str) -> list[Span]:
    """Where the passwords and tokens of the addresses in a text stand; in order, apart from each other."""
    return _everywhere(text, _in_text)


def public_name(name: str) -> str:
    """The name of a capture as it is shown and written.

    That of a local file is its own.  A URL loses its user and password, and the values of its query and parameters;
    one of a file has no query, since a file may be called so.
    """
    scheme = _SCHEME.match(name)
    if scheme is None:
        return name
    find = _user_of_name if scheme["scheme"].lower() == "file" else _in_name
    return _hidden(name, _everywhere(name, find))


def _spans_in_path(path: str) -> list[Span]:
    """Where secrets stand in the path of a request; in order, apart from each other."""
    return _everywhere(path, _in_path)


def _everywhere(text: str, find: Find) -> list[Span]:
    """What ``find`` finds in any reading of a text, as it stands in the text."""
    found: list[Span] = []
    for reading, places in _readings(text):
        found += [(places[start], places[end]) for start, end in find(reading) if start < end]
    # What is encoded more often than `MAX_DECODED` times may hold a secret.
    found += [(places[start], places[end]) for start, end in _encoded_runs(reading)]
    joined: list[Span] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _encoded_runs(text: str) -> Iterator[Span]:
    """Runs of characters without blanks and quotes, of which some are percent-encoded."""
    if _ENCODED.search(text) is not None:
        yield from (run.span() for run in _RUN.finditer(text) if _ENCODED.search(run[0]) is not None)


def _readings(text: str) -> Iterator[tuple[str, list[int] | range]]:
    """A text, and the text after each decoding, with the place of every character, and of the end, in the first."""
    places: list[int] | range = range(len(text) + 1)
    yield text, places
    whole = text  # the same, with slashes that were encoded as a part of the secret in which they stand
    for _ in range(MAX_DECODED):
        parts: list[str] = []
        united: list[str] = []
        kept: list[int] = []
        at = 0
        for code in _ENCODED.finditer(text):
            char = _character(int(code[1], 16))
            parts += [text[at : code.start()], char]
            united += [whole[at : code.start()], "_" if char == "/" else char]
            kept += places[at : code.start() + 1]
            at = code.end()
        if not parts:
            return
        text, whole, places = "".join([*parts, text[at:]]), "".join([*united, whole[at:]]), [*kept, *places[at:]]
        yield text, places
        if whole != text:
            yield whole, places


def _character(code: int) -> str:
    """A decoded byte; one that would end an address in a text is a part of it, as it was before."""
    char = chr(code)
    return char if "!" <= char <= "~" and char not in "'\"<>" else "_"


def _hidden(text: str, spans: Iterable[Span]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], REDACTED]
        at = end
    return "".join([*parts, text[at:]]) if at else text


def _spans(pattern: re.Pattern[str], text: str, start: int = 0, end: int | None = None) -> list[Span]:
    """Where the group of each hit stands that took part in it."""
    hits = pattern.finditer(text, start, len(text) if end is None else end)
    return [hit.span(hit.lastgroup) for hit in hits if hit.lastgroup is not None]


def _in_path(path: str) -> Iterator[Span]:
    if not _TARGET.match(path):
        # The beginning is missing, so that nobody knows of what this is the end.
        yield 0, len(re.split(_QUERY, path, maxsplit=1)[0])
    yield from _spans(_USER, path)
    yield from _spans(_NAMED_SEGMENT, path)
    yield from _spans(_FRAGMENT, path)
    query = path.find("?")
    yield from _spans(_PARAMETER, path, 0, len(path) if query < 0 else query)
    if query >= 0:
        yield from _in_query(path, query + 1, len(path))


def _in_query(text: str, start: int, end: int) -> Iterator[Span]:
    """Values of names, and whatever has no name: a token alone, padding of base64 included."""
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
    # A password may hold all that begins something else.
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
    """What is known of a transport, without what may be a token: the query of a request, and names that are none."""
    shown = dict(details)
    path, host, chosen, extensions = (shown.get(name) for name in ("path", "host", "subprotocol", "extensions"))
    if isinstance(path, str):
        shown["path"] = masked(without_query_values(path))
    if isinstance(host, str) and not _HOST.fullmatch(host):
        shown["host"] = REDACTED
    if isinstance(chosen, str) and not _SUBPROTOCOL.fullmatch(chosen):
        shown["subprotocol"] = REDACTED
    if isinstance(extensions, list):
        shown["extensions"] = [one if _EXTENSION.fullmatch(one) else REDACTED for one in extensions]
    inside = shown.get("websocket")
    if isinstance(inside, Mapping):
        shown["websocket"] = public_details(inside)
    return shown


def transport_view(details: Mapping[str, Any], *, decrypted: bool, show_secrets: bool = False) -> dict[str, Any]:
    """What is known of a transport as plain JSON values, but for what every transport has: counters, PROXY header."""
    shown = {name: value for name, value in details.items() if name not in ("tcp", "proxy")}
    if shown and not show_secrets:
        shown = public_details(shown)
    if decrypted:
        shown["decrypted"] = True
    return {name: _plain(value) for name, value in shown.items()}


def _plain(value: Any) -> Any:
    """A value of the wire: its text may not be UTF-8."""
    if isinstance(value, str):
        return view.text(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


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
    """The beginning of an HTTP head, of the same length, with asterisks for what may be a token."""
    line, newline, headers = head.partition(b"\n")
    if not _STATUS_LINE.match(line):
        line = _WORD.sub(lambda found: _starred(found[0], cut=not newline and found.end() == len(line)), line)
    headers = newline + headers
    headers = _SECRET_HEADER.sub(lambda found: found[1] + b"*" * len(found[2]), headers)
    return line + _OFFERED.sub(lambda found: found[1] + _OTHER_NAME.sub(_unless_mqtt, found[2]), headers)


def _starred(word: bytes, *, cut: bool) -> bytes:
    """A word of the request line; after one that is ``cut`` there may be the ``@`` of a password."""
    if _METHOD_OR_VERSION.fullmatch(word):
        return word
    shown = bytearray(word)
    # One character for each byte: what is not ASCII is no delimiter.
    for start, end in _spans_in_path(word.decode("latin-1") + ("@" if cut else "")):
        end = min(end, len(word))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def _unless_mqtt(found: re.Match[bytes]) -> bytes:
    name = found[0].lower()
    # The rest of a name may be still to come.
    return found[0] if name.startswith(b"mqtt") or b"mqtt".startswith(name) else b"*" * len(name)
