"""A small number of the laboratory's cases, and what judges them; `make lab` draws hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqttscope.explain.fates import Fate
from mqttscope.explain.model import Cause
from tests import live
from tests.cli.running import capture
from tests.lab.catalogue import CLOCK, FAULTS, LATE, ONE_WAY, SHORT, Truth
from tests.lab.judge import MISSING, PARTLY, RIGHT, WRONG, damage, judge
from tests.lab.rig import Draw
from tests.lab.runs import Case, draw, is_good, report, run
from tests.tools import package, program

CASES = 12
"""About 30 s on two cores."""
LOST = capture("link-lost-keep-alive")


@pytest.mark.long
@pytest.mark.broker
def test_cases_that_are_drawn(tmp_path: Path) -> None:
    for name in ("mosquitto", "openssl"):
        program(name)
    package("paho.mqtt.client")
    live.need_capture()

    cases = list(run(range(CASES), seed=1, folder=tmp_path, jobs=4))

    path = report(cases, tmp_path)
    assert len(cases) == CASES
    assert is_good(cases), path.read_text("utf-8")


def test_each_kind_comes_once_before_one_comes_twice() -> None:
    drawn = [draw(5, number, 0, has_wire=True, has_amqtt=False) for number in range(len(FAULTS))]
    assert {case.fault for case in drawn} == set(FAULTS)
    assert drawn == [draw(5, number, 0, has_wire=True, has_amqtt=False) for number in range(len(FAULTS))]


def test_a_case_is_drawn_again_by_its_kind() -> None:
    case = draw(5, 17, 0, has_wire=True, has_amqtt=False)
    assert draw(5, 17, 0, has_wire=True, has_amqtt=False, only=(case.fault,)) == case


def test_nothing_is_done_to_frames_of_loopback() -> None:
    drawn = [draw(1, number, 0, has_wire=False, has_amqtt=True) for number in range(200)]
    assert not any(FAULTS[case.fault].needs_wire or case.delay_ms for case in drawn)


@pytest.mark.parametrize(
    ("causes", "also", "verdict", "contradicted"),
    [
        ((Cause.KEEP_ALIVE,), (Cause.HALF_OPEN,), RIGHT, 0),
        ((Cause.KEEP_ALIVE,), (), RIGHT, 1),
        ((Cause.HALF_OPEN,), (), PARTLY, 1),
        ((Cause.TAKEN_OVER,), (), WRONG, 2),
    ],
)
def test_verdicts_about_an_end(
    causes: tuple[Cause, ...], also: tuple[Cause, ...], verdict: str, contradicted: int
) -> None:
    judgement = judge(LOST, Truth.end("valve-3", *causes, also=also, guilty=("client",)))
    assert (judgement.verdict, len(judgement.contradicted)) == (verdict, contradicted)


def test_an_end_that_is_not_explained() -> None:
    assert judge(LOST, Truth.end("valve-9", Cause.KEEP_ALIVE)).verdict == MISSING


@pytest.mark.parametrize(
    ("client", "fate", "verdict"),
    [("late", Fate.SUBSCRIBED_LATER, RIGHT), ("late", Fate.OFFLINE, WRONG), ("nobody", Fate.OFFLINE, MISSING)],
)
def test_verdicts_about_a_message(client: str, fate: Fate, verdict: str) -> None:
    assert judge(capture("undelivered"), Truth.lost("plant/7/alarm", client, fate)).verdict == verdict


def test_an_error_of_the_side_that_did_nothing_wrong() -> None:
    truth = Truth.end("alias", Cause.TOPIC_ALIAS, guilty=("client",))
    assert not judge(capture("v5-server-disconnect"), truth).accused
    truth.guilty = frozenset(("server",))
    assert judge(capture("v5-server-disconnect"), truth).accused


def drawn() -> Draw:
    return draw(1, 0, 0, has_wire=False, has_amqtt=False)


def test_a_report_names_what_to_repeat(tmp_path: Path) -> None:
    truth = Truth.end("valve-3", Cause.TAKEN_OVER)
    case = Case(drawn(), truth, judge(LOST, truth), str(LOST))
    text = report([case], tmp_path).read_text("utf-8")
    assert f"make lab SEED=1 CASE=0 FAULT={case.draw.fault}" in text
    assert "true: valve-3: taken_over" in text
    assert not is_good([case])


def test_what_is_right_is_good() -> None:
    truth = Truth.end("valve-3", Cause.KEEP_ALIVE, Cause.HALF_OPEN, guilty=("client",))
    assert is_good([Case(drawn(), truth, judge(LOST, truth), str(LOST))])
    assert not is_good([Case(drawn())])


@pytest.mark.parametrize("kind", [LATE, SHORT, CLOCK, ONE_WAY])
def test_damaged_recordings(kind: str, tmp_path: Path) -> None:
    ports = (b"\x90\0\x07\x5b", b"\x07\x5b\x90\0")
    record = b"".join(
        bytes([second, 0, 0, 99]) + bytes(4) + bytes([200, 0, 0, 0]) * 2
        + bytes(14) + b"\x45" + bytes(19) + ports[second % 2] + bytes(162)
        for second in range(9)
    )  # fmt: skip
    whole = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000") + record
    (tmp_path / "whole.pcap").write_bytes(whole)
    damage(tmp_path / "whole.pcap", tmp_path / "damaged.pcap", kind, random.Random(1))
    damaged = (tmp_path / "damaged.pcap").read_bytes()
    assert damaged[:24] == whole[:24]
    assert damaged != whole
    assert (len(damaged) < len(whole)) == (kind != CLOCK)
