"""Finds values with the name of a secret, in the usual notations of names and values.

Texts are not parsed, because payloads may be truncated, nested, or part of logs.  Every name of a secret (`names`) is
located, and the characters around it determine where its value is:

=====================  =========================================================================================
JSON, Python, YAML     ``"password": "x"``, ``password: x``, ``{"password": {"value": "x"}}``, ``[...]``, escaped or not
pairs                  ``{"name": "password", "value": "x"}``, also in XML attributes and on two lines
INI, environment       ``password = a b c`` to the end of the line
forms, connections     ``a=1&token=x&b=2``, ``HostName=h;SharedAccessKey=x``
headers                ``X-API-Key: x``
XML                    ``<password>x</password>``, ``<user password="x"/>``
CSV                    the column under a header
commands               ``--token x``, ``mosquitto_pub -u bob -P x``
prose                  ``the password is x``, if the value looks like a secret; ``password 'x'``
=====================  =========================================================================================

Reason Strings, Client Identifiers and topics are *prose*: after a colon a plain word stays (``token: expired``), and
no value extends to the end of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, pairwise
from typing import Final

from mqttscope.secrets.marks import LINE_HEAD, Marks, unescaped
from mqttscope.secrets.names import (
    BEFORE_PASS,
    GENERIC,
    MIN_DIGITS,
    is_doubtful_name,
    is_secret_name,
    looks_secret,
    stems,
)

MIN_SPOKEN: Final = 6
"""Minimum length of a value in prose."""
MAX_SPOKEN: Final = 256
"""Maximum number of characters of a value in prose that decide whether it looks like a secret."""
MAX_NESTED: Final = 1 << 16
"""Maximum length of a nested value that is searched; everything after it is hidden."""
MAX_BESIDE: Final = 1_024
"""Maximum distance of a value from its name if the braces of objects do not match."""
MAX_BLOCK_LINES: Final = 1_000
"""Maximum number of searched lines of a block or table; everything after them is hidden."""
MAX_COUNTED: Final = 7
"""Maximum number of digits of a counter under a name such as `max_tokens`."""
MAX_LINES_BESIDE: Final = 4
"""Number of lines before and after a name that are searched for its value."""

Ranges = list[tuple[int, int]]

_OF_NAMES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_REST_OF_NAME = re.compile(
    r"[A-Za-z0-9_.\-]*(?:(?:/[A-Za-z0-9_.\-]{1,32}){1,8}(?=\\{0,32}[\"'`]?\s{0,8}[:=]))?", re.ASCII
)
"""Up to a sign, the parts of a path belong to the name: ``Password/Value=``."""
_GENERIC_BEHIND = re.compile(rf" (?:{'|'.join(sorted(GENERIC))})(?![A-Za-z])", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"([A-Za-z0-9]{1,20})[ /]$", re.ASCII)
_BEHIND = re.compile(
    r"[_.\-]{0,8}(?:(?:[ *?:]{1,3}|(?:\[\w{0,16}\]){1,4})(?=\\{0,32}[\"'`]\s*[:=]))?"
    r"(?P<close>\\{0,32}(?:[\"'`](?:\s*(?=[:=]))?)?)(?:\]?(?:\[\w{0,16}\]){0,4}(?=[ \t]*=))?[ \t]*"
    r"(?P<sign>=>|:=|==|[:=])?[ \t]*(?P<lines>[\r\n]\s*)?"
)
_OPENING = re.compile(r"(\\{0,32})(\"\"\"|'''|[\"'`])")
_QUOTED = {
    '"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL),
    "`": re.compile(r"[^`]*"),
}
_LITERAL = re.compile(r"(?:true|false|null|none|nil|undefined)(?![\w.-])", re.IGNORECASE | re.ASCII)
_NO_VALUE = re.compile(r"(?:true|false|null|none|nil|undefined|~)\s*", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d.eE+-]*(?![\w])", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\s*[-+]?[\d.]+\s*", re.ASCII)
_BARE = re.compile(r"(?:[^\s&;,\"'<>{}\[\]]|,(?![\s]|[A-Za-z_][\w.-]{0,80}=)|(?<=\w)['<{](?=\w))+", re.ASCII)
_IN_FLOW = re.compile(r"[^,}\]\r\n]+")
_PROSE_VALUE = re.compile(r"[^\s&;,\"'<>{}\[\]]+", re.ASCII)
_LINE = re.compile(r"[^\r\n\x00-\x08\x0e-\x1f]+")
_NEXT_PAIR = re.compile(r"(?:[&;,]\s*|\s)[\"']?[A-Za-z_][\w .\-]{0,40}=", re.ASCII)
_IN_SETTINGS = re.compile(r";[ \t]{0,2}$")
"""Text before any name in a connection string except the first."""
_SETTING = re.compile(
    r"\{((?:[^}\r\n]|\}\})*)|\"((?:[^\"\r\n]|\"\")*)|'((?:[^'\r\n]|'')*)"
    r"|((?:(?![&,]\s{0,8}[A-Za-z_][\w.-]{0,40}=|\s[A-Za-z_][\w.-]{0,40}=)[^\\;\"<>\r\n])+)"
)
"""A value in a connection string, which may contain blanks; in quotes or braces, the closing sign is doubled."""
_BRACED = re.compile(r"\{((?:[^{}\r\n]|\}\})*)(?:\}(?=;)|\Z)")
_COMMENT = re.compile(r"\s#(?:\s.*)?$")
_BLOCK_MARK = re.compile(r"\s*(?:(?:![\w!:.,/-]*|&\w+)(?:\s+|$))*(?:[|>][-+\d]{0,2}\s*)?(?:#.*)?")
"""YAML tags, anchors and block marks, and comments, next to the name of a block."""
_SCHEME = re.compile(r"(?:bearer|basic|digest|token|apikey|sharedaccesssignature|aws4-hmac-sha256)\s+", re.IGNORECASE)
_BEGINS_LINE = re.compile(
    r"(?:^|[\r\n\x00-\x1f\x7f-\xff]|[ \t]{64})[ \t]{0,64}"
    rf"(?:(?:export|set|env|[-#;*>]|//)[ \t]{{1,8}}){{0,3}}[\"'`]?(?:(?:{'|'.join(sorted(BEFORE_PASS))}) )?$",
    re.IGNORECASE,
)
_ERLANG = re.compile(
    r"(?:(?:\\{0,8}\"(?:/utf8)?>>)?\s{0,16}(?:,|=>|=|:)\s{0,16}<<"
    r"|(?:\\{0,8}\"(?:/utf8)?>>|(?<!\\)')\s{0,16}(?:,|=>)\s{0,16}(?=\\{0,8}\"))(?=\\{0,8}\")"
)
_ERLANG_PAIR = re.compile(r"\s{0,16},\s{0,16}(?=\\{0,8}[\"'])")
_ENDS_STRING = re.compile(r"\s{0,16}\\{0,32}[\"']\s{0,16}[,}\]]")
"""End of a string in an object: a sign before it is the last character of the string."""
_BEGINS_STRING = re.compile(r"[:=,{\[]\s{0,16}\\{0,32}[\"'][^\"'\r\n]{1,80}$")
"""Text before a name that is a later word of a string in an object."""
_SPOKEN = re.compile(r"\d|[a-z][A-Z]")
_SPOKEN_VALUE = re.compile(
    r"[ \t]{1,4}(?:is|was|are|were|ist|has been):?[ \t]{1,4}(?:now |set to |changed to )?[\"'`]?([^\s\"'`,;]+)",
    re.ASCII,
)
_IN_QUOTES = re.compile(r"(?: is:)?[ \t]{1,4}([\"'`])([^\s\"'`,:}\]][^\s\"'`]*)\1")
_PHRASE_IN_QUOTES = re.compile(
    r"(?: is:)?[ \t]{1,4}(?:[\"'`]([^\s\"'`,:}\]][^\r\n\"'`]{0,63})[\"'`]"
    r"|(?:\xe2\x80[\x98\x9c]|[\u2018\u201c])([^\r\n\xe2\u2019\u201d]{1,64}))"
)
_OPTION_VALUE = r"(?:\"([^\"\r\n]+)|'([^'\r\n]+)|([^\s\"']+))"
_TOKENS_OF_NEST = re.compile(r"[{}\[\]]|(\\{0,32})([\"'])|[-+]?\d[\w.+-]*|[A-Za-z_]\w*", re.ASCII)
_SIGN = re.compile(r"\s{0,16}(?:=>|[:=])")
_OPTION = re.compile(r"[ \t]+" + _OPTION_VALUE)
_HEADER_OPTION = re.compile(r"(?:-H|--header)[ \t=]*[\"']$")
_IN_HEADER = re.compile(r"[^\"'\r\n]+")
_LIST_OF_NAMES = re.compile(
    r"(?:columns|fields|headers?|keys|names|required)\\{0,8}[\"']?\s{0,16}[:=]\s{0,16}\[\s{0,16}\\{0,8}[\"']$",
    re.IGNORECASE,
)
"""Beginning of a list that contains only names, before its first name."""
_TYPE = re.compile(r"type\\{0,32}[\"']?\s{0,16}:\s{0,16}\\{0,32}[\"']$")
_TYPES: Final = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
"""Values of `type` in a JSON Schema."""
_COMMA = re.compile(r"\s{0,16},\s{0,16}")
_KEY_OF_LINE = re.compile(r"\s*(?:- +)?(?:[\"']?[\w.\- ]{1,80}[\"']?:\s+)?[\"']?")
_VALUE_OF_PAIR = re.compile(r"(?<![\w.-])(?:value|val|data|content|default)(?:=|:[ \t])[ \t]*", re.IGNORECASE)
_VALUE_LINE = re.compile(r"[ \t-]*(?:value|val|data|content|default)[ \t]*[:=][ \t]*", re.IGNORECASE)
_COMMAND = re.compile(
    r"(?:(?<=\s)|^)(?:-P[ \t]*|-p[ \t]+(?!\d{1,5}(?!\S))|(?:-pw|--pw)[ \t=]+|(?<=sshpass )-p)"
    + _OPTION_VALUE
    + r"|(?:(?<=\s)|^)(?:-u[ \t=]*|--user[ \t=]+)(?:\"[^:\"\s]{1,64}:([^\"\r\n]+)|'[^:'\s]{1,64}:([^'\r\n]+)"
    r"|[^\s:\"']{1,64}:([^\s\"']+))"
    r"|[\"'](?:-P|--pw)[\"']\s{0,16},\s{0,16}[\"']([^\"']+)"
)
_COMMANDS = re.compile(
    r"mosquitto_|mqtt|curl|wget|sshpass|mysql|psql|plink|pscp| -u |--user|[\"']-P[\"']", re.IGNORECASE
)
_AUTHORITY = re.compile(r":(?:\\{0,32}/){2}")
_IN_ADDRESS = re.compile(r"[^\s\"'<>]*")
_PORT = re.compile(r"\d{1,5}\\{0,32}/")
_NO_TEXT = "".join(map(chr, (*range(9), *range(10, 32), *range(127, 256))))
_BLANKS = re.compile(r"[ \t]*")
_ITEM_MARKS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\xff]*([ \t]*(?:- +)*)")
_NO_HEADER = re.compile(r"[ \t]*(?:#(?![,;\t|]).*|sep=.|)$")
MAX_HEADER: Final = 80
"""Maximum length of a column name."""
_CHILD_AFTER = re.compile(
    r"</[\w:.-]{1,64}>\s{0,64}(?:<[\w:.-]{1,64}>[^<]{0,128}</[\w:.-]{1,64}>\s{0,64}){0,3}?"
    r"<(?:[\w:.-]{0,32}value|string|val|data|text|v)(?:\s[^<>]{0,256})?>(?:\s{0,16}<[\w:.-]{1,32}>)?([^<]*)",
    re.IGNORECASE,
)
_CHILD_BEFORE = re.compile(
    r"<(?:[\w:.-]{0,32}value|string|val|data|text|v)(?:\s[^<>]{0,256})?>([^<]*)</[\w:.-]{1,64}>\s{0,64}<[^<>]{0,256}>\s{0,64}$",
    re.IGNORECASE,
)
_TAG = re.compile(r"<(?:/?[\w.-]{0,40}:)?$")
_CHILD = re.compile(r"\s{0,64}<[^<>/!?][^<>]{0,256}>([^<]*)")


@lru_cache(8)
def _searching(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)), re.IGNORECASE | re.ASCII)


def named_values(text: str, *, is_prose: bool = False) -> Ranges:
    """Ranges of values with the name of a secret, unordered and possibly overlapping."""
    ranges = list(_search(text, is_prose))
    if any(sign in text for sign in ("%", "&", "\\u", "\\x", "/*", "//")) and (plain := unescaped(text)) is not None:
        # Names and signs may be escaped, so both forms of the text are searched.
        other, places = plain
        ranges += [(places(start), places(end)) for start, end in _search(other, is_prose)]
    return [place for place in ranges if place[0] < place[1]]


def _search(text: str, is_prose: bool) -> Iterator[tuple[int, int]]:
    hits = _searching(stems())
    at, doubted, has_name, marks = 0, 0, False, Marks(text)
    while (hit := hits.search(text, at)) is not None:
        start = _begin_of_name(text, hit.start(), at)
        at = end = _end_of_name(text, hit.end())
        name = text[start:end]
        if end - start <= 8 and name.lower().endswith(("key", "code", "word", "phrase")):
            before = _WORD_BEFORE.search(text, max(0, start - 22), start)
            name = name if before is None else f"{before[1]} {name}"
        behind = _GENERIC_BEHIND.match(text, end)
        if behind is not None and text[start - 1 : start] != "<":
            end = behind.end()
        sure = is_secret_name(name)
        # Skip an ambiguous name if the values after it were judged already for an earlier one.
        if sure or (end + LINE_HEAD > doubted and is_doubtful_name(name)):
            has_name, marks.is_sure = True, sure
            for first, last in _values(text, start, end, is_prose, marks):
                doubted = max(doubted, last)
                if first == last or (sure or looks_secret(text[first:last])):
                    # Searched text is not searched again; an empty range only marks text as searched.
                    at = max(at, last)
                    if not _is_plain(text, name, first, last):
                        yield first, last
            for first, last in marks.take_beside():
                if (sure or looks_secret(text[first:last])) and not _is_plain(text, name, first, last):
                    yield first, last
    if is_prose:
        return
    if has_name:
        yield from _columns(text, hits)
    if ":" in text and "@" in text:
        yield from _user_information(text)
    if "-" in text and _COMMANDS.search(text) is not None:
        for command in _COMMAND.finditer(text):
            yield command.span(command.lastindex or 0)


def _is_plain(text: str, name: str, first: int, last: int) -> bool:
    """Whether an unquoted value is a small number, a counter, or a word for no value."""
    if last - first > 16 or text[first - 1 : first] in ('"', "'", "`"):
        return False
    value = text[first:last]
    if _WHOLE_NUMBER.fullmatch(value) is None:
        return _NO_VALUE.fullmatch(value) is not None
    digits = sum(map(str.isdigit, value))
    if name.lower() == "sig" and "." in value:
        return True
    if digits < MIN_DIGITS or (digits <= MAX_COUNTED and name.lower().endswith("tokens")):
        return True
    # Results of tests: pass 1023, fail 12.
    return digits == MIN_DIGITS and name.lower() == "pass" and "fail" in text[max(0, first - 64) : last + 64].lower()


def _user_information(text: str) -> Iterator[tuple[int, int]]:
    """Passwords in URLs: from the first colon after the slashes to the last ``@``."""
    marks = [hit.span() for hit in _AUTHORITY.finditer(text)]
    begin, is_whole = -1, False
    for (_, start), (limit, _) in pairwise((*marks, (len(text), 0))):
        if not is_whole:
            begin = -1
        run = _IN_ADDRESS.match(text, start, limit)
        assert run is not None
        is_whole = run.end() == limit
        last = text.rfind("@", start, run.end())
        if begin < 0:
            colon = text.find(":", start, run.end() if last < 0 else last)
            begin = colon + 1 if colon >= 0 and _PORT.match(text, colon + 1) is None else -1
        if begin >= 0 and last >= 0:
            yield begin, last
            begin = -1


def _begin_of_name(text: str, at: int, least: int) -> int:
    return least + len(text[least:at].rstrip(_OF_NAMES))


def _end_of_name(text: str, at: int) -> int:
    rest = _REST_OF_NAME.match(text, at)
    assert rest is not None
    return at + len(rest[0].rstrip("_.-"))


def _values(text: str, start: int, end: int, is_prose: bool, marks: Marks) -> Iterator[tuple[int, int]]:
    if not is_prose and (tag := _TAG.search(text, max(0, start - 42), start)) is not None:
        if tag[0][1:2] != "/":
            yield from _element(text, start, end, marks)
        return
    erlang = _ERLANG.match(text, end)
    if erlang is None and text[start - 1 : start] == "{":
        erlang = _ERLANG_PAIR.match(text, end)
    if erlang is not None:
        yield from _value(text, erlang.end(), "=", start, is_line=False, is_prose=is_prose)
        return
    behind = _BEHIND.match(text, end)
    assert behind is not None
    sign, at = behind["sign"], behind.end()
    if not sign or (_ENDS_STRING.match(text, at) is not None and _is_in_string(text, start)):
        yield from _bare_values(text, start, end, behind.end("close") if not sign else at, is_prose, marks)
        return
    in_flow = sign == ":" and _sign_before(text, start, " \t\r\n\"'`\\") in ("{", ",", "[")
    is_line = not is_prose and not (behind["close"] and in_flow) and _begins_line(text, start)
    if behind["lines"] is not None:
        if is_line:
            yield from _block(text, start, behind.start("lines"))
            return
        if not in_flow and text[at : at + 1] not in ('"', "'", "{", "["):
            return
    yield from _value(text, at, sign, start, is_line=is_line, is_prose=is_prose, in_flow=in_flow)


def _begins_line(text: str, start: int) -> bool:
    """Whether a name is the first word of its line, after comment and list marks."""
    before = start - (text[start - 1 : start] in ('"', "'", "`"))
    if before > 0 and "!" <= text[before - 1] <= "~":
        return False
    begin = max(0, start - LINE_HEAD)
    return _BEGINS_LINE.search(text, max(begin, text.rfind("\n", begin, start)), start) is not None


def _is_in_string(text: str, start: int) -> bool:
    """Whether a name is a later word of a quoted value or list item."""
    return _BEGINS_STRING.search(text, max(0, start - LINE_HEAD), start) is not None


def _value(
    text: str, at: int, sign: str, start: int, *, is_line: bool, is_prose: bool, in_flow: bool = False
) -> Iterator[tuple[int, int]]:
    """Ranges of the value that begins at an offset, after a sign."""
    is_setting = sign == "=" and not is_prose and not is_line and _IN_SETTINGS.search(text, max(0, start - 4), start)
    if is_setting and (setting := _SETTING.match(text, at)) is not None:
        yield setting.span(setting.lastindex or 0)
        return
    opening = _OPENING.match(text, at)
    if opening is not None:
        end = _end_of_quoted(text, opening)
        if not is_prose or sign != ":" or _is_spoken(text[opening.end() : end]):
            yield opening.end(), end
        if is_line:
            yield from _rest_of_line(text, end + len(opening[0]))
        return
    if text[at : at + 1] in ("{", "["):
        if sign == "=" and (braced := _BRACED.match(text, at)) is not None:
            yield braced.span(1)
            return
        last = at
        for first, last in _nested(text, at):
            yield first, last
        if is_line:
            yield from _rest_of_line(text, last)
        return
    if text.startswith("<![CDATA[", at):
        end = text.find("]]>", at)
        yield at + 9, len(text) if end < 0 else end
        return
    scheme = _SCHEME.match(text, at)
    if scheme is not None:
        at = scheme.end()
    if not is_prose and sign == ":" and not is_line and _HEADER_OPTION.search(text, max(0, start - 16), start):
        value = _IN_HEADER.match(text, at)
    elif is_prose or (sign == ":" and not is_line and not in_flow):
        number = _NUMBER.match(text, at) if sign == ":" else None
        if number is not None:
            yield number.span()
            return
        if sign == ":" and scheme is None:
            # The limit keeps the cost linear if a long word contains many names.
            value = _PROSE_VALUE.match(text, at, at + MAX_SPOKEN)
            if value is None or not _is_spoken(value[0]):
                return
        value = _PROSE_VALUE.match(text, at)
    elif in_flow and not is_line:
        value = _IN_FLOW.match(text, at)
    elif is_line:
        value = _LINE.match(text, at)
    else:
        value = _BARE.match(text, at)
    if value is None:
        return
    line = value[0]
    if is_line:
        following = _NEXT_PAIR.search(line) if sign != ":" else None
        line = line[: following.start()] if following is not None else _COMMENT.sub("", line)
        if sign == ":":
            mark = _BLOCK_MARK.match(value[0])
            at += 0 if mark is None else mark.end()
            last = value.start() + len(line.rstrip())
            yield at, last
            # A plain scalar may continue on lines with deeper indentation, like a block.
            yield from _block(text, start, value.end(), has_items=at >= last)
            return
    yield at, at + len(line.rstrip())


def _rest_of_line(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The rest of the line directly after a quoted value: ``"a"b``."""
    if text[at : at + 1].isalnum() and (rest := _LINE.match(text, at)) is not None:
        yield rest.span()


