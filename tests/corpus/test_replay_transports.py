"""Captures of plain TCP replayed over everything that carries MQTT, and as somebody else, against a real mosquitto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS
from tests.corpus import brokers
from tests.each import some
from tests.proxy.rig import Certificates, certificates, mosquitto
from tests.tools import program

pytestmark = [pytest.mark.broker, pytest.mark.tshark]
WEBSOCKET = "protocol websockets\n"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    program("mosquitto")
    with certificates(tmp_path_factory.mktemp("certificates")) as new_certificates:
        yield new_certificates


def check(name: str, url: str, folder: Path, *options: str, env: dict[str, str | None] | None = None) -> None:
    replayed = brokers.replay(name, url, folder, "--pace", "asap", *options, env=env)

    assert replayed.told == []
    assert replayed.done.code == EXIT_CLEAN, replayed.done.err
    port = int(url.rpartition(":")[2].partition("/")[0])
    count = brokers.check_record(replayed, port)
    if not url.startswith("ws"):
        brokers.check_with_tshark({replayed.file: (name, port, count)})


@pytest.mark.parametrize("scheme", some(["wss", "mqtts", "ws"]))
def test_over(scheme: str, tmp_path: Path, certified: Certificates) -> None:
    listener = WEBSOCKET if scheme in ("ws", "wss") else ""
    options: tuple[str, ...] = ()
    if scheme in ("mqtts", "wss"):
        listener += f"certfile {certified.cert}\nkeyfile {certified.key}\n"
        options = ("--ca", certified.ca)
    with mosquitto(tmp_path, listener) as broker:
        for name in ("v31-qos", "v5-publish-properties", "big-payload"):
            check(name, f"{scheme}://127.0.0.1:{broker.port}", tmp_path, *options)


def test_with_a_client_certificate(tmp_path: Path, certified: Certificates) -> None:
    listener = f"certfile {certified.cert}\nkeyfile {certified.key}\ncafile {certified.ca}\nrequire_certificate true\n"
    options = ("--ca", certified.ca, "--cert", certified.client_cert, "--key", certified.client_key)
    with mosquitto(tmp_path, listener) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        check("v5-qos", url, tmp_path, *options)
        refused = brokers.replay("v5-qos", url, tmp_path, "--pace", "asap", "--ca", certified.ca)

    assert refused.done.code not in (EXIT_CLEAN, EXIT_FINDINGS)
    assert set(refused.kinds) == {"not-connected"}


def test_a_recorded_websocket_over_plain_tcp(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        check("websocket-v5", f"mqtt://127.0.0.1:{broker.port}", tmp_path)


def test_over_ipv6(tmp_path: Path) -> None:
    with brokers.recorded_with("ipv6") as url:
        check("v5-qos", url, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["v31-qos", "v5-qos"])
def test_as_somebody_else(name: str, tmp_path: Path) -> None:
    """The broker knows one account; the recorded clients were anonymous."""
    secret = tmp_path / "secret"
    secret.write_text("lovelace\n")
    with brokers.recorded_with("refused-connect") as url:
        check(name, url, tmp_path, "--user", "ada", env={"MQTTSCOPE_PASSWORD": "lovelace"})
        check(name, url, tmp_path, "--password-file", str(secret), env={"MQTTSCOPE_USER": "ada"})
        check(name, url.replace("://", "://ada@"), tmp_path, env={"MQTTSCOPE_PASSWORD": "lovelace"})
        wrong = brokers.replay(name, url, tmp_path, "--user", "ada", env={"MQTTSCOPE_PASSWORD": "babbage"})

    assert wrong.done.code == EXIT_FINDINGS
    assert set(wrong.kinds) == {"reason-code"}
    assert "babbage" not in wrong.done.text + wrong.done.err
