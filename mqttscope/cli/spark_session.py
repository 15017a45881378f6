"""A Spark session for one command: its settings, errors in one sentence, and progress."""

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
    """The command could not do its work."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"mqttscope: {self.format_message()}", file=file, err=file is None)


def packages_needed(who: str, extra: str) -> ErrorTranslation:
    """A context for imports from an extra; `PipelineFailedError` if a package is missing.  ``who``: "Spark needs"."""
    return ErrorTranslation(
        PipelineFailedError,
        ImportError,
        text=lambda error: f"{who} a package that is not installed ({error}): {extra_command(extra)}",
    )


QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings for short work on this machine: Java compiles fast rather than well, without extra threads for compiling and
garbage collection."""
WITHOUT_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for few rows: Spark interprets its plans, because compiling would take longer than running."""
SHORT_BYTES = 1 << 30
"""Maximum size of captures for `QUICK`."""
FEW_BYTES = 16 << 20
"""Maximum size of captures for `WITHOUT_CODE`."""


def for_captures(size: int) -> dict[str, str]:
    """Spark settings for captures of this size in bytes, for the parameter ``fitting`` of `session`."""
    return (QUICK if size <= SHORT_BYTES else {}) | (WITHOUT_CODE if size <= FEW_BYTES else {})


@contextmanager
def session(
    master: str | None, configuration: dict[str, str], fitting: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A Spark session that ends with the command; `PipelineFailedError` with one sentence for errors in it.

    ``fitting``: default settings; settings of the user and of spark-defaults.conf override them.
    The output of Java goes to a file, which is kept after an error and named in its message.
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
    # py4j logs interrupted calls with their stack to the root logger.
    logging.disable(logging.CRITICAL)
    spark = None
    keeps_log = stopped = False

    def interrupted(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        limit_ending(number)
        raise interruption(number)

    try:
        # Stays empty, but Spark creates this folder when a query names a missing table.
        spark = spark_session(configuration=wanted, fitting=fitting, log=log, warehouse=warehouse)
        if threading.current_thread() is threading.main_thread():
            # Spark's own handler calls Java within another call; `cancelling` cancels the jobs instead.
            for ending_signal in (signal.SIGINT, signal.SIGTERM):
                signal.signal(ending_signal, interrupted)
        with leaving(kill_java), cancelling(spark):
            yield spark
    except SparkUnavailableError as error:
        keeps_log = log in str(error)
        raise PipelineFailedError(str(error)) from None
    except SPARK_ERRORS as error:
        if stopped:
            # Ctrl-C during a call to Java appears as an error of Java.
            raise KeyboardInterrupt from None
        if os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        keeps_log = os.path.getsize(log) > 0
        hint = f"; see {log} for the output of Spark" if keeps_log else ""
        raise PipelineFailedError(cause(error) + hint) from None
    finally:
        if spark is not None and spark is not running:
            with suppress(Exception):
                spark.stop()
        logging.disable(logging.NOTSET)
        shutil.rmtree(warehouse, ignore_errors=True)
        if not keeps_log:
            with suppress(OSError):
                os.unlink(log)


@contextmanager
def task_progress(what: str = "tasks") -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on a terminal; yields a function for the number of steps done and their total."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
