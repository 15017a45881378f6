"""Adversarial captures hold what they promise and break nothing; what grows too fast is said; no times are asserted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import MAX_PLACES, Finding
from tests.bench.adversarial import KINDS, Kind, generate
from tests.bench.growth import LEAST_SECONDS, NOISE_SECONDS, Growth
from tests.each import some

SMALL = 24
WITHOUT_MQTT = ("half_open",)


def linted(path: Path) -> tuple[int, list[Finding]]:
    linter = Linter([rule() for rule in all_rules().values()], strict=True)
    packets, findings = 0, []
    for event in dissect(open_capture([path])):
        packets += isinstance(event, PacketEvent | MalformedEvent)
        findings += linter.feed(event)
    return packets, findings


@pytest.mark.parametrize("kind", some(KINDS), ids=lambda kind: kind.__name__)
def test_a_kind_is_the_same_each_time_and_no_rule_fails(kind: Kind, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first", "second", "larger")]
    frames = [generate(kind, count, path) for path, count in zip(paths, (SMALL, SMALL, 8 * SMALL), strict=True)]
    sizes = [path.stat().st_size for path in paths]

    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert frames[0] == frames[1]
    assert sizes[2] > sizes[0] or kind.__name__ == "long_topic"
    packets, _ = linted(paths[2])
    assert (packets == 0) == (kind.__name__ in WITHOUT_MQTT)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_findings_of_a_packet_do_not_grow_with_it(kind: Kind, tmp_path: Path) -> None:
    """Of each rule one about a packet, or one for each statement and each way to count."""
    path = tmp_path / "capture"
    generate(kind, 500, path)
    counts: dict[tuple[str, int, int], int] = {}
    for finding in linted(path)[1]:
        if finding.packet is not None:
            key = finding.rule, finding.connection, finding.packet
            counts[key] = counts.get(key, 0) + 1
        assert len(finding.places) <= MAX_PLACES
        assert (finding.count > 1) == bool(finding.places)

    assert max(counts.values(), default=0) <= 4


@pytest.mark.parametrize(
    ("seconds", "exponent", "fails"),
    [
        ([1.3, 1.6, 2.8], 1.0, False),
        ([1.0, 2.0, 6.4], math.log(4.4) / math.log(4), False),
        ([1.0, 2.0, 18.0], 2.0, True),
        ([0.5, 0.5, NOISE_SECONDS * 8 + 0.5], 1.5, True),
        ([0.4, 0.4, 0.4 + LEAST_SECONDS / 2], None, False),
        ([1.0, 20.0], math.inf, True),
    ],
)
def test_what_grows_too_fast_fails(seconds: list[float], exponent: float | None, fails: bool) -> None:
    growth = Growth("kind", "command", (1_000, 4_000, 16_000), seconds)

    assert growth.exponent == (exponent if exponent is None else pytest.approx(exponent))
    assert growth.fails is fails
    assert growth.allowed == pytest.approx(1.11 + 0.25, abs=0.01)
