"""One run of ``mutate``: captures in, brokers in between, a report and the exit code out."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
import orjson

from mqttscope.capture.own_file import open_alone
from mqttscope.capture.write import PcapngWriter
from mqttscope.cli.live_record import at_endings
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.mutating_brokers import Broker, CannotTry, brokers
from mqttscope.cli.mutating_flows import Flows, read_flows
from mqttscope.cli.mutating_found import Found
from mqttscope.cli.output import Output, make_view, warn
from mqttscope.cli.targets import FileSink, refuse_inputs
from mqttscope.mutate import NotApplicable, select
from mqttscope.mutate.flow import CLIENT
from mqttscope.replay.script import Script
from mqttscope.report.page import Page
from mqttscope.report.trial import listing
from mqttscope.report.trial.junit import write_junit
from mqttscope.report.trial.matrix import html, markdown
from mqttscope.report.trial.outcome import Tried, result_json, summary_json
from mqttscope.report.trial.sarif import sarif_log
from mqttscope.report.trial.text import write
from mqttscope.transport.errors import LinkError
from mqttscope.trial.companion import RefusedError
from mqttscope.trial.fit import fitted
from mqttscope.trial.numbering import Numbered, Numbering
from mqttscope.trial.process import Process, StartError
from mqttscope.trial.run import NoBrokerError, Trial, longest_s
from mqttscope.trial.written import case_frames

TURNS = 1_000_000
"""With --time the catalogue is gone through again and again."""
START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z: written flows do not depend on when they are written."""
BETWEEN_NS = 1_000_000_000


def run(given: dict[str, Any]) -> int:
    """Run with the options of the command; returns the exit code."""
    if not given["listing"] and not given["captures"]:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    _refuse_contradictions(given)
    if given["listing"]:
        return _list(given)
    if given["write"] is not None:
        refuse_inputs(given["write"], given["captures"], option="--write")
        return _write(given, read_flows(given))
    if given["output"] is not None:
        refuse_inputs(given["output"], given["captures"])
    return _try(given, brokers(given))


def _refuse_contradictions(given: dict[str, Any]) -> None:
    side = given["side"] or CLIENT
    if not select(given["pattern"], sender=side):
        raise click.UsageError(f"--mutation: no mutation of a {side} matches {given['pattern']!r}")
    if given["listing"]:
        return
    wanted = bool(given["broker"] or given["matrix"])
    if wanted == (given["write"] is not None):
        raise click.UsageError("either --broker URL (or --matrix URL), or --write FILE, or --list")
    for name in ("write", "output", "folder"):
        if given[name] == "":
            raise click.UsageError(f"--{'reduce' if name == 'folder' else name} needs the name of a file or folder")
    if wanted and given["side"] == "server":
        raise click.UsageError("--side server is for --list and --write: a broker gets what clients send")
    if given["spawn"] and given["pid"]:
        raise click.UsageError("--spawn starts the broker, --broker-pid names one that runs: one of them")
    if given["matrix"] and (given["spawn"] or given["pid"] or given["folder"]):
        raise click.UsageError("--matrix compares brokers that run: without --spawn, --broker-pid and --reduce")
    if given["format_"] in ("markdown", "html") and not wanted:
        raise click.UsageError(f"--format {given['format_']} compares brokers")


def _page(given: dict[str, Any]) -> Page:
    colour = given["colour"] if given["output"] is None else False
    return Page(make_view(colour=colour, time_format="relative", payload="auto", payload_limit=0, show_secrets=False))


def _sink(given: dict[str, Any]) -> Any:
    return Output() if given["output"] is None else FileSink(given["output"], given["captures"])


def _list(given: dict[str, Any]) -> int:
    """``--list``."""
    side = given["side"] or CLIENT
    found = select(given["pattern"], sender=side)
    if given["format_"] in ("json", "jsonl"):
        rows = [listing.listing_json(one, side) for one in found]
        data = orjson.dumps(rows) + b"\n" if given["format_"] == "json" else b"".join(map(_line, rows))
    else:
        page = _page(given)
        listing.write_listing(page, found, side)
        data = page.encoded()
    sink = _sink(given)
    sink.write(data)
    sink.flush()
    return EXIT_CLEAN


def _numbered(given: dict[str, Any], numbering: Numbering, chosen: list[int]) -> Iterator[Numbered]:
    """The cases that are asked for."""
    if given["number"] is not None:
        try:
            yield numbering.of(given["number"])
        except NotApplicable as error:
            raise click.UsageError(f"--case {given['number']}: {error}") from None
        return
    turns = TURNS if given["seconds"] is not None or given["limit"] is not None else 1
    for made, one in enumerate(numbering.cases(given["pattern"], chosen, turns)):
        if made == given["limit"]:
            return
        yield one


