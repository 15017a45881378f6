"""Options of commands that take part in traffic."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from mqttscope.cli.errors import CommandFailedError
from mqttscope.cli.live_options import (
    ChangeOptions,
    ConnectOptions,
    ListenOptions,
    MappedPort,
    MutateOptions,
    PaceOptions,
    PaceType,
    ReplayOptions,
    RunOptions,
    ServeOptions,
    TlsOptions,
    target_of,
)
from mqttscope.mqtt.constants import ProtocolVersion
from tests.each import each

PLAIN, SECURE = "mqtt://127.0.0.1", "mqtts://127.0.0.1"


@pytest.mark.parametrize(
    ("argument", "speed", "causal", "text"),
    [
        ("causal", None, True, "causal"),
        ("2x", 2.0, False, "2x"),
        ("0.5X", 0.5, False, "0.5x"),
    ],
)
def test_pace(argument: str, speed: float | None, causal: bool, text: str) -> None:
    pace = PaceOptions(pace=PaceType().convert(argument, None, None)).read()

    assert (pace.speed, pace.causal, pace.text) == (speed, causal, text)


@pytest.mark.parametrize("text", ["", "2", "x", "0x", "-1x", "1e9x", "infx", "nanx", "fast"])
def test_what_is_no_pace(text: str) -> None:
    with pytest.raises(click.BadParameter, match="nor a speed such as 2x"):
        PaceType().convert(text, None, None)


def test_mapped_ports() -> None:
    assert MappedPort().convert("1883=1884", None, None) == (1883, 1884)
    for text in ("1883", "1883=", "0=1", "1=65536", "1=2=3", "a=b", "\u0663=1"):
        with pytest.raises(click.BadParameter, match="RECORDED=LIVE"):
            MappedPort().convert(text, None, None)


@each(
    "make, message",
    [
        (lambda: ListenOptions(listen="nowhere").address(), "'nowhere' is not HOST:PORT"),
        (lambda: ChangeOptions(lossy=True, convert=ProtocolVersion.V5), "--lossy needs --convert 3.1.1"),
        (lambda: RunOptions(output=""), "--output needs a file name"),
        (lambda: RunOptions(write=""), "--write needs a file name"),
        (
            lambda: ReplayOptions(captures=("a",), broker=PLAIN, run=RunOptions(write="x", output="x")),
            "--output: x is the file of --write",
        ),
        (lambda: ServeOptions(captures=("a",), run=RunOptions(write="-")), "/dev/stdout is standard output"),
        (lambda: target_of("http://host", "--broker"), "^--broker: "),
        (lambda: MutateOptions(captures=("a",), broker=(PLAIN,), spawn=" "), "--spawn needs the command"),
        (lambda: MutateOptions(captures=("a",), broker=(PLAIN,), number=1, limit=1), "give one of them"),
    ],
)  # fmt: skip
def test_contradictions(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(click.UsageError, match=message):
        make()


def test_tls_is_for_brokers_that_speak_it() -> None:
    tls_options, plain = TlsOptions(insecure=True), target_of(PLAIN, "--broker")

    assert TlsOptions().context(plain) is None
    tls_options.refuse_plain(target_of(SECURE, "--broker"), "a broker")
    with pytest.raises(click.UsageError, match="--insecure is for a broker with TLS"):
        tls_options.refuse_plain(plain, "a broker")
    with pytest.raises(click.UsageError, match="--server-name is for a broker with TLS"):
        TlsOptions().refuse_plain(plain, "a broker", server_name="other")


def test_insecure_tls_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert TlsOptions(insecure=True).context(target_of(SECURE, "--broker")) is not None
    assert "--insecure: the certificate of mqtts://127.0.0.1:8883 is not verified" in capsys.readouterr().err


@pytest.mark.parametrize(("data", "password"), [(b"a b\n", b"a b"), (b"a\r\n", b"a"), (b"a\n\n", b"a\n"), (b"", b"")])
def test_the_password_of_a_file(data: bytes, password: bytes, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(data)

    assert ConnectOptions(password_file=str(file)).password() == password


def test_the_password_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MQTTSCOPE_PASSWORD", "secret")
    assert ConnectOptions().password() == b"secret"
    monkeypatch.setenv("MQTTSCOPE_PASSWORD", "")
    assert ConnectOptions().password() is None
    with pytest.raises(CommandFailedError, match="cannot read the password"):
        ConnectOptions(password_file=str(tmp_path / "missing")).password()


def test_a_report_and_a_recording_may_not_be_one_file(tmp_path: Path) -> None:
    capture = tmp_path / "a.pcapng"
    capture.write_bytes(b"")

    RunOptions(output=str(tmp_path / "b")).refuse_inputs((str(capture),))
    with pytest.raises(click.UsageError, match="is an input capture"):
        RunOptions(output=str(capture)).refuse_inputs((str(capture),))
