"""One run of ``mutate``: captures in, brokers in between, a report and the exit code out.

Which options of ``mutate`` go together: none is taken and then ignored.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import click
from click.core import ParameterSource

from mqttscope.cli.live_record import at_endings
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.mutating_brokers import Broker, UnreachableError, brokers, process_of
from mqttscope.cli.mutating_flows import Flows, numbered, read_flows
from mqttscope.cli.mutating_flows import write as write_flows
from mqttscope.cli.mutating_found import Found, ProgressLine
from mqttscope.cli.output import ENDINGS, FileSink, Output, make_view, refuse_inputs, warn
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import select
from mqttscope.mutate.flow import CLIENT
from mqttscope.redact.addresses import public_name
from mqttscope.replay.script import Script
from mqttscope.report.base import View
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page
from mqttscope.report.trial import listing
from mqttscope.report.trial.junit import write_junit
from mqttscope.report.trial.outcome import Tried, case_line, document, summary_lines
from mqttscope.report.trial.sarif import sarif_log
from mqttscope.report.trial.text import html, markdown, write
from mqttscope.transport.errors import LinkError
from mqttscope.trial.fit import Numbered, Numbering, fitted
from mqttscope.trial.probe_client import RefusedError
from mqttscope.trial.process import StartError
from mqttscope.trial.run import NoBrokerError, Result, Trial, longest_s

PROGRAMS = ("json", "jsonl")
"""Formats of the list, and of what was written."""
_OF_THE_LIST = frozenset({"listing", "pattern", "side", "format_", "output", "colour"})
_OF_BROKERS = frozenset(
    {"together", "spawn", "pid", "folder", "patience", "longest", "rate", "allowed", "show_secrets"}
    | {"ca", "cert", "key", "server_name", "insecure", "user", "password_file", "connect_timeout"}
)


def settle(given: dict[str, Any]) -> None:
    """Refuse options that exclude each other; usage errors.

    A broker that only the environment names is not meant where flows are written or listed.
    """
    if not given["listing"] and not given["captures"]:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    if given["write"] is not None and not _said("broker"):
        given["broker"] = None
    _refuse_empty(given)
    if not select(given["pattern"], sender=given["side"] or CLIENT):
        raise click.UsageError(
            f"--mutation: no mutation of a {given['side'] or CLIENT} matches '{utf8(given['pattern'])}'"
        )
    if given["listing"]:
        _settle_list(given)
        return
    if given["number"] is not None and given["limit"] is not None:
        raise click.UsageError("--case plays one case, --cases plays N: give one of them")
    wanted = bool(given["broker"] or given["matrix"])
    if wanted == (given["write"] is not None):
        raise click.UsageError("either --broker URL (or --matrix URL), or --write FILE, or --list")
    if wanted:
        _settle_brokers(given)
    else:
        _settle_write(given)
    if given["output"] is not None:
        refuse_inputs(given["output"], given["captures"], {"the file of --write": given["write"]})


def _said(name: str) -> bool:
    """Whether an option stands on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _options() -> Iterator[tuple[str, str]]:
    """What stands on the command line: the names of parameters, and how they are spelled there."""
    for one in click.get_current_context().command.params:
        if one.name is not None and _said(one.name):
            yield one.name, one.opts[0] if isinstance(one, click.Option) else "CAPTURE"


def _refuse_empty(given: dict[str, Any]) -> None:
    for name, option in (("write", "write"), ("output", "output"), ("folder", "reduce")):
        if given[name] == "":
            raise click.UsageError(f"--{option} needs the name of a file or folder")


def _settle_list(given: dict[str, Any]) -> None:
    idle = next((spelled for name, spelled in _options() if name not in _OF_THE_LIST), None)
    if idle is not None:
        raise click.UsageError(f"--list shows mutations and plays none: {idle} changes nothing there")
    if given["format_"] not in ("text", *PROGRAMS):
        raise click.UsageError(f"--list has the formats text, json and jsonl, not {given['format_']}")


def _settle_write(given: dict[str, Any]) -> None:
    if given["write"] == "-":
        raise click.UsageError("--write needs the name of a file; /dev/stdout is standard output")
    idle = next((spelled for name, spelled in _options() if name in _OF_BROKERS), None)
    if idle is not None:
        raise click.UsageError(f"{idle} is for brokers: --write has none")
    if given["format_"] not in ("text", *PROGRAMS):
        raise click.UsageError(
            f"--format {given['format_']} is for brokers; with --write, json and jsonl list what the file holds"
        )
    if given["output"] is not None and given["format_"] == "text":
        raise click.UsageError("--output with --write is for the list of flows: add --format json or jsonl")
    refuse_inputs(given["write"], given["captures"], option="--write")


