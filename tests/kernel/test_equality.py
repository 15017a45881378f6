"""The kernel gives what Python alone gives, byte for byte, and reads most of ordinary captures."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random

import pytest

from mqttscope.kernel import native
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.examples import segments
from tests import corpora
from tests.cli.running import invoke
from tests.conftest import ROOT
from tests.dissect.secure import as_frame
from tests.each import some
from tests.fuzz import damage
from tests.kernel import mutation, payloads
from tests.kernel.comparison import count_natively, count_purely, difference, read_natively

pytestmark = pytest.mark.skipif(native() is None, reason="the kernel is not built")
COMMITTED = sorted((ROOT / "captures").glob("*/capture.pcap*"))
MUTATED = 600


@pytest.mark.parametrize("start", range(4))
def test_every_committed_capture_gives_the_same(start: int) -> None:
    for path in COMMITTED[start::4]:
        assert difference(path.read_bytes()) is None, path


@pytest.mark.parametrize("start", range(4))
def test_every_committed_capture_gives_the_same_statistics(start: int) -> None:
    for path in COMMITTED[start::4]:
        assert difference(path.read_bytes(), counted=True) is None, path


def test_captures_with_faults_give_the_same_statistics() -> None:
    for number, data in enumerate(mutation.mutated(300, 12)):
        assert difference(data, counted=True) is None, f"python -m tests.kernel.mutation --counted --seed 12, {number}"


@pytest.mark.parametrize(
    "limits", [{"topics": 2}, {"releases": 1}, {"topic_clients": 1}, {"clients": 1}, {"connections": 1}]
)
def test_statistics_are_the_same_at_their_limits(limits: dict[str, int]) -> None:
    for path in COMMITTED[::3]:
        data = path.read_bytes()
        natively = count_natively(data, limits)
        assert natively is None or natively == count_purely(data, limits), path


def test_payloads_with_signs_of_secrets_give_the_same() -> None:
    random = Random(7)
    for limit in (0, 100, 4_000, 65_536):
        data = payloads.capture(payloads.drawn(random, 400))
        reading = read_natively(data, limit)
        assert reading is not None
        assert reading.share["frames"] > 400
        assert difference(data, limit=limit) is None, limit


@pytest.mark.parametrize("start", range(4))
def test_every_committed_capture_gives_the_same_findings(start: int) -> None:
    for path in COMMITTED[start::4]:
        assert difference(path.read_bytes(), judged=True) is None, path


def test_captures_with_faults_give_the_same_findings() -> None:
    for number, data in enumerate(mutation.mutated(100, 9)):
        assert difference(data, judged=True) is None, f"python -m tests.kernel.mutation --judged --seed 9, {number}"


@pytest.mark.parametrize("start", range(4))
def test_examples_of_rules_give_the_same_findings(start: int) -> None:
    """All of those with a closed receive window, and others that are drawn."""
    every = [example for rule in all_rules().values() for example in (*rule.good, *rule.bad)]
    closed = [example for example in every if any(step.is_full for step in example.steps)]
    assert closed
    for example in [*closed, *Random(start).sample(every, 60)][start::4]:
        frames = [as_frame(segment) for segment in segments(example)]
        records = [mutation.Record(frame.timestamp_ns, frame.data, frame.original_length) for frame in frames]
        assert difference(mutation.written(frames[0].link_type, records), judged=True) is None, example.title


def test_the_kernel_reads_ordinary_captures() -> None:
    shares = [reading.share for path in COMMITTED if (reading := read_natively(path.read_bytes())) is not None]
    assert len(shares) > len(COMMITTED) // 3
    assert sum(share["frames"] for share in shares) > 500
    assert sum(share["flows"] for share in shares) > 50


@pytest.mark.parametrize("pattern", corpora.cases("captures", [corpora.folder()] if corpora.folder() else []))
def test_captures_of_the_corpora_give_the_same(pattern: Path) -> None:
    paths = [path for path in sorted(pattern.glob("captures/**/*")) if path.suffix in (".pcap", ".pcapng", ".cap")]
    assert paths
    for path in paths:
        if path.stat().st_size < 4 << 20:
            assert difference(path.read_bytes()) is None, path
            assert difference(path.read_bytes(), counted=True) is None, path


def test_a_capture_cut_anywhere_gives_the_same() -> None:
    random = Random(5)
    for path in random.sample(COMMITTED, 6):
        data = path.read_bytes()
        for _ in range(12):
            assert difference(data[: random.randrange(len(data))]) is None, path


def test_ordinary_captures_cut_between_frames_give_the_same() -> None:
    link_type, records = max(
        (original for original in mutation.originals() if len(original[1]) < 80), key=lambda original: len(original[1])
    )
    for count in range(len(records)):
        data = mutation.written(link_type, records[:count])
        assert difference(data) is None, count


@pytest.mark.parametrize("seed", some(range(4)))
def test_captures_with_faults_give_the_same(seed: int) -> None:
    read = 0
    for number, data in enumerate(mutation.mutated(MUTATED // 4, seed)):
        assert difference(data) is None, f"python -m tests.kernel.mutation --seed {seed}, capture {number}"
        read += read_natively(data) is not None
    assert read > MUTATED // 10


def test_payloads_that_are_shown_in_a_special_way_give_the_same() -> None:
    for text in mutation.TEXTS:
        captures = list(mutation.with_texts([text]))
        shares = [reading.share["frames"] for data in captures if (reading := read_natively(data)) is not None]
        assert any(shares), text
        for data in captures:
            assert difference(data) is None, text


def test_damaged_files_give_the_same() -> None:
    for number, data in enumerate(damage.damaged(300)):
        if len(data) < 200_000:
            assert difference(data) is None, number


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_no_file_stays_open_although_nothing_is_collected(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir()))
    gc.disable()
    try:
        for path in COMMITTED[:40]:
            for command in (["lint"], ["inspect", "--format", "jsonl"]):
                invoke(*command, str(path), "-o", str(tmp_path / "output"))
        after = len(list(folder.iterdir()))
    finally:
        gc.enable()

    assert after <= before + 1
