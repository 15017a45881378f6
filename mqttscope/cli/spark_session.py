"""A session of Spark for one command: where it runs, what goes wrong in one sentence, and progress."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.main import EXIT_FAILED, interruption, leaving, limit_ending
from mqttscope.errors import MqttscopeError
from mqttscope.installation import extra_command


class PipelineFailedError(MqttscopeError, click.ClickException):
    """What the command is for could not be done."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"mqttscope: {self.format_message()}", file=file, err=file is None)


def packages_needed(who: str, extra: str) -> ErrorTranslation:
    """A context that imports packages of an extra; `PipelineFailedError` if one is missing.  ``who``: "Spark needs"."""
    return ErrorTranslation(
        PipelineFailedError,
        ImportError,
        text=lambda error: f"{who} what is not installed ({error}): {extra_command(extra)}",
    )


QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings for short work on this machine: Java translates code fast rather than well, and needs no threads of its own
for that and for memory."""
WITHOUT_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for few rows: Spark interprets its plans, where compiling takes longer than running them."""
SHORT_BYTES = 1 << 30
"""Reading captures up to this size is short work."""
FEW_BYTES = 16 << 20
"""Captures up to this size have few rows."""


def for_captures(size: int) -> dict[str, str]:
    """The settings of Spark that suit captures of this size in bytes, for the parameter ``fitting`` of `session`."""
    return (QUICK if size <= SHORT_BYTES else {}) | (WITHOUT_CODE if size <= FEW_BYTES else {})


@contextmanager
def session(
    master: str | None, configuration: dict[str, str], fitting: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A session of Spark that ends with the command; `PipelineFailedError` for what goes wrong in it, in one sentence.

    ``fitting``: settings for the work at hand, where the user and spark-defaults.conf have no others.
    What Java prints goes to a file, which is kept and named where something goes wrong.
    """
    with packages_needed("Spark needs", "spark"):
        from mqttscope.spark.errors import SPARK_ERRORS, cause, hush
        from mqttscope.spark.session import SparkUnavailableError, cancelling, kill_java, running_session, spark_session

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
        spark = spark_session(configuration=wanted, fitting=fitting, log=log, warehouse=warehouse)
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
def task_progress(what: str = "tasks") -> Iterator[Callable[[int, int | None], None]]:
    """Shows how much of how much is done, on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