def _settle_brokers(given: dict[str, Any]) -> None:
    if given["side"] == "server":
        raise click.UsageError("--side server is for --list and --write: a broker gets what clients send")
    if given["spawn"] is not None:
        _check_command(given["spawn"])
    if given["spawn"] and given["pid"]:
        raise click.UsageError("--spawn starts the broker, --broker-pid names one that runs: one of them")
    if given["matrix"] and (given["spawn"] or given["pid"] or given["folder"]):
        raise click.UsageError("--matrix compares brokers that run: without --spawn, --broker-pid and --reduce")
    if given["folder"] is not None and os.path.lexists(given["folder"]) and not os.path.isdir(given["folder"]):
        raise click.UsageError(f"--reduce: {given['folder']} is not a folder")


def _check_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--spawn: {command}: {str(error).lower()}") from None
    if not words:
        raise click.UsageError("--spawn needs the command that starts the broker")


LAST_CASE_S = 0.3
"""How long the case that is being played may go on after a signal."""
Each = Callable[[Result, Tried], None]
"""What is done with every case that was played."""


def run(given: dict[str, Any]) -> int:
    """Run with the options of the command; returns the exit code."""
    settle(given)
    if given["listing"]:
        return _list(given)
    if given["write"] is not None:
        return write_flows(given, read_flows(given), _sink(given) if given["format_"] in PROGRAMS else None)
    return _try(given, brokers(given))


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
        data = line(rows) + b"\n" if given["format_"] == "json" else b"".join(line(row) + b"\n" for row in rows)
    else:
        page = _page(given)
        listing.write_listing(page, found, side)
        data = page.encoded()
    sink = _sink(given)
    sink.write(data)
    sink.flush()
    return EXIT_CLEAN


def _try(given: dict[str, Any], found: list[Broker]) -> int:
    """Try the cases on each broker, and report."""
    keep = Found(given["folder"]) if given["folder"] is not None else None
    flows = read_flows(given)
    sink = _sink(given)
    runs = [_tried(given, flows, broker) for broker in found]

    def each(result: Result, tried: Tried) -> None:
        """Cases as lines are told when they are known: a run may take hours."""
        if given["format_"] == "jsonl" and result.ruling is not None:
            sink.write(case_line(result, tried))
            sink.flush()

    trials = [_trial(given, broker) for broker in found]
    try:
        asyncio.run(_all(given, flows, list(zip(trials, runs, strict=True)), keep, each))
    except BrokenPipeError:
        raise
    except BaseException as error:
        # What was found so far is not lost with the rest.
        if any(one.results for one in runs):
            for one in runs:
                if not one.results:
                    one.stopped = one.stopped or _why(error)
            _finish(given, runs, sink)
            if isinstance(error, KeyboardInterrupt) and all(trial.stopped for trial in trials):
                # One more, when the run had ended already for the one before.
                return EXIT_UNREADABLE
        raise
    _finish(given, runs, sink)
    if flows.truncated or any(one.stopped or not one.results for one in runs):
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if any(one.deviations for one in runs) else EXIT_CLEAN


def _tried(given: dict[str, Any], flows: Flows, broker: Broker) -> Tried:
    """The run against one broker, before it begins."""
    return Tried(
        broker.name,
        ", ".join(map(public_name, given["captures"])),
        flows.capture_hash,
        given["seed"],
        show_secrets=given["show_secrets"],
        alone=given["number"] is not None,
    )


