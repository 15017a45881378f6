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
from tests.broker_test.broken import Fault, broken
from tests.broker_test.flows import (
    V3_1,
    V3_1_1,
    V5,
    authenticated,
    begun,
    broken_by_client,
    fit,
    make_case,
    played,
    ruled,
    script,
    spawned,
    trial,
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


both_versions = pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda one: str(one.text))


@both_versions
@pytest.mark.parametrize(("fault", "name", "verdict"), VERDICTS, ids=[f"{row[0]}-{row[1]}" for row in VERDICTS])
async def test_each_fault_has_its_verdict(fault: Fault, name: str, verdict: Verdict, version: ProtocolVersion) -> None:
    found = await tried(name, fault, version)
    if found.ruling is None:
        # On a busy machine this broker is late with its CONNACK, and no case is played then.
        found = await tried(name, fault, version)

    assert (ruled(found).verdict, found.not_played, found.unclean) == (verdict, "", ())
    if verdict is Verdict.TOLERATED:
        assert ruled(found).statements == (f"{version.text} MQTT-4.{'8.0-1' if version == V3_1_1 else '13.1-1'}",)


async def test_a_wrong_reason_exists_in_5_0_alone() -> None:
    found = ruled(await tried(QOS_3, Fault.WRONG_REASON))

    assert found.verdict is Verdict.WRONG_REASON
    assert "0x9b" in found.why
    assert not ruled(await tried(QOS_3, Fault.WRONG_REASON, V3_1_1)).deviates


@pytest.mark.parametrize(
    ("fault", "statement", "told"),
    [
        (Fault.GOOD_BYE, "5.0 V5-DISCONNECT-sender", "DISCONNECT 0x00"),
        (Fault.OF_NO_TABLE, "5.0 MQTT-3.14.2-1", "DISCONNECT 0x84"),
    ],
)
async def test_reason_codes_that_are_wrong_whatever_they_are_for(fault: Fault, statement: str, told: str) -> None:
    """A good-bye, and a code that DISCONNECT does not have."""
    found = ruled(await tried(QOS_3, fault))

    assert (found.verdict, found.statements) == (Verdict.WRONG_REASON, (statement,))
    assert told in found.why


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.NO_SUBSCRIBE, Fault.MAXIMUM_QOS, Fault.MAXIMUM_QOS_0])
@both_versions
async def test_a_broker_with_limits_conforms_without_any_mutation(fault: Fault, version: ProtocolVersion) -> None:
    async with trial(fault) as test:
        found = ruled(await test.run_baseline(await fit(test, script(version))))

    assert not found.deviates, found.why
    assert [one for one in test.told if "subscribe or publish" in one] == test.told[: fault is Fault.NO_SUBSCRIBE]


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
async def test_authentications_are_played_and_mutated_on_their_way(fault: Fault, name: str, verdict: Verdict) -> None:
    """AUTH before CONNACK is mutated, and AUTH of an authentication later on."""
    found: dict[int, CaseResult] = {}
    for seed in "abcdef":
        async with trial(fault) as test:
            connack = await test.connack(authenticated())
            assert connack is not None
            own = fitted(authenticated(), connack)
            assert not (await test.run_baseline(own)).deviates
            case = make_case(name, own, seed)
            if case.flow.at not in found:
                found[case.flow.at] = await test.one(own, case)

    assert set(found) >= {2, 4}
    for at, one in found.items():
        assert (at, one.not_played) == (at, "")
        if at > 2 or fault is not Fault.TOLERATE:
            assert ruled(one).verdict is verdict, (at, ruled(one).why)


async def test_an_authentication_that_the_broker_does_not_know_is_not_played() -> None:
    async with trial(Fault.NONE) as test:
        other = authenticated("EXAMPLE-2")
        assert await test.connack(other) is None
        found = await test.one(other, make_case("auth:reserved-flag-1", other))

    assert found.ruling is None
    assert found.not_played.startswith("the broker ended the connection before the mutation")


@pytest.mark.parametrize("patience_s", [0.15, 0.5])
async def test_nobody_answers_a_challenge_that_has_not_come(patience_s: float) -> None:
    """A broker closes for who continues with an authentication before he was asked."""
    async with trial(Fault.SLOW_CHALLENGE, patience_s=patience_s) as test:
        own = await fit(test, authenticated())
        baseline = await test.run_baseline(own)
        assert test.baselines[own.connection.number].told() == ""
        found = await test.one(own, make_case("connect.keep_alive:sign-bit", own))

    for one in (baseline, found):
        assert (ruled(one).verdict, ruled(one).why) == (Verdict.CONFORMING, "accepted")
        assert [type(packet) for packet in played(one).packets(from_client=True)].count(Auth) == 3
        assert not broken_by_client(played(one))


