"""Progress and results of ``mutate``.

`ProgressLine` shows the number of cases, the deviations and the time left.  `ReproducerFolder` reduces failing cases
and writes them to files that can be played again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson

from mqttscope.broker_test.conversation import SERVER, frames
from mqttscope.broker_test.drivers.health import NoBrokerError
from mqttscope.broker_test.drivers.minimize import MinimizedCase, Progress, minimize_case
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.export import shell_line
from mqttscope.capture.write import PcapngWriter, make_folder, open_alone
from mqttscope.cli import output
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.output import CannotWriteError
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import View
from mqttscope.report.broker_test.outcome import CASE, BrokerRun, ReducedCase, result_json
from mqttscope.report.broker_test.text import write_deviation
from mqttscope.report.page import Page
from mqttscope.transport.wire import Endpoint


class ReproducerFolder:
    """A folder with four files for each kind of deviation: ``.txt``, ``.json``, ``.pcapng`` and ``.sh``.

    They contain the original bytes, including passwords, to be played again; only their owner can read them.
    """

    def __init__(self, path: str) -> None:
        self.folder = Path(path)
        self._known: set[tuple[str, str, str]] = set()
        with ErrorTranslation(CannotWriteError, OSError, ValueError, before=f"cannot write into {path}: "):
            make_folder(self.folder)

    async def take(
        self, result: CaseResult, test: BrokerTest, tried: BrokerRun, progress: Progress | None = None
    ) -> None:
        """Reduce and write the first failing case of each mutation, version and verdict."""
        ruling, script = result.ruling, result.script
        assert ruling is not None
        key = result.case.mutation.name, result.case.version.text, str(ruling.verdict)
        if key in self._known or script is None or result.played is None:
            return
        self._known.add(key)
        reduced = None
        worse: list[CaseResult] = []
        try:
            with suppress(NoBrokerError):
                reduced = await minimize_case(test, script, result, progress=progress, worse=worse)
        except asyncio.CancelledError:
            # Keep the result even if the user stops the run.
            self._write(_name(key), result, None, server_of(test.access))
            raise
        if reduced is not None:
            tried.reduced[result.number] = _reduced(reduced, test.access)
        elif not worse and not test.stopped:
            sentence = f"case {result.number} is not reduced"
            test.notices.append(f"{sentence}: the verdict {ruling.verdict} did not recur when only its bytes were sent")
        self._write(_name(key), result, tried.reduced.get(result.number), server_of(test.access))
        for worse_result in worse:
            await self._take_worse(worse_result, test, progress)

    async def _take_worse(self, result: CaseResult, test: BrokerTest, progress: Progress | None) -> None:
        """Write a case that crashed the broker during the reduction of another case; it may never recur."""
        ruling, script = result.ruling, result.script
        assert ruling is not None
        assert script is not None
        key = result.case.mutation.name, result.case.version.text, str(ruling.verdict)
        if key in self._known:
            return
        self._known.add(key)
        reduced = None
        with suppress(NoBrokerError):
            reduced = await minimize_case(test, script, result, progress=progress, raw=True)
        if reduced is None:
            reduced = MinimizedCase.of(result.case, ruling.verdict)
            reduced.result, reduced.unfinished = result, "the broker did not come back"
        self._write(_name(key), result, _reduced(reduced, test.access), server_of(test.access))
        sentence = f"case {result.number}: {ruling.verdict} when a part of it was sent ({ruling.why})"
        test.notices.append(f"{sentence}; {self.folder / _name(key)}.sh repeats it")

    def _write(self, name: str, result: CaseResult, reduced: ReducedCase | None, server: Endpoint) -> None:
        page = Page(View(width=100))
        write_deviation(page, result, reduced, show_secrets=True)
        document = result_json(result, reduced, show_secrets=True)
        if reduced is not None:
            document["reduced"]["case"] = CASE.view(reduced.minimized.case)
        with ErrorTranslation(CannotWriteError, OSError, before=f"cannot write into {self.folder}: "):
            _private(self.folder / f"{name}.txt", page.encoded())
            _private(self.folder / f"{name}.json", orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
            if reduced is not None and reduced.shell:
                _private(self.folder / f"{name}.sh", f"#!/bin/sh\n{reduced.shell}\n".encode())
            self._capture(self.folder / f"{name}.pcapng", result, reduced, server)

    @staticmethod
    def _capture(path: Path, result: CaseResult, reduced: ReducedCase | None, server: Endpoint) -> None:
        """Write the conversation of the case, or of its reduced version."""
        last = result if reduced is None or reduced.minimized.result is None else reduced.minimized.result
        played = last.played or result.played
        assert played is not None
        with open(open_alone(path), "wb") as file, PcapngWriter(file) as writer:
            for captured in frames(played.conversation, server=server):
                writer.write(captured.frame)


def _name(key: tuple[str, str, str]) -> str:
    return "-".join(re.sub(r"[^\w.]+", "-", part) for part in key)


def _reduced(reduced: MinimizedCase, access: BrokerAccess) -> ReducedCase:
    last = None if reduced.result is None else reduced.result.played
    return ReducedCase(
        reduced,
        shell_line(reduced.case.flow, access.target, with_ping=last is not None and bool(last.seen.ping_answered)),
    )


def server_of(access: BrokerAccess) -> Endpoint:
    """Address of the broker in a capture of the conversation, which contains no TLS or WebSocket."""
    if access.target.tls or access.target.websocket or not access.addresses:
        return SERVER
    return Endpoint.of(access.addresses[0].name)


def _private(path: Path, data: bytes) -> None:
    with open(open_alone(path), "wb") as file:
        file.write(data)


COUNTED_S = 0.002
"""Pause between two counted cases, so that counting does not slow down the broker test."""
SURE_AFTER = 5
"""Minimum number of played cases before a remaining time is shown."""


class ProgressLine(output.Progress):
    """Progress line of a run; only on a terminal."""

    def __init__(self, limit: int | None = None, seconds: float | None = None) -> None:
        super().__init__()
        self.total: int | None = None
        """Total number of cases, once known."""
        self._limit = limit
        self._until = None if seconds is None else time.monotonic() + seconds
        self._began = time.monotonic()
        self._counting: asyncio.Task[None] | None = None

    def count(self, cases: Iterable[object]) -> None:
        """Count the cases in the background, unless the run has a time limit."""
        if self.enabled and self._limit is not None:
            self.total = self._limit
        elif self.enabled and self._until is None:
            self._counting = asyncio.create_task(self._count(cases))

    async def _count(self, cases: Iterable[object]) -> None:
        number = 0
        for number, _ in enumerate(cases, 1):  # noqa: B007
            await asyncio.sleep(COUNTED_S)
        self.total = number

    def update(self, played: int, deviations: int) -> None:
        self.show_now(self.line(played, deviations))

    def reducing(self, tries: int) -> None:
        self.show_now(f"reducing a case, {tries:,} tries")

    def end(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
        self.clear()

    def line(self, played: int, deviations: int) -> str:
        """``12 of 2,447 cases, 1 deviation, about 25 min left``."""
        total = self.total
        done = f"{played:,} of {total:,} cases" if total is not None else f"{played:,} case{'' if played == 1 else 's'}"
        words = [done, counted(deviations, "deviation")]
        left = self._seconds_left(played)
        if left is not None:
            words.append(f"about {rough(left)} left")
        return ", ".join(words)

    def _seconds_left(self, played: int) -> float | None:
        now = time.monotonic()
        ends = [] if self._until is None else [self._until - now]
        if self.total is not None and played >= min(SURE_AFTER, self.total):
            ends.append((now - self._began) / max(1, played) * (self.total - played))
        return max(0.0, min(ends)) if ends else None


def rough(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3 h 10 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
