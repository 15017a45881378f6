"""The files for Prometheus and Grafana: read by promtool, and by a real Prometheus that scrapes ``sniff``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqttscope.metrics.facts import LiveFacts
from tests.cli.running import capture, command, environment
from tests.conftest import ROOT
from tests.live import cat, replace_dumpcap
from tests.metrics.scraping import address_of, scraped_until
from tests.metrics.test_exposition import OLD, sample_facts, text_of
from tests.proxy.rig import free_port, until
from tests.tools import program

FOLDER = ROOT / "docs" / "live"
NAME = re.compile(r"\bmqttscope_[a-z_]+")


def exposed() -> set[str]:
    """Names of all series."""
    old = text_of(sample_facts(), OLD)
    return {line.split("{")[0].split()[0] for line in old.splitlines() if not line.startswith("#")}


def expressions(node: Any) -> Iterator[str]:
    """All expressions of a dashboard."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "expr")
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from expressions(part)


def test_every_metric_that_is_named_is_served_and_every_one_is_documented() -> None:
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    texts = [*expressions(dashboard), (FOLDER / "alerts.yml").read_text()]
    named = {name for text in texts for name in NAME.findall(text)}
    assert len(named) > 8
    assert named <= exposed()
    documented = set(NAME.findall((ROOT / "docs" / "live-metrics.md").read_text()))
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in exposed()} <= documented


def test_every_alert_is_documented() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text()))
    assert alerts == set(re.findall(r"^\| `(Mqtt\w+)`", (ROOT / "docs" / "live-metrics.md").read_text(), re.M))


@pytest.mark.long  # only those tests have Prometheus
def test_promtool_accepts_rules_configuration_and_metrics() -> None:
    promtool = program("promtool")
    for kind, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        subprocess.run([promtool, "check", kind, FOLDER / name], check=True, capture_output=True)
    for facts in (LiveFacts(), sample_facts()):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text_of(facts, OLD), text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def ask(address: str, path: str, **parameters: str) -> Any:
    """What the API of Prometheus answers."""
    with urllib.request.urlopen(f"{address}{path}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
        return json.load(answer)["data"]


@pytest.mark.long
def test_prometheus_reads_what_sniff_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus = program("prometheus")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    lasting = "trap 'exit 0' INT; echo File: - >&2; while :; do sleep 0.05; done"
    replace_dumpcap(bin_folder, monkeypatch, f"{cat(capture('failing-device'))}; {lasting}")
    running = subprocess.Popen(
        command("sniff", "eth9", "--serve", "0"), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    scraper = None
    try:
        address = address_of(running, "capturing on eth9")
        served = scraped_until(address, lambda row: row.get("mqttscope_connections_opened_total"))
        text = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:9464", address[7:-1]).replace("15s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
        api = f"http://127.0.0.1:{free_port()}"
        scraper = subprocess.Popen(
            [prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
             f"--web.listen-address={api[7:]}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def value(query: str) -> float:
            try:
                (row,) = ask(api, "/api/v1/query", query=query)["result"]
            except (OSError, ValueError):
                return -1
            return float(row["value"][1])

        until(lambda: value("mqttscope_connections_opened_total") >= 0, "the first scrape")
        assert value('up{job="mqttscope"}') == 1
        assert value("sum(mqttscope_packets_total)") == sum(
            count for name, count in served.items() if name.startswith("mqttscope_packets_total")
        )
        until(lambda: value('ALERTS{alertname="MqttProtocolErrors",rule="PUB103"}') == 1, "the alert")
        for expression in expressions(json.loads((FOLDER / "grafana.json").read_text())):
            query = expression.replace("$instance", ".*").replace("$__rate_interval", "1m").replace("$__interval", "1m")
            assert ask(api, "/api/v1/query", query=query)["resultType"] == "vector"
        series = ask(api, "/api/v1/label/__name__/values")
        assert exposed() - set(series) <= {name for name in exposed() if "findings" in name}
    finally:
        for process in (scraper, running):
            if process is not None:
                process.send_signal(signal.SIGINT)
                process.wait(20)
        assert running.stderr is not None
        running.stderr.close()
