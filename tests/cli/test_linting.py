"""What lint with Spark refuses, and where it gives no verdict; what it finds: spark/test_linting.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.spark.java import SparkUnavailableError
from tests import tools
from tests.cli.running import capture, invoke

tools.package("pyspark")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-", "--engine", "spark"), "standard input"),
        (("a.pcap", "--engine", "flink"), "neither local nor spark"),
        (("a.pcap", "--engine", "spark", "--filter", "connection == 1"), "no numbers of the run"),
        (("a.pcap", "--engine", "spark", "--filter", "publish and packet < 3"), "no numbers of the run"),
        (("a.pcap", "--engine", "spark", "--filter", "time < +3s"), "no numbers of the run"),
        (("a.pcap", "--engine", "spark", "--keylog", "{keys}"), "cannot decrypt TLS"),
    ],
)
def test_what_cannot_be(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.log"
    keys.write_text("CLIENT_RANDOM " + "00" * 32 + " " + "11" * 48 + "\n")

    done = invoke("lint", *(argument.format(keys=keys) for argument in arguments))
    assert done.code == 2
    assert message in done.err


def test_no_verdict_where_nothing_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (invoke("lint", "none.pcap", "--engine", engine) for engine in ("local", "spark"))
    assert (there.code, there.err, there.out) == (3, here.err, here.out)
    assert (there.out, there.err) == (b"", "mqttscope: none.pcap: does not exist\n")

    def unavailable(*_: object, **__: object) -> None:
        raise SparkUnavailableError("there is no Java")

    monkeypatch.setattr("mqttscope.spark.session.spark_session", unavailable)
    report = tmp_path / "report.json"
    words = "lint", str(capture("planted-violations")), "--engine", "spark"
    for more in ((), ("--format", "json"), ("--output", str(report))):
        done = invoke(*words, *more)
        assert (done.code, done.out, done.err) == (3, b"", "mqttscope: there is no Java\n")
    assert not report.exists()
