"""Runs ``mutate``: reads captures, tries their cases on brokers, and reports the results with an exit code.

`brokers` resolves the brokers that the command names and refuses those on another host that the user did not allow.
With ``--write`` no broker is involved: the mutated flows become a capture that names the mutation of each connection.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Any

import click

from mqttscope import arguments, system
from mqttscope.broker_test.drivers.crowd import Crowd
from mqttscope.broker_test.drivers.health import NoBrokerError, Process, StartError, listening_ports
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, RefusedError
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult, longest_s
from mqttscope.broker_test.export import case_frames
from mqttscope.broker_test.fit import Numbered, Numbering, capture_hash, fitted, flow_of
from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.live_options import PROGRAMS, MutateOptions, target_of
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE, endings, reporting
from mqttscope.cli.mutating_found import Found, ProgressLine
from mqttscope.cli.options import ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, FileSink, Output, make_view, warn, warn_all
from mqttscope.errors import ArgumentError
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import NotApplicableError, RecordedFlow, select
from mqttscope.mutate.catalogue import matches
from mqttscope.mutate.flow import CLIENT
from mqttscope.replay.script import Script, ScriptReader
from mqttscope.report.base import View
from mqttscope.report.broker_test import listing
from mqttscope.report.broker_test.ci_reports import sarif_log, write_junit
from mqttscope.report.broker_test.listing import WrittenCase, comment, written_line
from mqttscope.report.broker_test.outcome import Tried, case_line, document, summary_lines
from mqttscope.report.broker_test.text import html, markdown, write
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page
from mqttscope.secrets.addresses import public_name
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError
from mqttscope.transport.target import Target, loopback

CAREFUL_RATE = 5.0
"""Cases per second against a broker that is not this host, unless --rate says otherwise."""
TURNS = 1_000_000
"""With --duration the catalogue is gone through again and again."""
LAST_CASE_S = 0.3
"""How long the case that is being played may continue after a signal."""
Each = Callable[[CaseResult, Tried], None]
"""What is done with every case that was played."""


@dataclass(slots=True)
class Broker:
    """One broker of a run."""

    name: str
    """What it is called in reports: its URL unless the user has named it."""
    access: BrokerAccess
    local: bool
    """Whether it is on this host."""

    def rate(self, wanted: float | None) -> float | None:
        return wanted if wanted is not None or self.local else CAREFUL_RATE

    def places(self) -> set[tuple[str, int, str]]:
        target = self.access.target
        return {(address.ip, target.port, target.path) for address in self.access.addresses or ()}


def brokers(given: MutateOptions) -> list[Broker]:
    """The brokers that the command names; a usage error for those that may not be tested."""
    targets = [(name, target_of(url, "--broker")) for name, url in map(_named, given.brokers())]
    found = [_broker(name or str(target), target, given) for name, target in targets]
    for place, one in enumerate(found):
        for other in found[:place]:
            if one.places() & other.places():
                raise click.UsageError(f"--broker: {one.access.target} is the same broker as {other.access.target}")
            if one.name == other.name:
                raise click.UsageError(f"--broker: two brokers are called {one.name}")
    return found


def _named(text: str) -> tuple[str, str]:
    """Name and URL of ``NAME=URL``; the name is empty where there is none."""
    name, equals, url = text.partition("=")
    if equals and not name:
        raise click.UsageError(f"{text}: NAME=URL needs a name")
    return (name, url) if equals and "://" not in name else ("", text)


def _broker(name: str, target: Target, given: MutateOptions) -> Broker:
    with ErrorTranslation(CommandFailedError, LinkError):
        addresses = asyncio.run(resolve(target))
    local = loopback(address.ip for address in addresses)
    if not local and target.host not in given.allowed:
        raise click.UsageError(
            f"{target} is not this host: a broker may not survive this; if it is yours to test, "
            f"say --yes-i-may-test {target.host}"
        )
    connect = given.connect
    credentials = connect.user or target.user_name, connect.password()
    with ErrorTranslation(click.UsageError, ArgumentError):
        arguments.credentials(*credentials)
    context, timeout_s = connect.tls.context(target), connect.connect_timeout
    access = BrokerAccess(target, context, connect.server_name, addresses, *credentials, timeout_s)
    return Broker(name, access, local)


def process_of(given: MutateOptions, broker: Broker) -> Process | None:
    """The broker's process, where the command names it; a usage error for one that can be no broker."""
    pid = given.pid
    if not pid:
        return Process(command=given.spawn) if given.spawn else None
    process = Process(pid)
    if system.is_running(pid) is None:
        raise click.UsageError("--broker-pid: this system does not show what a process does; --spawn starts the broker")
    if not process.alive():
        raise click.UsageError(f"--broker-pid {pid}: there is no such process")
    ports = listening_ports(pid) if broker.local else None
    port = broker.access.target.port
    if ports is not None and not ports:
        raise click.UsageError(f"--broker-pid {pid}: this process listens on no TCP port, so it is no broker")
    if ports is None and broker.local:
        warn(f"--broker-pid {pid}: on which ports this process listens cannot be seen; it may be another one")
    if ports is not None and port not in ports:
        others = ", ".join(map(str, sorted(ports)))
        warn(
            f"--broker-pid {pid}: this process does not listen on port {port} but on {others}; "
            "whether it belongs to the broker at that port cannot be seen"
        )
    return process


