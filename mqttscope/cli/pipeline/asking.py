"""Asking a lake: which engine does it, in this process or with Spark, what goes wrong, and what is shown meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from mqttscope.cli.command import LAKE, SPARK, group, option, options
from mqttscope.cli.errors import ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_USAGE, handling, interruption, leaving, limit_ending, printable
from mqttscope.cli.output import Progress, warn
from mqttscope.cli.pipeline.common import SparkOptions, lake_option, pairs, size
from mqttscope.cli.spark_session import QUICK, WITHOUT_CODE, PipelineFailedError, packages_needed, session
from mqttscope.errors import MqttscopeError

if TYPE_CHECKING:
    from mqttscope.analysis.answer import Answer
    from mqttscope.analysis.questions import Engine
    from mqttscope.lake.manifest import Manifest
    from mqttscope.lake.store import Lake, Place

    class AskedEngine(Engine, Protocol):
        """An engine that answers a user's SQL as well."""

        def ask(self, sql: str, limit: int | None = None) -> Answer:
            """Ask in the SQL of the engine; ``limit``: rows at most."""
            ...


LARGEST = 4 << 30
"""Lakes whose tables have more bytes than this together are for Spark, unless the user says otherwise."""
SMALL_BYTES = 64 << 20
"""Lakes up to this size are asked by Spark in one task, without compiling queries, which takes longer than running."""
SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    **QUICK,
    **WITHOUT_CODE,
}


class BadQuestionError(MqttscopeError, click.ClickException):
    """The question itself is wrong."""

    exit_code = EXIT_USAGE


@options
class AskOptions:
    """The lake that is asked, and what asks it."""

    lake: str = lake_option(stores=True)
    settings: dict[str, str] = option(
        LAKE, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the store of the lake, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip
    engine: str = option(
        SPARK, "--engine", type=click.Choice(("auto", "local", "spark")), default="auto",
        help="What asks; local is DuckDB in this process, without Java. [default: auto, local for tables up to 4 GiB]",
    )  # fmt: skip
    memory: int | None = option(
        SPARK, "--memory", callback=size, metavar="BYTES",
        help="Memory that --engine local takes for rows; the rest goes to temporary files. [default: 1g]",
    )  # fmt: skip
    spark: SparkOptions = group(SparkOptions)

    def __post_init__(self) -> None:
        of_spark = self.spark.master is not None or bool(self.spark.configuration)
        if self.in_store and (self.engine == "spark" or of_spark):
            raise click.UsageError(f"Spark asks no lake in a store, and {self.lake} is one: --engine local does")
        if self.engine == "local" and of_spark:
            raise click.UsageError("--engine local takes no --master and no --conf")
        if self.memory is not None and (self.engine == "spark" or of_spark):
            raise click.UsageError("--memory is of --engine local; for Spark it is --conf spark.driver.memory=4g")

    @property
    def in_store(self) -> bool:
        from mqttscope.lake.store import is_store

        return is_store(self.lake)

    @property
    def place(self) -> Place:
        from mqttscope.lake.store import place

        return place(self.lake, self.settings)

    def on_spark(self, bytes_of_tables: int) -> bool:
        """Whether Spark is to be asked."""
        if self.engine != "auto":
            return self.engine == "spark"
        if self.in_store:
            return False
        if self.spark.master is not None or self.spark.configuration:
            return True
        if bytes_of_tables <= LARGEST or self.memory is not None:
            return False
        warn(
            f"the tables have {bytes_of_tables / (1 << 30):,.1f} GiB, and more than {LARGEST >> 30} GiB are for Spark; "
            "--engine local asks in this process"
        )
        return True


def lake_of(lake: Lake) -> Manifest:
    """The manifest of a lake."""
    from mqttscope.lake.manifest import LakeError, open_lake

    with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
        return open_lake(lake)


@contextmanager
def asked(given: AskOptions, manifest: Manifest, steps: Steps, *, question: bool = False) -> Iterator[AskedEngine]:
    """The engine that suits what was given and the size of the lake; errors are reported in one sentence.

    ``question``: whether the user wrote the query, so that what is wrong with it is a matter of usage.
    """
    from mqttscope.lake.manifest import LakeError

    sizes = manifest.sizes
    bytes_of_tables = sum(sizes.get(name) or _size(given.place / name) for name in manifest.table_files())
    on_spark = given.on_spark(bytes_of_tables)
    steps.say("starting Spark" if on_spark else "asking the lake")
    asking = _spark(given, manifest, bytes_of_tables) if on_spark else _local(given, manifest)
    with (
        ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason),
        asking as engine,
        _questions(question, of_spark=on_spark),
    ):
        steps.say("asking the lake")
        yield engine


@contextmanager
def _local(given: AskOptions, manifest: Manifest) -> Iterator[AskedEngine]:
    """DuckDB in this process; its temporary files go with it, also where the process is ended."""
    with packages_needed("asking a lake needs", "lake"):
        import duckdb

        from mqttscope.analysis.local import MEMORY, LocalEngine
        from mqttscope.analysis.query import sentence
    stopped: list[int] = []

    def interrupted(number: int, frame: object) -> None:
        stopped.append(number)
        limit_ending(number)
        raise interruption(number)

    # DuckDB may take long to end, since it waits for what it is at: its files go away even if that takes too long.
    with handling(interrupted, (signal.SIGINT, signal.SIGTERM)), ExitStack() as open_ones:
        engine = LocalEngine(given.place, manifest, memory=given.memory or MEMORY)
        open_ones.enter_context(leaving(engine.remove_scratch))
        open_ones.enter_context(engine)
        try:
            yield engine
        except (duckdb.Error, RuntimeError) as error:
            if stopped:
                # The signal came in the middle of a query, and DuckDB makes an error of it.
                raise interruption(stopped[0]) from None
            if not isinstance(error, duckdb.Error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
                raise
            more = "; --memory gives it more" if isinstance(error, duckdb.OutOfMemoryException) else ""
            raise PipelineFailedError(printable(sentence(error)) + more) from None


@contextmanager
def _spark(given: AskOptions, manifest: Manifest, bytes_of_tables: int) -> Iterator[AskedEngine]:
    with session(given.spark.master, given.spark.configuration, fitting(bytes_of_tables)) as spark:
        from mqttscope.spark.engine import SparkEngine

        yield SparkEngine(spark, given.lake, manifest)


def fitting(size: int) -> dict[str, str]:
    """Spark settings for a lake of this size in bytes."""
    return SMALL if size <= SMALL_BYTES else {}


@contextmanager
def _questions(asked: bool, *, of_spark: bool) -> Iterator[None]:
    from mqttscope.analysis.answer import UnknownQueryError

    engine: Any
    if of_spark:
        from mqttscope.spark import errors as engine

        errors = engine.SPARK_ERRORS
    else:
        import duckdb

        from mqttscope.analysis import query as engine

        errors = (duckdb.Error,)
    try:
        yield
    except UnknownQueryError as error:
        raise BadQuestionError(printable(engine.sentence(str(error)) if of_spark else str(error))) from None
    except errors as error:
        if not asked or not engine.is_of_query(error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        raise BadQuestionError(printable(engine.sentence(str(error) if of_spark else error))) from None


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Steps(Progress):
    """Shows on a terminal what is being done; silent elsewhere."""

    def __call__(self, done: int, parts: int) -> None:
        self.say(f"asking the lake: {done} of {parts} answers")
