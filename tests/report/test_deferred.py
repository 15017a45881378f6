"""What waits for its first lines comes after them, from memory or from a file."""

from __future__ import annotations

import pytest

from mqttscope.report import deferred
from mqttscope.report.deferred import DeferredOutput
from tests.secrets.sinks import Text


@pytest.mark.parametrize("limit", [3, 1_000])
def test_the_first_lines_come_first(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MAX_KEPT_BYTES", limit)
    sink = Text()
    output = DeferredOutput(sink)
    for part in (b"one ", b"two ", b"three"):
        output.write(part)

    assert sink.whole() == b""
    output.release(b"zero ")
    assert sink.whole() == b"zero one two three"
