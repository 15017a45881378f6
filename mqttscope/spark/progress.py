"""How far Spark is, and stopping it; with a session of its own or over Spark Connect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.3
Show = Callable[[int, int], None]
"""Takes how many tasks of the stages that run are done, and how many there are."""


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def followed(spark: SparkSession, show: Show) -> Iterator[None]:
    """Tell ``show`` now and then how far the jobs are that run meanwhile."""
    if is_connect(spark):

        def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            running = [one for one in stages or () if one.num_completed_tasks < one.num_tasks]
            show(sum(one.num_completed_tasks for one in running), sum(one.num_tasks for one in running))

        spark.registerProgressHandler(handler)  # type: ignore[arg-type]
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)  # type: ignore[arg-type]
        return
    over = threading.Event()
    thread = threading.Thread(target=_poll, args=(spark, show, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _poll(spark: SparkSession, show: Show, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(EVERY_S):
        # The session may end meanwhile.
        with suppress(Exception):
            stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
            running = [(one.numCompletedTasks, one.numTasks) for one in stages]
            show(sum(done for done, _ in running), sum(tasks for _, tasks in running))


def cancel(spark: SparkSession) -> None:
    """Stop whatever the session runs."""
    with suppress(Exception):
        if is_connect(spark):
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()
