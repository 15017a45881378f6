"""No matter what text is compiled as a filter, the answer is a filter or a FilterError that can be shown.

A filter answers for every event, it survives pickling, and an error lies inside of the text.  The input is the text.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

from mqttscope import filter as filters
from tests.conftest import ROOT
from tests.filter.samples import SAMPLES

MAX_LENGTH = 400
_QUOTED = re.compile(r"`([^`\n]+)`|--filter '([^'\n]+)'")


def check(data: bytes) -> None:
    """The law for one text."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        result = filters.compile(text)
    except filters.FilterError as error:
        _check_error(error, text)
        return
    if _may_take_long(text):
        return
    again = pickle.loads(pickle.dumps(result))
    for event in SAMPLES.values():
        actual_result = result.matches(event)
        assert isinstance(actual_result, bool)
        assert again.matches(event) is actual_result


def _check_error(error: filters.FilterError, text: str) -> None:
    assert error.message
    assert 0 <= error.position <= len(text)
    assert error.length >= 0
    assert error.position + error.length <= len(text) + 1
    shown = error.render()
    assert error.message in shown
    same = pickle.loads(pickle.dumps(error))
    assert same.render() == shown


def _may_take_long(text: str) -> bool:
    """Regular expressions that nest repetitions may take forever, which is the user's own doing."""
    return ("like" in text.lower() or "~" in text) and len(re.findall(r"[*+}]", text)) > 1


def seeds() -> Iterator[bytes]:
    """What the documentation quotes, and every field with some operators."""
    documented = (ROOT / "docs" / "filters.md").read_text("utf-8")
    for hit in _QUOTED.finditer(documented):
        yield (hit[1] or hit[2]).encode()
    for name in filters.names():
        for rest in ("", " == 1", " in {1, 2..5, publish}", ' contains "a"', " > 5min", ' matches "a/#"', " ~ 'x'"):
            yield f"{name}{rest}".encode()
    yield b'not (type == publish and (qos > 0 or exists topic)) && user_property["trace"] == "abc" || !malformed'
    yield b"client.address in 10.0.0.0/24 and time >= 2026-01-02T03:04:05Z and time < +5min"
    yield b"(" * 70 + b"qos" + b")" * 70


def dictionary() -> Iterator[bytes]:
    """Names of fields, operators and values."""
    yield from (name.encode() for name in filters.names())
    yield from b"and or not exists in matches contains startswith endswith like == != <= >= && || .. true false".split()
    yield from b'publish 5.0 10.0.0.0/8 2026-01-02T03:04:05Z 1KiB +5min 0x80 \\x00 "#"'.split()