async def test_a_broker_that_never_asks_is_accused_once() -> None:
    async with trial(Fault.NO_CHALLENGE) as test:
        own = authenticated()
        assert await test.connack(own) is None
        baseline = await test.run_baseline(own)
        names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero", "connect:reserved-flag-0")
        found = [await test.one(own, make_case(name, own)) for name in names]

    assert (ruled(baseline).verdict, ruled(baseline).statements) == (Verdict.NO_ANSWER, ("5.0 MQTT-3.1.4-5",))
    so_it_is = (Verdict.CONFORMING, "so it is without the mutation (no CONNACK within 0.15 s)")
    assert [(ruled(one).verdict, ruled(one).why) for one in found[:2]] == [so_it_is, so_it_is]
    for one in (baseline, *found):
        assert [type(packet) for packet in played(one).packets(from_client=True)] in ([Connect], [Malformed])


async def test_a_broker_that_asks_for_more_than_was_recorded_is_not_accused() -> None:
    async with trial(Fault.MORE_CHALLENGES) as test:
        own = authenticated()
        assert await test.connack(own) is None
        names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero")
        found = [await test.run_baseline(own), *[await test.one(own, make_case(name, own)) for name in names]]

    told = "it asks for more authentication than was recorded (no CONNACK within 0.15 s)"
    assert [(ruled(one).verdict, ruled(one).why) for one in found] == [(Verdict.CONFORMING, told)] * 3


async def test_whom_a_broker_lets_in_is_its_own_affair() -> None:
    async with trial(Fault.PICKY) as test:
        own = script()
        assert await test.connack(own) is None
        baseline = ruled(await test.run_baseline(own))
        found = ruled(await test.one(own, make_case("connect.keep_alive:sign-bit", own)))

    assert baseline.why == "whom it lets do what may be its own affair (closed (fin) without a reason)"
    assert found.verdict is Verdict.CONFORMING
    assert found.why == "so it is without the mutation (closed (fin) without a reason)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [(Fault.SECOND_CRASH, Verdict.CRASHED), (Fault.LATE_CRASH, Verdict.CRASHED), (Fault.LATE_HANG, Verdict.HUNG)],
)
async def test_harm_that_shows_when_a_case_is_played_again_is_not_lost(fault: Fault, verdict: Verdict) -> None:
    async with begun(spawned(fault, patience_s=0.2)) as test:
        found = await test.one(script(), make_case(QOS_3, script()))

    assert ruled(found).verdict is verdict, ruled(found).why
    assert found.played is not None


@pytest.mark.parametrize("ours", [False, True])
async def test_lasting_damage_is_the_doing_of_one_case(ours: bool) -> None:
    """A broker that is started here gets a new start; with another one nobody can say any more who suffers."""
    async with begun(spawned("deaf")) if ours else trial(Fault.DEAF) as test:
        own = await fit(test, script())
        first, second, third = [ruled(await test.one(own, make_case(name, own))) for name in (QOS_3, SPACES, QOS_3)]

    assert (first.verdict, second.verdict) == (Verdict.COLLATERAL, Verdict.CONFORMING)
    assert first.why.endswith("and so it stays")
    assert third.verdict is (Verdict.COLLATERAL if ours else Verdict.CONFORMING)


async def test_who_closes_late_has_four_times_the_patience() -> None:
    """After PINGRESP as well: `LATE_S` is twice the patience."""
    found = ruled(await tried(QOS_3, Fault.LATE))

    assert not found.deviates
    assert found.why.startswith("not the same twice: tolerated first (closed")


@both_versions
async def test_who_acknowledges_nothing_is_told_so_once(version: ProtocolVersion) -> None:
    async with trial(Fault.NO_ACKNOWLEDGEMENT) as test:
        own = script(version)
        recorded = await test.run_baseline(own)
        found = await test.one(own, make_case(SPACES, own))

    acknowledged = "4.3.2-2" if version == V3_1_1 else "4.3.2-4"
    assert ruled(recorded).verdict is Verdict.NO_ANSWER
    assert ruled(recorded).why.startswith("no PUBACK, PUBREC within")
    assert f"{version.text} MQTT-{acknowledged}" in ruled(recorded).statements
    assert (recorded.number, recorded.case.mutation.name) == (AS_RECORDED, "flow:as-recorded")
    assert ruled(found).why.startswith("so it is without the mutation")
    # What got no PUBREC gets no PUBREL: that would be our own fault.
    assert not any(isinstance(one, Pubrel) for one in played(found).packets(from_client=True))


async def test_an_interrupted_case_has_no_verdict() -> None:
    async with trial(Fault.TOLERATE, patience_s=20) as test:
        own = script()
        case = make_case(QOS_3, own)
        asyncio.get_running_loop().call_later(0.05, setattr, test, "stopped", True)
        found = await test.one(own, case)
        more = [one async for one in test.run([(own, Numbered(1, 0, case))])]

    assert (found.ruling, found.not_played, more) == (None, "interrupted", [])


@pytest.mark.parametrize("hanging", [True, False])
async def test_what_a_broker_that_hangs_may_keep_is_told_by_name(hanging: bool) -> None:
    async with broken(Fault.HANG) as broker, begun(trial_of(broker.port, patience_s=0.05)) as test:
        assert (await test.one(script(), make_case(QOS_3, script()))).deviates
        broker.hanging = hanging

    assert [one.partition(": ")[2] for one in test.told] == ["session device1"] * hanging