def _write(given: dict[str, Any], flows: Flows) -> int:
    """``--write``: the mutated flows as a capture."""
    numbering = Numbering(flows.flows(), given["seed"], given["side"] or CLIENT)
    count, number = 0, 0

    def next_number() -> int:
        nonlocal number
        number += 1
        return number

    deadline = time.monotonic() + (given["seconds"] or float("inf"))
    with open(open_alone(given["write"]), "wb") as file, PcapngWriter(file) as writer:
        start_ns = START_NS
        for one in _numbered(given, numbering, flows.chosen):
            if time.monotonic() > deadline:
                break
            last_ns = start_ns
            for made in case_frames(one.case, count, start_ns, next_number):
                writer.write(made.frame)
                last_ns = made.frame.timestamp_ns
            count += 1
            start_ns = last_ns + BETWEEN_NS
    click.echo(f"{count:,} mutated flows written to {given['write']}", err=True)
    return EXIT_UNREADABLE if flows.truncated else EXIT_CLEAN


def _try(given: dict[str, Any], found: list[Broker]) -> int:
    """Try the cases on each broker, and report."""
    flows = read_flows(given)
    sink = _sink(given)
    keep = Found(given["folder"]) if given["folder"] is not None else None
    runs = [asyncio.run(_one(given, flows, broker, keep)) for broker in found]
    _report(given, runs, sink)
    if flows.truncated or any(one.stopped or not one.results for one in runs):
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if any(one.deviations for one in runs) else EXIT_CLEAN


async def _one(given: dict[str, Any], flows: Flows, broker: Broker, keep: Found | None) -> Tried:
    """Try the cases on one broker."""
    process = None
    if given["spawn"] or given["pid"]:
        process = Process(given["pid"] or 0, given["spawn"] or "")
    trial = Trial(broker.door, given["patience"], process, broker.rate(given["rate"]))
    tried = Tried(str(broker.door.target), ", ".join(given["captures"]), flows.capture_hash, given["seed"])
    at_endings(lambda number: _stop(trial, number))
    started = time.monotonic()
    try:
        await trial.begin()
        await _cases(given, flows, trial, tried, keep, started)
    except (NoBrokerError, StartError) as error:
        if not tried.results:
            raise CannotTry(str(error)) from None
        tried.stopped = str(error)
    finally:
        await trial.end()
    tried.seconds = time.monotonic() - started
    if trial.stopped:
        tried.stopped = "interrupted"
    return tried


async def _cases(
    given: dict[str, Any], flows: Flows, trial: Trial, tried: Tried, keep: Found | None, started: float
) -> None:
    scripts = await _fitted(flows, trial)
    numbering = Numbering(flows.flows(scripts), given["seed"], CLIENT)

    def wanted() -> Iterator[tuple[Script, Numbered]]:
        for one in _numbered(given, numbering, flows.chosen):
            if given["seconds"] is not None and time.monotonic() - started > given["seconds"]:
                return
            if longest_s(one.case) > given["longest"]:
                tried.too_long += 1
            else:
                yield scripts[one.index], one

    show = sys.stderr is not None and sys.stderr.isatty()
    async for result in trial.run(wanted()):
        tried.add(result)
        if keep is not None and result.deviates:
            await keep.take(result, trial, tried)
        if show:
            sys.stderr.write(f"\r{len(tried.results):,} cases, {len(tried.deviations):,} deviations\x1b[K")
            sys.stderr.flush()
    if show:
        sys.stderr.write("\r\x1b[K")


async def _fitted(flows: Flows, trial: Trial) -> list[Script]:
    """The chosen connections made to fit the broker: what is legal depends on what it announces."""
    made = list(flows.scripts)
    door = trial.door
    for place in flows.chosen:
        own = fitted(flows.scripts[place], None, user_name=door.user_name, password=door.password)
        try:
            connack = await trial.connack(own)
        except (LinkError, RefusedError) as error:
            raise NoBrokerError(str(error)) from None
        if connack is None:
            warn(f"{own.name}: the broker does not accept its CONNECT, so that only the CONNECT is tried")
        made[place] = fitted(flows.scripts[place], connack, user_name=door.user_name, password=door.password)
    return made


def _stop(trial: Trial, number: int) -> None:
    """End behind the case that is being played; a second signal ends at once."""
    trial.stopped = True
    asyncio.get_running_loop().remove_signal_handler(number)


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row) + b"\n"


def _report(given: dict[str, Any], runs: list[Tried], sink: Any) -> None:
    kind = given["format_"]
    if kind == "junit":
        write_junit(sink, runs)
    elif kind == "sarif":
        sink.write(sarif_log(runs))
    elif kind in ("markdown", "html"):
        sink.write((markdown if kind == "markdown" else html)(runs).encode())
    elif kind in ("json", "jsonl"):
        for run_ in runs:
            cases = [result_json(one, run_.reduced.get(one.number)) for one in run_.results]
            if kind == "jsonl":
                sink.write(b"".join(map(_line, [*cases, summary_json(run_)])))
            else:
                sink.write(_line({**summary_json(run_), "results": cases}))
    else:
        for place, run_ in enumerate(runs):
            page = _page(given)
            if place:
                page.line([""])
            write(page, run_)
            sink.write(page.encoded())
    sink.flush()