def run(given: MutateOptions) -> int:
    """Run with the options of the command; returns the exit code."""
    if given.listing:
        return _list(given)
    if given.write is not None:
        return _write(given, given.write, _read_flows(given), _sink(given) if given.form in PROGRAMS else None)
    return _try(given, brokers(given))


def _page(given: MutateOptions) -> Page:
    colour = given.colour if given.output is None else False
    return Page(make_view(colour=colour, time_format="relative", payload_limit=0))


def _sink(given: MutateOptions) -> Any:
    if given.output is None:
        return Output()
    return FileSink(given.output, given.captures, private=given.show_secrets)


def _list(given: MutateOptions) -> int:
    side = given.side or CLIENT
    found = select(given.pattern, sender=side)
    if given.form in PROGRAMS:
        rows = [listing.listing_json(one, side) for one in found]
        data = line(rows) + b"\n" if given.form == "json" else b"".join(line(row) + b"\n" for row in rows)
    else:
        page = _page(given)
        listing.write_listing(page, found, side)
        data = page.encoded()
    sink = _sink(given)
    sink.write(data)
    sink.flush()
    return EXIT_CLEAN


def _try(given: MutateOptions, found: list[Broker]) -> int:
    keep = Found(given.folder) if given.folder is not None else None
    flows = _read_flows(given)
    sink = _sink(given)
    about = ", ".join(map(public_name, given.captures)), flows.capture_hash, given.seed
    alone = given.number is not None
    runs = [Tried(one.name, *about, show_secrets=given.show_secrets, alone=alone) for one in found]

    def each(result: CaseResult, tried: Tried) -> None:
        """Cases as lines are written when they are known: a run may take hours."""
        if given.form == "jsonl" and result.ruling is not None:
            sink.write(case_line(result, tried))
            sink.flush()

    tests = [BrokerTest(one.access, given.patience, process_of(given, one), one.rate(given.rate)) for one in found]
    try:
        asyncio.run(_all(given, flows, list(zip(tests, runs, strict=True)), keep, each))
    except BrokenPipeError:
        raise
    except BaseException as error:
        # What was found so far is not lost with the rest.
        if any(one.results for one in runs):
            for one in runs:
                if not one.results:
                    one.stopped = one.stopped or _why(error)
            _finish(given, runs, sink)
            if isinstance(error, KeyboardInterrupt) and all(test.stopped for test in tests):
                # One more, when the run had ended already for the one before.
                return EXIT_UNREADABLE
        raise
    _finish(given, runs, sink)
    if flows.truncated or any(one.stopped or not one.results for one in runs):
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if any(one.deviations for one in runs) else EXIT_CLEAN


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"


