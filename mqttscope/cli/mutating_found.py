"""What becomes of failing cases: reduced, and written down so that anybody can play them again."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import orjson

from mqttscope.capture.own_file import open_alone
from mqttscope.capture.write import PcapngWriter
from mqttscope.cli.output import CannotWrite
from mqttscope.report.base import View
from mqttscope.report.page import Page
from mqttscope.report.trial.outcome import Reduced, Tried, result_json
from mqttscope.report.trial.text import write_deviation
from mqttscope.trial.conversation import frames
from mqttscope.trial.reproduce import shell_line
from mqttscope.trial.run import NoBrokerError, Result, Trial
from mqttscope.trial.smaller import smaller


class Found:
    """A folder with four files for each kind of deviation: ``.txt``, ``.json``, ``.pcapng`` and ``.sh``."""

    def __init__(self, path: str) -> None:
        self.folder = Path(path)
        self._known: set[tuple[str, str, str]] = set()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise CannotWrite(f"cannot write into {path}: {getattr(error, 'strerror', None) or error}") from None

    async def take(self, result: Result, trial: Trial, tried: Tried) -> None:
        """Reduce a failing case, the first of its mutation, version and verdict, and write it down."""
        ruling, script = result.ruling, result.script
        assert ruling is not None
        key = result.case.mutation.name, result.case.version.text, str(ruling.verdict)
        if key in self._known or script is None or result.played is None:
            return
        self._known.add(key)
        found = None
        with suppress(NoBrokerError):
            found = await smaller(trial, script, result)
        if found is not None:
            last = None if found.result is None else found.result.played
            line = shell_line(found.case.flow, trial.door.target, fenced=last is not None and bool(last.seen.fenced))
            tried.reduced[result.number] = Reduced(found, line)
        self._write("-".join(re.sub(r"[^\w.]+", "-", part) for part in key), result, tried)

    def _write(self, name: str, result: Result, tried: Tried) -> None:
        reduced = tried.reduced.get(result.number)
        page = Page(View(width=100))
        write_deviation(page, result, reduced)
        document = result_json(result, reduced)
        if reduced is not None:
            document["reduced"]["case"] = reduced.smaller.case.as_json()
        try:
            (self.folder / f"{name}.txt").write_bytes(page.encoded())
            (self.folder / f"{name}.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
            if reduced is not None and reduced.shell:
                (self.folder / f"{name}.sh").write_text(f"#!/bin/sh\n{reduced.shell}\n")
            self._capture(self.folder / f"{name}.pcapng", result, reduced)
        except OSError as error:
            raise CannotWrite(f"cannot write into {self.folder}: {error.strerror or error}") from None

    @staticmethod
    def _capture(path: Path, result: Result, reduced: Reduced | None) -> None:
        """What was said when the case was played: the reduced one, where there is one."""
        last = result if reduced is None or reduced.smaller.result is None else reduced.smaller.result
        played = last.played or result.played
        assert played is not None
        with open(open_alone(path), "wb") as file, PcapngWriter(file) as writer:
            for made in frames(played.conversation):
                writer.write(made.frame)
