"""What a tree of processes takes is seen."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.bench.pipeline import Tree

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
    try:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        time.sleep(0.3)
        tree = Tree()
        tree.look(process.pid)
    finally:
        os.killpg(process.pid, 9)
        process.communicate()

    assert set(tree.peak_mb) == {"python", "worker"}
    assert tree.peak_mb["worker"] > 80
    assert tree.peak_mb["python"] < tree.peak_mb["worker"]
    assert tree.processor > 0.1
