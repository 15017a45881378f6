"""Runs ``mutate``: reads captures, plays cases against brokers, and reports the results with an exit code.

`brokers` resolves the named brokers and refuses brokers on other hosts, unless the user allowed them.  With
``--write`` no broker is involved: the mutated flows become a capture that names the mutation of each connection.
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
from mqttscope.broker_test.fit import CaseNumbering, NumberedCase, capture_hash, fit_script, flow_of
from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.live_options import PROGRAMS, MutateOptions, target_of
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE, endings, reporting
from mqttscope.cli.mutating_found import ProgressLine, ReproducerFolder
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
from mqttscope.report.broker_test.outcome import BrokerRun, case_line, document, summary_lines
from mqttscope.report.broker_test.text import html, markdown, write
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page
from mqttscope.secrets.addresses import public_name
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError
from mqttscope.transport.target import BrokerUrl, loopback

CAREFUL_RATE = 5.0
"""Default maximum of cases per second for a broker on another host."""
TURNS = 1_000_000
"""Maximum number of passes over the catalogue with --duration or --cases."""
LAST_CASE_S = 0.3
"""Time for the current case to finish after a signal."""
Each = Callable[[CaseResult, BrokerRun], None]
"""Callback for every played case."""


@dataclass(slots=True)
class TestedBroker:
    """One broker of a run."""

    name: str
    """Name in reports: from the user, else the URL."""
    access: BrokerAccess
    local: bool
    """Whether it is on this host."""

    def rate(self, wanted: float | None) -> float | None:
        return wanted if wanted is not None or self.local else CAREFUL_RATE

    def places(self) -> set[tuple[str, int, str]]:
        target = self.access.target
        return {(address.ip, target.port, target.path) for address in self.access.addresses or ()}


def brokers(args: MutateOptions) -> list[TestedBroker]:
    """Resolve the named brokers; a usage error for brokers that may not be tested."""
    targets = [(name, target_of(url, "--broker")) for name, url in map(_named, args.brokers())]
    resolved = [_broker(name or str(target), target, args) for name, target in targets]
    for place, broker in enumerate(resolved):
        for other in resolved[:place]:
            if broker.places() & other.places():
                raise click.UsageError(f"--broker: {broker.access.target} is the same broker as {other.access.target}")
            if broker.name == other.name:
                raise click.UsageError(f"--broker: two brokers are called {broker.name}")
    return resolved


def _named(text: str) -> tuple[str, str]:
    """Name and URL of ``NAME=URL``; the name is empty for a plain URL."""
    name, equals, url = text.partition("=")
    if equals and not name:
        raise click.UsageError(f"{text}: NAME=URL needs a name")
    return (name, url) if equals and "://" not in name else ("", text)


def _broker(name: str, target: BrokerUrl, args: MutateOptions) -> TestedBroker:
    with ErrorTranslation(CommandFailedError, LinkError):
        addresses = asyncio.run(resolve(target))
    local = loopback(address.ip for address in addresses)
    if not local and target.host not in args.allowed:
        raise click.UsageError(
            f"{target} is not this host, and the test may crash the broker; if you are allowed to test it, "
            f"add --yes-i-may-test {target.host}"
        )
    connect = args.connect
    credentials = connect.user or target.user_name, connect.password()
    with ErrorTranslation(click.UsageError, ArgumentError):
        arguments.credentials(*credentials)
    context, timeout_s = connect.tls.context(target), connect.connect_timeout
    access = BrokerAccess(target, context, connect.server_name, timeout_s, addresses, *credentials)
    return TestedBroker(name, access, local)


def process_of(args: MutateOptions, broker: TestedBroker) -> Process | None:
    """Process of the broker, if known; a usage error for a process that cannot be a broker."""
    pid = args.pid
    if not pid:
        return Process(command=args.spawn) if args.spawn else None
    process = Process(pid)
    if system.is_running(pid) is None:
        raise click.UsageError("--broker-pid: this system does not show the state of processes; use --spawn")
    if not process.alive():
        raise click.UsageError(f"--broker-pid {pid}: no such process")
    ports = listening_ports(pid) if broker.local else None
    port = broker.access.target.port
    if ports is not None and not ports:
        raise click.UsageError(f"--broker-pid {pid}: this process listens on no TCP port, so it is not a broker")
    if ports is None and broker.local:
        warn(f"--broker-pid {pid}: the ports of this process are not visible; it may not be the broker")
    if ports is not None and port not in ports:
        others = ", ".join(map(str, sorted(ports)))
        warn(
            f"--broker-pid {pid}: this process does not listen on port {port} but on {others}; "
            "it may not belong to the broker at that port"
        )
    return process


def run(args: MutateOptions) -> int:
    """Run with the options of the command; returns the exit code."""
    if args.listing:
        return _list_mutations(args)
    if args.write is not None:
        return _write(args, args.write, _read_flows(args), _sink(args) if args.form in PROGRAMS else None)
    return _test_brokers(args, brokers(args))


def _page(args: MutateOptions) -> Page:
    colour = args.colour if args.output is None else False
    return Page(make_view(colour=colour, time_format="relative", payload_limit=0))


def _sink(args: MutateOptions) -> Any:
    if args.output is None:
        return Output()
    return FileSink(args.output, args.captures, private=args.show_secrets)


def _list_mutations(args: MutateOptions) -> int:
    side = args.side or CLIENT
    mutations = select(args.pattern, sender=side)
    if args.form in PROGRAMS:
        rows = [listing.listing_json(mutation, side) for mutation in mutations]
        data = line(rows) + b"\n" if args.form == "json" else b"".join(line(row) + b"\n" for row in rows)
    else:
        page = _page(args)
        listing.write_listing(page, mutations, side)
        data = page.encoded()
    sink = _sink(args)
    sink.write(data)
    sink.flush()
    return EXIT_CLEAN


def _test_brokers(args: MutateOptions, brokers: list[TestedBroker]) -> int:
    keep = ReproducerFolder(args.folder) if args.folder is not None else None
    flows = _read_flows(args)
    sink = _sink(args)
    about = ", ".join(map(public_name, args.captures)), flows.capture_hash, args.seed
    alone = args.number is not None
    runs = [BrokerRun(broker.name, *about, show_secrets=args.show_secrets, alone=alone) for broker in brokers]

    def each(result: CaseResult, tried: BrokerRun) -> None:
        """Write a case as a JSON line at once, because a run may take hours."""
        if args.form == "jsonl" and result.ruling is not None:
            sink.write(case_line(result, tried))
            sink.flush()

    tests = [
        BrokerTest(broker.access, args.patience, process_of(args, broker), broker.rate(args.rate)) for broker in brokers
    ]
    try:
        asyncio.run(_play_all(args, flows, list(zip(tests, runs, strict=True)), keep, each))
    except BrokenPipeError:
        raise
    except BaseException as error:
        # Report partial results.
        if any(run_.results for run_ in runs):
            for run_ in runs:
                if not run_.results:
                    run_.stopped = run_.stopped or _stop_reason(error)
            _finish(args, runs, sink)
            if isinstance(error, KeyboardInterrupt) and all(test.stopped for test in tests):
                # A further signal after the run had already ended.
                return EXIT_UNREADABLE
        raise
    _finish(args, runs, sink)
    if flows.truncated or any(run_.stopped or not run_.results for run_ in runs):
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if any(run_.deviations for run_ in runs) else EXIT_CLEAN


def _stop_reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"


def _finish(args: MutateOptions, runs: list[BrokerRun], sink: Any) -> None:
    """Write the report; if that fails, the results go to standard error before the error."""
    try:
        with reporting():
            _report(args, runs, sink)
    except BrokenPipeError:
        raise
    except Exception:
        for run_ in runs:
            page = Page(View(width=100))
            write(page, run_)
            click.echo(page.encoded(), err=True, nl=False)
        raise


async def _play_all(
    args: MutateOptions,
    flows: Flows,
    pairs: list[tuple[BrokerTest, BrokerRun]],
    keep: ReproducerFolder | None,
    each: Each,
) -> None:
    """Play the cases against all brokers, one after the other, because two URLs may lead to one broker."""
    tasks: list[asyncio.Task[None]] = []
    with endings(lambda _: _stop([test for test, _ in pairs], tasks), times=2):
        for pair in pairs:
            tasks.append(asyncio.create_task(_play_case(args, flows, *pair, keep, each)))
            await tasks[-1]


async def _play_case(
    args: MutateOptions, flows: Flows, test: BrokerTest, tried: BrokerRun, keep: ReproducerFolder | None, each: Each
) -> None:
    started = time.monotonic()
    if test.stopped:
        tried.stopped = "interrupted"
        return
    try:
        await test.begin()
        await _cases(args, flows, test, tried, keep, each)
    except (NoBrokerError, StartError) as error:
        tried.stopped = str(error)
        if not tried.results:
            raise CommandFailedError(str(error)) from None
    except asyncio.CancelledError:
        # A second signal: report the results that exist.
        test.stopped = True
    except BaseException as error:
        tried.stopped = _stop_reason(error)
        raise
    finally:
        await _to_the_end(test.end())
        warn_all(test.notices)
        tried.seconds = time.monotonic() - started
    if test.stopped:
        tried.stopped = "interrupted"


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """Finish work of bounded duration despite signals."""
    task = asyncio.create_task(ending)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def _cases(
    args: MutateOptions, flows: Flows, test: BrokerTest, tried: BrokerRun, keep: ReproducerFolder | None, each: Each
) -> None:
    started = time.monotonic()
    spoken = await _supported_connections(flows, test, tried)
    scripts, baselines = await _fitted(flows, spoken, test)
    for result in baselines:
        tried.add(result)
        each(result, tried)
    numbering = CaseNumbering(flows.flows(scripts), args.seed, CLIENT)

    def plays(case: NumberedCase) -> bool:
        long = longest_s(case.case) > args.longest
        tried.too_long += long
        return not long and flows.scripts[case.index].version.text not in tried.unspoken

    def wanted() -> Iterator[tuple[Script, NumberedCase]]:
        for case in _numbered_cases(args, numbering, flows, spoken, plays):
            yield scripts[case.index], case

    left = None if args.seconds is None else args.seconds - (time.monotonic() - started)
    progress = ProgressLine(1 if args.number is not None else args.limit, left)
    progress.count(_numbered_cases(args, numbering, flows, spoken, lambda case: longest_s(case.case) <= args.longest))
    crowd = None
    if args.jobs > 1:
        crowd = Crowd(test, args.jobs, lambda more: progress.update(len(tried.results) + more, len(tried.deviations)))
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
                progress.update(len(tried.results), len(tried.deviations))
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


async def _supported_connections(flows: Flows, test: BrokerTest, tried: BrokerRun) -> list[int]:
    """Chosen connections with a version that the broker supports; the others are reported."""
    counts = Counter(flows.scripts[place].version for place in flows.chosen)
    with ErrorTranslation(NoBrokerError, LinkError):
        tried.unspoken = tuple([version.text for version in sorted(counts) if not await test.supports_version(version)])
    for version, count in sorted(counts.items()):
        if version.text in tried.unspoken:
            left = counted(count, "connection")
            warn(f"{test.access.target} does not support MQTT {version.text}: {left} of the captures omitted")
    return [place for place in flows.chosen if flows.scripts[place].version.text not in tried.unspoken]


async def _fitted(flows: Flows, spoken: list[int], test: BrokerTest) -> tuple[list[Script], list[CaseResult]]:
    """Chosen connections adapted to the limits that the broker announces.

    Also returns the results of playing them without a mutation, if the broker deviates.
    """
    scripts = list(flows.scripts)
    deviating: list[CaseResult] = []
    access = test.access
    for place in spoken:
        if test.stopped:
            break
        own = fit_script(flows.scripts[place], None, user_name=access.user_name, password=access.password)
        with ErrorTranslation(NoBrokerError, LinkError, RefusedError):
            connack = await test.connack(own)
        if connack is None:
            warn(f"{own.name}: {access.target} refuses its CONNECT, so only the CONNECT is tested")
        scripts[place] = fit_script(flows.scripts[place], connack, user_name=access.user_name, password=access.password)
        played = await test.run_baseline(scripts[place])
        if played.deviates:
            deviating.append(played)
        if (lacks := test.baselines[own.connection.number].summary()) and connack is not None:
            warn(f"{own.name}: without any mutation {access.target} {lacks}; its cases do not repeat that")
    return scripts, deviating


def _stop(tests: list[BrokerTest], tasks: list[asyncio.Task[None]]) -> None:
    """Let current cases finish within `LAST_CASE_S`; a second signal does not wait, a third one kills."""
    if not all(test.stopped for test in tests):
        for test in tests:
            test.stopped = True
        for task in tasks:
            asyncio.get_running_loop().call_later(LAST_CASE_S, task.cancel)
        return
    for task in tasks:
        task.cancel()


def _report(args: MutateOptions, runs: list[BrokerRun], sink: Any) -> None:
    kind = args.form
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
            page = _page(args)
            if place:
                page.line([""])
            write(page, run_)
            sink.write(page.encoded())
    sink.flush()


@dataclass(slots=True)
class Flows:
    """Connections of the captures."""

    scripts: list[Script]
    """Connections captured from their CONNECT."""
    capture_hash: str
    chosen: list[int] = field(default_factory=list)
    """Indexes of the connections that match the filter."""
    truncated: bool = False
    """Whether a capture could not be read to its end."""

    def flows(self, scripts: list[Script] | None = None) -> list[RecordedFlow]:
        """Connections, or adapted copies of them, as flows to mutate."""
        return [
            flow_of(script, self.capture_hash, script.connection.number)
            for script in (self.scripts if scripts is None else scripts)
        ]


def _read_flows(args: MutateOptions) -> Flows:
    """Read the captures; `CommandFailedError` if they contain no connection from its start."""
    wanted = compile_filter(args.expression)
    run = CaptureRun(args.captures, args.files, ProtocolOptions(ports=args.ports))
    reader = ScriptReader()
    matching: set[int] = set()
    for event in run.events():
        if wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event):
            matching.add(event.connection.number)
        reader.feed(event)
    run.tell_captures()
    scripts = [
        script
        for script in reader.finish()
        if script.begins and script.connect is not None and not script.lost_from_client
    ]
    if not scripts:
        raise CommandFailedError("no connection can be mutated: no CONNECT was captured")
    chosen = [place for place, script in enumerate(scripts) if wanted is None or script.connection.number in matching]
    if not chosen:
        raise CommandFailedError("no connection has a packet that matches the filter")
    return Flows(scripts, capture_hash(scripts), chosen, bool(run.watch.errors))


def _numbered_cases(
    args: MutateOptions, numbering: CaseNumbering, flows: Flows, played: list[int],
    plays: Callable[[NumberedCase], bool] = lambda case: True
) -> Iterator[NumberedCase]:  # fmt: skip
    """Selected cases of the connections in ``played``; cases that ``plays`` refuses are not counted."""
    if args.number is not None:
        yield from filter(plays, [_single(args, numbering, flows)])
        return
    turns = TURNS if args.seconds is not None or args.limit is not None else 1
    played_cases = 0
    for turn in range(turns):
        before = played_cases
        for case in numbering.cases(args.pattern, played, begin=turn):
            if played_cases == args.limit:
                return
            if plays(case):
                played_cases += 1
                yield case
        if played_cases == before:
            # Another pass would find nothing either.
            return


def _single(args: MutateOptions, numbering: CaseNumbering, flows: Flows) -> NumberedCase:
    """The case of ``--case``; a usage error if it does not exist, or if other options exclude it."""
    number, pattern = args.number, args.pattern
    assert number is not None
    with ErrorTranslation(click.UsageError, NotApplicableError, before=f"--case {number}: "):
        case = numbering.of(number)
    name = case.case.mutation.name
    if not matches(name, pattern):
        raise click.UsageError(f"--case {number} is {name}, which --mutation {pattern!r} excludes")
    if case.index not in flows.chosen:
        raise click.UsageError(f"--case {number} is of a connection that --filter excludes")
    return case


START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z: a fixed start time, so that the written file is reproducible."""
BETWEEN_NS = 1_000_000_000


