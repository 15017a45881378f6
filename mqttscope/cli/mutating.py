"""One run of ``mutate``: captures in, brokers in between, a report and the exit code out.

The brokers that may be tested are found and looked at: nobody's but the user's.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from mqttscope.broker_test.drivers.health import NoBrokerError, Process, StartError, listening_ports
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, RefusedError
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult, longest_s
from mqttscope.broker_test.fit import Numbered, Numbering, fitted
from mqttscope.cli.ending import ENDINGS, at_endings
from mqttscope.cli.live_options import PROGRAMS, MutateOptions, UnreachableError, target_of
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.mutating_flows import Flows, numbered, read_flows
from mqttscope.cli.mutating_flows import write as write_flows
from mqttscope.cli.mutating_found import Found, ProgressLine
from mqttscope.cli.output import FileSink, Output, make_view, warn
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import select
from mqttscope.mutate.flow import CLIENT
from mqttscope.redact.addresses import public_name
from mqttscope.replay.script import Script
from mqttscope.report.base import View
from mqttscope.report.broker_test import listing
from mqttscope.report.broker_test.ci_reports import sarif_log, write_junit
from mqttscope.report.broker_test.outcome import Tried, case_line, document, summary_lines
from mqttscope.report.broker_test.text import html, markdown, write
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError
from mqttscope.transport.target import Target, loopback

CAREFUL_RATE = 5.0
"""Cases per second against a broker that is not this host, unless --rate says otherwise."""


@dataclass(slots=True)
class Broker:
    """One broker of a run."""

    name: str
    """What it is called in reports: its URL unless the user has named it."""
    access: BrokerAccess
    local: bool
    """Whether it is on this host."""

    def rate(self, wanted: float | None) -> float | None:
        """Cases per second, at most."""
        return wanted if wanted is not None or self.local else CAREFUL_RATE

    def places(self) -> set[tuple[str, int, str]]:
        """Where it can be: address, port and path."""
        target = self.access.target
        return {(address.ip, target.port, target.path) for address in self.access.addresses or ()}


def brokers(given: MutateOptions) -> list[Broker]:
    """The brokers that the command names; a usage error for those that may not be tested."""
    named = [(option, *_named(text)) for option, text in given.brokers()]
    targets = [(name, target_of(url, option)) for option, name, url in named]
    found = [_broker(name or str(target), target, given) for name, target in targets]
    for place, one in enumerate(found):
        for other in found[:place]:
            _refuse_same(one, other)
    return found


def _refuse_same(one: Broker, other: Broker) -> None:
    """A usage error where two URLs lead to one broker, or two brokers have one name."""
    if one.places() & other.places():
        raise click.UsageError(f"--matrix: {one.access.target} is the same broker as {other.access.target}")
    if one.name == other.name:
        raise click.UsageError(f"--matrix: two brokers are called {one.name}")


def _named(text: str) -> tuple[str, str]:
    """Name and URL of ``NAME=URL``; the name is empty where there is none."""
    name, equals, url = text.partition("=")
    if equals and not name:
        raise click.UsageError(f"{text}: NAME=URL needs a name")
    return (name, url) if equals and "://" not in name else ("", text)


def _broker(name: str, target: Target, given: MutateOptions) -> Broker:
    try:
        addresses = asyncio.run(resolve(target))
    except LinkError as error:
        raise UnreachableError(str(error)) from None
    local = loopback(address.ip for address in addresses)
    if not local and target.host not in given.allowed:
        raise click.UsageError(
            f"{target} is not this host: a broker may not survive this; if it is yours to test, "
            f"say --yes-i-may-test {target.host}"
        )
    access = BrokerAccess(
        target,
        given.connect.tls.context(target),
        given.connect.server_name,
        addresses,
        given.connect.user or target.user_name,
        given.connect.password(),
        given.connect.connect_timeout,
    )
    return Broker(name, access, local)


def process_of(given: MutateOptions, broker: Broker) -> Process | None:
    """The broker's process, where the command names it; a usage error for one that can be no broker."""
    pid = given.pid
    if not pid:
        return Process(command=given.spawn) if given.spawn else None
    process = Process(pid)
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


LAST_CASE_S = 0.3
"""How long the case that is being played may continue after a signal."""
Each = Callable[[CaseResult, Tried], None]
"""What is done with every case that was played."""


def run(given: MutateOptions) -> int:
    """Run with the options of the command; returns the exit code."""
    if given.listing:
        return _list(given)
    if given.write is not None:
        return write_flows(given, given.write, read_flows(given), _sink(given) if given.form in PROGRAMS else None)
    return _try(given, brokers(given))


