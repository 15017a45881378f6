"""Reports of captures, for the tests of their formats."""

from __future__ import annotations

from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.explain import Explainer
from mqttscope.explain.fates import Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.report.base import View
from mqttscope.report.explanations.base import make_reporter
from tests.explain.running import capture, explain
from tests.explain.test_edge_nodes import BORN, DATA, answers


class Pages:
    """A sink that keeps what is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes, /) -> object:
        """Keep bytes."""
        self.parts.append(data)
        return len(data)

    @property
    def text(self) -> str:
        """All of it."""
        return b"".join(self.parts).decode()


def report(
    form: str, name: str, view: View | None = None, *, every: bool = False, asked: str = "", sink: Any = None
) -> str:
    """The ends of a capture in a format; those that nobody asks about only with ``every``.

    ``sink`` takes what is no text.
    """
    pages = Pages()
    reporter = make_reporter(form, sink or pages, view or View(width=0), every=every)
    explainer = Explainer()
    for explanation in explain(capture(name), explainer):
        if every or not explanation.is_quiet:
            reporter.feed(explanation)
    reporter.close(explainer.totals, asked=asked)
    return pages.text


def traces(form: str, name: str, topic: str, view: View | None = None, sink: Any = None) -> str:
    """The fate of the messages of a capture in a format."""
    pages = Pages()
    reporter = make_reporter(form, sink or pages, view or View(width=0))
    watch = MessageWatch(topic)
    for event in dissect(open_capture([str(capture(name))])):
        watch.feed(event)
    reporter.trace(MessageReport(watch).trace())
    reporter.close(None)
    return pages.text


def nodes(form: str, view: View | None = None, sink: Any = None) -> str:
    """The answers about an edge node that leaves out a number, sends an unknown metric, and gets a rebirth request."""
    pages = Pages()
    reporter = make_reporter(form, sink or pages, view or View(width=0))
    asked = 'publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)'
    data = DATA.format(2).replace("T=21", '"<b>"=21')
    reporter.trace(Trace([], [], tuple(answers(BORN, f"> publish {data}; < {asked}; > reset"))))
    reporter.close(None)
    return pages.text
