"""Each fault of a broker gets its verdict, a good broker gets none, and nothing is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Generator

import pytest

from mqttscope.broker_test.drivers.health import NoBrokerError, Process
from mqttscope.broker_test.drivers.run import CaseResult, longest_s, unhurried
from mqttscope.broker_test.fit import Numbered, fitted
from mqttscope.broker_test.verdict import AS_RECORDED, Verdict
from mqttscope.mqtt import Auth, Connect, Malformed, Properties, ProtocolVersion, Publish, Pubrel, encode
from tests.broker_test.broken import Fault, broken, broken_command
from tests.broker_test.flows import (
    V3_1,
    V3_1_1,
    V5,
    authenticated,
    broken_by_client,
    make_case,
    script,
    trial_of,
    tried,
)
from tests.proxy.rig import free_port

QOS_3 = "publish:qos-3"
SPACES = "publish.topic_name:spaces"

VERDICTS = (
    (Fault.NONE, QOS_3, Verdict.CONFORMING),
    (Fault.NONE, SPACES, Verdict.CONFORMING),
    (Fault.TOLERATE, QOS_3, Verdict.TOLERATED),
    (Fault.NO_ANSWER, QOS_3, Verdict.NO_ANSWER),
    (Fault.REFUSE, SPACES, Verdict.REFUSED_LEGAL),
    (Fault.CRASH, QOS_3, Verdict.CRASHED),
    (Fault.HANG, QOS_3, Verdict.HUNG),
    (Fault.COLLATERAL, QOS_3, Verdict.COLLATERAL),
    (Fault.SHUT, QOS_3, Verdict.HUNG),
    (Fault.DEAF, QOS_3, Verdict.COLLATERAL),
    (Fault.NO_SUBSCRIBE, QOS_3, Verdict.CONFORMING),
    (Fault.MAXIMUM_QOS, QOS_3, Verdict.CONFORMING),
    (Fault.MAXIMUM_QOS, SPACES, Verdict.CONFORMING),
    (Fault.MAXIMUM_QOS_0, QOS_3, Verdict.CONFORMING),
)


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda one: str(one.text))
@pytest.mark.parametrize(("fault", "name", "verdict"), VERDICTS, ids=[f"{row[0]}-{row[1]}" for row in VERDICTS])
def test_each_fault_has_its_verdict(fault: Fault, name: str, verdict: Verdict, version: ProtocolVersion) -> None:
    found = asyncio.run(tried(name, fault, version))
    if found.ruling is None:
        # On a busy machine this broker is late with its CONNACK, and no case is played then.
        found = asyncio.run(tried(name, fault, version))

    assert found.ruling is not None, found.not_played
    assert (found.ruling.verdict, found.not_played, found.unclean) == (verdict, "", ())
    if verdict is Verdict.TOLERATED:
        assert found.ruling.statements == (f"{version.text} MQTT-4.{'8.0-1' if version == V3_1_1 else '13.1-1'}",)


def test_a_wrong_reason_exists_in_5_0_alone() -> None:
    found = asyncio.run(tried(QOS_3, Fault.WRONG_REASON))
    before = asyncio.run(tried(QOS_3, Fault.WRONG_REASON, V3_1_1))

    assert found.ruling is not None
    assert found.ruling.verdict is Verdict.WRONG_REASON
    assert "0x9b" in found.ruling.why
    assert before.ruling is not None
    assert not before.ruling.deviates


@pytest.mark.parametrize(
    ("fault", "statement", "told"),
    [
        (Fault.GOOD_BYE, "5.0 V5-DISCONNECT-sender", "DISCONNECT 0x00"),
        (Fault.OF_NO_TABLE, "5.0 MQTT-3.14.2-1", "DISCONNECT 0x84"),
    ],
)
def test_reason_codes_that_are_wrong_whatever_they_are_for(fault: Fault, statement: str, told: str) -> None:
    """A good-bye, and a code that DISCONNECT does not have."""
    found = asyncio.run(tried(QOS_3, fault))

    assert found.ruling is not None
    assert found.ruling.verdict is Verdict.WRONG_REASON
    assert found.ruling.statements == (statement,)
    assert told in found.ruling.why


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.NO_SUBSCRIBE, Fault.MAXIMUM_QOS, Fault.MAXIMUM_QOS_0])
@pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda one: str(one.text))
def test_a_broker_with_limits_conforms_without_any_mutation(fault: Fault, version: ProtocolVersion) -> None:
    async def run() -> tuple[CaseResult, list[str]]:
        async with broken(fault) as broker:
            test = trial_of(broker.port)
            await test.begin()
            try:
                return await test.run_baseline(fitted(script(version), await test.connack(script(version)))), test.told
            finally:
                await test.end()

    found, told = asyncio.run(run())
    assert found.ruling is not None
    assert not found.ruling.deviates, found.ruling.why
    assert [one for one in told if "subscribe or publish" in one] == told[: fault is Fault.NO_SUBSCRIBE]


@pytest.mark.parametrize(
    ("fault", "name", "verdict"),
    [
        (Fault.NONE, "auth:reserved-flag-1", Verdict.CONFORMING),
        (Fault.NONE, "auth.authentication_method:other", Verdict.CONFORMING),
        (Fault.NONE, "auth.properties.authentication_data:empty", Verdict.CONFORMING),
        (Fault.TOLERATE, "auth:reserved-flag-1", Verdict.TOLERATED),
        (Fault.CRASH, "auth.authentication_method:missing", Verdict.CRASHED),
    ],
)
def test_authentications_are_played_and_mutated_on_their_way(fault: Fault, name: str, verdict: Verdict) -> None:
    """AUTH before CONNACK is mutated, and AUTH of an authentication later on."""

    async def run() -> dict[int, CaseResult]:
        found = {}
        for seed in "abcdef":
            async with broken(fault) as broker:
                test = trial_of(broker.port)
                await test.begin()
                connack = await test.connack(authenticated())
                assert connack is not None
                own = fitted(authenticated(), connack)
                assert not (await test.run_baseline(own)).deviates
                case = make_case(name, own, seed)
                if case.flow.at not in found:
                    found[case.flow.at] = await test.one(own, case)
                await test.end()
        return found

    found = asyncio.run(run())
    assert set(found) >= {2, 4}
    for at, one in found.items():
        assert (at, one.not_played) == (at, "")
        assert one.ruling is not None
        if at > 2 or fault is not Fault.TOLERATE:
            assert one.ruling.verdict is verdict, (at, one.ruling.why)


def test_an_authentication_that_the_broker_does_not_know_is_not_played() -> None:
    async def run() -> CaseResult:
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            await test.begin()
            other = authenticated("EXAMPLE-2")
            assert await test.connack(other) is None
            try:
                return await test.one(other, make_case("auth:reserved-flag-1", other))
            finally:
                await test.end()

    found = asyncio.run(run())
    assert found.ruling is None
    assert found.not_played.startswith("the broker ended the connection before the mutation")


@pytest.mark.parametrize("patience_s", [0.15, 0.5])
def test_nobody_answers_a_challenge_that_has_not_come(patience_s: float) -> None:
    """A broker closes for who continues with an authentication before he was asked."""

    async def run() -> tuple[CaseResult, CaseResult]:
        async with broken(Fault.SLOW_CHALLENGE) as broker:
            test = trial_of(broker.port, patience_s=patience_s)
            await test.begin()
            connack = await test.connack(authenticated())
            own = fitted(authenticated(), connack)
            baselines = await test.run_baseline(own)
            assert test.baselines[own.connection.number].told() == ""
            found = await test.one(own, make_case("connect.keep_alive:sign-bit", own))
            await test.end()
            return baselines, found

    for found in asyncio.run(run()):
        assert found.ruling is not None
        assert (found.ruling.verdict, found.ruling.why) == (Verdict.CONFORMING, "accepted")
        assert found.played is not None
        said = found.played.conversation
        assert [type(one) for one in said.packets(from_client=True)].count(Auth) == 3
        assert not broken_by_client(said)


def test_a_broker_that_never_asks_is_accused_once() -> None:
    async def run() -> tuple[CaseResult, list[CaseResult]]:
        async with broken(Fault.NO_CHALLENGE) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = authenticated()
            assert await test.connack(own) is None
            baselines = await test.run_baseline(own)
            names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero", "connect:reserved-flag-0")
            found = [await test.one(own, make_case(name, own)) for name in names]
            await test.end()
            return baselines, found

    baselines, found = asyncio.run(run())
    assert baselines.ruling is not None
    assert (baselines.ruling.verdict, baselines.ruling.statements) == (Verdict.NO_ANSWER, ("5.0 MQTT-3.1.4-5",))
    verdicts = [(one.ruling.verdict, one.ruling.why) for one in found if one.ruling is not None]
    so_it_is = (Verdict.CONFORMING, "so it is without the mutation (no CONNACK within 0.15 s)")
    assert verdicts[:2] == [so_it_is, so_it_is]
    for one in (baselines, *found):
        assert one.played is not None
        said = one.played.conversation
        assert [type(packet) for packet in said.packets(from_client=True)] in ([Connect], [Malformed])


def test_a_broker_that_asks_for_more_than_was_recorded_is_not_accused() -> None:
    async def run() -> list[CaseResult]:
        async with broken(Fault.MORE_CHALLENGES) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = authenticated()
            assert await test.connack(own) is None
            names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero")
            found = [await test.run_baseline(own), *[await test.one(own, make_case(name, own)) for name in names]]
            await test.end()
            return found

    for one in asyncio.run(run()):
        assert one.ruling is not None
        told = "it asks for more authentication than was recorded (no CONNACK within 0.15 s)"
        assert (one.ruling.verdict, one.ruling.why) == (Verdict.CONFORMING, told)


def test_whom_a_broker_lets_in_is_its_own_affair() -> None:
    async def run() -> list[CaseResult]:
        async with broken(Fault.PICKY) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = script()
            assert await test.connack(own) is None
            found = [await test.run_baseline(own), await test.one(own, make_case("connect.keep_alive:sign-bit", own))]
            await test.end()
            return found

    baselines, found = asyncio.run(run())
    assert baselines.ruling is not None
    assert baselines.ruling.why == "whom it lets do what may be its own affair (closed (fin) without a reason)"
    assert found.ruling is not None
    assert (found.ruling.verdict, found.ruling.why) == (
        Verdict.CONFORMING, "so it is without the mutation (closed (fin) without a reason)"
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [(Fault.SECOND_CRASH, Verdict.CRASHED), (Fault.LATE_CRASH, Verdict.CRASHED), (Fault.LATE_HANG, Verdict.HUNG)],
)
def test_harm_that_shows_when_a_case_is_played_again_is_not_lost(fault: Fault, verdict: Verdict) -> None:
    async def run() -> CaseResult:
        port = free_port()
        test = trial_of(port, Process(command=broken_command(port, fault)), patience_s=0.2)
        await test.begin()
        own = script()
        try:
            return await test.one(own, make_case(QOS_3, own))
        finally:
            await test.end()

    found = asyncio.run(run())
    assert found.ruling is not None
    assert found.ruling.verdict is verdict, found.ruling.why
    assert found.played is not None


@pytest.mark.parametrize("ours", [False, True])
def test_lasting_damage_is_the_doing_of_one_case(ours: bool) -> None:
    """A broker that is started here gets a new start; with another one nobody can say any more who suffers."""

    async def run() -> list[CaseResult]:
        async with broken(Fault.DEAF) as broker:
            port = free_port()
            process = Process(command=broken_command(port, "deaf")) if ours else None
            test = trial_of(port if ours else broker.port, process)
            await test.begin()
            own = fitted(script(), await test.connack(script()))
            try:
                return [await test.one(own, make_case(name, own)) for name in (QOS_3, SPACES, QOS_3)]
            finally:
                await test.end()

    first, second, third = (found.ruling for found in asyncio.run(run()))
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.verdict, second.verdict) == (Verdict.COLLATERAL, Verdict.CONFORMING)
    assert first.why.endswith("and so it stays")
    assert third.verdict is (Verdict.COLLATERAL if ours else Verdict.CONFORMING)


def test_who_closes_late_has_four_times_the_patience() -> None:
    """After PINGRESP as well: `LATE_S` is twice the patience."""
    found = asyncio.run(tried(QOS_3, Fault.LATE))

    assert found.ruling is not None
    assert not found.ruling.deviates
    assert found.ruling.why.startswith("not the same twice: tolerated first (closed")


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda one: str(one.text))
def test_who_acknowledges_nothing_is_told_so_once(version: ProtocolVersion) -> None:
    async def run() -> tuple[CaseResult, CaseResult]:
        async with broken(Fault.NO_ACKNOWLEDGEMENT) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = script(version)
            try:
                recorded = await test.run_baseline(own)
                return recorded, await test.one(own, make_case(SPACES, own))
            finally:
                await test.end()

    recorded, found = asyncio.run(run())
    acknowledged = "4.3.2-2" if version == V3_1_1 else "4.3.2-4"
    assert recorded.ruling is not None
    assert recorded.ruling.verdict is Verdict.NO_ANSWER
    assert recorded.ruling.why.startswith("no PUBACK, PUBREC within")
    assert f"{version.text} MQTT-{acknowledged}" in recorded.ruling.statements
    assert (recorded.number, recorded.case.mutation.name) == (AS_RECORDED, "flow:as-recorded")
    assert found.ruling is not None
    assert found.ruling.why.startswith("so it is without the mutation")
    # What got no PUBREC gets no PUBREL: that would be our own fault.
    assert found.played is not None
    sent = found.played.conversation.packets(from_client=True)
    assert [one for one in sent if isinstance(one, Pubrel)] == []


def test_an_interrupted_case_has_no_verdict() -> None:
    async def run() -> tuple[CaseResult, list[CaseResult]]:
        async with broken(Fault.TOLERATE) as broker:
            test = trial_of(broker.port, patience_s=20)
            await test.begin()
            own = script()
            case = make_case(QOS_3, own)
            asyncio.get_running_loop().call_later(0.05, setattr, test, "stopped", True)
            found = await test.one(own, case)
            more = [one async for one in test.run([(own, Numbered(1, 0, case))])]
            await test.end()
            return found, more

    found, more = asyncio.run(run())
    assert (found.ruling, found.not_played, more) == (None, "interrupted", [])


def test_what_a_broker_that_hangs_may_keep_is_told_by_name() -> None:
    async def run(*, hanging: bool) -> list[str]:
        async with broken(Fault.HANG) as broker:
            test = trial_of(broker.port, patience_s=0.05)
            await test.begin()
            own = script()
            assert (await test.one(own, make_case(QOS_3, own))).deviates
            broker.hanging = hanging
            await test.end()
            return test.told

    assert [one.partition(": ")[2] for one in asyncio.run(run(hanging=True))] == ["session device1"]
    assert asyncio.run(run(hanging=False)) == []


def test_memory_that_grows_each_time_has_leaked() -> None:
    async def run(fault: Fault) -> CaseResult:
        port = free_port()
        test = trial_of(port, Process(command=broken_command(port, fault)), patience_s=0.4)
        await test.begin()
        own = script()
        try:
            return await test.one(own, make_case(QOS_3, own))
        finally:
            await test.end()

    leaking, sound = asyncio.run(run(Fault.LEAK)), asyncio.run(run(Fault.NONE))
    assert leaking.ruling is not None
    assert leaking.ruling.verdict is Verdict.LEAKED
    assert sound.ruling is not None
    assert not sound.ruling.deviates


def test_a_broker_of_ours_is_started_again_when_it_has_crashed() -> None:
    port = free_port()
    process = Process(command=broken_command(port, "crash"))

    async def run() -> list[CaseResult]:
        test = trial_of(port, process, patience_s=0.4)
        await test.begin()
        own = script()
        cases = [(own, Numbered(number, 0, make_case(QOS_3, own))) for number in (7, 8)]
        try:
            return [result async for result in test.run(cases)]
        finally:
            await test.end()

    found = asyncio.run(run())
    assert [(one.number, one.ruling and one.ruling.verdict) for one in found] == [
        (7, Verdict.CRASHED),
        (8, Verdict.CRASHED),
    ]
    assert found[0].ruling is not None
    assert "its process is gone (exit code 11)" in found[0].ruling.why
    assert process.starts == 2
    assert not process.alive()


def test_a_broker_that_is_gone_for_good_ends_the_run() -> None:
    async def run() -> None:
        async with broken(Fault.CRASH) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = script()
            assert (await test.one(own, make_case(QOS_3, own))).deviates
            with pytest.raises(NoBrokerError):
                await test.one(own, make_case(QOS_3, own))
            await test.end()

    asyncio.run(run())


def test_where_nobody_listens_there_is_no_broker() -> None:
    with pytest.raises(NoBrokerError, match="nothing listens there"):
        asyncio.run(trial_of(free_port()).begin())


def test_a_process_that_is_gone_is_accused_once() -> None:
    """A supervisor starts brokers again: with another process, at the same port."""

    async def run() -> tuple[list[Verdict | None], list[str]]:
        async with broken(Fault.NONE) as broker:
            dead = subprocess.Popen(["true"])
            dead.wait()
            test = trial_of(broker.port, Process(dead.pid))
            await test.begin()
            own = script()
            try:
                found = [await test.one(own, make_case(QOS_3, own)) for _ in range(2)]
            finally:
                await test.end()
            verdicts = [one.ruling.verdict if one.ruling is not None else None for one in found]
            return verdicts, [one.split(";")[0] for one in test.told]

    verdicts, told = asyncio.run(run())
    assert verdicts == [Verdict.CRASHED, Verdict.CONFORMING]
    # On a busy machine cases are played again, and that is said as well.
    assert sum(one.endswith("has ended") for one in told) == 1, told


def test_a_version_that_is_not_spoken_is_known() -> None:
    async def run() -> list[bool]:
        async with broken(Fault.OLD) as broker:
            return [await trial_of(broker.port).speaks(version) for version in (V3_1, V3_1_1, V5)]

    assert asyncio.run(run()) == [True, True, False]


def test_who_wants_a_login_is_told_of_it() -> None:
    async def run() -> None:
        async with broken(Fault.LOGIN) as broker:
            test = trial_of(broker.port)
            with pytest.raises(NoBrokerError, match=r"0x05 \(.*not authorized\); --user and --password-file say"):
                await test.begin()
            assert await test.speaks(V5)
            test.access.user_name = "tester"
            await test.begin()
            await test.end()

    asyncio.run(run())


def test_what_a_broker_lacks_without_a_mutation_is_not_held_against_it() -> None:
    async def run(baselines: bool) -> CaseResult:
        async with broken(Fault.REFUSE) as broker:
            test = trial_of(broker.port)
            await test.begin()
            own = script(more=1)
            spaced = next(one for one in own.entries if isinstance(one.packet, Publish) and one.from_client)
            spaced.packet = Publish(topic_name="out more", payload=b"more", properties=Properties())
            spaced.raw = encode(spaced.packet, V5)
            try:
                if baselines:
                    assert not (await test.run_baseline(own)).deviates
                    told = test.baselines[own.connection.number].told()
                    assert told == "refuses with 0x82 and ends the connection"
                return await test.one(own, make_case("connect.keep_alive:maximum", own))
            finally:
                await test.end()

    assert asyncio.run(run(baselines=False)).deviates
    assert not asyncio.run(run(baselines=True)).deviates


def test_the_rate_is_kept() -> None:
    async def run() -> float:
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            test.rate = 20
            await test.begin()
            own = script()
            started = time.monotonic()
            cases = [(own, Numbered(number, 0, make_case(SPACES, own))) for number in range(5)]
            assert len([result async for result in test.run(cases)]) == 5
            await test.end()
            return time.monotonic() - started

    assert asyncio.run(run()) >= 0.2


@pytest.mark.parametrize("stops", [False, True])
def test_waiting_for_the_rate_ends_with_the_run(stops: bool) -> None:
    async def run() -> tuple[int, float]:
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            test.rate = 1e-300
            await test.begin()
            own = script()
            started, played = time.monotonic(), 0
            cases = [(own, Numbered(number, 0, make_case(SPACES, own))) for number in range(3)]
            async for _ in test.run(cases, None if stops else 5):
                played += 1
                if stops:
                    asyncio.get_running_loop().call_later(0.1, setattr, test, "stopped", True)
            taken = time.monotonic() - started
            await test.end()
            return played, taken

    played, taken = asyncio.run(run())
    assert played == 1
    assert taken < 5


def test_pauses_tell_how_long_a_case_takes() -> None:
    assert longest_s(make_case("flow:nothing-sent", script())) == 120
    assert longest_s(make_case(QOS_3, script())) == 0


def counting(number: int) -> Generator[None, None, int]:
    for _ in range(number):
        yield
    return number


def test_others_get_their_turns() -> None:
    async def run() -> tuple[int, list[int]]:
        turns: list[int] = []

        async def other() -> None:
            for number in range(5):
                turns.append(number)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        found = await unhurried(counting(20))
        await task
        return found, turns

    assert asyncio.run(run()) == (20, [0, 1, 2, 3, 4])
