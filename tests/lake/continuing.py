"""A capture linted in two halves, with the state written down between: by one process, or by one of another tree.

As a program: captures and states come as lines of JSON, the findings of the second halves go out the same way.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, segments
from mqttscope.lake.memory import connection_of
from mqttscope.lake.state import dump, load
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.net.segment import Segment
from mqttscope.report.findings.json import finding_view


class Half:
    """A dissector and a linter with all rules."""

    def __init__(self) -> None:
        self.dissector = Dissector(Options(count_by_connection=True))
        self.linter = Linter([usual_rule(rule) for rule in select(("ALL",)).values()], strict=True)
        self.findings: list[Any] = []

    def feed(self, one: Segment | None) -> None:
        """The next segment; ``None`` is the end."""
        for event in self.dissector.close() if one is None else self.dissector.feed(one):
            self.findings += map(finding_view, self.linter.feed(event))

    def state(self) -> bytes:
        """What is remembered."""
        return dump([list(self.dissector.flows.flows.values()), self.linter.remembered(), self.dissector.connections])

    def adopt(self, state: bytes) -> None:
        """Continue from there."""
        flows, kept, self.dissector.connections = load(state)
        self.linter.memories.adopt(kept)
        for flow in flows:
            connection = connection_of(flow)
            if connection is not None:
                connection.alarm = self.dissector.alarm(flow)
                self.linter.adopt(connection)
            self.dissector.flows.adopt(flow)


def read(path: str) -> list[Segment]:
    """The segments of a capture."""
    return [one for one in segments(open_capture([Path(path)])) if isinstance(one, Segment)]


def first_half(path: str) -> bytes:
    """The state after half of a capture."""
    half, found = Half(), read(path)
    for one in found[: len(found) // 2]:
        half.feed(one)
    return half.state()


def second_half(path: str, state: bytes) -> list[Any]:
    """The findings of the rest, and the state before it, written down again."""
    half, found = Half(), read(path)
    half.adopt(state)
    again = half.state()
    for one in (*found[len(found) // 2 :], None):
        half.feed(one)
    return [json.loads(json.dumps(half.findings, default=str)), again == state]


def main() -> None:
    """Continue all that is given."""
    for line in sys.stdin:
        path, state = json.loads(line)
        sys.stdout.write(json.dumps(second_half(path, b64decode(state))) + "\n")


def line(path: str, state: bytes) -> str:
    """What `main` takes."""
    return json.dumps([path, b64encode(state).decode()]) + "\n"


if __name__ == "__main__":
    main()
