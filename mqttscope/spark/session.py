"""Sessions of Spark, without noise: a given one, a local one, one on a cluster or one of Spark Connect.

`spark_session` finds or starts a session, or explains what is missing.  `followed` shows the progress of a session's
jobs, and `cancel` stops them; both work with our own sessions and over Spark Connect.
"""

from __future__ import annotations

import atexit
import ipaddress
import locale
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttscope.installation import extra_command
from mqttscope.secrets import names
from mqttscope.spark.java import SparkUnavailableError, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CONFIGURATION",
    "SparkUnavailableError",
    "cancelling",
    "find_java",
    "kill_java",
    "running_session",
    "spark_session",
]

DRIVER_MEMORY = "2g"
CONFIGURATION = {
    "spark.app.name": "mqttscope",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings of our own sessions, unless ``configuration`` or spark-defaults.conf set others."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Further settings if all processes run on this machine, which may have an odd host name, or a firewall."""
PATIENCE_S = 20.0
"""Timeout for the first answer of a master or a server."""
STANDALONE_PORT = 7077
_OF_THE_SCRIPT = re.compile(r"\S*/spark-class\d?: line \d+: |head: ")


def spark_session(
    session: SparkSession | None = None,
    *,
    configuration: Mapping[str, str] | None = None,
    fitting: Mapping[str, str] | None = None,
    log: str | None = None,
    warehouse: str | None = None,
) -> SparkSession:
    """A session: the given one, the active one, or a new one.

    A new one uses ``spark.master`` in ``configuration``: ``local[*]``, ``spark://HOST:PORT``, any other master of
    Spark, or ``sc://HOST:PORT`` for Spark Connect.  Without it the order is ``SPARK_REMOTE``, the session that
    spark-submit started, spark-defaults.conf, and a local session with all cores.  ``fitting``: settings for the work
    at hand, unless ``configuration`` or spark-defaults.conf has others; settings outside ``spark.sql`` are used only if
    all runs on this machine.  ``log``: file for Java's output; by default a temporary file, removed at the end.
    ``warehouse``: folder for Spark's own tables; by default spark-warehouse in the working directory.  Raises
    `SparkUnavailableError`.
    """
    if session is not None:
        return session
    asked = dict(configuration or {})
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailableError(f"pyspark is not installed ({error}): {extra_command('spark')}") from None
    remote = _remote(asked)
    if remote is None or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
    if remote is not None:
        return _connect(remote, asked, fitting)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # The session that spark-submit started has its configuration.
        return SparkSession.builder.getOrCreate()
    # Executors have to run this Python, not the python3 of their machine.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _start(asked, fitting, log, warehouse)


def running_session() -> SparkSession | None:
    """The session that runs already in this process, and is not ours to end."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def keeping_active() -> Iterator[None]:
    """Restore the active session: frames of another session would replace it.

    Streams have a session of their own, which is of no use when they have ended.
    """
    from pyspark.sql import SparkSession

    before = SparkSession._activeSession
    try:
        yield
    finally:
        SparkSession._activeSession = before


@contextmanager
def cancelling(spark: SparkSession) -> Iterator[None]:
    """Cancel the jobs of a session when the block ends early: by Ctrl-C, or any other exception."""
    try:
        yield
    except BaseException:
        # A server would continue, and so would other threads' jobs.
        cancel(spark)
        raise


_java: list[subprocess.Popen[bytes]] = []
"""Java processes that this process has started."""


def kill_java() -> None:
    """Kill the Java that this process has started; for a process that ends at once."""
    for process in _java:
        process.kill()


@contextmanager
def _without_signals() -> Iterator[None]:
    """Postpone signals that end a program until the block has ended; only in the main thread, which handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {}
    for ending in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(ending)):
            before[ending] = signal.signal(ending, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
    for number in waiting[:1]:
        signal.raise_signal(number)


@contextmanager
def _ending_with_us() -> Iterator[None]:
    """Register the Java that is started in the block, and kill it if the start fails.

    If the process that starts Java ends before Java is ready, nothing else would end Java.
    """
    from pyspark import java_gateway

    class JavaProcess(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            # A signal between its start and the registration would leave an unknown Java running.
            with _without_signals():
                super().__init__(*arguments, **keywords)
                _java.append(self)

    names = vars(java_gateway)
    before, names["Popen"] = names["Popen"], JavaProcess
    try:
        yield
    except BaseException:
        kill_java()
        raise
    finally:
        names["Popen"] = before


def _remote(asked: Mapping[str, str]) -> str | None:
    """The address of a server of Spark Connect, if one is requested."""
    master = asked.get("spark.master", "")
    if master.startswith("sc://"):
        return master
    if master:
        # PySpark would follow it despite its configuration.
        os.environ.pop("SPARK_REMOTE", None)
        return None
    return asked.get("spark.remote") or os.environ.get("SPARK_REMOTE")


def _connect(url: str, asked: Mapping[str, str], fitting: Mapping[str, str] | None = None) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise SparkUnavailableError(
            f"Spark Connect needs more packages ({_first_line(error)}): {extra_command('connect')}"
        ) from None
    known = {**CONFIGURATION, **(fitting or {})}
    ours = {name: value for name, value in known.items() if name.startswith("spark.sql.")}
    wanted: dict[str, Any] = {**ours, **asked}
    wanted.pop("spark.master", None)
    wanted["spark.remote"] = url
    try:
        if url.startswith("sc://"):
            _await_server(grpc, DefaultChannelBuilder(url))
        else:
            # It starts in this process.
            find_java()
        return SparkSession.builder.config(map=wanted).getOrCreate()
    except (PySparkException, ValueError) as error:
        raise SparkUnavailableError(f"Spark Connect does not work: {_first_line(error)}") from None


def _await_server(grpc: Any, builder: Any) -> None:
    """Check that a server answers: PySpark itself would try for ten minutes."""
    ready, decided = grpc.ChannelConnectivity.READY, threading.Event()
    seen: list[Any] = []

    def changed(state: Any) -> None:
        seen.append(state)
        if state in (ready, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            decided.set()

    channel = builder.toChannel()
    try:
        channel.subscribe(changed, try_to_connect=True)
        decided.wait(PATIENCE_S)
    finally:
        channel.close()
    if ready not in seen:
        # Not the whole address, which may contain a token.
        raise SparkUnavailableError(f"no server of Spark Connect answers at {builder.endpoint}")


def _start(
    asked: Mapping[str, str], fitting: Mapping[str, str] | None, log: str | None, warehouse: str | None
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    java = find_java()
    wanted, here = _session_settings(asked, warehouse, fitting)
    _await_master(wanted["spark.master"])
    path = log or _temporary()
    conf = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    try:
        with _ending_with_us():
            with open(path, "ab") as noise, _environment(java.home, here):
                # Otherwise every start prints several lines, and every failing task a hundred.
                gateway = launch_gateway(conf, popen_kwargs={"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
            return SparkSession.builder.getOrCreate()
    except PySparkRuntimeError as error:
        cause = _last_line(path) or str(error)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        cause = next((line for line in lines if "Exception" in line or "Error" in line), lines[0])
    _kept_logs.add(path)
    raise SparkUnavailableError(f"Spark does not start: {_plain(cause)}; {path} has the complete output")


def _session_settings(
    asked: Mapping[str, str], warehouse: str | None = None, fitting: Mapping[str, str] | None = None
) -> tuple[dict[str, str], bool]:
    """The settings of a new session, and whether its executors run on this machine."""
    defaults = _defaults()
    master = asked.get("spark.master") or _submitted() or defaults.get("spark.master") or os.environ.get("MASTER")
    master = master or "local[*]"
    here = _is_here(master)
    suiting = {name: value for name, value in (fitting or {}).items() if here or name.startswith("spark.sql.")}
    ours = CONFIGURATION | (LOOPBACK if here else {}) | suiting
    if names.VARIABLE in os.environ:
        # Executors hide what the driver hides.
        ours[f"spark.executorEnv.{names.VARIABLE}"] = os.environ[names.VARIABLE]
    if warehouse is not None:
        ours["spark.sql.warehouse.dir"] = warehouse
    unset = {name: value for name, value in ours.items() if name not in defaults}
    return {**unset, **asked, "spark.master": master}, here


def _submitted() -> str | None:
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return next((after for word, after in pairwise(words) if word == "--master"), None)


def _defaults() -> dict[str, str]:
    """The content of spark-defaults.conf, from the place where Spark looks for it."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        import pyspark

        home = str(Path(pyspark.__file__).parent)
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    try:
        text = Path(folder, "spark-defaults.conf").read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict(re.findall(r"(?m)^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[ \t=:][ \t]*(.*?)[ \t]*$", text))


def _is_here(master: str) -> bool:
    """Whether the executors of a master run on this machine, judging by its name."""
    if master.startswith("local"):
        return True
    hosts = [_endpoint(address)[0] for address in _masters(master)]
    return bool(hosts) and all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _masters(master: str) -> list[str]:
    """The addresses of a standalone cluster: several if it has standby masters."""
    return master.removeprefix("spark://").split(",") if master.startswith("spark://") else []


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() and host else (text.strip("[]"), STANDALONE_PORT)


def _await_master(master: str) -> None:
    """Check that a standalone master listens: Spark itself tries for a minute and reports that it was killed."""
    refused = []
    for address in _masters(master):
        host, port = _endpoint(address)
        try:
            socket.create_connection((host, port), PATIENCE_S).close()
        except OSError as error:
            refused.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if refused:
        raise SparkUnavailableError(f"no master of Spark answers at {', '.join(refused)}")


def _has_utf8_locale() -> bool:
    """Whether the environment names an installed locale with UTF-8."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return locale.getencoding().upper().replace("-", "") == "UTF8"
    except locale.Error:
        return False
    finally:
        locale.setlocale(locale.LC_ALL, before)


@contextmanager
def _environment(java_home: str | None, here: bool) -> Iterator[None]:
    """The environment of the new Java process alone."""
    wanted = {} if java_home is None else {"JAVA_HOME": java_home}
    if not _has_utf8_locale():
        wanted["LC_ALL"] = "C.UTF-8"  # otherwise Java finds no path with letters outside ASCII
    if here and "SPARK_LOCAL_IP" not in os.environ:
        # Otherwise Spark looks up the machine's name, and does not start if that fails.
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_kept_logs: set[str] = set()


def _temporary() -> str:
    handle, path = tempfile.mkstemp(prefix="mqttscope-spark-", suffix=".log")
    os.close(handle)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    # The error that ended the program may be explained in it.
    if path not in _kept_logs and not hasattr(sys, "last_type"):
        with suppress(OSError):
            os.unlink(path)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _plain(line: str) -> str:
    """A line of Java's output without exception class names."""
    return re.sub(r'^(: |Caused by: |Exception in thread "[^"]*" )?(?:[\w$]+\.)+\w*(Exception|Error): ', "", line)


def _last_line(path: str) -> str:
    """The last informative line of Java's output, without lines of its start script about itself."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file]
    telling = [line for line in lines if line and not line.startswith(("at ", "WARNING:", "... "))]
    telling = [line for line in telling if not _OF_THE_SCRIPT.match(line)]
    return telling[-1] if telling else ""


EVERY_S = 0.3
Show = Callable[[int, int], None]
"""Called with the number of finished tasks in running stages, and of all their tasks."""


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def followed(spark: SparkSession, show: Show) -> Iterator[None]:
    """Call ``show`` at intervals with the progress of the session's jobs."""
    if is_connect(spark):

        def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            running = [stage for stage in stages or () if stage.num_completed_tasks < stage.num_tasks]
            show(sum(stage.num_completed_tasks for stage in running), sum(stage.num_tasks for stage in running))

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
            running = [(stage.numCompletedTasks, stage.numTasks) for stage in stages]
            show(sum(done for done, _ in running), sum(tasks for _, tasks in running))


def cancel(spark: SparkSession) -> None:
    """Stop all jobs of the session."""
    with suppress(Exception):
        if is_connect(spark):
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()
