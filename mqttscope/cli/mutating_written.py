"""``mutate --write``: mutated flows as a capture that says of each connection which mutation it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import click

from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.mutating_flows import Flows, numbered
from mqttscope.cli.output import CannotWrite
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate.flow import CLIENT
from mqttscope.redact.addresses import public_name
from mqttscope.report.trial.written import Written, comment, document, summary, written_line
from mqttscope.trial.fit import Numbered, Numbering
from mqttscope.trial.written import case_frames

START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z: written flows do not depend on when they are written."""
BETWEEN_NS = 1_000_000_000


def write(given: dict[str, Any], flows: Flows, sink: Any) -> int:
    """Write the file, and what is where in it to ``sink``, unless that is ``None``; returns the exit code."""
    side = given["side"] or CLIENT
    numbering = Numbering(flows.flows(), given["seed"], side)
    cases = numbered(given, numbering, flows, flows.chosen)
    # What is wrong with --case is told before the file is emptied.
    first = list(islice(cases, 1))
    rows: list[Written] = []
    try:
        about = f"mqttscope mutate: flows of capture {flows.capture_hash} with mutated {side}s, seed {given['seed']}"
        with open(open_alone(given["write"]), "wb") as file, PcapngWriter(file, comment=about) as writer:
            rows += _flows(_in_time(given, chain(first, cases)), writer)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotWrite(f"cannot write {given['write']}: {why}") from None
    click.echo(f"{counted(len(rows), 'mutated flow')} written to {utf8(given['write'])}", err=True)
    if sink is not None:
        whole = summary(
            given["write"], ", ".join(map(public_name, given["captures"])), flows.capture_hash, given["seed"], len(rows)
        )
        if given["format_"] == "json":
            sink.write(document(whole, rows))
        else:
            sink.write(b"".join(map(written_line, [*(row.as_json() for row in rows), whole])))
        sink.flush()
    return EXIT_UNREADABLE if flows.truncated else EXIT_CLEAN


def _in_time(given: dict[str, Any], cases: Iterator[Numbered]) -> Iterator[Numbered]:
    """Cases until the time of ``--duration`` is over."""
    deadline = time.monotonic() + (given["seconds"] or float("inf"))
    for one in cases:
        if time.monotonic() > deadline:
            return
        yield one


def _flows(cases: Iterator[Numbered], writer: PcapngWriter) -> Iterator[Written]:
    """Write the cases one behind the other, each as a connection."""
    frame, start_ns = 0, START_NS

    def next_number() -> int:
        nonlocal frame
        frame += 1
        return frame

    for index, one in enumerate(cases):
        row = Written(index, frame + 1, one)
        told, last_ns = comment(row), start_ns
        for made in case_frames(one.case, index, start_ns, next_number):
            writer.write(made.frame, told)
            told, last_ns = "", made.frame.timestamp_ns
        start_ns = last_ns + BETWEEN_NS
        yield row
