"""Clients that get another Assigned Client Identifier with each connection."""

from __future__ import annotations

from mqttscope.explain import Explainer
from mqttscope.explain.assigned_identifiers import AssignedIdentifiers
from tests.each import each
from tests.explain.running import explained
from tests.lint.lint_help import steps_of


def session(number: int, *, connect: str = "session_expiry_interval=60", user: str = "u", asks: str = "a:1") -> str:
    """A connection that is assigned an identifier, subscribes and ends."""
    begins = f'+1 @{number} > connect client="" user_name={user} {connect}'
    accepts = f"@{number} < connack assigned_client_identifier=auto-{number}"
    subscribes = f"@{number} > subscribe 1 {asks}; @{number} < suback 1 1" if asks else f"@{number} > pingreq"
    return f"{begins}; {accepts}; {subscribes}; @{number} > fin; @{number} < fin"


OPEN = session(1).rpartition("; @1 > fin")[0]
RESUMES = "+1 @2 opened client=auto-1 user_name=u resume session_expiry_interval=60"


def sentences(*lines: str) -> list[str]:
    running = Explainer()
    explained(*steps_of(*lines), explainer=running)
    assert isinstance(running.assigned, AssignedIdentifiers)
    return [line for line in running.totals.remarks if "without a Client Identifier" in line]


def test_a_client_that_loses_its_session_each_time() -> None:
    (line,) = sentences(*map(session, range(1, 5)))

    assert line.startswith("likely: 10.0.0.4 connected 4 times without a Client Identifier")
    assert "(auto-1, auto-2, auto-3, …)" in line


@each("lines", [
    (session(1),),
    (session(1), session(2, user="v")),
    (session(1), session(2, asks="b:1")),
    (session(1, asks=""), session(2, asks="")),
    (session(1, connect=""), session(2, connect="session_expiry_interval=0")),
    (OPEN, session(2)),  # two clients at the same time
    (session(1), RESUMES, session(3)),
])  # fmt: skip
def test_what_does_not_show_such_a_client(lines: tuple[str, ...]) -> None:
    assert sentences(*lines) == []
