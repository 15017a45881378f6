"""Names of connections and packets, and where events have their place among those of other flows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.lake.keys import AT_THE_END, BEFORE_ALL, Drop, SortPosition, connection_id, stage_key
from mqttscope.lint.context import scope_key
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import direction_key, reverse_key
from mqttscope.session.connection import Connection

KEY = direction_key(b"\x0a\0\0\1\x0a\0\0\2", b"\xc3\x50\x07\x5b")
ONE = Connection(
    0, "10.0.0.1:50000", "10.0.0.2:1883", "a.pcap", 7, 1_767_225_600_000_000_000, flow_key=KEY, initial_sequence=99
)


def test_the_name_is_fixed_for_ever() -> None:
    assert connection_id(ONE) == "975c99891a9727bcc9202287878d9f91"


def test_what_depends_on_files_and_runs_does_not_count() -> None:
    other = replace(ONE, number=5, capture="b.pcap", frame=1, version_known=True, client_identifier="x")

    assert connection_id(other) == connection_id(ONE)
    assert connection_id(replace(ONE, flow_key=reverse_key(KEY))) == connection_id(ONE)


def test_everything_else_does() -> None:
    tunnelled = direction_key(KEY[:8], KEY[8:], b"\0\x05")
    others = [
        replace(ONE, opened_ns=ONE.opened_ns + 1),
        replace(ONE, initial_sequence=-1),
        replace(ONE, initial_sequence=0),
        replace(ONE, flow_key=KEY[:-1] + b"\x5c"),
        replace(ONE, flow_key=tunnelled),
        replace(ONE, flow_key=b""),
        replace(ONE, opened_ns=-ONE.opened_ns),
    ]
    names = {connection_id(connection) for connection in others} | {
        connection_id(ONE),
        connection_id(ONE, "a"),
        connection_id(ONE, "b"),
    }

    assert len(names) == len(others) + 3
    assert all(len(name) == 32 for name in names)


def test_a_session_is_a_name_on_a_server() -> None:
    def key(client_identifier: str | None, **changes: Any) -> str:
        connection = replace(ONE, client_identifier=client_identifier, **changes)
        assert stage_key(scope_key(Scope.BROKER, connection), Scope.BROKER) == connection.server
        assert stage_key(scope_key(Scope.SESSION, connection), Scope.BROKER) == connection.server
        return stage_key(scope_key(Scope.SESSION, connection), Scope.SESSION)

    assert key("dev") == key("dev", flow_key=b"") == f"{ONE.server} dev"
    assert key("dev", server="other:1") != key("dev")
    assert key("other", session_identifier="dev") == key("dev")
    assert key(None) == key("") == f"{ONE.server} \\{connection_id(ONE)}"
    # No name is written like another one, nor like none.
    names = [
        connection_id(ONE),
        f"\\{connection_id(ONE)}",
        "abc",
        "\\abc",
        "\\\\abc",
        "\xff",
        "\udcff",
        "\\xff",
        "\\\\xff",
        "caf\xe9",
    ]
    assert len({key(name) for name in [*names, None]}) == len(names) + 1


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((500, 2, 7), False),
        ((500, 2, 8), True),
        ((500, 1, 9), False),
        ((500, 3, 1), True),
        ((100, 2, 5 - BEFORE_ALL), False),
        ((101, 2, 5 - BEFORE_ALL), True),
        ((AT_THE_END, 5, 1), True),
    ],
)
def test_what_comes_behind_drops(place: tuple[int, int, int], expected: bool) -> None:
    assert Drop(2, 7, 100).is_before(place) is expected


def test_drops_before_all_segments_are_before_all_time_outs() -> None:
    assert Drop(0, 3).is_before((-5, 0, 1 - BEFORE_ALL))


def test_time_outs_have_their_place_in_the_capture_that_is_read_when_their_time_has_come() -> None:
    position = SortPosition(ends=(100, 50, 300))
    position.segment(90, 0, 7)
    assert position.place() == (90, 0, 7)

    position.time_out(95, 7)
    assert position.place() == (95, 0, 7 - BEFORE_ALL)
    position.time_out(200, 3)
    assert position.place() == (200, 2, 3 - BEFORE_ALL)
    position.time_out(AT_THE_END + 5, 3)
    assert position.place() == (AT_THE_END, 3, 3 - BEFORE_ALL)
