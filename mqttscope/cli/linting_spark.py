"""``mqttscope lint --engine spark``: the same run, with the captures read and judged by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mqttscope.capture.files import STDIN
from mqttscope.cli.linting import SECRETS, Run
from mqttscope.cli.pipeline.common import EXTRA, Failed, session, task_progress
from mqttscope.lint.secrets import LENGTH

if TYPE_CHECKING:
    from mqttscope.lake.judging import Sums


class SparkRun(Run):
    """Settings at work on Spark.  ``master``: where; ``None`` on all cores of this machine."""

    def __init__(self, *arguments: Any, master: str | None, **others: Any) -> None:
        super().__init__(*arguments, **others)
        if STDIN in self.captures:
            raise click.UsageError("--engine spark reads captures in several places at once, not standard input")
        if self.reading.decrypting:
            raise click.UsageError("--engine spark decrypts nothing: leave out --keylog (and $SSLKEYLOGFILE)")
        self.master = master

    def _judge(self) -> None:
        try:
            from mqttscope.lake.options import LakeOptions
            from mqttscope.spark.linting import judge
            from mqttscope.spark.locations import NoCaptures, find
            from mqttscope.spark.progress import followed
        except ImportError as error:
            raise Failed(f"Spark needs what is not installed ({error}): {EXTRA}") from None
        rules = self.settings.rules
        length = next((rule.set["length"] for rule in rules if rule.code == SECRETS), LENGTH)
        options = LakeOptions(dissect=self.settings.options, rules=tuple(rules), secret_length=length)
        try:
            found = find(list(self.captures))
        except NoCaptures as error:
            raise Failed(str(error)) from None
        with session(self.master, {}) as spark, task_progress() as show, followed(spark, show):
            judged = judge(spark, found, options)
            for finding in judged.findings:
                self._take(finding)
        self.watch.skipped.update(judged.skipped)
        for notice in self.watch.events(judged.notices):
            self.linter.feed(notice)
        self._count(judged.sums)

    def _count(self, sums: Sums) -> None:
        """What the tasks counted, as if it had been counted here."""
        linter, dissector = self.linter, self.dissector
        linter.quality.add(sums.quality)
        linter.withheld.update(sums.withheld)
        linter.failures.update(sums.failures)
        linter.internal_errors += sums.internal_errors
        self.clients |= sums.clients
        dissector.connections = sums.connections
        dissector.flows.opened_flows = sums.opened_flows
        dissector.cut_bytes, dissector.closed_bytes = sums.cut_bytes, sums.kept_bytes
        dissector.other_tls.update(sums.other_tls)
        dissector.named_otherwise.update(sums.named_otherwise)
