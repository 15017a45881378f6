"""What commands share that ask a lake: their options, the session they start, and errors in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import group, options
from mqttscope.cli.main import EXIT_USAGE, printable
from mqttscope.cli.pipeline.common import SparkOptions, lake_option
from mqttscope.cli.spark_session import PipelineFailedError, session
from mqttscope.errors import MqttscopeError

if TYPE_CHECKING:
    from mqttscope.lake.manifest import Manifest

SMALL_BYTES = 64 << 20
"""Lakes up to this size are asked in one task, without compiling queries, which takes longer than running them."""
SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class BadQuestionError(MqttscopeError, click.ClickException):
    """The question itself is wrong."""

    exit_code = EXIT_USAGE


@options
class AskOptions:
    """The lake that is asked, and the Spark that asks it."""

    lake: str = lake_option()
    spark: SparkOptions = group(SparkOptions)


def lake_of(folder: str) -> Manifest:
    """The manifest of a lake."""
    from mqttscope.lake.manifest import LakeError

    try:
        from mqttscope.spark.tables import open_lake

        return open_lake(folder)
    except LakeError as error:
        raise PipelineFailedError(printable(str(error))) from None


def fitting(master: str | None, size: int) -> dict[str, str]:
    """Settings of Spark for a lake of so many bytes.

    What the machines of a cluster are like is for the user to say; how a query is run depends on the lake.
    """
    if size > SMALL_BYTES:
        return {}
    return {name: value for name, value in SMALL.items() if master is None or name.startswith("spark.sql.")}


@contextmanager
def asked(given: AskOptions, manifest: Manifest, *, question: bool = False) -> Iterator[Any]:
    """A session that suits the size of the lake; what goes wrong is said in one sentence.

    ``question``: whether the user wrote the query, so that what is wrong with it is a matter of usage.
    """
    from mqttscope.lake.manifest import LakeError

    master, configuration = given.spark.master, given.spark.configuration
    files = (os.path.join(given.lake, name) for name in manifest.all_files() - set(manifest.state_files))
    try:
        with session(master, fitting(master, sum(map(_size, files))) | configuration) as spark, _questions(question):
            yield spark
    except LakeError as error:
        raise PipelineFailedError(printable(str(error))) from None


@contextmanager
def _questions(asked: bool) -> Iterator[None]:
    from mqttscope.spark.errors import SPARK_ERRORS, is_of_query, sentence

    try:
        yield
    except SPARK_ERRORS as error:
        if not asked or not is_of_query(error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        raise BadQuestionError(printable(sentence(str(error)))) from None


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


class Steps:
    """Says on a terminal what is being done; says nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, parts: int) -> None:
        """So many parts are done."""
        self.say(f"asking the lake: {done} of {parts} answers")

    def say(self, told: str) -> None:
        """Show one line in the place of the one before."""
        if self._shown:
            sys.stderr.write(f"\r{told}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        """Wipe the line out."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
