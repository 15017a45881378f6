"""Client Identifiers in use: by open connections, by sessions that are kept, and by those without one of their own."""

from __future__ import annotations

from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation, segments
from mqttscope.lint.live_clients import LiveClients
from mqttscope.session.history import NEVER_NS
from tests.lint.lint_help import steps_of

SECOND_NS = 1_000_000_000


def known(*lines: str) -> LiveClients:
    linter = Linter([all_rules()["CON426"]()], strict=True)
    for event in dissect_segments(segments(conversation("x", *steps_of(*lines))), more=True):
        linter.feed(event)
    ((_, memories),) = [row for row in linter.remembered().items() if "live_clients" in row[1]]
    result: Any = memories["live_clients"]
    assert isinstance(result, LiveClients)
    return result


def test_an_open_connection_has_its_identifier() -> None:
    (pair,) = known("opened").names.items()
    assert (pair[0], pair[1].until_ns) == ("c1", NEVER_NS)
    assert known("> connect; < connack code=0x87; @1 opened client=c2").names.keys() == {"c2"}


def test_a_session_has_it_for_as_long_as_it_is_kept() -> None:
    use, over, before_5 = (
        known(f"opened {options}; > fin").names["c1"]
        for options in ("session_expiry_interval=3600; > disconnect", "; > disconnect", "3.1.1 resume")
    )
    assert round((use.until_ns - over.until_ns) / SECOND_NS) == 3_600
    assert before_5.until_ns <= over.until_ns


def test_the_connection_that_came_last_has_it() -> None:
    assert known("opened; @1 opened; > fin").names["c1"].until_ns == NEVER_NS


NAMELESS = "opened 3.1.1 client=-; @1 opened 3.1.1 client=-"


def test_connections_without_one_are_known_while_they_are_open() -> None:
    assert len(known(NAMELESS).unnamed) == 2
    assert len(known(NAMELESS, "> fin").unnamed) == 1
