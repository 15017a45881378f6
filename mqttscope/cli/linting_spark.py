"""``mqttscope lint --engine spark``: the same run, with the captures read and judged by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mqttscope.capture.files import STDIN
from mqttscope.cli.linting import Run
from mqttscope.cli.pipeline.common import EXTRA, PipelineFailedError, session, task_progress
from mqttscope.net.frame import CaptureError, CaptureNotice

if TYPE_CHECKING:
    from mqttscope.lake.finding_collector import Sums


class SparkRun(Run):
    """Settings at work on Spark.  ``master``: where; ``None`` on all cores of this machine."""

    def __init__(self, *arguments: Any, master: str | None, **others: Any) -> None:
        super().__init__(*arguments, **others)
        if STDIN in self.captures:
            raise click.UsageError("--engine spark reads captures in several places at once, not standard input")
        if self.reading.decrypting:
            raise click.UsageError("--engine spark decrypts nothing: leave out --keylog (and $SSLKEYLOGFILE)")
        wanted = None if self.selection is None else self.selection.wanted
        if wanted is not None and wanted.is_of_the_run:
            raise click.UsageError(
                "--engine spark knows no numbers of the run in --filter: give --connection in place of 'connection', a"
                " time in place of a relative one, or let this process judge (--engine local)"
            )
        self.master = master
        self.begun = False

    def close(self) -> None:
        """Write what the reports still have to say; where nothing was judged, there is no verdict."""
        if self.begun:
            super().close()
            return
        for file in self.files:
            file.close()

    def _judge(self) -> None:
        try:
            from mqttscope.capture.locations import NoCapturesError, find
            from mqttscope.lake.options import LakeOptions
            from mqttscope.spark.linting import judge
            from mqttscope.spark.session import followed
        except ImportError as error:
            raise PipelineFailedError(f"Spark needs what is not installed ({error}): {EXTRA}") from None
        given = self.settings
        options = LakeOptions(dissect=given.options, rules=tuple(given.rules), secret_length=given.secret_length)
        try:
            found = find(list(self.captures))
        except NoCapturesError as error:
            self.begun = True
            self._tell_notices([CaptureError(one.name, one.fault or "") for one in error.faulty])
            return
        with session(self.master, {}) as spark, task_progress() as show, followed(spark, show):
            judged = judge(spark, found, options, selection=self.selection)
            self.begun = True
            for finding in judged.findings:
                self._take(finding)
        self.watch.skipped.update(judged.skipped)
        self._tell_notices(judged.notices)
        self._count(judged.sums)

    def _tell_notices(self, notices: Sequence[CaptureNotice]) -> None:
        """What the captures say, to people and to the linter."""
        for notice in self.watch.events(notices):
            self.linter.feed(notice)

    def _count(self, sums: Sums) -> None:
        """What the tasks counted, as if it had been counted here."""
        linter, dissector = self.linter, self.dissector
        linter.quality.add(sums.quality)
        linter.withheld.update(sums.withheld)
        linter.failures.update(sums.failures)
        linter.internal_errors += sums.internal_errors
        self.clients |= sums.clients
        self.packets, self.understood, self.spoken = sums.packets, bool(sums.well_formed), sums.spoken
        if self.selection is not None:
            self.selection.events, self.selection.packets = sums.chosen_events, sums.chosen_packets
            self.selection.spoken, self.selection.left_out = sums.chosen_spoken, sums.left_out
            self.packets = sums.chosen_packets
        dissector.connections = sums.connections
        dissector.flows.opened_flows = sums.opened_flows
        dissector.cut_bytes, dissector.closed_bytes = sums.cut_bytes, sums.kept_bytes
        dissector.other_tls.update(sums.other_tls)
        dissector.named_otherwise.update(sums.named_otherwise)
        for name in type(sums).OF_CONNECTIONS:
            setattr(dissector, name, getattr(sums, name))