def _sign_before(text: str, at: int, skipped: str) -> str:
    """The last character before an offset, ignoring the skipped characters."""
    while at:
        piece = text[max(0, at - LINE_HEAD) : at].rstrip(skipped)
        if piece:
            return piece[-1]
        at = max(0, at - LINE_HEAD)
    return ""


def _is_spoken(value: str) -> bool:
    """Whether a value in prose is not a plain word."""
    return len(value) >= MIN_SPOKEN and _SPOKEN.search(value) is not None


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    """End of a quoted string, with possibly escaped quotes; the end of the text if the quote is missing."""
    escapes, quote = opening[1], opening[2]
    if not escapes and len(quote) == 1:
        body = _QUOTED[quote].match(text, opening.end())
        assert body is not None
        return body.end()
    closing, at = escapes + quote, opening.end()
    while (end := text.find(closing, at)) >= 0:
        if text[end - 1] != "\\":
            return end
        at = end + len(closing)
    return len(text)


def _nested(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The values of an object or array, without its keys."""
    depth, limit = 0, min(len(text), at + MAX_NESTED)
    while at < limit and (hit := _TOKENS_OF_NEST.search(text, at, limit)) is not None:
        at = hit.end()
        sign = hit[0]
        if sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                break
        elif hit[2]:
            opening = _OPENING.match(text, hit.start())
            assert opening is not None
            end = _end_of_quoted(text, opening)
            at = min(len(text), end + len(opening[0]))
            is_type = text[opening.end() : min(end, opening.end() + 9)] in _TYPES
            if is_type and _TYPE.search(text, max(0, opening.end() - LINE_HEAD), opening.end()):
                continue
            if _SIGN.match(text, at) is None:
                yield opening.end(), end
        elif _SIGN.match(text, at) is None and _LITERAL.match(sign) is None and not _is_small(sign):
            yield hit.span()
    yield at, len(text) if depth and limit < len(text) else at


def _is_small(number: str) -> bool:
    return len(number) < MIN_DIGITS and number.lstrip("+-").isdigit()


def _element(text: str, start: int, end: int, marks: Marks) -> Iterator[tuple[int, int]]:
    """The text of an XML element and its children, and its value attributes."""
    opened = marks.first_from(">", end)
    if opened == len(text):
        return
    if marks.is_new("tag", opened):
        yield from _keyed_values(text, end, opened, marks)
    if text[opened - 1] == "/":
        return
    limit = min(len(text), opened + MAX_NESTED)
    closing = f":{text[start:end]}>" if text[start - 1] == ":" else f"</{text[start:end]}"
    closed = text.find(closing, opened, limit)
    while closed >= 0 and text[closed + len(closing) : closed + len(closing) + 1].isalnum() and closing[-1] != ">":
        closed = text.find(closing, closed + 1, limit)
    after = len(text) if closed < 0 else closed
    closed = limit if closed < 0 else closed
    at = opened + 1
    while at < closed:
        less = text.find("<", at, closed)
        stop = closed if less < 0 else less
        if text[at:stop].strip():
            yield at, stop
        if text.startswith("<![CDATA[", stop):
            last = text.find("]]>", stop)
            at = len(text) if last < 0 else last + 3
            yield stop + 9, len(text) if last < 0 else last
            continue
        greater = text.find(">", stop, closed)
        at = closed if greater < 0 else greater + 1
        yield from _keyed_values(text, stop, at, marks)
    yield max(closed, at), max(after, at)


def _keyed_values(text: str, start: int, end: int, marks: Marks) -> Iterator[tuple[int, int]]:
    """The values of all keys such as ``value`` in a part of a text; values are not searched for further keys."""
    while (key := marks.first_key(start)) is not None and (start := key.end()) <= end:
        for first, last in _value(text, start, "=", key.start(), is_line=False, is_prose=False):
            yield first, last
            start = max(start, last)


def _bare_values(text: str, start: int, end: int, at: int, is_prose: bool, marks: Marks) -> Iterator[tuple[int, int]]:
    """Values without a sign after the name: command options, prose, and values beside the name."""
    option = text[start : start + 2] == "--"
    if option and not is_prose and text[at : at + 1] in (" ", "\t"):
        value = _OPTION.match(text, at)
        if value is not None and value[value.lastindex or 0][:1] != "-":
            yield value.span(value.lastindex or 0)
        return
    spoken = _SPOKEN_VALUE.match(text, at)
    if spoken is not None and _is_spoken(spoken[1].rstrip(".!?)")):
        yield spoken.start(1), spoken.start(1) + len(spoken[1].rstrip(".!?)"))
        return
    if (quoted := _IN_QUOTES.match(text, at)) is not None:
        yield quoted.span(2)
        return
    if is_prose:
        return
    if (phrase := _PHRASE_IN_QUOTES.match(text, at)) is not None:
        yield phrase.span(phrase.lastindex or 0)
        return
    quote = text[start - 1 : start]
    before = _sign_before(text, start, "\"'`\\ \t")
    if before in (":", "=", ">") or (
        (_ENDS_STRING.match(text, end) or _ENDS_STRING.match(text, at)) and _is_in_string(text, start)
    ):
        marks.beside.extend(_values_beside(text, start, at, marks))
    elif (
        (before in ("[", "(") or (option and text[at + 1 : at + 2] != "-"))
        and quote in ('"', "'")
        and (comma := _COMMA.match(text, at)) is not None
        and _LIST_OF_NAMES.search(text, max(0, start - LINE_HEAD), start) is None
    ):
        yield from _value(text, comma.end(), "=", start, is_line=False, is_prose=False)


def _values_beside(text: str, start: int, end: int, marks: Marks) -> Iterator[tuple[int, int]]:
    """Values beside a name: in its XML element, in its object, or on a neighbouring line."""
    tag, brace = marks.last_before("<", start), marks.last_before("{", start)
    if tag > brace:
        if marks.is_open(tag, start):
            yield from _in_element(text, tag, end, marks)
            return
        for child in (_CHILD_AFTER.match(text, end), _CHILD_BEFORE.search(text, max(0, start - MAX_BESIDE), start)):
            if child is not None:
                yield child.span(1)
    if brace <= marks.last_before("}", start) or brace < marks.last_before("\n", start):
        at = max(marks.last_before("\n", start) + 1, start - LINE_HEAD, marks.paired[marks.is_sure])
        limit = marks.paired[marks.is_sure] = min(marks.first_from("\n", end), end + LINE_HEAD)
        for pair in _VALUE_OF_PAIR.finditer(text, at, limit):
            yield from _value(text, pair.end(), "=", pair.start(), is_line=False, is_prose=False)
    begin = max(brace, marks.last_before("}", start))
    if brace >= 0 and marks.is_new("object", begin):
        # Other objects may be between the name and its value.  The nearest text is a fallback for truncated braces.
        for piece in ((begin, min(marks.first_from("}", end), end + MAX_BESIDE)), *marks.take_pieces(start)):
            since = at = marks.looked_until(piece[0])
            limit = piece[1]
            while (key := marks.first_key(at)) is not None and (at := key.end()) <= limit:
                if start <= at <= end or at != marks.looked_until(at):
                    at = marks.looked_until(at)
                    continue
                for first, last in _value(text, at, "=", key.start(), is_line=False, is_prose=False):
                    yield first, last
                    marks.looked_at(since, last)
                    at = max(at, last)
    line = marks.last_before("\n", start)
    if not marks.is_new("line", line):
        return
    line_end = marks.first_from("\n", end)
    # A line with the key of this name begins the next pair.
    own_key = text[line + 1 : min(start, line + 1 + MAX_BESIDE)].rstrip("\"'") or "\n"
    following = text[line_end + 1 : line_end + 1 + MAX_BESIDE]
    for number, line_text in enumerate(following.splitlines(keepends=True)[:MAX_LINES_BESIDE]):
        if not line_text.strip() or line_text.lstrip()[:2] == "- " or line_text.startswith(own_key):
            return
        after = _VALUE_LINE.match(line_text)
        # After other keys, ``data`` may have any meaning.
        if after is not None and (not number or line_text[:1] in " \t" or line_text[:3].lower() == "val"):
            at = line_end + 1 + after.end()
            yield from _value(text, at, ":", at - 1, is_line=True, is_prose=False)
            return
        line_end += len(line_text)
    for _ in range(MAX_LINES_BESIDE if line > 0 else 0):
        begin = text.rfind("\n", max(0, line - MAX_BESIDE), line) + 1
        if begin == 0 and line > MAX_BESIDE:
            return
        before = _VALUE_LINE.match(text, begin, line)
        if before is not None:
            yield from _value(text, before.end(), ":", before.end() - 1, is_line=True, is_prose=False)
        if before is not None or text[begin:line].lstrip()[:2] == "- " or begin == 0:
            return
        line = begin - 1


def _in_element(text: str, tag: int, end: int, marks: Marks) -> Iterator[tuple[int, int]]:
    """The value in an XML element with the name in its tag: an attribute, or the text of the element."""
    if not marks.is_new("element", tag):
        return
    close = marks.first_from(">", end)
    key = marks.first_key(tag)
    if key is not None and key.end() <= close:
        if marks.looked_until(key.end()) == key.end():
            for first, last in _value(text, key.end(), "=", key.start(), is_line=False, is_prose=False):
                yield first, last
                marks.looked_at(key.end(), last)
    elif close < len(text) and text[close - 1] != "/":
        child = _CHILD.match(text, close + 1)
        yield (close + 1, marks.first_from("<", close)) if child is None else child.span(1)


def _block(text: str, start: int, at: int, *, has_items: bool = True) -> Iterator[tuple[int, int]]:
    """The lines with deeper indentation than the line of the name, without keys and list marks.

    ``has_items`` means that list items may have the indentation of the name.
    """
    line_start = max(text.rfind(mark, max(0, start - MAX_BESIDE), start) for mark in "\r\n") + 1
    marks = _ITEM_MARKS.match(text, line_start, start)
    indent = 0 if marks is None else len(marks[1])
    for number in count():
        line_start = text.find("\n", at) + 1
        if not line_start:
            return
        at = text.find("\n", line_start)
        line_end = len(text) if at < 0 else at
        line = text[line_start:line_end]
        own = _indent(text, line_start)
        is_item = line.lstrip()[:2] == "- "
        if line.strip():
            if own < indent or (own == indent and not (has_items and is_item)):
                return
            if number >= MAX_BLOCK_LINES:
                yield line_start, len(text)
                return
            key = _KEY_OF_LINE.match(line)
            first = line_start + (key.end() if key is not None else 0)
            yield first, max(first, line_start + len(line.rstrip().rstrip("\"'")))
        if at < 0:
            return


def _indent(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return 0 if blanks is None else blanks.end() - at


def _columns(text: str, hits: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Secret columns of a table, by its header line."""
    newline = "\n" if "\n" in text else "\r"
    start = 0
    for _ in range(MAX_LINES_BESIDE):
        head_end = text.find(newline, start)
        head = text[start : max(start, head_end)].rstrip("\r").lstrip(_NO_TEXT)
        if head_end < 0 or _NO_HEADER.match(head) is None:
            break
        start = head_end + 1
    if not head or len(head) > 4_096 or hits.search(head) is None or any(sign in head for sign in "={}<>"):
        return
    mark = max(",;\t|", key=head.count)
    names = [name.strip(" \"'") for name in head.split(mark)]
    secret = [column for column, name in enumerate(names) if is_secret_name(name) and name.count(" ") < 3]
    doubtful = [column for column, name in enumerate(names) if is_doubtful_name(name)]
    is_header = all(len(name) <= MAX_HEADER and name[-1:] != ":" and ": " not in name for name in names)
    if len(names) < 2 or not (secret or doubtful) or not is_header:
        return
    at = head_end + 1
    for number in count():
        if number >= MAX_BLOCK_LINES:
            yield at, len(text)
            return
        end = text.find(newline, at)
        stop = len(text) if end < 0 else end
        cells = list(_cells(text, at, stop, mark))
        for column in secret:
            if column < len(cells) and not _is_plain(text, names[column], *cells[column]):
                yield cells[column]
        for column in doubtful:
            if column < len(cells) and looks_secret(text[slice(*cells[column])].strip()):
                yield cells[column]
        if end < 0:
            return
        at = end + 1


def _cells(text: str, at: int, stop: int, mark: str) -> Iterator[tuple[int, int]]:
    while at <= stop:
        opening = at
        while opening < stop and text[opening] == " ":
            opening += 1
        quote = text[opening : opening + 1]
        if opening < stop and quote in ('"', "'"):
            closed = text.find(quote + mark, opening + 1, stop)
            # Doubled quotes are part of the cell.
            while closed >= 0 and (closed - len(text[opening + 1 : closed].rstrip(quote)) - opening) % 2 == 0:
                closed = text.find(quote + mark, closed + 1, stop)
            end = stop - (text[stop - 1] == quote) if closed < 0 else closed
            yield opening + 1, max(opening + 1, end)
            at = stop + 1 if closed < 0 else closed + 2
            continue
        end = text.find(mark, at, stop)
        end = stop if end < 0 else end
        yield at, max(at, end - (text[end - 1 : end] == "\r"))
        at = end + 1
