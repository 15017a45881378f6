"""The result of the second process, and its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.cli.second_process import SecondProcessLostError, second_process
from tests.proxy.rig import until


def children() -> set[str]:
    """The child processes of this one; other tests may have started some of them."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def test_a_long_result() -> None:
    with second_process(lambda _: bytes([7]) * 3_000_000) as result:
        assert result() == bytes([7]) * 3_000_000


def test_an_exception_is_raised_with_its_trace() -> None:
    def work(end_orphan: Callable[[], object]) -> bytes:
        raise KeyError("lost")

    with second_process(work) as result, pytest.raises(KeyError, match="lost") as raised:
        result()
    assert "in work" in raised.value.__notes__[0]


def test_an_exception_that_cannot_be_pickled_keeps_its_text() -> None:
    class LocalError(Exception):
        pass

    def work(end_orphan: Callable[[], object]) -> bytes:
        raise LocalError("lost")

    with second_process(work) as result, pytest.raises(RuntimeError, match="LocalError: lost"):
        result()


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGKILL, "was killed by SIGKILL"), (None, "ended with code 5")]
)
def test_a_lost_process_is_reported(number: int | None, expected: str) -> None:
    def work(end_orphan: Callable[[], object]) -> bytes:
        if number is None:
            os._exit(5)
        os.kill(os.getpid(), number)
        return b""

    before = children()
    with pytest.raises(SecondProcessLostError, match=expected), second_process(work) as result:
        result()
    assert children() <= before


def test_the_process_ends_with_the_context() -> None:
    def work(end_orphan: Callable[[], object]) -> bytes:
        time.sleep(60)
        return b""

    before = children()
    with second_process(work):
        assert len(children() - before) == 1
    assert children() <= before


def test_an_orphan_ends(tmp_path: Path) -> None:
    place = tmp_path / "process"

    def work(end_orphan: Callable[[], object]) -> bytes:
        place.write_text(str(os.getpid()))
        while True:
            end_orphan()
            time.sleep(0.01)

    parent = os.fork()
    if not parent:
        with second_process(work):
            until(lambda: place.exists() and place.read_text() != "", "the start of the second process")
            os._exit(0)
    os.waitpid(parent, 0)
    until(lambda: not Path(f"/proc/{place.read_text()}").exists(), "the end of the orphan")
