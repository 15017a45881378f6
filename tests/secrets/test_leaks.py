"""The search finds a secret in every form in which something could be written."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from mqttscope.report.base import View
from mqttscope.report.hexdump import Hexdump
from mqttscope.report.style import Painter
from tests.secrets.leaks import Secrets

SECRET = b'op"en ses<ame\x00\xff'
SECRETS = Secrets([SECRET])


@pytest.mark.parametrize("width", [40, 60, 100])
def test_in_a_hexdump(width: int) -> None:
    raw = b"a" * 13 + SECRET + b"z" * 40
    shown = "\n".join(Hexdump(raw, (), Painter(View(width=width))).lines())
    assert SECRETS.leak(shown.encode()) is not None
    hidden = "\n".join(Hexdump(raw, (), Painter(View(width=width)), hidden=[(13, 13 + len(SECRET))]).lines())
    assert SECRETS.leak(hidden.encode()) is None


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.hex().encode(),
        b"f" + SECRET.hex().upper().encode(),
        SECRET.hex(" ").encode(),
        SECRET[3:9].hex(":").encode(),
        b64encode(b"x" + SECRET),
        urlsafe_b64encode(b"xy" + SECRET),
        json.dumps(SECRET.decode("latin-1")).encode(),
        json.dumps(json.dumps(SECRET.decode("latin-1"))).encode(),
        repr(SECRET).encode(),
        b"op&quot;en ses&lt;ame",
        b"op%22en ses%3Came",
        b"n ses<",
    ],
)
def test_in_other_forms(written: bytes) -> None:
    assert SECRETS.leak(b"before " + written + b" after") is not None


def test_less_than_a_run_is_none() -> None:
    assert SECRETS.leak(b"en se ssame op" + SECRET[:5] + b"***") is None