def _write(args: MutateOptions, target: str, flows: Flows, sink: Any) -> int:
    """Write the file, and its contents as a list to ``sink``, if any; returns the exit code."""
    side = args.side or CLIENT
    numbering = CaseNumbering(flows.flows(), args.seed, side)
    cases = _numbered_cases(args, numbering, flows, flows.chosen)
    # Report errors of --case before the file is truncated.
    first = list(islice(cases, 1))
    rows: list[WrittenCase] = []
    try:
        about = f"mqttscope mutate: flows of capture {flows.capture_hash} with mutated {side}s, seed {args.seed}"
        with open(open_alone(target), "wb") as file, PcapngWriter(file, comment=about) as writer:
            deadline = time.monotonic() + (args.seconds or float("inf"))
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
            target, ", ".join(map(public_name, args.captures)), flows.capture_hash, args.seed, len(rows)
        )
        if args.form == "json":
            sink.write(listing.document(whole, rows))
        else:
            sink.write(b"".join(map(written_line, [*map(listing.MUTATED_FLOW.view, rows), whole])))
        sink.flush()
    return EXIT_UNREADABLE if flows.truncated else EXIT_CLEAN


def _flows(cases: Iterator[NumberedCase], writer: PcapngWriter) -> Iterator[WrittenCase]:
    """Write each case as a connection."""
    frame, start_ns = 0, START_NS

    def next_number() -> int:
        nonlocal frame
        frame += 1
        return frame

    for index, case in enumerate(cases):
        row = WrittenCase(index, frame + 1, case)
        about, last_ns = comment(row), start_ns
        for case_frame in case_frames(case.case, index, start_ns, next_number):
            writer.write(case_frame.frame, about)
            about, last_ns = "", case_frame.frame.timestamp_ns
        start_ns = last_ns + BETWEEN_NS
        yield row
