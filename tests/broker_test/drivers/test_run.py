"""Each fault of a broker gets its verdict, a good broker gets none, and nothing is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Generator

import pytest

from mqttscope.broker_test.drivers.health import NoBrokerError, Process
from mqttscope.broker_test.drivers.run import CaseResult, longest_s, run_in_steps
from mqttscope.broker_test.fit import NumberedCase, fit_script
from mqttscope.broker_test.verdict import AS_RECORDED, BrokerVerdict
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
    (Fault.NONE, QOS_3, BrokerVerdict.CONFORMING),
    (Fault.NONE, SPACES, BrokerVerdict.CONFORMING),
    (Fault.TOLERATE, QOS_3, BrokerVerdict.TOLERATED),
    (Fault.NO_ANSWER, QOS_3, BrokerVerdict.NO_ANSWER),
    (Fault.REFUSE, SPACES, BrokerVerdict.REFUSED_LEGAL),
    (Fault.CRASH, QOS_3, BrokerVerdict.CRASHED),
    (Fault.HANG, QOS_3, BrokerVerdict.HUNG),
    (Fault.COLLATERAL, QOS_3, BrokerVerdict.COLLATERAL),
    (Fault.SHUT, QOS_3, BrokerVerdict.HUNG),
    (Fault.DEAF, QOS_3, BrokerVerdict.COLLATERAL),
    (Fault.NO_SUBSCRIBE, QOS_3, BrokerVerdict.CONFORMING),
    (Fault.MAXIMUM_QOS, QOS_3, BrokerVerdict.CONFORMING),
    (Fault.MAXIMUM_QOS, SPACES, BrokerVerdict.CONFORMING),
    (Fault.MAXIMUM_QOS_0, QOS_3, BrokerVerdict.CONFORMING),
)


both_versions = pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda each: str(each.text))


@both_versions
@pytest.mark.parametrize(("fault", "name", "verdict"), VERDICTS, ids=[f"{row[0]}-{row[1]}" for row in VERDICTS])
async def test_each_fault_has_its_verdict(
    fault: Fault, name: str, verdict: BrokerVerdict, version: ProtocolVersion
) -> None:
    result = await tried(name, fault, version)
    if result.ruling is None:
        # On a busy machine this broker is late with its CONNACK, and no case is played then.
        result = await tried(name, fault, version)

    assert (ruled(result).verdict, result.not_played, result.unclean) == (verdict, "", ())
    if verdict is BrokerVerdict.TOLERATED:
        assert ruled(result).statements == (f"{version.text} MQTT-4.{'8.0-1' if version == V3_1_1 else '13.1-1'}",)


async def test_a_wrong_reason_exists_in_5_0_alone() -> None:
    ruling = ruled(await tried(QOS_3, Fault.WRONG_REASON))

    assert ruling.verdict is BrokerVerdict.WRONG_REASON
    assert "0x9b" in ruling.why
    assert not ruled(await tried(QOS_3, Fault.WRONG_REASON, V3_1_1)).deviates


@pytest.mark.parametrize(
    ("fault", "statement", "expected"),
    [
        (Fault.GOOD_BYE, "5.0 V5-DISCONNECT-sender", "DISCONNECT 0x00"),
        (Fault.OF_NO_TABLE, "5.0 MQTT-3.14.2-1", "DISCONNECT 0x84"),
    ],
)
async def test_reason_codes_that_are_wrong_whatever_they_are_for(fault: Fault, statement: str, expected: str) -> None:
    """A good-bye, and a code that DISCONNECT does not have."""
    ruling = ruled(await tried(QOS_3, fault))

    assert (ruling.verdict, ruling.statements) == (BrokerVerdict.WRONG_REASON, (statement,))
    assert expected in ruling.why


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.NO_SUBSCRIBE, Fault.MAXIMUM_QOS, Fault.MAXIMUM_QOS_0])
@both_versions
async def test_a_broker_with_limits_conforms_without_any_mutation(fault: Fault, version: ProtocolVersion) -> None:
    async with trial(fault) as test:
        ruling = ruled(await test.run_baseline(await fit(test, script(version))))

    assert not ruling.deviates, ruling.why
    assert [notice for notice in test.notices if "subscribe or publish" in notice] == test.notices[
        : fault is Fault.NO_SUBSCRIBE
    ]


@pytest.mark.parametrize(
    ("fault", "name", "verdict"),
    [
        (Fault.NONE, "auth:reserved-flag-1", BrokerVerdict.CONFORMING),
        (Fault.NONE, "auth.authentication_method:other", BrokerVerdict.CONFORMING),
        (Fault.NONE, "auth.properties.authentication_data:empty", BrokerVerdict.CONFORMING),
        (Fault.TOLERATE, "auth:reserved-flag-1", BrokerVerdict.TOLERATED),
        (Fault.CRASH, "auth.authentication_method:missing", BrokerVerdict.CRASHED),
    ],
)
async def test_authentications_are_played_and_mutated_on_their_way(
    fault: Fault, name: str, verdict: BrokerVerdict
) -> None:
    """AUTH before CONNACK is mutated, and AUTH of an authentication later on."""
    results: dict[int, CaseResult] = {}
    for seed in "abcdef":
        async with trial(fault) as test:
            connack = await test.connack(authenticated())
            assert connack is not None
            own = fit_script(authenticated(), connack)
            assert not (await test.run_baseline(own)).deviates
            case = make_case(name, own, seed)
            if case.flow.at not in results:
                results[case.flow.at] = await test.play_case(own, case)

    assert set(results) >= {2, 4}
    for at, result in results.items():
        assert (at, result.not_played) == (at, "")
        if at > 2 or fault is not Fault.TOLERATE:
            assert ruled(result).verdict is verdict, (at, ruled(result).why)


async def test_an_authentication_that_the_broker_does_not_know_is_not_played() -> None:
    async with trial(Fault.NONE) as test:
        other = authenticated("EXAMPLE-2")
        assert await test.connack(other) is None
        result = await test.play_case(other, make_case("auth:reserved-flag-1", other))

    assert result.ruling is None
    assert result.not_played.startswith("the broker ended the connection before the mutation")


@pytest.mark.parametrize("patience_s", [0.3, 0.5])
async def test_nobody_answers_a_challenge_that_has_not_come(patience_s: float) -> None:
    """A broker closes for who continues with an authentication before he was asked."""
    async with trial(Fault.SLOW_CHALLENGE, patience_s=patience_s) as test:
        own = await fit(test, authenticated())
        baseline = await test.run_baseline(own)
        assert test.baselines[own.connection.number].summary() == ""
        result = await test.play_case(own, make_case("connect.keep_alive:sign-bit", own))

    for case_result in (baseline, result):
        assert (ruled(case_result).verdict, ruled(case_result).why) == (BrokerVerdict.CONFORMING, "accepted")
        assert [type(packet) for packet in played(case_result).packets(from_client=True)].count(Auth) == 3
        assert not broken_by_client(played(case_result))


async def test_a_broker_that_never_asks_is_accused_once() -> None:
    async with trial(Fault.NO_CHALLENGE) as test:
        own = authenticated()
        assert await test.connack(own) is None
        baseline = await test.run_baseline(own)
        names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero", "connect:reserved-flag-0")
        results = [await test.play_case(own, make_case(name, own)) for name in names]

    assert (ruled(baseline).verdict, ruled(baseline).statements) == (BrokerVerdict.NO_ANSWER, ("5.0 MQTT-3.1.4-5",))
    so_it_is = (BrokerVerdict.CONFORMING, "likewise without the mutation (no CONNACK within 0.15 s)")
    assert [(ruled(case_result).verdict, ruled(case_result).why) for case_result in results[:2]] == [so_it_is, so_it_is]
    for result in (baseline, *results):
        assert [type(packet) for packet in played(result).packets(from_client=True)] in ([Connect], [Malformed])


async def test_a_broker_that_asks_for_more_than_was_recorded_is_not_accused() -> None:
    async with trial(Fault.MORE_CHALLENGES) as test:
        own = authenticated()
        assert await test.connack(own) is None
        names = ("connect.keep_alive:sign-bit", "connect.keep_alive:zero")
        results = [await test.run_baseline(own), *[await test.play_case(own, make_case(name, own)) for name in names]]

    text = "it demands more authentication than was recorded (no CONNACK within 0.15 s)"
    assert [(ruled(result).verdict, ruled(result).why) for result in results] == [(BrokerVerdict.CONFORMING, text)] * 3


async def test_whom_a_broker_lets_in_is_its_own_affair() -> None:
    async with trial(Fault.PICKY) as test:
        own = script()
        assert await test.connack(own) is None
        baseline = ruled(await test.run_baseline(own))
        ruling = ruled(await test.play_case(own, make_case("connect.keep_alive:sign-bit", own)))

    assert baseline.why == "the broker may have its own rules of access (closed (fin) without a reason)"
    assert ruling.verdict is BrokerVerdict.CONFORMING
    assert ruling.why == "likewise without the mutation (closed (fin) without a reason)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Fault.SECOND_CRASH, BrokerVerdict.CRASHED),
        (Fault.LATE_CRASH, BrokerVerdict.CRASHED),
        (Fault.LATE_HANG, BrokerVerdict.HUNG),
    ],
)
async def test_harm_that_shows_when_a_case_is_played_again_is_not_lost(fault: Fault, verdict: BrokerVerdict) -> None:
    async with begun(spawned(fault, patience_s=0.2)) as test:
        result = await test.play_case(script(), make_case(QOS_3, script()))

    assert ruled(result).verdict is verdict, ruled(result).why
    assert result.played is not None


@pytest.mark.parametrize("ours", [False, True])
async def test_lasting_damage_is_the_doing_of_one_case(ours: bool) -> None:
    """A broker that is started here gets a new start; with another one nobody can say any more who suffers."""
    async with begun(spawned("deaf")) if ours else trial(Fault.DEAF) as test:
        own = await fit(test, script())
        first, second, third = [
            ruled(await test.play_case(own, make_case(name, own))) for name in (QOS_3, SPACES, QOS_3)
        ]

    assert (first.verdict, second.verdict) == (BrokerVerdict.COLLATERAL, BrokerVerdict.CONFORMING)
    assert first.why.endswith("and this lasts")
    assert third.verdict is (BrokerVerdict.COLLATERAL if ours else BrokerVerdict.CONFORMING)


async def test_who_closes_late_has_four_times_the_patience() -> None:
    """After PINGRESP as well: `LATE_S` is twice the patience."""
    ruling = ruled(await tried(QOS_3, Fault.LATE))

    assert not ruling.deviates
    assert ruling.why.startswith("not repeated: tolerated at first (closed")


@both_versions
async def test_who_acknowledges_nothing_is_told_so_once(version: ProtocolVersion) -> None:
    async with trial(Fault.NO_ACKNOWLEDGEMENT) as test:
        own = script(version)
        recorded = await test.run_baseline(own)
        result = await test.play_case(own, make_case(SPACES, own))

    acknowledged = "4.3.2-2" if version == V3_1_1 else "4.3.2-4"
    assert ruled(recorded).verdict is BrokerVerdict.NO_ANSWER
    assert ruled(recorded).why.startswith("no PUBACK, PUBREC within")
    assert f"{version.text} MQTT-{acknowledged}" in ruled(recorded).statements
    assert (recorded.number, recorded.case.mutation.name) == (AS_RECORDED, "flow:as-recorded")
    assert ruled(result).why.startswith("likewise without the mutation")
    # What got no PUBREC gets no PUBREL: that would be our own fault.
    assert not any(isinstance(packet, Pubrel) for packet in played(result).packets(from_client=True))


async def test_an_interrupted_case_has_no_verdict() -> None:
    async with trial(Fault.TOLERATE, patience_s=20) as test:
        own = script()
        case = make_case(QOS_3, own)
        asyncio.get_running_loop().call_later(0.05, setattr, test, "stopped", True)
        result = await test.play_case(own, case)
        more = [case_result async for case_result in test.run([(own, NumberedCase(1, 0, case))])]

    assert (result.ruling, result.not_played, more) == (None, "interrupted", [])


@pytest.mark.parametrize("hanging", [True, False])
async def test_what_a_broker_that_hangs_may_keep_is_told_by_name(hanging: bool) -> None:
    async with broken(Fault.HANG) as broker, begun(trial_of(broker.port, patience_s=0.05)) as test:
        assert (await test.play_case(script(), make_case(QOS_3, script()))).deviates
        broker.hanging = hanging

    assert [notice.partition(": ")[2] for notice in test.notices] == ["session device1"] * hanging


@pytest.mark.parametrize(
    ("fault", "verdict"), [(Fault.LEAK, BrokerVerdict.LEAKED), (Fault.NONE, BrokerVerdict.CONFORMING)]
)
async def test_memory_that_grows_each_time_has_leaked(fault: Fault, verdict: BrokerVerdict) -> None:
    async with begun(spawned(fault, patience_s=0.4)) as test:
        assert ruled(await test.play_case(script(), make_case(QOS_3, script()))).verdict is verdict


async def test_a_broker_of_ours_is_started_again_when_it_has_crashed() -> None:
    own = script()
    async with begun(spawned("crash", patience_s=0.4)) as test:
        process = test.process
        cases = [(own, NumberedCase(number, 0, make_case(QOS_3, own))) for number in (7, 8)]
        results = [result async for result in test.run(cases)]

    assert [(case_result.number, ruled(case_result).verdict) for case_result in results] == [
        (7, BrokerVerdict.CRASHED),
        (8, BrokerVerdict.CRASHED),
    ]
    assert "its process has ended (exit code 11)" in ruled(results[0]).why
    assert process is not None
    assert process.starts == 2
    assert not process.alive()


async def test_a_broker_that_is_gone_for_good_ends_the_run() -> None:
    own = script()
    async with trial(Fault.CRASH) as test:
        assert (await test.play_case(own, make_case(QOS_3, own))).deviates
        with pytest.raises(NoBrokerError):
            await test.play_case(own, make_case(QOS_3, own))


async def test_where_nobody_listens_there_is_no_broker() -> None:
    with pytest.raises(NoBrokerError, match="nothing listens there"):
        await trial_of(free_port()).begin()


async def test_a_process_that_is_gone_is_accused_once() -> None:
    """A supervisor starts brokers again: with another process, at the same port."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    own = script()
    async with trial(Fault.NONE, Process(dead.pid)) as test:
        results = [await test.play_case(own, make_case(QOS_3, own)) for _ in range(2)]

    assert [ruled(result).verdict for result in results] == [BrokerVerdict.CRASHED, BrokerVerdict.CONFORMING]
    # On a busy machine cases are played again, and that is said as well.
    assert sum(notice.split(";")[0].endswith("has ended") for notice in test.notices) == 1, test.notices


