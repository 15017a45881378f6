"""Inputs at the limits of the package metrics."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mqttscope.explain import Cause
from mqttscope.metrics.facts import LiveFacts
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.metrics.server import MetricsServer
from mqttscope.mqtt import Connect
from mqttscope.secrets.findings import HidingOptions
from tests.limits.leaping import leaping
from tests.metrics.readers import request, status_of
from tests.metrics.test_facts import ended, fed, publish
from tests.metrics.test_page import document
from tests.report.findings.samples import MADE
from tests.report.make import START_NS, Talk

# facts


def talkers(count: int) -> tuple[int, int]:
    """Clients in the table, and what was forgotten."""
    facts = fed(*(Talk(number=at, identifier=f"c{at}").say(publish("a")) for at in range(count)))
    return len(facts.clients), facts.forgotten


def topics(count: int) -> tuple[int, int]:
    """Topics in the table, and what was forgotten."""
    talk = Talk()
    facts = fed(*(talk.say(publish(f"t{at}")) for at in range(count)))
    return len(facts.topics), facts.forgotten


def names_kept(name: str) -> set[str]:
    """What a client and a topic of this name are called."""
    facts = fed(Talk(identifier=name).say(publish(name)))
    return {*facts.clients, *facts.topics}


def reconnects(count: int) -> tuple[int, int]:
    """Reconnects of a client after others connected, and what was forgotten."""
    names = [*(f"c{at}" for at in range(count)), "c0"]
    facts = fed(*(Talk(number=at).say(Connect(client_identifier=name)) for at, name in enumerate(names)))
    return facts.reconnects.packets, facts.forgotten


def undecided(count: int) -> float:
    """Ends with an early cause that can still change; and a half if there are others."""
    facts = LiveFacts()
    for at in range(count):
        facts.end(ended(connection=at), is_decided=False)
    (trouble,) = facts.troubles.values()
    return trouble.undecided + 0.5 * (trouble.count > trouble.undecided)


def intervals(seconds: int) -> tuple[int, int]:
    """Number of intervals of the history after so many seconds, and their length in seconds."""
    facts = LiveFacts()
    for second in range(seconds):
        facts.pass_time(START_NS + second * 1_000_000_000)
    return len(facts.history.intervals), facts.history.interval_ns // 1_000_000_000


def rules(count: int) -> list[str]:
    """Rules with a count of their own."""
    facts = LiveFacts()
    for at in range(count):
        facts.finding(replace(MADE, rule=f"R{at}"), HidingOptions())
    return [rule for rule, _ in facts.findings]


def troubles(count: int) -> tuple[list[str], int]:
    """Clients in trouble, and what was forgotten."""
    facts = LiveFacts()
    for at in range(count):
        facts.end(ended(f"c{at}", Cause.KEEP_ALIVE, at))
    return [row.client for row in facts.troubles.values()], facts.forgotten


# monitor


def rests(lag_ns: int, after_ns: int = 0) -> bool:
    """Whether the explainer rests so long after a lag."""
    monitor = LiveMonitor("lo")
    monitor.pass_time(START_NS, lag_ns=lag_ns)
    monitor.pass_time(START_NS + after_ns)
    monitor.feed(Talk().closed())
    return bool(monitor.facts.unexplained)


# page


def rows_shown(count: int) -> list[float]:
    """Findings and topics on the page; and a half if there are others."""
    monitor, talk = LiveMonitor("lo"), Talk()
    for at in range(count):
        monitor.finding(replace(MADE, rule=f"R{at}"))
        monitor.feed(talk.say(publish(f"t{at}")))
    shown = document(monitor)
    return [len(shown[name]) + 0.5 * (len(shown[name]) < count) for name in ("findings", "topics")]


# server


@leaping
async def head(size: int) -> int:
    """Status of a request whose head has this size."""
    more = "A: "
    more += "x" * (size - len(request(more="A: \r\n"))) + "\r\n"
    return await asked(request(more=more))


@leaping
async def slow_request(seconds: float) -> int:
    """Status of a request whose second half comes so late."""
    whole = request()
    return await asked(whole[:9], whole[9:], pause_s=seconds)


@leaping
async def slow_reader(seconds: float) -> int:
    """Status of an answer, larger than what the system takes, that is read so late."""
    return await asked(request("/large"), reads_after_s=seconds)


@leaping
async def first_of(count: int) -> int:
    """Status of the answer to the first of so many clients that connect."""
    server = await listening()
    try:
        clients = [
            asyncio.create_task(status_of(server, request()[:9], request()[9:], pause_s=1)) for _ in range(count)
        ]
        return (await asyncio.gather(*clients))[0]
    finally:
        await server.stop()


async def asked(*pieces: bytes, pause_s: float = 0.0, reads_after_s: float = 0.0) -> int:
    """Status of the answer to one request."""
    server = await listening()
    try:
        return await status_of(server, *pieces, pause_s=pause_s, reads_after_s=reads_after_s)
    finally:
        await server.stop()


async def listening() -> MetricsServer:
    """A server in the loop of the scene, which also has a large document."""
    server = MetricsServer(LiveMonitor("lo"), "127.0.0.1", print)
    usual = server._document

    def document_of(path: str, accept: str) -> tuple[bytes, str]:
        return (bytes(20_000_000), "text/plain") if path == "/large" else usual(path, accept)

    server._document = document_of  # type: ignore[method-assign]
    await server.listen("127.0.0.1", 0)
    return server