def _finish(given: MutateOptions, runs: list[Tried], sink: Any) -> None:
    """Report; where that cannot be done, the results go to standard error before it is said why."""
    try:
        with reporting():
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
    given: MutateOptions, flows: Flows, pairs: list[tuple[BrokerTest, Tried]], keep: Found | None, each: Each
) -> None:
    """Try the cases on all brokers, one after the other, since two URLs may lead to one."""
    tasks: list[asyncio.Task[None]] = []
    with endings(lambda _: _stop([test for test, _ in pairs], tasks), times=2):
        for pair in pairs:
            tasks.append(asyncio.create_task(_one(given, flows, *pair, keep, each)))
            await tasks[-1]


async def _one(
    given: MutateOptions, flows: Flows, test: BrokerTest, tried: Tried, keep: Found | None, each: Each
) -> None:
    started = time.monotonic()
    if test.stopped:
        tried.stopped = "interrupted"
        return
    try:
        await test.begin()
        await _cases(given, flows, test, tried, keep, each)
    except (NoBrokerError, StartError) as error:
        tried.stopped = str(error)
        if not tried.results:
            raise CommandFailedError(str(error)) from None
    except asyncio.CancelledError:
        # A second signal: what was found so far is still reported, and what may be left as well.
        test.stopped = True
    except BaseException as error:
        tried.stopped = _why(error)
        raise
    finally:
        await _to_the_end(test.end())
        warn_all(test.told)
        tried.seconds = time.monotonic() - started
    if test.stopped:
        tried.stopped = "interrupted"


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """Finish what takes a bounded time, also when signals come meanwhile."""
    task = asyncio.create_task(ending)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def _cases(
    given: MutateOptions, flows: Flows, test: BrokerTest, tried: Tried, keep: Found | None, each: Each
) -> None:
    started = time.monotonic()
    spoken = await _spoken(flows, test, tried)
    scripts, baselines = await _fitted(flows, spoken, test)
    for result in baselines:
        tried.add(result)
        each(result, tried)
    numbering = Numbering(flows.flows(scripts), given.seed, CLIENT)

    def plays(one: Numbered) -> bool:
        long = longest_s(one.case) > given.longest
        tried.too_long += long
        return not long and flows.scripts[one.index].version.text not in tried.unspoken

    def wanted() -> Iterator[tuple[Script, Numbered]]:
        for one in _numbered(given, numbering, flows, spoken, plays):
            yield scripts[one.index], one

    left = None if given.seconds is None else given.seconds - (time.monotonic() - started)
    progress = ProgressLine(1 if given.number is not None else given.limit, left)
    progress.count(_numbered(given, numbering, flows, spoken, lambda one: longest_s(one.case) <= given.longest))
    crowd = None
    if given.jobs > 1:
        crowd = Crowd(test, given.jobs, lambda more: progress.tell(len(tried.results) + more, len(tried.deviations)))
    playing = True
    try:
        async with aclosing((crowd or test).run(wanted(), left)) as results:
            async for result in results:
                playing = False
                tried.add(result)
                try:
                    if keep is not None and result.deviates:
                        await keep.take(result, test, tried, progress.reducing)
                        if test.stopped and result.number not in tried.reduced:
                            warn(f"case {result.number} was not reduced: interrupted")
                finally:
                    each(result, tried)
                progress.tell(len(tried.results), len(tried.deviations))
                playing = True
    except asyncio.CancelledError:
        left_over = [] if crowd is None else list(crowd.interrupted())
        for result in left_over:
            tried.add(result)
            each(result, tried)
        if playing and not left_over:
            tried.not_played["interrupted"] += 1
        raise
    finally:
        progress.end()