def _why(error: BaseException) -> str:
    """Why a run ended early."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"


def _finish(given: dict[str, Any], runs: list[Tried], sink: Any) -> None:
    """Report; where that cannot be done, the results go to standard error before it is said why."""
    try:
        _report(given, runs, sink)
    except BrokenPipeError:
        raise
    except Exception:
        for one in runs:
            page = Page(View(width=100))
            write(page, one)
            click.echo(page.encoded(), err=True, nl=False)
        raise


async def _all(
    given: dict[str, Any], flows: Flows, pairs: list[tuple[Trial, Tried]], keep: Found | None, each: Each
) -> None:
    """Try the cases on all brokers: one after the other, since two URLs may lead to one, or together where asked to."""
    tasks: list[asyncio.Task[None]] = []
    at_endings(lambda _: _stop([trial for trial, _ in pairs], tasks))
    for pair in pairs:
        tasks.append(asyncio.create_task(_one(given, flows, *pair, keep, each)))
        if not given["together"]:
            await tasks[-1]
    for one in tasks:
        await one


def _trial(given: dict[str, Any], broker: Broker) -> Trial:
    return Trial(broker.door, given["patience"], process_of(given, broker), broker.rate(given["rate"]))


async def _one(given: dict[str, Any], flows: Flows, trial: Trial, tried: Tried, keep: Found | None, each: Each) -> None:
    """Try the cases on one broker."""
    started = time.monotonic()
    if trial.stopped:
        tried.stopped = "interrupted"
        return
    try:
        await trial.begin()
        await _cases(given, flows, trial, tried, keep, each)
    except (NoBrokerError, StartError) as error:
        tried.stopped = str(error)
        if not tried.results:
            raise UnreachableError(str(error)) from None
    except asyncio.CancelledError:
        # A second signal: what was found so far is still told, and what may be left as well.
        trial.stopped = True
    except BaseException as error:
        tried.stopped = _why(error)
        raise
    finally:
        await _to_the_end(trial.end())
        for told in trial.told:
            warn(told)
        tried.seconds = time.monotonic() - started
    if trial.stopped:
        tried.stopped = "interrupted"


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """Do what takes a bounded time anyhow, whatever signals come meanwhile."""
    task = asyncio.create_task(ending)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def _cases(
    given: dict[str, Any], flows: Flows, trial: Trial, tried: Tried, keep: Found | None, each: Each
) -> None:
    started = time.monotonic()
    spoken = await _spoken(flows, trial, tried)
    scripts, rehearsed = await _fitted(flows, spoken, trial)
    for result in rehearsed:
        tried.add(result)
        each(result, tried)
    numbering = Numbering(flows.flows(scripts), given["seed"], CLIENT)

    def plays(one: Numbered) -> bool:
        long = longest_s(one.case) > given["longest"]
        tried.too_long += long
        return not long and flows.scripts[one.index].version.text not in tried.unspoken

    def wanted() -> Iterator[tuple[Script, Numbered]]:
        for one in numbered(given, numbering, flows, spoken, plays):
            yield scripts[one.index], one

    left = None if given["seconds"] is None else given["seconds"] - (time.monotonic() - started)
    progress = ProgressLine(1 if given["number"] is not None else given["limit"], left)
    progress.count(numbered(given, numbering, flows, spoken, lambda one: longest_s(one.case) <= given["longest"]))
    playing = True
    try:
        async for result in trial.run(wanted(), left):
            playing = False
            tried.add(result)
            try:
                if keep is not None and result.deviates:
                    await keep.take(result, trial, tried, progress.reducing)
                    if trial.stopped and result.number not in tried.reduced:
                        warn(f"case {result.number} was not reduced: interrupted")
            finally:
                each(result, tried)
            progress.tell(len(tried.results), len(tried.deviations))
            playing = True
    except asyncio.CancelledError:
        tried.not_played["interrupted"] += playing
        raise
    finally:
        progress.end()


async def _spoken(flows: Flows, trial: Trial, tried: Tried) -> list[int]:
    """The chosen connections whose version the broker speaks; the others are told of."""
    counts = Counter(flows.scripts[place].version for place in flows.chosen)
    try:
        tried.unspoken = tuple([version.text for version in sorted(counts) if not await trial.speaks(version)])
    except LinkError as error:
        raise NoBrokerError(str(error)) from None
    for version, count in sorted(counts.items()):
        if version.text in tried.unspoken:
            left = counted(count, "connection")
            warn(f"{trial.door.target} does not speak MQTT {version.text}: {left} of the captures left out")
    return [place for place in flows.chosen if flows.scripts[place].version.text not in tried.unspoken]


async def _fitted(flows: Flows, spoken: list[int], trial: Trial) -> tuple[list[Script], list[Result]]:
    """The chosen connections made to fit the broker: what is legal depends on what it announces.

    Beside them what the broker does wrong when they are played without a mutation.
    """
    made = list(flows.scripts)
    deviating: list[Result] = []
    door = trial.door
    for place in spoken:
        if trial.stopped:
            break
        own = fitted(flows.scripts[place], None, user_name=door.user_name, password=door.password)
        try:
            connack = await trial.connack(own)
        except (LinkError, RefusedError) as error:
            raise NoBrokerError(str(error)) from None
        if connack is None:
            warn(f"{own.name}: {door.target} does not accept its CONNECT, so that only the CONNECT is tried")
        made[place] = fitted(flows.scripts[place], connack, user_name=door.user_name, password=door.password)
        played = await trial.rehearse(made[place])
        if played.deviates:
            deviating.append(played)
        if (lacks := trial.rehearsed[own.connection.number].told()) and connack is not None:
            warn(f"{own.name}: without any mutation {door.target} {lacks}; its cases do not report that again")
    return made, deviating


def _stop(trials: list[Trial], tasks: list[asyncio.Task[None]]) -> None:
    """Let the cases that are being played end, if they do soon; a second signal does not wait, a third one kills."""
    if not all(trial.stopped for trial in trials):
        for trial in trials:
            trial.stopped = True
        for task in tasks:
            asyncio.get_running_loop().call_later(LAST_CASE_S, task.cancel)
        return
    for task in tasks:
        task.cancel()
    for ending in ENDINGS:
        asyncio.get_running_loop().remove_signal_handler(ending)


def _report(given: dict[str, Any], runs: list[Tried], sink: Any) -> None:
    kind = given["format_"]
    if kind == "junit":
        write_junit(sink, runs)
    elif kind == "sarif":
        sink.write(sarif_log(runs))
    elif kind in ("markdown", "html"):
        sink.write((markdown if kind == "markdown" else html)(runs).encode())
    elif kind == "json":
        sink.write(document(runs, matrix=bool(given["matrix"])))
    elif kind == "jsonl":
        sink.write(summary_lines(runs))
    else:
        for place, run_ in enumerate(runs):
            page = _page(given)
            if place:
                page.line([""])
            write(page, run_)
            sink.write(page.encoded())
    sink.flush()