@pytest.mark.parametrize(("fault", "verdict"), [(Fault.LEAK, Verdict.LEAKED), (Fault.NONE, Verdict.CONFORMING)])
async def test_memory_that_grows_each_time_has_leaked(fault: Fault, verdict: Verdict) -> None:
    async with begun(spawned(fault, patience_s=0.4)) as test:
        assert ruled(await test.one(script(), make_case(QOS_3, script()))).verdict is verdict


async def test_a_broker_of_ours_is_started_again_when_it_has_crashed() -> None:
    own = script()
    async with begun(spawned("crash", patience_s=0.4)) as test:
        process = test.process
        cases = [(own, Numbered(number, 0, make_case(QOS_3, own))) for number in (7, 8)]
        found = [result async for result in test.run(cases)]

    assert [(one.number, ruled(one).verdict) for one in found] == [(7, Verdict.CRASHED), (8, Verdict.CRASHED)]
    assert "its process is gone (exit code 11)" in ruled(found[0]).why
    assert process is not None
    assert process.starts == 2
    assert not process.alive()


async def test_a_broker_that_is_gone_for_good_ends_the_run() -> None:
    own = script()
    async with trial(Fault.CRASH) as test:
        assert (await test.one(own, make_case(QOS_3, own))).deviates
        with pytest.raises(NoBrokerError):
            await test.one(own, make_case(QOS_3, own))


async def test_where_nobody_listens_there_is_no_broker() -> None:
    with pytest.raises(NoBrokerError, match="nothing listens there"):
        await trial_of(free_port()).begin()


async def test_a_process_that_is_gone_is_accused_once() -> None:
    """A supervisor starts brokers again: with another process, at the same port."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    own = script()
    async with trial(Fault.NONE, Process(dead.pid)) as test:
        found = [await test.one(own, make_case(QOS_3, own)) for _ in range(2)]

    assert [ruled(one).verdict for one in found] == [Verdict.CRASHED, Verdict.CONFORMING]
    # On a busy machine cases are played again, and that is said as well.
    assert sum(one.split(";")[0].endswith("has ended") for one in test.told) == 1, test.told


async def test_a_version_that_is_not_spoken_is_known() -> None:
    async with broken(Fault.OLD) as broker:
        spoken = [await trial_of(broker.port).speaks(version) for version in (V3_1, V3_1_1, V5)]

    assert spoken == [True, True, False]


async def test_who_wants_a_login_is_told_of_it() -> None:
    async with broken(Fault.LOGIN) as broker:
        test = trial_of(broker.port)
        with pytest.raises(NoBrokerError, match=r"0x05 \(.*not authorized\); --user and --password-file say"):
            await test.begin()
        assert await test.speaks(V5)
        test.access.user_name = "tester"
        await test.begin()
        await test.end()


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_a_broker_lacks_without_a_mutation_is_not_held_against_it(is_known: bool) -> None:
    own = script(more=1)
    spaced = next(one for one in own.entries if isinstance(one.packet, Publish) and one.from_client)
    spaced.packet = Publish(topic_name="out more", payload=b"more", properties=Properties())
    spaced.raw = encode(spaced.packet, V5)
    async with trial(Fault.REFUSE) as test:
        if is_known:
            assert not (await test.run_baseline(own)).deviates
            told = test.baselines[own.connection.number].told()
            assert told == "refuses with 0x82 and ends the connection"
        assert (await test.one(own, make_case("connect.keep_alive:maximum", own))).deviates is not is_known


async def test_the_rate_is_kept() -> None:
    own = script()
    cases = [(own, Numbered(number, 0, make_case(SPACES, own))) for number in range(5)]
    async with trial(Fault.NONE) as test:
        test.rate = 20
        started = time.monotonic()
        assert len([result async for result in test.run(cases)]) == 5

    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("stops", [False, True])
async def test_waiting_for_the_rate_ends_with_the_run(stops: bool) -> None:
    own, played = script(), 0
    cases = [(own, Numbered(number, 0, make_case(SPACES, own))) for number in range(3)]
    async with trial(Fault.NONE) as test:
        test.rate = 1e-300
        started = time.monotonic()
        async for _ in test.run(cases, None if stops else 5):
            played += 1
            if stops:
                asyncio.get_running_loop().call_later(0.1, setattr, test, "stopped", True)
        taken = time.monotonic() - started

    assert played == 1
    assert taken < 5


def test_pauses_tell_how_long_a_case_takes() -> None:
    assert longest_s(make_case("flow:nothing-sent", script())) == 120
    assert longest_s(make_case(QOS_3, script())) == 0


def counting(number: int) -> Generator[None, None, int]:
    for _ in range(number):
        yield
    return number


async def test_others_get_their_turns() -> None:
    turns: list[int] = []

    async def other() -> None:
        for number in range(5):
            turns.append(number)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await unhurried(counting(20)) == 20
    await task
    assert turns == [0, 1, 2, 3, 4]
