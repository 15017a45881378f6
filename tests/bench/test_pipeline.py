"""What a tree of processes takes is seen, and where one way becomes the faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.pipeline import Tree, break_even, size_mb
from tests.proxy.rig import until

BUSY = """if True:
    import subprocess, sys, time
    kept = bytearray(80_000_000)
    sys.stdout.write("ready")
    sys.stdout.flush()
    while True:
        pass
"""


def test_processor_time_and_memory_of_children_count() -> None:
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    tree = Tree()

    def has_worked() -> bool:
        tree.look(process.pid)
        return tree.processor > 0.1

    try:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        until(has_worked, "0.1 s of processor time")
    finally:
        os.killpg(process.pid, 9)
        process.communicate()

    assert set(tree.peak_mb) == {"python", "worker"}
    assert tree.peak_mb["worker"] > 80
    assert tree.peak_mb["python"] < tree.peak_mb["worker"]


@pytest.mark.parametrize(
    ("small", "large", "there"),
    [
        # 1 s for 100 frames in process; 10 s to begin and half as long for a frame.
        ((100, 1.0, 10.5), (1000, 10.0, 15.0), 2000),
        ((100, 1.0, 11.0), (1000, 10.0, 20.0), None),
        ((100, 1.0, 11.0), (1000, 10.0, 29.0), None),
        ((100, 1.0, 0.5), (1000, 10.0, 5.0), 0),
    ],
)
def test_where_the_second_way_becomes_the_faster(
    small: tuple[int, float, float], large: tuple[int, float, float], there: int | None
) -> None:
    assert break_even(small, large) == there


def test_what_lies_in_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(bytes(300_000))
    (tmp_path / "a" / "b" / "other").write_bytes(bytes(200_000))

    assert size_mb(str(tmp_path)) == 0.5
    assert size_mb(str(tmp_path / "none")) == 0
