"""A server that ends its older connections together and keeps the younger ones: a part of it was replaced.

A proxy, an ingress or a broker with worker processes starts new workers at a reload, and its old workers end their
connections later.  So all connections from before the reload end together, and all later ones to this address continue.
A stop of the broker ends all connections; an operator or a rule does not choose them by age.

The age is evidence only if it is hardly by chance: of all ways to choose as many of these connections, at most every
twentieth (hypothesis: every tenth) leaves the youngest ones.  An older connection that stays open disproves the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import cast

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS, Life
from mqttscope.explain.causes.case import RETURN_NS, SECOND, Case, candidate
from mqttscope.explain.causes.mqtt import LEAST_TOGETHER
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence

LEAST_WAYS, LIKELY_WAYS = 10, 20
"""Minimum number of ways to choose as many connections, for a hypothesis and for a likely cause."""


def part_replaced(case: Case) -> Iterator[Candidate]:
    """The server ended all connections from before a moment, and served all later ones."""
    together = case.together if case.by == "server" and case.is_closed and not case.story.own else []
    count = len(together) + 1
    if count < LEAST_TOGETHER or case.connection.client_side.gapped or case.story.clock_set:
        return
    younger, newest_ns = _younger(case)
    ways = comb(count + len(younger), count)
    if ways < LEAST_WAYS:
        return
    server, (first_ns, last_ns) = case.connection.server, case.first_and_last
    back = case.book.answered_in(server, last_ns, last_ns + RETURN_NS)
    names = ", ".join(f"#{life.connection}" for life in younger[:8]) + (", …" if len(younger) > 8 else "")
    oldest = min(younger, key=lambda life: life.opened_ns)
    heard = max(younger, key=lambda life: life.heard_ns)
    went_on = f"{len(younger)} younger ones continued" if len(younger) > 1 else "a younger one continued"
    yield candidate(
        Cause.PART_REPLACED, Certainty.LIKELY if ways >= LIKELY_WAYS and back else Certainty.HYPOTHESIS,
        f"The server side ended its {count} oldest connections within {describe.span(last_ns - first_ns)}, while"
        f" {went_on}: most probably a proxy, ingress or worker process was reloaded or replaced; the broker did not"
        " restart.",
        [
            Evidence(
                f"the {count} connections had begun at least {describe.span(first_ns - newest_ns)} before their end;"
                f" no older connection to {server} stayed open"
            ),
            Evidence(
                f"the younger connections continued ({names}): the server sent on #{heard.connection} until"
                f" {describe.span(heard.heard_ns - last_ns)} after the last end", heard.frame, heard.heard_ns,
                heard.capture,
            ),
            Evidence(f"the oldest of them, #{oldest.connection}, had begun {describe.span(first_ns - oldest.opened_ns)}"
                     " before the first end"),
            Evidence.at(f"the server accepted new connections, first #{back[0].connection}", back[0]) if back else None,
            case.closing(),
        ],
        weight=86, event_ns=(first_ns, last_ns),
    )  # fmt: skip


def _younger(case: Case) -> tuple[list[Life], int]:
    """Younger connections with packets after the common end, and when the youngest of the ended ones began.

    Empty if an older connection stayed open.
    """
    server, (first_ns, last_ns) = case.connection.server, case.first_and_last
    known, second = case.book.of(server), case.watch.now_ns // SECOND
    newest_ns = max([case.connection.opened_ns, *(end.opened_ns for end in case.together)])
    answer = known.answers.get("younger")
    if answer is not None and answer[0] == (second, first_ns, newest_ns):
        return cast("list[Life]", answer[1]), newest_ns
    witnesses = case.book.witnesses(server, case.watch)
    ended = {case.connection.number, *(end.connection for end in case.together)}
    later = [
        end for end in known.ends
        if end.connection not in ended and end.timestamp_ns > last_ns + MOMENT_NS and end.opened_ns < first_ns
    ]  # fmt: skip
    younger: list[Life] = []
    is_by_age = not (witnesses.opened and witnesses.opened[0] <= newest_ns)
    if is_by_age and not any(end.opened_ns <= newest_ns for end in later):
        lives = [end.life for end in later] + case.book.lives(server, newest_ns, first_ns)
        younger = [life for life in lives if life is not None and life.heard_ns > last_ns]
    known.answers["younger"] = (second, first_ns, newest_ns), younger
    return younger, newest_ns
