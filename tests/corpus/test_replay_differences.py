"""What a broker does otherwise is found by a replay and called by its name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from mqttscope.mqtt import (
    Connack,
    ControlPacket,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from tests.corpus import brokers
from tests.each import some
from tests.replay.interloper import CLOSE, Change, Said, altered, between, exchanged, once, untouched

pytestmark = pytest.mark.broker
USER_PROPERTY, CONTENT_TYPE = 0x26, 0x03


def a(kind: type[ControlPacket], client: str = "", **fields: Any) -> Callable[[str, ControlPacket], bool]:
    """Packets of a type, to a client, with these fields."""

    def matches(name: str, packet: ControlPacket) -> bool:
        return (
            isinstance(packet, kind)
            and (not client or name == client)
            and all(getattr(packet, text) == value for text, value in fields.items())
        )

    return matches


def changed(**fields: Any) -> Callable[[ControlPacket], Said]:
    return lambda packet: (altered(packet, **fields),)


def nothing(packet: ControlPacket) -> Said:
    return ()


def twice(packet: ControlPacket) -> Said:
    return packet, packet


def closing(packet: ControlPacket) -> Said:
    return packet, CLOSE


def stripped(identifier: int) -> Callable[[Publish], Said]:
    def result(packet: Publish) -> Said:
        assert packet.properties is not None
        return (altered(packet, properties=packet.properties.without(identifier)),)

    return result


def behind(data: bytes) -> Callable[[ControlPacket], Said]:
    return lambda packet: (packet, data)


@dataclass(slots=True)
class Planted:
    """A change, and what is said of it."""

    capture: str
    change: Callable[[], Change]
    kinds: set[str]
    count: int = 1
    code: int = EXIT_FINDINGS


def planted(capture: str, matches: Any, result: Any, *kinds: str, count: int = 1, code: int = EXIT_FINDINGS) -> Planted:
    return Planted(capture, lambda: once(matches, result), set(kinds), count, code)


CASES = {
    "delivery dropped, QoS 0": planted("v5-qos", a(Publish, "logger", qos=0), nothing, "missing-delivery"),
    "delivery dropped, QoS 1": planted("v311-qos", a(Publish, "logger", qos=1), nothing, "missing-delivery"),
    "delivery dropped, QoS 2": planted("v31-qos", a(Publish, "logger", qos=2), nothing, "missing-delivery"),
    "retained message dropped": planted("v311-retained", a(Publish, "panel-2"), nothing, "missing-delivery"),
    "will dropped": planted("v311-will", a(Publish, "watcher"), nothing, "missing-delivery"),
    "PUBACK dropped": planted("v5-qos", a(Puback, "sensor-1"), nothing, "missing-answer"),
    "PUBREC dropped": planted("v311-qos", a(Pubrec, "sensor-1"), nothing, "missing-answer"),
    "PUBREL dropped": planted("v311-qos", a(Pubrel, "logger"), nothing, "missing-answer"),
    "PUBCOMP dropped": planted("v5-qos", a(Pubcomp, "sensor-1"), nothing, "missing-answer"),
    "SUBACK dropped": planted("v311-qos", a(Suback), nothing, "missing-answer"),
    "UNSUBACK dropped": planted("v31-qos", a(Unsuback), nothing, "missing-answer"),
    "PINGRESP dropped": planted("many-in-one-segment", a(Pingresp), nothing, "missing-answer"),
    "CONNACK dropped": planted("v5-qos", a(Connack, "sensor-1"), nothing, "missing-answer", code=EXIT_FAILED),
    "PUBACK twice": planted("v5-qos", a(Puback, "sensor-1"), twice, "unexpected-answer"),
    "CONNACK twice": planted("v5-qos", a(Connack, "sensor-1"), twice, "unexpected-answer"),
    "PUBREC twice": planted("v311-qos", a(Pubrec, "sensor-1"), twice, "unexpected-answer"),
    "PUBREL twice": planted("v311-qos", a(Pubrel, "logger"), twice, "unexpected-answer"),
    "PUBCOMP twice": planted("v5-qos", a(Pubcomp, "sensor-1"), twice, "unexpected-answer"),
    "SUBACK twice": planted("v311-qos", a(Suback), twice, "unexpected-answer"),
    "UNSUBACK twice": planted("v31-qos", a(Unsuback), twice, "unexpected-answer"),
    "PINGRESP twice": planted("many-in-one-segment", a(Pingresp), twice, "unexpected-answer"),
    "order": Planted("v5-flow-control", lambda: exchanged(a(Publish, "narrow")), {"order"}),
    "PUBACK succeeds otherwise": planted("v5-qos", a(Puback), changed(reason_code=0x10), "reason-code"),
    "PUBACK refuses": planted("v5-qos", a(Puback), changed(reason_code=0x97), "reason-code"),
    "PUBREC refuses": planted("v5-qos", a(Pubrec, "sensor-1"), changed(reason_code=0x97), "reason-code"),
    "SUBACK grants less": planted("v5-qos", a(Suback), changed(reason_codes=[1]), "granted-qos"),
    "SUBACK refuses": planted("v311-qos", a(Suback), changed(reason_codes=[0x80]), "reason-code"),
    "UNSUBACK": planted("v5-qos", a(Unsuback), changed(reason_codes=[0x11]), "reason-code"),
    "CONNACK refuses, 5.0": planted("v5-qos", a(Connack, "sensor-1"), changed(reason_code=0x88), "reason-code"),
    "CONNACK refuses, 3.1.1": planted("v311-qos", a(Connack, "sensor-1"), changed(reason_code=3), "reason-code"),
    "CONNACK without a limit": planted("v5-limits", a(Connack), stripped(0x24), "property"),
    "user property": planted(
        "v5-publish-properties", a(Publish, "logger"), stripped(USER_PROPERTY), "property"
    ),
    "content type": planted(
        "v5-publish-properties", a(Publish, "logger", qos=2), stripped(CONTENT_TYPE), "property"
    ),
    "delivery with lower QoS": planted(
        "v311-qos", a(Publish, "logger", qos=1), changed(qos=0, packet_identifier=None), "delivery-qos"
    ),
    "RETAIN cleared": planted("v311-retained", a(Publish, "panel-1", retain=True), changed(retain=False), "retain"),
    "RETAIN set": planted("v5-qos", a(Publish, "logger", qos=1), changed(retain=True), "retain"),
    "payload": planted("v5-qos", a(Publish, "logger", qos=0), changed(payload=b"20.9"), "payload"),
    "payload, QoS 2": planted("v311-qos", a(Publish, "logger", qos=2), changed(payload=b"!"), "payload"),
    "topic": planted(
        "v5-qos", a(Publish, "logger", qos=0), changed(topic_name="plant/x/temperature"),
        "missing-delivery", "extra-delivery", count=2,
    ),
    "delivery twice": planted("v5-qos", a(Publish, "logger", qos=0), twice, "extra-delivery"),
    "session lost": planted(
        "v311-session-present", a(Connack, "meter", session_present=True), changed(session_present=False),
        "session-present",
    ),
    "session found": planted(
        "v311-session-present", a(Connack, "office"), changed(session_present=True), "session-present"
    ),
    "closed early": planted("v311-qos", a(Suback, "logger"), closing, "close"),
    "closed after CONNACK": planted("v311-qos", a(Connack, "sensor-1"), closing, "close"),
    "closed before CONNACK": planted(
        "v311-qos", a(Connack, "sensor-1"), lambda _: (CLOSE,), "not-connected", code=EXIT_FAILED
    ),
    "malformed": planted("v5-qos", a(Unsuback, "logger"), behind(b"\x90\x00"), "malformed"),
    "DISCONNECT": planted("v5-qos", a(Connack, "sensor-1"), lambda each: (each, b"\xe0\x01\x8b", CLOSE), "close"),
}  # fmt: skip


STATELESS = {"v31-qos", "v311-qos", "v5-qos", "v5-publish-properties", "many-in-one-segment"}
"""Captures that leave nothing at their broker: no sessions, no retained messages."""
Replay = Callable[..., brokers.Replayed]


@pytest.fixture(scope="module")
def replayed() -> Iterator[Replay]:
    """Replays a capture through a man in the middle; brokers that nothing is left at serve many times."""
    with ExitStack() as running:
        urls: dict[str, str] = {}

        def replay(capture: str, change: Change, folder: Path, *options: str, delay_s: float = 0.0) -> brokers.Replayed:
            with ExitStack() as once:
                url = urls.get(capture)
                if url is None:
                    stack = running if capture in STATELESS else once
                    url = stack.enter_context(brokers.recorded_with(capture))
                    if capture in STATELESS:
                        urls[capture] = url
                port = once.enter_context(between(int(url.rpartition(":")[2]), change, delay_s=delay_s))
                return brokers.replay(capture, f"mqtt://127.0.0.1:{port}", folder, *options)

        yield replay


@pytest.mark.parametrize("case", some(CASES, 4))
def test_a_difference_is_named(case: str, tmp_path: Path, replayed: Replay) -> None:
    single_planted = CASES[case]
    actual_replayed = replayed(
        single_planted.capture, single_planted.change(), tmp_path, "--pace", "asap", "--wait", "0.6"
    )
    if set(actual_replayed.kinds) != single_planted.kinds:
        # A busy machine needs more time; what is not named then is not named.
        actual_replayed = replayed(
            single_planted.capture, single_planted.change(), tmp_path, "--pace", "asap", "--wait", "5"
        )

    assert set(actual_replayed.kinds) == single_planted.kinds, actual_replayed.told
    assert actual_replayed.kinds.total() == single_planted.count, actual_replayed.told
    assert actual_replayed.done.code == single_planted.code
    assert brokers.client_errors(actual_replayed.findings) <= brokers.recorded_errors(single_planted.capture)


@pytest.mark.parametrize(("capture", "pace"), [("v31-qos", "causal"), ("v311-retained", "asap")])
def test_what_only_comes_later_is_no_difference(capture: str, pace: str, tmp_path: Path, replayed: Replay) -> None:
    actual_replayed = replayed(capture, untouched, tmp_path, "--pace", pace, delay_s=0.05)

    assert actual_replayed.told == []
    assert actual_replayed.done.code == EXIT_CLEAN


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("--client", "logger"), {"missing-delivery"}),
        (("--client", "sensor-1"), {"reason-code"}),
        (("--set", "publish.payload=x"), {"missing-delivery", "extra-delivery"}),
        (("--clients", "2"), {"extra-delivery"}),
    ],
)
def test_what_the_options_cause_does_not_count(
    options: tuple[str, ...], kinds: set[str], tmp_path: Path, replayed: Replay
) -> None:
    actual_replayed = replayed("v5-qos", untouched, tmp_path, "--pace", "asap", "--wait", "6", *options)

    differences = [line for line in actual_replayed.done.lines if line.get("event") == "difference"]
    assert set(actual_replayed.kinds) == kinds
    assert all(difference["because_of"] == {"option": options[0], "certain": True} for difference in differences)
    assert actual_replayed.done.code == EXIT_CLEAN
    assert actual_replayed.summary["seconds"] < 5, "what cannot come is not waited for"
