"""Reports of captures, for the tests of their formats."""

from __future__ import annotations

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.explain import Explainer
from mqttscope.explain.messages import MessageWatch
from mqttscope.report.base import View
from mqttscope.report.explanations.base import make_reporter
from tests.explain.running import capture, explain


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


def report(form: str, name: str, view: View | None = None, *, every: bool = False, asked: str = "") -> str:
    """The ends of a capture in a format; those that nobody asks about only with ``every``."""
    pages = Pages()
    made = make_reporter(form, pages, view or View(width=0), every=every)
    explainer = Explainer()
    for one in explain(capture(name), explainer):
        if every or not one.is_quiet:
            made.feed(one)
    made.close(explainer.totals, asked=asked)
    return pages.text


def traces(form: str, name: str, topic: str, view: View | None = None) -> str:
    """The fate of the messages of a capture in a format."""
    pages = Pages()
    made = make_reporter(form, pages, view or View(width=0))
    watch = MessageWatch(topic)
    for event in dissect(open_capture([str(capture(name))])):
        watch.feed(event)
    made.trace(watch.trace())
    made.close(None)
    return pages.text
