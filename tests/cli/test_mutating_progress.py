"""How far a run of `mutate` is."""

from __future__ import annotations

import asyncio
import time

import pytest

from mqttscope.cli.mutating_found import ProgressLine, rough


class Terminal:
    """Takes what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def seen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let standard error be a terminal."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    return made


def test_a_limit_is_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = seen(monkeypatch)
    made = ProgressLine(limit=2_447)
    made.count(())
    made._began = time.monotonic() - 12
    made.tell(12, 1)

    assert "12 of 2,447 cases, 1 deviation, about 41 min left" in terminal.text


def test_without_a_limit_cases_are_counted_beside_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch)

    async def run() -> list[str]:
        made = ProgressLine()
        made.count(range(30))
        first = made.line(1, 0)
        assert made._counting is not None
        await made._counting
        made._began = time.monotonic() - 10
        return [first, made.line(10, 2)]

    first, later = asyncio.run(run())
    assert first == "1 case, 0 deviations"
    assert later == "10 of 30 cases, 2 deviations, about 20 s left"


def test_with_a_time_the_rest_of_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch)
    made = ProgressLine(seconds=600)
    made.count(range(5))

    assert made.line(3, 1).startswith("3 cases, 1 deviation, about 10 min left")


def test_nothing_is_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = seen(monkeypatch)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    made = ProgressLine(limit=5)
    made.tell(1, 1)
    made.reducing(3)
    made.end()

    assert terminal.text == ""


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0 s"), (99, "99 s"), (130, "2 min"), (5_900, "98 min"), (11_400, "3 h 10 min")]
)
def test_times_are_rough(seconds: float, told: str) -> None:
    assert rough(seconds) == told
