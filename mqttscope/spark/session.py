"""Sessions of Spark, without noise: one that is given, a local one, one on a cluster or one of Spark Connect.

`spark_session` finds or starts a session and explains what is missing where it cannot.  `followed` shows how far the
jobs of a session are, and `cancel` stops them; both work with a session of our own and over Spark Connect.
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
"""The settings of our own sessions, unless ``configuration`` or spark-defaults.conf set others."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""The same, where all processes run on this machine: it may have an odd host name, or a firewall."""
PATIENCE_S = 20.0
"""How long a master or a server may take to answer the first time."""
STANDALONE_PORT = 7077
_OF_THE_SCRIPT = re.compile(r"\S*/spark-class\d?: line \d+: |head: ")


def spark_session(
    given: SparkSession | None = None,
    *,
    configuration: Mapping[str, str] | None = None,
    fitting: Mapping[str, str] | None = None,
    log: str | None = None,
    warehouse: str | None = None,
) -> SparkSession:
    """A session: the one that is given, the one that is active, or a new one.

    A new one is that of ``spark.master`` in ``configuration``: ``local[*]``, ``spark://HOST:PORT``, any other master
    that Spark knows, or ``sc://HOST:PORT`` for Spark Connect.  Without it ``SPARK_REMOTE`` counts, then what
    spark-submit started, then spark-defaults.conf; else it is a local one with all cores.  ``fitting``: settings for
    the work at hand, where neither ``configuration`` nor spark-defaults.conf has others; those that are not of
    ``spark.sql`` count where all runs on this machine.  ``log``: where the noise of Java goes; by default a temporary
    file, removed at the end.  ``warehouse``: the folder that Spark makes for tables of its own; by default
    spark-warehouse in the working directory.  Raises `SparkUnavailableError`.
    """
    if given is not None:
        return given
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
        # What spark-submit started has its configuration.
        return SparkSession.builder.getOrCreate()
    # Executors are to run this Python, not the one that is called python3 there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _start(asked, fitting, log, warehouse)


def running_session() -> SparkSession | None:
    """The session that runs already in this process, which is not ours to end."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def keeping_active() -> Iterator[None]:
    """Leave the session active that was: frames that are made with another one would put that in its place.

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
    """Cancel what Spark is doing for a session when the block ends early: by Ctrl-C, or any other exception."""
    try:
        yield
    except BaseException:
        # A server continues otherwise, and so do other threads' jobs.
        cancel(spark)
        raise


_java: list[subprocess.Popen[bytes]] = []
"""What this process has started."""


def kill_java() -> None:
    """End the Java that this process has started, whatever it does: for a process that ends itself at once."""
    for one in _java:
        one.kill()


