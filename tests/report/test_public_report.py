"""No report of events gets a secret: one that writes all that it is given is no leak."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionOpened, Event
from mqttscope.report import formats
from mqttscope.report.base import Sink, View
from mqttscope.report.formats import make_reporter
from mqttscope.report.public_report import PublicReport
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Mutant, mutant
from tests.secrets.sinks import READING, Text
from tests.secrets.splices import splice
from tests.secrets.test_fuzz import says


class Forgetful(PublicReport):
    """A report that hides nothing: it writes everything of every event."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(view, all_bytes=True)
        self.sink = sink

    def show(self, event: Event) -> None:
        """Write it all, but of a connection that carries packets the details of its HTTP request."""
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        connection = values.get("connection")
        if connection is not None and not isinstance(event, ConnectionOpened):
            values["connection"] = replace(connection, details={})
        for name in ("packet", "malformed", "unparsed"):
            result = values.get(name)
            values[f"{name} again"] = [getattr(result, text, None) for text in ("raw", "payload", "password", "packet")]
        self.sink.write(repr(values).encode("utf-8", "surrogateescape") + b"\n")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mqttscope.report.forgetful")
    module.Forgetful = Forgetful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(formats.FORMATS, "forgetful", ("forgetful", "Forgetful"))


def told(new_mutant: Mutant, **view: Any) -> bytes:
    sink = Text()
    report = make_reporter("forgetful", sink, View(**view))
    for event in dissect_segments(new_mutant.segments, READING):
        report.feed(event)
    report.close()
    return sink.whole()


@pytest.mark.long
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("kind", "count"), [(mutant, 200), (splice, 40)])
def test_a_report_cannot_leak(kind: Any, count: int) -> None:
    texts, shown = [], 0
    for seed in range(count):
        result = kind(seed)
        secrets = Secrets(result.scene.secrets)
        leak = secrets.leak(told(result))
        if leak is not None and not says(result, secrets):
            texts.append(f"{leak} of {result.name}")
        shown += secrets.leak(told(result, show_secrets=True)) is not None
    assert texts == []
    assert shown > count // 2
