"""What the commands of ``pipeline`` share: options of lakes and of Spark, sessions, and errors in one sentence."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import LAKE, SPARK, group, option, options
from mqttscope.cli.ending import interruption, leaving, limit_ending
from mqttscope.cli.lint_options import ConfigurationOptions, JudgingOptions, RuleOptions, profile_option
from mqttscope.cli.main import EXIT_FAILED
from mqttscope.cli.options import ProtocolOptions
from mqttscope.cli.output import warn
from mqttscope.errors import MqttscopeError

if TYPE_CHECKING:
    from mqttscope.lake.options import LakeOptions

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
EXTRA = "pip install 'mqttscope[spark]'"
TOLD = 10
"""Errors of captures that are reported one by one."""


class PipelineFailedError(click.ClickException):
    """What the command is for could not be done."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Report it on standard error."""
        click.echo(f"mqttscope: {self.format_message()}", file=file, err=file is None)


def pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE``, the option given once or more."""
    found = {}
    for one in value:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            # What it is instead may be a secret.
            raise click.BadParameter("it is not of the form KEY=VALUE", context, parameter)
        found[name.strip()] = text
    return found


def spark_pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """The same for settings of Spark, which takes other names without a word."""
    found = pairs(context, parameter, value)
    for name in found:
        if not name.startswith("spark."):
            raise click.BadParameter("a setting of Spark is called such as spark.driver.memory", context, parameter)
    return found


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``67108864`` or ``64m``."""
    if value is None:
        return None
    word = value.strip().lower().removesuffix("b")
    number, unit = (word[:-1], word[-1]) if word and word[-1] in "kmg" else (word, "")
    if not number.isascii() or not number.isdigit() or not int(number):
        raise click.BadParameter(f"{value!r} is not a number of bytes, such as 67108864 or 64m", context, parameter)
    return int(number) * _UNITS[unit]


def lake_folder(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The folder of a lake; usage where Parquet or Spark could not take its name, before anything is made."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", value):
        raise click.BadParameter(f"{value} is a URI, and a lake is a folder: captures may lie in a store", context)
    try:
        os.path.abspath(value).encode()
    except UnicodeEncodeError:
        shown = value.encode("utf-8", "backslashreplace").decode()
        raise click.BadParameter(
            f"{shown} is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8): Parquet and Spark need such a path",
            context,
        ) from None
    return value


def lake_option() -> Any:
    """``--lake`` of every command of the pipeline."""
    return option(
        LAKE, "--lake", required=True, metavar="DIR", envvar="MQTTSCOPE_LAKE", callback=lake_folder,
        help="Folder of the tables.",
    )  # fmt: skip


@options
class RowOptions:
    """What the rows of a lake hold."""

    protocol: ProtocolOptions = group(ProtocolOptions)
    site: str = option(
        LAKE, "--group", default="", metavar="NAME",
        help="Name of the site that the captures come from; a lake holds one group.",
    )  # fmt: skip
    payload_limit: int = option(
        LAKE, "--payload-limit", type=click.IntRange(0), default=0, metavar="BYTES",
        help="Keep this many bytes of each payload; 0 keeps only its length and SHA-256. [default: 0]",
    )  # fmt: skip
    rules: RuleOptions = group(RuleOptions)
    profile: str | None = profile_option()
    configuration: ConfigurationOptions = group(ConfigurationOptions)

    def lake(self) -> LakeOptions:
        """The same with the configuration."""
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.lake.options import LakeOptions

        judging = JudgingOptions(rules=self.rules, profile=self.profile, configuration=self.configuration)
        found = resolve(judging, protocol=self.protocol)
        return LakeOptions(
            dissect=found.options,
            group=self.site,
            payload_limit=self.payload_limit,
            rules=tuple(found.rules),
            secret_length=found.secret_length,
        )


@options
class SparkOptions:
    """Which Spark is used, and how."""

    master: str | None = option(
        SPARK, "--master", metavar="URL", envvar="MQTTSCOPE_MASTER",
        help="Where Spark runs: local[*], spark://HOST:PORT, or sc://HOST of Spark Connect. [default: local[*]]",
    )  # fmt: skip
    configuration: dict[str, str] = option(
        SPARK, "--conf", multiple=True, callback=spark_pairs, value={}, metavar="KEY=VALUE",
        help="Setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )  # fmt: skip


def warn_errors(lines: Sequence[str]) -> None:
    """Report errors of captures, `TOLD` of them at most."""
    for line in lines[:TOLD]:
        warn(line)
    if len(lines) > TOLD:
        warn(f"{len(lines) - TOLD:,} more errors are in the table ingest_errors")


@contextmanager
def session(master: str | None, configuration: dict[str, str]) -> Iterator[Any]:
    """A session of Spark that ends with the command; `PipelineFailedError` for what goes wrong in it, in one sentence.

    What Java prints goes to a file, which is kept and named where something goes wrong.
    """
    try:
        from mqttscope.spark.errors import SPARK_ERRORS, cause, hush
        from mqttscope.spark.session import SparkUnavailableError, cancelling, kill_java, running_session, spark_session
    except ImportError as error:
        raise PipelineFailedError(f"Spark needs what is not installed ({error}): {EXTRA}") from None

    hush()
    wanted = configuration if master is None else {**configuration, "spark.master": master}
    running = running_session()
    handle, log = tempfile.mkstemp(prefix="mqttscope-spark-", suffix=".log")
    os.close(handle)
    warehouse = tempfile.mkdtemp(prefix="mqttscope-spark-")
    # What py4j has to say of an interrupted call, with all of its stack, it tells the root logger.
    logging.disable(logging.CRITICAL)
    spark = None
    kept = stopped = False

    def interrupted(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        limit_ending(number)
        raise interruption(number)

    try:
        # Nothing is written there, but Spark makes the folder when a table is asked for that there is not.
        spark = spark_session(configuration=wanted, log=log, warehouse=warehouse)
        if threading.current_thread() is threading.main_thread():
            # Spark's own handler calls Java in the middle of another call; who is interrupted cancels the jobs.
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, interrupted)
        with leaving(kill_java), cancelling(spark):
            yield spark
    except SparkUnavailableError as error:
        kept = log in str(error)
        raise PipelineFailedError(str(error)) from None
    except SPARK_ERRORS as error:
        if stopped:
            # Ctrl-C came in the middle of a call to Java, which makes an error of it.
            raise KeyboardInterrupt from None
        if os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        kept = os.path.getsize(log) > 0
        raise PipelineFailedError(cause(error) + (f"; {log} has what Spark says" if kept else "")) from None
    finally:
        if spark is not None and spark is not running:
            with suppress(Exception):
                spark.stop()
        logging.disable(logging.NOTSET)
        shutil.rmtree(warehouse, ignore_errors=True)
        if not kept:
            with suppress(OSError):
                os.unlink(log)


@contextmanager
def task_progress(what: str = "tasks", *, quiet: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Shows how much of how much is done, on a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