@contextmanager
def _without_signals() -> Iterator[None]:
    """Let signals that end a program wait until the block has ended; in the main thread, where they are handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {}
    for one in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(one)):
            before[one] = signal.signal(one, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    for number in waiting[:1]:
        signal.raise_signal(number)


@contextmanager
def _ending_with_us() -> Iterator[None]:
    """Know the Java that is started meanwhile, and end it where its start breaks off.

    If the process that starts Java ends before Java is ready, nothing else would end Java.
    """
    from pyspark import java_gateway

    class Known(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **given: Any) -> None:
            # A signal that comes between its start and here would leave a Java that nobody knows.
            with _without_signals():
                super().__init__(*arguments, **given)
                _java.append(self)

    names = vars(java_gateway)
    before, names["Popen"] = names["Popen"], Known
    try:
        yield
    except BaseException:
        kill_java()
        raise
    finally:
        names["Popen"] = before


def _remote(asked: Mapping[str, str]) -> str | None:
    """The address of a server of Spark Connect, where one is wanted."""
    master = asked.get("spark.master", "")
    if master.startswith("sc://"):
        return master
    if master:
        # PySpark would go by it whatever its configuration says.
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
            # It starts here, in this process.
            find_java()
        return SparkSession.builder.config(map=wanted).getOrCreate()
    except (PySparkException, ValueError) as error:
        raise SparkUnavailableError(f"Spark Connect does not work: {_first_line(error)}") from None


def _await_server(grpc: Any, builder: Any) -> None:
    """Look whether a server answers: PySpark itself would try for ten minutes."""
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
        # Not the whole address, which may hold a token.
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
    wanted, here = _wanted(asked, warehouse, fitting)
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
        said = str(error).strip().splitlines() or [type(error).__name__]
        cause = next((line for line in said if "Exception" in line or "Error" in line), said[0])
    _kept.add(path)
    raise SparkUnavailableError(f"Spark does not start: {_plain(cause)}; {path} has all of it")


def _wanted(
    asked: Mapping[str, str], warehouse: str | None = None, fitting: Mapping[str, str] | None = None
) -> tuple[dict[str, str], bool]:
    """What a new session has, and whether its executors run on this machine."""
    defaults = _defaults()
    master = asked.get("spark.master") or _submitted() or defaults.get("spark.master") or os.environ.get("MASTER")
    master = master or "local[*]"
    here = _is_here(master)
    suiting = {name: value for name, value in (fitting or {}).items() if here or name.startswith("spark.sql.")}
    ours = CONFIGURATION | (LOOPBACK if here else {}) | suiting
    if names.VARIABLE in os.environ:
        # Executors hide what the driver would.
        ours[f"spark.executorEnv.{names.VARIABLE}"] = os.environ[names.VARIABLE]
    if warehouse is not None:
        ours["spark.sql.warehouse.dir"] = warehouse
    kept = {name: value for name, value in ours.items() if name not in defaults}
    return {**kept, **asked, "spark.master": master}, here


def _submitted() -> str | None:
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return next((after for word, after in pairwise(words) if word == "--master"), None)


def _defaults() -> dict[str, str]:
    """The content of spark-defaults.conf, where Spark looks for it."""
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
    """Whether the executors of a master run on this machine, judged by its name."""
    if master.startswith("local"):
        return True
    hosts = [_endpoint(one)[0] for one in _masters(master)]
    return bool(hosts) and all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _masters(master: str) -> list[str]:
    """The addresses of a standalone cluster: several where masters stand by."""
    return master.removeprefix("spark://").split(",") if master.startswith("spark://") else []


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() and host else (text.strip("[]"), STANDALONE_PORT)


def _await_master(master: str) -> None:
    """Look whether a standalone master listens: Spark itself tries for a minute and reports that it was killed."""
    refused = []
    for one in _masters(master):
        host, port = _endpoint(one)
        try:
            socket.create_connection((host, port), PATIENCE_S).close()
        except OSError as error:
            refused.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if refused:
        raise SparkUnavailableError(f"no master of Spark answers at {', '.join(refused)}")


def _has_utf8_locale() -> bool:
    """Whether the environment names a locale that this machine has, with UTF-8."""
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
    """The environment of the Java that is started, and of no other process."""
    wanted = {} if java_home is None else {"JAVA_HOME": java_home}
    if not _has_utf8_locale():
        wanted["LC_ALL"] = "C.UTF-8"  # else Java finds no path with other letters than ASCII
    if here and "SPARK_LOCAL_IP" not in os.environ:
        # Spark looks up the name of the machine otherwise, and does not start where that leads nowhere.
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


_kept: set[str] = set()


def _temporary() -> str:
    handle, path = tempfile.mkstemp(prefix="mqttscope-spark-", suffix=".log")
    os.close(handle)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    # An error that ended the program may be explained in there.
    if path not in _kept and not hasattr(sys, "last_type"):
        with suppress(OSError):
            os.unlink(path)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _plain(line: str) -> str:
    """A line of Java without the names of its exceptions."""
    return re.sub(r'^(: |Caused by: |Exception in thread "[^"]*" )?(?:[\w$]+\.)+\w*(Exception|Error): ', "", line)


def _last_line(path: str) -> str:
    """The last informative line of Java's output; the script that starts it adds lines about itself."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file]
    telling = [line for line in lines if line and not line.startswith(("at ", "WARNING:", "... "))]
    telling = [line for line in telling if not _OF_THE_SCRIPT.match(line)]
    return telling[-1] if telling else ""


EVERY_S = 0.3
Show = Callable[[int, int], None]
"""Takes how many tasks of the stages that run are done, and how many there are."""


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def followed(spark: SparkSession, show: Show) -> Iterator[None]:
    """Call ``show`` at intervals with how far the jobs of the session are."""
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
