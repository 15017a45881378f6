"""No output shows a secret of a damaged conversation, however it was damaged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import fields

import pytest

from mqttscope.api.decoding import Sequence
from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.properties import Properties
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Mutant, mutant
from tests.secrets.sinks import READING, outputs
from tests.secrets.splices import splice

SOME, ALL = 160, 20_000
SPLICED, ALL_SPLICED = 40, 6_000
AUTHENTICATION_DATA = 0x16


def says(made: Mutant, secrets: Secrets) -> bool:
    """Whether a well-formed packet names a run of a secret as something that is none: a user name, a topic."""
    found = list(dissect_segments(made.segments, READING))
    for sender, side in (("client", made.client), ("server", made.server)):
        found += Sequence(None, sender).events(b"".join(side))
    for event in found:
        if isinstance(event, PacketEvent) and secrets.inside(b"\0".join(_open_values(event))) is not None:
            return True
    return False


def _open_values(event: PacketEvent) -> list[bytes]:
    packet = event.packet
    found: list[object] = [
        getattr(packet, name, None) for name in [one.name for one in fields(packet)] if name not in ("raw", "password")
    ]
    if isinstance(packet, Connect) and packet.will is not None:
        found += [packet.will.will_topic, packet.will.will_payload, packet.will.properties]
    values: list[bytes] = []
    for one in found:
        if isinstance(one, Properties):
            for number, value in one.items:
                parts = value if isinstance(value, tuple) else (value,)
                values += [_raw(part) for part in parts if number != AUTHENTICATION_DATA]
        else:
            values.append(_raw(one))
    return values


def _raw(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else b""


def leaks(seeds: range, kind: Callable[[int], Mutant] = mutant) -> tuple[list[str], int]:
    """What leaks of these mutants, and how many were left out since they say their secret openly."""
    found: list[str] = []
    openly = 0
    for seed in seeds:
        made = kind(seed)
        secrets = Secrets(made.scene.secrets)
        for name, written in outputs(made):
            leak = secrets.leak(written)
            if leak is not None:
                if says(made, secrets):
                    openly += 1
                    break
                found.append(f"{name} ({leak[0]}): {leak[1]!r} of {made.name}")
    return found, openly


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_no_output_shows_a_secret(part: int) -> None:
    found, openly = leaks(range(part * SOME // 4, (part + 1) * SOME // 4))
    assert found == []
    assert openly <= SOME // 100


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_no_output_shows_a_secret_of_what_was_spliced(part: int) -> None:
    found, openly = leaks(range(part * SPLICED // 2, (part + 1) * SPLICED // 2), splice)
    assert found == []
    assert openly <= SPLICED // 20


@pytest.mark.exhaustive
def test_no_output_shows_a_secret_of_very_much_that_was_spliced() -> None:
    found, openly = leaks(range(ALL_SPLICED), splice)
    assert found == []
    assert openly <= ALL_SPLICED // 50


@pytest.mark.exhaustive
def test_no_output_shows_a_secret_in_very_many_ways() -> None:
    found, openly = leaks(range(ALL))
    assert found == []
    assert openly <= ALL // 100


if __name__ == "__main__":
    import sys
    import time

    def say(told: object) -> None:
        sys.stdout.write(f"{told}\n")

    first, behind = (int(one) for one in sys.argv[1:3])
    if behind <= first:
        sys.exit("python -m tests.secrets.test_fuzz FIRST BEHIND: the second number is the larger one")
    began = time.monotonic()
    all_found, said = leaks(range(first, behind), splice if sys.argv[3:] == ["splices"] else mutant)
    for one in all_found[: int(os.environ.get("SHOWN", "40"))]:
        say(one)
    say(Counter(one.split(" (")[0] for one in all_found))
    say(Counter(one.partition("seed ")[2].partition(",")[0] for one in all_found).most_common(5))
    say(f"{behind - first} mutants, {len(all_found)} leaks, {said} say it openly, {time.monotonic() - began:.0f} s")
