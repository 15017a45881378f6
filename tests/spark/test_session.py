"""Sessions: which one is taken, and what is said where none can be had; clusters: test_cluster.py, test_connect.py."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqttscope.secrets import names
from mqttscope.spark import session as module
from mqttscope.spark.session import SparkUnavailableError, cancel, cancelling, followed, is_connect, spark_session
from tests import tools


def test_a_session_that_is_given_is_taken() -> None:
    """Whatever it is: that of Connect has another class."""
    argument: Any = object()

    assert spark_session(argument) is argument


def test_the_active_session_is_taken(spark: SparkSession) -> None:
    assert spark_session() is spark


def test_a_session_of_ours(spark: SparkSession) -> None:
    assert spark.version >= "4.2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "environment", "defaults", "here"),
    [
        ("local[*]", {}, "", True),
        ("spark://127.0.0.1:7077", {}, "", True),
        ("spark://localhost:7077,[::1]:7077", {}, "", True),
        ("spark://localhost:7077,node-2:7077", {}, "", False),
        ("yarn", {}, "", False),
        ("local[3]", {"MASTER": "local[3]"}, "", True),
        ("spark://node:1", {"MASTER": "local[3]"}, "# a comment\nspark.master   spark://node:1\nspark.x=1", False),
        ("local[2]", {"PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell"}, "spark.master=yarn", True),
    ],
)
def test_masters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    environment: dict[str, str],
    defaults: str,
    here: bool,
) -> None:
    for name in ("MASTER", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    asked = {} if environment else {"spark.master": master}

    wanted, is_here = module._session_settings(asked)

    assert wanted["spark.master"] == master
    assert is_here is here
    assert ("spark.driver.host" in wanted) is here
    assert module._session_settings({"spark.master": "local[1]"})[0]["spark.master"] == "local[1]"


def test_the_file_of_defaults_goes_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 9g\n  spark.driver.host = 10.0.0.1  \n")

    wanted, _ = module._session_settings({"spark.app.name": "asked"})

    assert "spark.driver.memory" not in wanted
    assert "spark.driver.host" not in wanted
    assert wanted["spark.driver.bindAddress"] == "127.0.0.1"
    assert wanted["spark.app.name"] == "asked"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert module._session_settings({})[0]["spark.driver.memory"] == "2g"


def test_the_folder_for_tables_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "spark.sql.warehouse.dir"
    assert name not in module._session_settings({})[0]
    assert module._session_settings({}, "/some/where")[0][name] == "/some/where"
    assert module._session_settings({name: "/asked"}, "/some/where")[0][name] == "/asked"
    (tmp_path / "spark-defaults.conf").write_text(f"{name} /known\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert name not in module._session_settings({}, "/some/where")[0]


def test_settings_for_the_work_at_hand_are_the_last_that_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, memory, code = "spark.driver.extraJavaOptions", "spark.driver.memory", "spark.sql.codegen.wholeStage"
    fitting = {java: "-Xquick", memory: "1g", code: "false"}

    def wanted(asked: dict[str, str]) -> dict[str, str]:
        return module._session_settings(asked, fitting=fitting)[0]

    assert wanted({}).items() >= fitting.items()
    assert wanted({java: "-Dasked"})[java] == "-Dasked"
    elsewhere = wanted({"spark.master": "spark://10.0.0.1:7077"})
    assert (elsewhere[memory], elsewhere[code], java in elsewhere) == (module.DRIVER_MEMORY, "false", False)
    (tmp_path / "spark-defaults.conf").write_text(f"{java} -Dknown\n{code} true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert not {java, code} & wanted({}).keys()


def test_executors_know_the_names_of_secrets_that_the_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    key = f"spark.executorEnv.{names.VARIABLE}"
    monkeypatch.delenv(names.VARIABLE, raising=False)
    assert key not in module._session_settings({})[0]

    monkeypatch.setenv(names.VARIABLE, "imei,iccid")
    assert module._session_settings({})[0][key] == "imei,iccid"


def test_what_java_is_started_with_is_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/before")

    with module._environment("/home/of/java", True):
        assert (os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"]) == ("/home/of/java", "127.0.0.1")
    assert os.environ["JAVA_HOME"] == "/before"
    assert "SPARK_LOCAL_IP" not in os.environ
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    with module._environment(None, True):
        assert (os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"]) == ("/before", "10.0.0.1")


def closed_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as other_socket:
        other_socket.bind(("127.0.0.1", 0))
        return int(other_socket.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the locale C.UTF-8 is one of Linux")
@pytest.mark.parametrize(
    ("text", "expected"), [("C.UTF-8", "C.UTF-8"), ("xx_XX.UTF-8", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("C", "C.UTF-8")]
)
def test_java_can_open_paths_with_all_letters(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", text)
    with module._environment(None, True):
        assert os.environ["LC_ALL"] == expected
    assert os.environ["LC_ALL"] == text


def test_a_master_that_does_not_listen() -> None:
    first, second = closed_port(), closed_port()

    with pytest.raises(
        SparkUnavailableError, match=rf"^no master of Spark answers at 127\.0\.0\.1:{first} \(.*refused\), "
    ):
        module._await_master(f"spark://127.0.0.1:{first},127.0.0.1:{second}")
    with socket.socket() as other_socket:
        other_socket.bind(("127.0.0.1", 0))
        other_socket.listen()
        module._await_master(f"spark://127.0.0.1:{first},127.0.0.1:{other_socket.getsockname()[1]}")
    module._await_master("local[*]")
    assert module._endpoint("node") == ("node", 7077)
    assert module._endpoint("[::1]:8") == ("::1", 8)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sc://127.0.0.1:{port}/;token=secret", r"^no server of Spark Connect answers at 127\.0\.0\.1:\d+$"),
        ("sc://127.0.0.1:port", "^Spark Connect does not work: Port could not be cast"),
        ("sc://127.0.0.1/path", r"^Spark Connect does not work: \[INVALID_CONNECT_URL\] "),
    ],
)
def test_a_server_that_does_not_answer(address: str, message: str) -> None:
    tools.package("grpc")

    with pytest.raises(SparkUnavailableError, match=message):
        module._connect(address.format(port=closed_port()), {})


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tools.package("grpc")
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(SparkUnavailableError, match=r"^no server of Spark Connect answers at 127\.0\.0\.1:\d+$"):
            module._connect(f"sc://127.0.0.1:{silent.getsockname()[1]}", {})


def test_which_server_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://a")
    assert module._remote({}) == "sc://a"
    assert module._remote({"spark.remote": "sc://b"}) == "sc://b"
    assert module._remote({"spark.master": "sc://c"}) == "sc://c"
    assert module._remote({"spark.master": "local[2]"}) is None
    assert "SPARK_REMOTE" not in os.environ
    assert module._remote({}) is None


class Interrupted:
    """Looks like a session."""

    def __init__(self) -> None:
        self.times = 0

        self.sparkContext = self

    def cancelAllJobs(self) -> None:  # noqa: N802 - Spark's name
        self.times += 1
        raise ConnectionError("the server is gone")


def test_jobs_are_cancelled_when_a_block_ends_early() -> None:
    session: Any = Interrupted()

    with cancelling(session):
        pass
    assert session.times == 0
    with pytest.raises(KeyboardInterrupt), cancelling(session):
        raise KeyboardInterrupt
    assert session.times == 1


def test_logs_go_unless_they_explain_something(tmp_path: Path) -> None:
    for name in ("gone", "kept"):
        (tmp_path / name).write_text("at org.apache\nCaused by: nothing\nat java.lang\n... 17 more\n")
    assert module._last_line(str(tmp_path / "kept")) == "Caused by: nothing"
    script = "/spark/bin/spark-class: line 97: CMD: bad array subscript"
    (tmp_path / "gone").write_text(f"Error: no heap for you\n{script}\nhead: illegal line count -- -1\n")
    assert module._last_line(str(tmp_path / "gone")) == "Error: no heap for you"
    module._kept_logs.add(str(tmp_path / "kept"))
    for name in ("gone", "kept", "never"):
        module._remove(str(tmp_path / name))

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    "line",
    [
        'Exception in thread "main" org.apache.spark.SparkException: what is wrong',
        "Caused by: java.net.UnknownHostException: what is wrong",
        ": org.apache.spark.SparkException: what is wrong",
        "what is wrong",
    ],
)
def test_what_java_says_without_its_names(line: str) -> None:
    assert module._plain(line) == "what is wrong"


SCRIPT = """
import sys
import time
from mqttscope.spark.session import SparkUnavailableError, spark_session
from mqttscope.secrets import names
try:
    spark_session(configuration=dict(one.split("=", 1) for one in sys.argv[2:]), log=sys.argv[1])
except SparkUnavailableError as error:
    print(error)
"""


@pytest.mark.usefixtures("spark")  # for its reasons to skip
def test_what_keeps_spark_from_starting_is_said_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log), "spark.driver.memory=1k"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("Spark does not start: ")
    assert done.stdout.rstrip().endswith(f"{log} has the complete output")
    assert log.read_text()


def test_tasks_that_are_done(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    shown: list[tuple[int, int]] = []

    def slowly(batches: Any) -> Any:
        time.sleep(0.2)
        yield from batches

    with followed(spark, lambda done, total: shown.append((done, total))):
        assert spark.range(0, 4, 1, 4).mapInArrow(slowly, "id bigint").count() == 4

    assert not is_connect(spark)
    assert {total for _, total in shown} >= {4}
    assert all(done <= total for done, total in shown)
    cancel(spark)
