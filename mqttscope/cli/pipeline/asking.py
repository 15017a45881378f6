"""Queries on a lake: choice of the engine (this process or Spark), errors, and progress."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from mqttscope.cli.command import LAKE, SPARK, group, option, options
from mqttscope.cli.errors import ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_USAGE, handling, interruption, leaving, limit_ending, printable
from mqttscope.cli.output import Progress, warn
from mqttscope.cli.pipeline.common import SparkOptions, byte_count, lakes_option, pairs
from mqttscope.cli.spark_session import QUICK, WITHOUT_CODE, PipelineFailedError, packages_needed, session
from mqttscope.errors import MqttscopeError

if TYPE_CHECKING:
    from mqttscope.analysis.answer import QueryAnswer
    from mqttscope.analysis.questions import Engine
    from mqttscope.lake.manifest import Manifest
    from mqttscope.lake.store import Place

    class AskedEngine(Engine, Protocol):
        """An engine that also answers SQL of the user."""

        def ask(self, sql: str, limit: int | None = None) -> QueryAnswer:
            """Run a query in the SQL of the engine; ``limit``: maximum number of rows."""
            ...


LARGEST = 4 << 30
"""Maximum total size of tables for the local engine by default; larger lakes use Spark."""
SMALL_BYTES = 64 << 20
"""Maximum size of lakes that Spark queries in one task, without compiling queries (slower than running them)."""
SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    **QUICK,
    **WITHOUT_CODE,
}


class BadQuestionError(MqttscopeError, click.ClickException):
    """The query itself is wrong."""

    exit_code = EXIT_USAGE


@options
class AskOptions:
    """The lakes to query, and the query engine."""

    lakes: tuple[str, ...] = lakes_option()
    settings: dict[str, str] = option(
        LAKE, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the object store, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip
    engine: str = option(
        SPARK, "--engine", type=click.Choice(("auto", "local", "spark")), default="auto",
        help="Query engine; local is DuckDB in this process, without Java. [default: auto, local up to 4 GiB]",
    )  # fmt: skip
    memory: int | None = option(
        SPARK, "--memory", callback=byte_count, metavar="BYTES",
        help="Maximum memory of --engine local for rows; the rest goes to temporary files. [default: 1g]",
    )  # fmt: skip
    spark: SparkOptions = group(SparkOptions)

    def __post_init__(self) -> None:
        of_spark = self.spark.master is not None or bool(self.spark.configuration)
        if self.in_store and (self.engine == "spark" or of_spark):
            raise click.UsageError(f"Spark cannot query a lake in an object store, {self.in_store}: use --engine local")
        if self.engine == "local" and of_spark:
            raise click.UsageError("--engine local cannot be combined with --master or --conf")
        if self.memory is not None and (self.engine == "spark" or of_spark):
            raise click.UsageError("--memory is for --engine local; for Spark use --conf spark.driver.memory=4g")

    @property
    def in_store(self) -> str:
        """The first lake that is in an object store, or empty."""
        from mqttscope.lake.store import is_store

        return next(filter(is_store, self.lakes), "")

    @property
    def places(self) -> list[Place]:
        from mqttscope.lake.store import place

        return [place(lake, self.settings) for lake in self.lakes]

    def on_spark(self, bytes_of_tables: int) -> bool:
        """Whether to use Spark."""
        if self.engine != "auto":
            return self.engine == "spark"
        if self.in_store:
            return False
        if self.spark.master is not None or self.spark.configuration:
            return True
        if bytes_of_tables <= LARGEST or self.memory is not None:
            return False
        warn(
            f"using Spark for {bytes_of_tables / (1 << 30):,.1f} GiB of tables, more than {LARGEST >> 30} GiB; "
            "--engine local uses this process"
        )
        return True


def manifests_of(args: AskOptions) -> list[Manifest]:
    """Read the manifests of the lakes."""
    from mqttscope.lake.manifest import LakeError, open_lake

    with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
        return [open_lake(place) for place in args.places]


@contextmanager
def open_engine(
    args: AskOptions, manifests: Sequence[Manifest], steps: Steps, *, question: bool = False
) -> Iterator[AskedEngine]:
    """Open the engine that fits the options and the size of the lakes; errors become one sentence.

    ``question``: whether the user wrote the query, so that an error in it is a usage error.
    """
    from mqttscope.lake.manifest import LakeError

    bytes_of_tables = sum(
        manifest.sizes.get(name) or _size(place / name)
        for place, manifest in zip(args.places, manifests, strict=True)
        for name in manifest.table_files()
    )
    on_spark = args.on_spark(bytes_of_tables)
    steps.show_now("starting Spark" if on_spark else "querying the lake")
    asking = _spark(args, manifests, bytes_of_tables) if on_spark else _local(args, manifests)
    with (
        ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason),
        asking as engine,
        _questions(question, of_spark=on_spark),
    ):
        steps.show_now("querying the lake")
        yield engine


@contextmanager
def _local(args: AskOptions, manifests: Sequence[Manifest]) -> Iterator[AskedEngine]:
    """DuckDB in this process; its temporary files are removed even if a signal ends the process."""
    with packages_needed("querying a lake needs", "lake"):
        import duckdb

        from mqttscope.analysis.local import MEMORY, LocalEngine
        from mqttscope.analysis.query import sentence
    stopped: list[int] = []

    def interrupted(number: int, frame: object) -> None:
        stopped.append(number)
        limit_ending(number)
        raise interruption(number)

    (first, manifest), *others = zip(args.places, manifests, strict=True)
    # DuckDB waits for its running query, which may take too long: remove its files in any case.
    with handling(interrupted, (signal.SIGINT, signal.SIGTERM)), ExitStack() as open_ones:
        engine = LocalEngine(first, manifest, memory=args.memory or MEMORY, others=others)
        open_ones.enter_context(leaving(engine.remove_scratch))
        open_ones.enter_context(engine)
        try:
            yield engine
        except (duckdb.Error, RuntimeError) as error:
            if stopped:
                # DuckDB turns a signal during a query into an error.
                raise interruption(stopped[0]) from None
            if not isinstance(error, duckdb.Error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
                raise
            more = "; raise it with --memory" if isinstance(error, duckdb.OutOfMemoryException) else ""
            raise PipelineFailedError(printable(sentence(error)) + more) from None


@contextmanager
def _spark(args: AskOptions, manifests: Sequence[Manifest], bytes_of_tables: int) -> Iterator[AskedEngine]:
    with session(args.spark.master, args.spark.configuration, spark_settings(bytes_of_tables)) as spark:
        from mqttscope.spark.engine import SparkEngine

        (first, manifest), *others = zip(args.lakes, manifests, strict=True)
        yield SparkEngine(spark, first, manifest, others)


def spark_settings(size: int) -> dict[str, str]:
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
        if not asked or not engine.is_query_error(error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        raise BadQuestionError(printable(engine.sentence(str(error) if of_spark else error))) from None


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Steps(Progress):
    """Shows the current step on a terminal; silent elsewhere."""

    def __call__(self, done: int, parts: int) -> None:
        self.show_now(f"querying the lake: {done} of {parts} queries")