async def _spoken(flows: Flows, test: BrokerTest, tried: Tried) -> list[int]:
    """The chosen connections whose version the broker speaks; the others are reported."""
    counts = Counter(flows.scripts[place].version for place in flows.chosen)
    with ErrorTranslation(NoBrokerError, LinkError):
        tried.unspoken = tuple([version.text for version in sorted(counts) if not await test.speaks(version)])
    for version, count in sorted(counts.items()):
        if version.text in tried.unspoken:
            left = counted(count, "connection")
            warn(f"{test.access.target} does not speak MQTT {version.text}: {left} of the captures left out")
    return [place for place in flows.chosen if flows.scripts[place].version.text not in tried.unspoken]


async def _fitted(flows: Flows, spoken: list[int], test: BrokerTest) -> tuple[list[Script], list[CaseResult]]:
    """The chosen connections made to fit the broker: what is legal depends on what it announces.

    Beside them what the broker does wrong when they are played without a mutation.
    """
    made = list(flows.scripts)
    deviating: list[CaseResult] = []
    access = test.access
    for place in spoken:
        if test.stopped:
            break
        own = fitted(flows.scripts[place], None, user_name=access.user_name, password=access.password)
        with ErrorTranslation(NoBrokerError, LinkError, RefusedError):
            connack = await test.connack(own)
        if connack is None:
            warn(f"{own.name}: {access.target} does not accept its CONNECT, so only the CONNECT is tried")
        made[place] = fitted(flows.scripts[place], connack, user_name=access.user_name, password=access.password)
        played = await test.run_baseline(made[place])
        if played.deviates:
            deviating.append(played)
        if (lacks := test.baselines[own.connection.number].told()) and connack is not None:
            warn(f"{own.name}: without any mutation {access.target} {lacks}; its cases do not report that again")
    return made, deviating


def _stop(tests: list[BrokerTest], tasks: list[asyncio.Task[None]]) -> None:
    """Let the cases that are being played end, if they do soon; a second signal does not wait, a third one kills."""
    if not all(test.stopped for test in tests):
        for test in tests:
            test.stopped = True
        for task in tasks:
            asyncio.get_running_loop().call_later(LAST_CASE_S, task.cancel)
        return
    for task in tasks:
        task.cancel()


def _report(given: MutateOptions, runs: list[Tried], sink: Any) -> None:
    kind = given.form
    if kind == "junit":
        write_junit(sink, runs)
    elif kind == "sarif":
        sink.write(sarif_log(runs))
    elif kind in ("markdown", "html"):
        sink.write((markdown if kind == "markdown" else html)(runs).encode())
    elif kind == "json":
        sink.write(document(runs, matrix=len(runs) > 1))
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


@dataclass(slots=True)
class Flows:
    """What the captures hold."""

    scripts: list[Script]
    """Connections from their CONNECT on."""
    capture_hash: str
    chosen: list[int] = field(default_factory=list)
    """Indexes of those that the filter wants."""
    truncated: bool = False
    """A capture could not be read to its end."""

    def flows(self, scripts: list[Script] | None = None) -> list[RecordedFlow]:
        """The connections, or fitted copies of them, in the form that is mutated."""
        return [
            flow_of(one, self.capture_hash, one.connection.number)
            for one in (self.scripts if scripts is None else scripts)
        ]


def _read_flows(given: MutateOptions) -> Flows:
    """Read the captures; `CommandFailedError` where they hold no connection from its beginning."""
    wanted = compile_filter(given.expression)
    run = CaptureRun(given.captures, given.files, ProtocolOptions(ports=given.ports))
    reader = ScriptReader()
    matching: set[int] = set()
    for event in run.events():
        if wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event):
            matching.add(event.connection.number)
        reader.feed(event)
    run.tell_captures()
    scripts = [one for one in reader.finish() if one.begins and one.connect is not None and not one.lost_from_client]
    if not scripts:
        raise CommandFailedError("no connection can be mutated: none is captured from its CONNECT on")
    chosen = [place for place, one in enumerate(scripts) if wanted is None or one.connection.number in matching]
    if not chosen:
        raise CommandFailedError("no connection has a packet that matches the filter")
    return Flows(scripts, capture_hash(scripts), chosen, bool(run.watch.errors))


