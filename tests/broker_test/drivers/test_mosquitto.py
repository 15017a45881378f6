"""Mosquitto: a sample of the catalogue in all versions, what it does otherwise, and nothing of ours that stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing

import pytest

from mqttscope.broker_test.drivers.crowd import Crowd
from mqttscope.broker_test.drivers.health import Process
from mqttscope.broker_test.drivers.run import CaseResult, longest_s
from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mqtt import ProtocolVersion
from mqttscope.replay.script import Script
from tests import tools
from tests.broker_test.flows import V3_1, V3_1_1, V5, begun, catalogued, fit, make_case, ruled, script, trial_of
from tests.each import some
from tests.proxy.rig import Broker, mosquitto, until

pytestmark = pytest.mark.broker
REFUSED = {"publish.topic_name:many-levels"}
"""More than 200 levels, in every version."""
TOLERATED_IN_3_1_1 = {"pubrel.packet_identifier:repeated", "pubrel:layout-of-5.0"}
"""Packets that are too long; in 5.0 there may be more after the identifier."""
TOLERATED_SINCE_3_1_1 = {
    *(f"pingreq:reserved-flag-{bit}" for bit in range(4)),
    *(f"flow:wrong-direction-{name}" for name in ("pingresp", "suback", "unsuback")),
    "pingreq:extra-byte",
    "pingreq:reserved-flags-inverted",
    "publish:dup-with-qos-0",
    "pubrel:extra-byte",
}
TOLERATED_IN_5_0 = {
    *(
        f"{name}.remaining_length:not-minimal"
        for name in ("connect", "pingreq", "publish", "pubrel", "subscribe", "unsubscribe")
    ),
    *(
        f"{owner}.properties.payload_format_indicator:{slug}"
        for owner in ("connect.will", "publish")
        for slug in ("maximum", "two")
    ),
    "connect.will.properties.response_topic:empty",
    *(f"publish.properties.response_topic:{slug}" for slug in ("empty", "wildcard-hash", "wildcard-plus")),
    "connect:authentication-data-alone",
    "flow:receive-maximum-overrun",
    "publish.properties.subscription_identifier:zero",
    "publish:subscription-identifier-from-client",
    "subscribe.subscriptions.no_local:on-shared",
    *(
        f"subscribe.subscriptions.topic_filter:share-{slug}"
        for slug in ("filter-empty", "name-empty", "without-filter")
    ),
    # PUBREL with a reason code that is not one of its own: all but 0x00 and 0x92.
    *(f"pubrel.reason_code:unknown-{code}" for code in ("03", "7f", "ff")),
    *(
        f"pubrel.reason_code:of-another-packet-{code:02x}"
        for code in (
            *(0x01, 0x02, 0x04, 0x10, 0x11, 0x18, 0x19),
            *(code for code in range(0x80, 0xA3) if code != 0x92),
        )
    ),
}
DEVIATIONS = {
    version: dict.fromkeys(REFUSED, BrokerVerdict.REFUSED_LEGAL) | dict.fromkeys(tolerated, BrokerVerdict.TOLERATED)
    for version, tolerated in (
        (V3_1, set[str]()),
        (V3_1_1, TOLERATED_SINCE_3_1_1 | TOLERATED_IN_3_1_1),
        (V5, TOLERATED_SINCE_3_1_1 | TOLERATED_IN_5_0),
    )
}
"""By version: every mutation of the catalogue on `script` whose verdict is not ``conforming`` (mosquitto 2.0.11).

