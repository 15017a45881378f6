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


def says(new_mutant: Mutant, secrets: Secrets) -> bool:
    """Whether a well-formed packet names a run of a secret as something that is none: a user name, a topic."""
    events = list(dissect_segments(new_mutant.segments, READING))
    for sender, side in (("client", new_mutant.client), ("server", new_mutant.server)):
        events += Sequence(None, sender).events(b"".join(side))
    for event in events:
        if isinstance(event, PacketEvent) and secrets.inside(b"\0".join(_open_values(event))) is not None:
            return True
    return False


def _open_values(event: PacketEvent) -> list[bytes]:
    packet = event.packet
    result: list[object] = [
        getattr(packet, name, None)
        for name in [field.name for field in fields(packet)]
        if name not in ("raw", "password")
    ]
    if isinstance(packet, Connect) and packet.will is not None:
        result += [packet.will.will_topic, packet.will.will_payload, packet.will.properties]
    values: list[bytes] = []
    for each in result:
        if isinstance(each, Properties):
            for number, value in each.items:
                parts = value if isinstance(value, tuple) else (value,)
                values += [_raw(part) for part in parts if number != AUTHENTICATION_DATA]
        else:
            values.append(_raw(each))
    return values


def _raw(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else b""


def leaks(seeds: range, kind: Callable[[int], Mutant] = mutant) -> tuple[list[str], int]:
    """What leaks of these mutants, and how many were left out since they say their secret openly."""
    texts: list[str] = []
    openly = 0
    for seed in seeds:
        new_mutant = kind(seed)
        secrets = Secrets(new_mutant.scene.secrets)
        for name, written in outputs(new_mutant):
            leak = secrets.leak(written)
            if leak is not None:
                if says(new_mutant, secrets):
                    openly += 1
                    break
                texts.append(f"{name} ({leak[0]}): {leak[1]!r} of {new_mutant.name}")
    return texts, openly


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_no_output_shows_a_secret(part: int) -> None:
    texts, openly = leaks(range(part * SOME // 4, (part + 1) * SOME // 4))
    assert texts == []
    assert openly <= SOME // 100


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_no_output_shows_a_secret_of_what_was_spliced(part: int) -> None:
    texts, openly = leaks(range(part * SPLICED // 2, (part + 1) * SPLICED // 2), splice)
    assert texts == []
    assert openly <= SPLICED // 20


@pytest.mark.exhaustive
def test_no_output_shows_a_secret_of_very_much_that_was_spliced() -> None:
    texts, openly = leaks(range(ALL_SPLICED), splice)
    assert texts == []
    assert openly <= ALL_SPLICED // 50


@pytest.mark.exhaustive
def test_no_output_shows_a_secret_in_very_many_ways() -> None:
    texts, openly = leaks(range(ALL))
    assert texts == []
    assert openly <= ALL // 100


if __name__ == "__main__":
    import sys
    import time

    def say(result: object) -> None:
        sys.stdout.write(f"{result}\n")

    first, behind = (int(text) for text in sys.argv[1:3])
    if behind <= first:
        sys.exit("python -m tests.secrets.test_fuzz FIRST BEHIND: the second number is the larger one")
    began = time.monotonic()
    all_found, open_count = leaks(range(first, behind), splice if sys.argv[3:] == ["splices"] else mutant)
    for leak in all_found[: int(os.environ.get("SHOWN", "40"))]:
        say(leak)
    say(Counter(text.split(" (")[0] for text in all_found))
    say(Counter(text.partition("seed ")[2].partition(",")[0] for text in all_found).most_common(5))
    say(f"{behind - first}, {len(all_found)} leaks, {open_count} say so openly, {time.monotonic() - began:.0f} s")