def _numbered(
    given: MutateOptions,
    numbering: Numbering,
    flows: Flows,
    played: list[int],
    plays: Callable[[Numbered], bool] = lambda one: True,
) -> Iterator[Numbered]:
    """The cases that are asked for, of the connections that are ``played``; what ``plays`` refuses is not counted."""
    if given.number is not None:
        yield from filter(plays, [_single(given, numbering, flows)])
        return
    turns = TURNS if given.seconds is not None or given.limit is not None else 1
    made = 0
    for turn in range(turns):
        before = made
        for one in numbering.cases(given.pattern, played, begin=turn):
            if made == given.limit:
                return
            if plays(one):
                made += 1
                yield one
        if made == before:
            # Another turn has nothing either.
            return


def _single(given: MutateOptions, numbering: Numbering, flows: Flows) -> Numbered:
    """The case of ``--case``; a usage error where there is none, or where other options leave it out."""
    number, pattern = given.number, given.pattern
    assert number is not None
    with ErrorTranslation(click.UsageError, NotApplicableError, before=f"--case {number}: "):
        found = numbering.of(number)
    name = found.case.mutation.name
    if not matches(name, pattern):
        raise click.UsageError(f"--case {number} is {name}, which --mutation {pattern!r} leaves out")
    if found.index not in flows.chosen:
        raise click.UsageError(f"--case {number} is of a connection that --filter leaves out")
    return found


START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z: written flows do not depend on when they are written."""
BETWEEN_NS = 1_000_000_000


def _write(given: MutateOptions, target: str, flows: Flows, sink: Any) -> int:
    """Write the file, and what is where in it to ``sink``, unless that is ``None``; returns the exit code."""
    side = given.side or CLIENT
    numbering = Numbering(flows.flows(), given.seed, side)
    cases = _numbered(given, numbering, flows, flows.chosen)
    # What is wrong with --case is reported before the file is emptied.
    first = list(islice(cases, 1))
    rows: list[WrittenCase] = []
    try:
        about = f"mqttscope mutate: flows of capture {flows.capture_hash} with mutated {side}s, seed {given.seed}"
        with open(open_alone(target), "wb") as file, PcapngWriter(file, comment=about) as writer:
            deadline = time.monotonic() + (given.seconds or float("inf"))
            in_time = takewhile(lambda _: time.monotonic() <= deadline, chain(first, cases))
            rows += _flows(in_time, writer)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotWriteError(f"cannot write {target}: {why}") from None
    click.echo(f"{counted(len(rows), 'mutated flow')} written to {utf8(target)}", err=True)
    if sink is not None:
        whole = listing.summary(
            target, ", ".join(map(public_name, given.captures)), flows.capture_hash, given.seed, len(rows)
        )
        if given.form == "json":
            sink.write(listing.document(whole, rows))
        else:
            sink.write(b"".join(map(written_line, [*map(listing.MUTATED_FLOW.view, rows), whole])))
        sink.flush()
    return EXIT_UNREADABLE if flows.truncated else EXIT_CLEAN


def _flows(cases: Iterator[Numbered], writer: PcapngWriter) -> Iterator[WrittenCase]:
    """Write the cases one after the other, each as a connection."""
    frame, start_ns = 0, START_NS

    def next_number() -> int:
        nonlocal frame
        frame += 1
        return frame

    for index, one in enumerate(cases):
        row = WrittenCase(index, frame + 1, one)
        told, last_ns = comment(row), start_ns
        for made in case_frames(one.case, index, start_ns, next_number):
            writer.write(made.frame, told)
            told, last_ns = "", made.frame.timestamp_ns
        start_ns = last_ns + BETWEEN_NS
        yield row