Each kind was held against the text of its statement; docs/brokers.md has them with lines for a shell.
"""
KNOWN = {
    # What mosquitto 2.0.11 does, each checked by hand against the text.
    "pingreq:reserved-flag-0": BrokerVerdict.TOLERATED,
    "publish.topic_name:many-levels": BrokerVerdict.REFUSED_LEGAL,
    "publish:dup-with-qos-0": BrokerVerdict.TOLERATED,
    "flow:wrong-direction-pingresp": BrokerVerdict.TOLERATED,
    "publish:qos-3": BrokerVerdict.CONFORMING,
    "flow:second-connect": BrokerVerdict.CONFORMING,
    "publish.topic_name:wildcard-hash": BrokerVerdict.CONFORMING,
    "publish.topic_name:utf8-surrogate": BrokerVerdict.CONFORMING,
    "publish.payload:empty": BrokerVerdict.CONFORMING,
    "flow:every-packet-type": BrokerVerdict.CONFORMING,
    "flow:identifier-in-use-qos-2": BrokerVerdict.CONFORMING,
    "subscribe.packet_identifier:maximum": BrokerVerdict.CONFORMING,
    "flow:split-at-every-byte": BrokerVerdict.CONFORMING,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto"), verbose=False) as new_broker:
        yield new_broker


async def _run(
    port: int, own: Script, names: list[str] | None, *, patience_s: float, process: Process | None = None
) -> list[CaseResult]:
    async with begun(trial_of(port, process, patience_s=patience_s)) as test:
        new_script = await fit(test, own)
        if names is not None:
            return [await test.play_case(new_script, make_case(name, new_script)) for name in names]
        cases = catalogued("*", new_script)
        return [result async for result in test.run((new_script, case) for case in cases if longest_s(case.case) < 10)]


@pytest.mark.parametrize("version", some([V3_1_1, V5], 2), ids=lambda each: str(each.text))
async def test_what_is_known_of_it(broker: Broker, version: ProtocolVersion) -> None:
    results = await _run(broker.port, script(version), list(KNOWN), patience_s=0.3)

    assert {result.case.mutation.name: ruled(result).verdict for result in results} == KNOWN
    assert [result.unclean for result in results if result.unclean] == []


async def test_3_1_leaves_it_free(broker: Broker) -> None:
    names = [name for name in KNOWN if name != "publish.topic_name:many-levels"]
    results = await _run(broker.port, script(V3_1), names, patience_s=0.3)

    assert [result.case.mutation.name for result in results if result.deviates or result.ruling is None] == []


async def test_nothing_of_ours_stays(broker: Broker) -> None:
    """Neither a session nor a subscription nor a retained message, whatever the flow had of them."""
    tools.package("paho.mqtt.client")
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    names = ["publish.payload:any-bytes", "flow:reset", "publish:qos-3"]
    own = script(V3_1_1)
    connect = own.entries[0].packet
    connect.clean_start = False  # type: ignore[union-attr]
    own.entries[0].raw = own.entries[0].raw[:9] + b"\x00" + own.entries[0].raw[10:]
    for entry in own.entries:
        if entry.from_client and entry.type == "publish":
            entry.packet.retain = True  # type: ignore[union-attr]
            entry.raw = bytes((entry.raw[0] | 1,)) + entry.raw[1:]
    results = await _run(broker.port, own, names, patience_s=0.3)
    assert [result.not_played for result in results] == [""] * len(names)
    assert [result.unclean for result in results if result.unclean] == []

    received: list[str] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, "device1", clean_session=False)
    present: list[bool] = []

    def connected(who: paho.Client, _: object, flags: paho.ConnectFlags, *more: object) -> None:
        who.subscribe("#")
        present.append(flags.session_present)

    client.on_connect = connected
    client.on_message = lambda _, __, message: received.append(message.topic)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    until(lambda: present, "CONNACK")
    # It comes after what is retained.
    client.publish("later", qos=1)
    until(lambda: "later" in received, "a message")
    client.disconnect()
    client.loop_stop()
    assert present == [False]
    assert received == ["later"]


async def _crowded(port: int, seed: int, most: int | None = None) -> list[CaseResult]:
    """The cases of a seed, sixteen at once; ``most``: of so many cases, at even distances."""
    async with begun(trial_of(port, patience_s=0.5)) as test:
        new_script = await fit(test, script())
        await test.run_baseline(new_script)
        cases = [
            numbered_case for numbered_case in catalogued("*", new_script, seed) if longest_s(numbered_case.case) < 3
        ]
        chosen = cases if most is None else cases[seed :: len(cases) // most]
        async with aclosing(Crowd(test, 16).run((new_script, case) for case in chosen)) as results:
            case_results = [result async for result in results]
    assert [result.number for result in case_results] == [numbered_case.number for numbered_case in chosen]
    assert test.notices == []
    return case_results


def _deviating(results: list[CaseResult]) -> dict[str, BrokerVerdict]:
    assert [result.not_played for result in results if result.ruling is None] == []
    assert [result.unclean for result in results if result.unclean] == []
    return {
        result.case.mutation.name: result.ruling.verdict
        for result in results
        if result.ruling and result.ruling.deviates
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_sixteen_at_once_come_to_what_one_comes_to(broker: Broker, seed: int) -> None:
    results = await _crowded(broker.port, seed, 100)
    names = {result.case.mutation.name for result in results}

    assert len(results) >= 100
    assert _deviating(results) == {name: verdict for name, verdict in DEVIATIONS[V5].items() if name in names}


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_whole_catalogue_at_once(broker: Broker, seed: int) -> None:
    assert _deviating(await _crowded(broker.port, seed)) == DEVIATIONS[V5]


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", list(ProtocolVersion), ids=lambda each: str(each.text))
async def test_the_whole_catalogue(broker: Broker, version: ProtocolVersion) -> None:
    process = Process(broker.process.pid)
    results = await _run(broker.port, script(version), None, patience_s=0.5, process=process)

    assert len(results) > 300
    # Neither a crash nor a leak nor any other harm is among them.
    assert _deviating(results) == DEVIATIONS[version]