async def test_a_version_that_is_not_spoken_is_known() -> None:
    async with broken(Fault.OLD) as broker:
        spoken = [await trial_of(broker.port).supports_version(version) for version in (V3_1, V3_1_1, V5)]

    assert spoken == [True, True, False]


async def test_who_wants_a_login_is_told_of_it() -> None:
    async with broken(Fault.LOGIN) as broker:
        test = trial_of(broker.port)
        with pytest.raises(
            NoBrokerError, match=r"0x05 \(.*not authorized\); set the login with --user and --password-file"
        ):
            await test.begin()
        assert await test.supports_version(V5)
        test.access.user_name = "tester"
        await test.begin()
        await test.end()


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_a_broker_lacks_without_a_mutation_is_not_held_against_it(is_known: bool) -> None:
    own = script(more=1)
    spaced = next(
        script_entry
        for script_entry in own.entries
        if isinstance(script_entry.packet, Publish) and script_entry.from_client
    )
    spaced.packet = Publish(topic_name="out more", payload=b"more", properties=Properties())
    spaced.raw = encode(spaced.packet, V5)
    async with trial(Fault.REFUSE) as test:
        if is_known:
            assert not (await test.run_baseline(own)).deviates
            text = test.baselines[own.connection.number].summary()
            assert text == "refuses with 0x82 and ends the connection"
        assert (await test.play_case(own, make_case("connect.keep_alive:maximum", own))).deviates is not is_known


async def test_the_rate_is_kept() -> None:
    own = script()
    cases = [(own, NumberedCase(number, 0, make_case(SPACES, own))) for number in range(5)]
    async with trial(Fault.NONE) as test:
        test.rate = 20
        started = time.monotonic()
        assert len([result async for result in test.run(cases)]) == 5

    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("stops", [False, True])
async def test_waiting_for_the_rate_ends_with_the_run(stops: bool) -> None:
    own, played = script(), 0
    cases = [(own, NumberedCase(number, 0, make_case(SPACES, own))) for number in range(3)]
    async with trial(Fault.NONE) as test:
        test.rate = 1e-300
        started = time.monotonic()
        async for _ in test.run(cases, None if stops else 5):
            played += 1
            if stops:
                asyncio.get_running_loop().call_later(0.1, setattr, test, "stopped", True)
        seconds = time.monotonic() - started

    assert played == 1
    assert seconds < 5


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
    assert await run_in_steps(counting(20)) == 20
    await task
    assert turns == [0, 1, 2, 3, 4]