def _page(given: MutateOptions) -> Page:
    colour = given.colour if given.output is None else False
    return Page(make_view(colour=colour, time_format="relative", payload="auto", payload_limit=0, show_secrets=False))


def _sink(given: MutateOptions) -> Any:
    return Output() if given.output is None else FileSink(given.output, given.captures)


def _list(given: MutateOptions) -> int:
    """``--list``."""
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
    """Try the cases on each broker, and report."""
    keep = Found(given.folder) if given.folder is not None else None
    flows = read_flows(given)
    sink = _sink(given)
    runs = [_tried(given, flows, broker) for broker in found]

    def each(result: CaseResult, tried: Tried) -> None:
        """Cases as lines are written when they are known: a run may take hours."""
        if given.form == "jsonl" and result.ruling is not None:
            sink.write(case_line(result, tried))
            sink.flush()

    tests = [_broker_test(given, broker) for broker in found]
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


def _tried(given: MutateOptions, flows: Flows, broker: Broker) -> Tried:
    """The run against one broker, before it begins."""
    return Tried(
        broker.name,
        ", ".join(map(public_name, given.captures)),
        flows.capture_hash,
        given.seed,
        show_secrets=given.show_secrets,
        alone=given.number is not None,
    )


def _why(error: BaseException) -> str:
    """Why a run ended early."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"


def _finish(given: MutateOptions, runs: list[Tried], sink: Any) -> None:
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
    given: MutateOptions, flows: Flows, pairs: list[tuple[BrokerTest, Tried]], keep: Found | None, each: Each
) -> None:
    """Try the cases on all brokers: one after the other, since two URLs may lead to one, or together where asked to."""
    tasks: list[asyncio.Task[None]] = []
    at_endings(lambda _: _stop([test for test, _ in pairs], tasks))
    for pair in pairs:
        tasks.append(asyncio.create_task(_one(given, flows, *pair, keep, each)))
        if not given.together:
            await tasks[-1]
    for one in tasks:
        await one


def _broker_test(given: MutateOptions, broker: Broker) -> BrokerTest:
    return BrokerTest(broker.access, given.patience, process_of(given, broker), broker.rate(given.rate))


async def _one(
    given: MutateOptions, flows: Flows, test: BrokerTest, tried: Tried, keep: Found | None, each: Each
) -> None:
    """Try the cases on one broker."""
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
            raise UnreachableError(str(error)) from None
    except asyncio.CancelledError:
        # A second signal: what was found so far is still reported, and what may be left as well.
        test.stopped = True
    except BaseException as error:
        tried.stopped = _why(error)
        raise
    finally:
        await _to_the_end(test.end())
        for told in test.told:
            warn(told)
        tried.seconds = time.monotonic() - started
    if test.stopped:
        tried.stopped = "interrupted"


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """Do what takes a bounded time anyhow, whatever signals come meanwhile."""
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
        for one in numbered(given, numbering, flows, spoken, plays):
            yield scripts[one.index], one

    left = None if given.seconds is None else given.seconds - (time.monotonic() - started)
    progress = ProgressLine(1 if given.number is not None else given.limit, left)
    progress.count(numbered(given, numbering, flows, spoken, lambda one: longest_s(one.case) <= given.longest))
    playing = True
    try:
        async for result in test.run(wanted(), left):
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
        tried.not_played["interrupted"] += playing
        raise
    finally:
        progress.end()


async def _spoken(flows: Flows, test: BrokerTest, tried: Tried) -> list[int]:
    """The chosen connections whose version the broker speaks; the others are reported."""
    counts = Counter(flows.scripts[place].version for place in flows.chosen)
    try:
        tried.unspoken = tuple([version.text for version in sorted(counts) if not await test.speaks(version)])
    except LinkError as error:
        raise NoBrokerError(str(error)) from None
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
        try:
            connack = await test.connack(own)
        except (LinkError, RefusedError) as error:
            raise NoBrokerError(str(error)) from None
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
    for ending in ENDINGS:
        asyncio.get_running_loop().remove_signal_handler(ending)


def _report(given: MutateOptions, runs: list[Tried], sink: Any) -> None:
    kind = given.form
    if kind == "junit":
        write_junit(sink, runs)
    elif kind == "sarif":
        sink.write(sarif_log(runs))
    elif kind in ("markdown", "html"):
        sink.write((markdown if kind == "markdown" else html)(runs).encode())
    elif kind == "json":
        sink.write(document(runs, matrix=bool(given.matrix)))
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
