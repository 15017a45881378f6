"""What commands share that ask a lake: their options, the session they start, and errors in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mqttscope.cli.main import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from mqttscope.lake.manifest import Manifest

F = TypeVar("F", bound=Callable[..., Any])
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


class Failed(click.ClickException):
    """What was asked for could not be done."""

    exit_code = EXIT_FAILED


class BadQuestion(click.ClickException):
    """The question itself is wrong."""

    exit_code = EXIT_USAGE


def asking(command: F) -> F:
    """Options of every command that asks a lake."""
    for decorate in reversed(
        (
            click.option("--lake", required=True, metavar="DIR", type=click.Path(), help="Folder of the lake."),
            click.option("--master", metavar="URL", help="Cluster to run on. [default: all cores of this machine]"),
            click.option(
                "--conf",
                "configuration",
                multiple=True,
                metavar="NAME=VALUE",
                callback=_pairs,
                help="A setting of Spark, as spark.driver.memory=4g.",
            ),
        )
    ):
        command = decorate(command)
    return command


def _pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in value:
        name, equals, setting = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{one!r} is not of the form spark.NAME=VALUE", ctx, param)
        found[name] = setting
    return found


def lake_of(folder: str) -> Manifest:
    """The manifest of a lake."""
    from mqttscope.lake.manifest import LakeError

    try:
        from mqttscope.spark.tables import open_lake

        return open_lake(folder)
    except LakeError as error:
        raise Failed(_printable(str(error))) from None


def start(folder: str, manifest: Manifest, master: str | None, configuration: dict[str, str]) -> Any:
    """A session that suits the size of the lake."""
    from mqttscope.spark.session import SparkUnavailable, spark_session

    files = (os.path.join(folder, name) for name in manifest.all_files() - set(manifest.state_files))
    wanted = dict(SMALL) if master is None and sum(map(_size, files)) <= SMALL_BYTES else {}
    if master is not None:
        wanted["spark.master"] = master
    try:
        spark = spark_session(configuration=wanted | configuration)
    except SparkUnavailable as error:
        raise Failed(_printable(str(error))) from None
    from mqttscope.spark.answers.errors import hush

    hush()
    return spark


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


@contextmanager
def in_one_sentence(*, question: bool = False) -> Iterator[None]:
    """Turn what Spark says about a failure into one line.

    ``question``: whether the user wrote the query, so that what is wrong with it is a matter of usage.
    """
    from mqttscope.lake.manifest import LakeError
    from mqttscope.spark.session import SparkUnavailable

    try:
        yield
    except (LakeError, SparkUnavailable) as error:
        raise Failed(_printable(str(error))) from None
    except Exception as error:
        from mqttscope.spark.answers.errors import is_of_query, is_of_spark, sentence

        if not is_of_spark(error) or os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        kind = BadQuestion if question and is_of_query(error) else Failed
        raise kind(_printable(sentence(str(error)))) from None


def _printable(told: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in told)


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
        """Leave nothing behind."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
