"""Connections to mutate, and trials of them against a broker with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from mqttscope.broker_test import oracle
from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.health import Process
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.fit import CaseNumbering, NumberedCase, fit_script, flow_of
from mqttscope.broker_test.verdict import Ruling
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import Chance, MutationCase, apply, mutation
from mqttscope.replay.script import Script
from mqttscope.transport.target import BrokerUrl, parse_broker
from tests.broker_test.broken import METHOD, Fault, broken, broken_command
from tests.proxy.rig import free_port
from tests.replay.talk import whole

# Rules are imported when they are first needed, which pytest's rewriting of modules does not stand deep inside a loop.
all_rules()
V3_1, V3_1_1, V5 = ProtocolVersion
PATIENCE_S = 0.15
HASH = "a" * 64
T = TypeVar("T")


def script(version: ProtocolVersion = V5, *, more: int = 0) -> Script:
    """A connection with messages of every QoS, a subscription, and a ping; ``more`` messages ahead of them."""
    limits = "receive_maximum=20 topic_alias_maximum=5" if version == V5 else ""
    return whole(
        "> connect client=device1 keep_alive=60",
        f"< connack {limits}",
        "> subscribe 1 in/#:0",
        "< suback 1 0",
        *["> publish out/more more"] * more,
        "> publish out/one 1 qos=1 id=2",
        "< puback 2",
        "> publish out/two 2 qos=2 id=3",
        "< pubrec 3",
        "> pubrel 3",
        "< pubcomp 3",
        "< publish in/one a",
        "> pingreq",
        "< pingresp",
        "> disconnect",
        version=version,
    )


def authenticated(method: str = METHOD) -> Script:
    """A connection with an authentication in two steps, and another one later."""
    block = f"authentication_method={method} authentication_data=data"
    auth = f"auth code=0x18 {block}"
    return whole(
        f"> connect client=device1 keep_alive=60 {block}",
        f"< {auth}",
        f"> {auth}",
        f"< connack authentication_method={method}",
        f"> auth code=0x19 {block}",
        f"< {auth}",
        f"> {auth}",
        f"< auth code=0 {block}",
        "> disconnect",
    )


def make_case(name: str, single_script: Script, seed: str = "test") -> MutationCase:
    """A mutation of a connection."""
    flow = flow_of(single_script, HASH, 0)
    return MutationCase(0, 1, HASH, 0, mutation(name), apply(mutation(name), flow, Chance(seed, name)))


def catalogued(pattern: str, single_script: Script, seed: int = 1) -> list[NumberedCase]:
    """The cases of a pattern that a run plays of a connection."""
    return list(CaseNumbering([flow_of(single_script, HASH, 0)], seed, "client").cases(pattern, [0]))


def target(port: int) -> BrokerUrl:
    """A broker on loopback."""
    return parse_broker(f"mqtt://127.0.0.1:{port}")


def trial_of(port: int, process: Process | None = None, *, patience_s: float = PATIENCE_S) -> BrokerTest:
    """A trial of a broker on loopback."""
    return BrokerTest(BrokerAccess(target(port)), patience_s, process)


def spawned(fault: str, *, patience_s: float = PATIENCE_S) -> BrokerTest:
    """A trial of a broker with a fault, which it starts as a program."""
    port = free_port()
    return trial_of(port, Process(command=broken_command(port, fault)), patience_s=patience_s)


@asynccontextmanager
async def begun(test: BrokerTest) -> AsyncIterator[BrokerTest]:
    """A trial from its beginning to its end."""
    try:
        await test.begin()
        yield test
    finally:
        await test.end()


@asynccontextmanager
async def trial(
    fault: Fault, process: Process | None = None, *, patience_s: float = PATIENCE_S
) -> AsyncIterator[BrokerTest]:
    """A trial that has begun, of a broker with a fault."""
    async with broken(fault) as broker, begun(trial_of(broker.port, process, patience_s=patience_s)) as test:
        yield test


async def fit(test: BrokerTest, own: Script) -> Script:
    """A connection made to fit the broker of a trial."""
    return fit_script(own, await test.connack(own))


async def tried(name: str, fault: Fault, version: ProtocolVersion = V5) -> CaseResult:
    """One case against a broker with a fault."""
    async with trial(fault) as test:
        own = await fit(test, script(version))
        return await test.play_case(own, make_case(name, own))


def ruled(result: CaseResult) -> Ruling:
    """What a case came to."""
    assert result.ruling is not None, result.not_played
    return result.ruling


def played(result: CaseResult) -> Conversation:
    """What was said in a case."""
    assert result.played is not None
    return result.played.conversation


def at_once(steps: Generator[None, None, T]) -> T:
    """The outcome of long work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def confirm(ruling: Ruling, case: MutationCase, conversation: Conversation) -> Ruling:
    """What becomes of a ruling if the linter is asked."""
    return at_once(oracle.confirm_ruling(ruling, case, conversation))


def findings(conversation: Conversation) -> tuple[list[Finding], list[Finding]]:
    """What the linter finds of the client and of the server."""
    return at_once(oracle.finding(conversation))


def broken_by_client(conversation: Conversation) -> tuple[str, ...]:
    """The statements that the client breaks."""
    return at_once(oracle.breaking(conversation))
