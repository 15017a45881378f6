"""``sniff --keylog``: which keys are taken, and what is said where they are none."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.capture.tshark import find_tshark
from mqttscope.cli.sniffing import live_keys
from tests.capture.doubled import recorded
from tests.capture.test_tls import converse
from tests.cli.running import Done, inspected, invoke, without
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk, Tape
from tests.each import some
from tests.live import replace_dumpcap

pytestmark = pytest.mark.tshark
SCRIPT = (
    """path={path}; trap 'touch "$path.ended"; exit 0' INT; cat "$path"; echo File: - >&2; """
    "while :; do sleep 0.05; done"
)
"""``--duration`` counts from the line about the file: all frames are in the pipe by then."""
HELD_BACK = r"""#!/bin/sh
path={path}
case " $* " in *" -l "*) ;; *) exec {tshark} "$@" ;; esac
records=0 whole=0
{tshark} "$@" | while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in *'"data.data"'*) records=$((records + 1)) ;; "</packet>") whole=$records ;; esac
    while [ $whole -eq 3 ] && ! [ -e "$path.ended" ]; do sleep 0.01; done
done
"""
"""A tshark that decrypts three records, and the others once dumpcap has ended."""


@pytest.fixture
def sniffed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """A function for what sniff makes of a recorded TLS connection; its keys are in ``keys.txt``."""

    def sniff(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
        # Of today, or the connection would be idle for long.
        secure, talk = Secure(), Talk(Tape(start_ns=time.time_ns()), port=8_883).handshake()
        converse(secure.connection(talk))
        talk.close()
        (tmp_path / "keys.txt").write_bytes(secure.keylog.read_bytes())
        (tmp_path / "bin").mkdir()
        path = shlex.quote(str(write(talk.tape, tmp_path / "tls.pcapng")))
        replace_dumpcap(tmp_path / "bin", monkeypatch, SCRIPT.format(path=path))
        return invoke("sniff", "eth9", "--format", "jsonl", *arguments, env=env)

    return sniff


def put_before_others(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a script before the program of this name in the search path."""
    path.parent.mkdir()
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("variable", some([False, True]))
def test_packets_inside_tls(variable: bool, sniffed: Callable[..., Done], tmp_path: Path) -> None:
    """They are those of inspect; what is written is what was captured."""
    keys, target = str(tmp_path / "keys.txt"), tmp_path / "w.pcapng"
    pair = () if variable else ("--keylog", keys)

    (tmp_path / "keys.txt").touch()
    env = {"SSLKEYLOGFILE": keys} if variable else None
    done = sniffed(*pair, "--duration", "1", "--write", str(target), env=env)

    expected = inspected(tmp_path / "tls.pcapng", "--keylog", keys)
    assert done.code == 0, done.err
    shown, same = ([without(packet, "capture") for packet in some.packets] for some in (done, expected))
    assert shown == same != []
    assert [document["tls"]["decrypted"] for document in done.of("connection_closed")] == [True]
    written, captured = (recorded(path) for path in (target, tmp_path / "tls.pcapng"))
    assert [frame.data for frame in written] == [frame.data for frame in captured]
    assert "no TLS" not in done.err


@pytest.mark.parametrize("held_back", [False, True])
def test_packets_stop_it(
    held_back: bool, sniffed: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are decrypted after the last one asked for are not shown."""
    if held_back:
        script = HELD_BACK.format(tshark=find_tshark(), path=shlex.quote(str(tmp_path / "tls.pcapng")))
        put_before_others(tmp_path / "bin2" / "tshark", script, monkeypatch)

    done = sniffed("--keylog", tmp_path / "keys.txt", "--count", "3")

    assert (done.code, len(done.packets)) == (0, 3)
    assert not held_back or (tmp_path / "tls.pcapng.ended").exists()


def test_keys_that_open_nothing(sniffed: Callable[..., Done], tmp_path: Path) -> None:
    none = tmp_path / "none.txt"

    done = sniffed("--keylog", str(none), "--duration", "0.5")

    assert (done.code, done.packets) == (0, [])
    assert done.err.count("does not exist yet; waiting for it") == 1
    assert f"no TLS record could be decrypted with the keys in {none}" in done.err


def test_a_tshark_that_fails(sniffed: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_before_others(tmp_path / "bin2" / "tshark", "#!/bin/sh\necho no memory >&2; exit 2\n", monkeypatch)

    done = sniffed("--keylog", str(tmp_path / "keys.txt"), "--duration", "0.5")

    assert done.code == 3
    assert "tshark: failed while decrypting TLS (ended early; exit code 2): no memory" in done.err
    assert done.of("connection_closed")


def test_what_can_be_no_key_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoke("sniff", "eth9", "--keylog", str(tmp_path))

    assert (done.code, done.err.strip()) == (3, f"Error: key log {tmp_path}: Is a directory")
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path))
    assert live_keys(None) is None


def test_without_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys.txt"
    keys.touch()

    done = invoke("sniff", "eth9", "--keylog", str(keys), env={"PATH": str(tmp_path)})

    assert done.code == 3
    assert "tshark is needed to decrypt TLS and was not found; install it" in done.err
    # What is set for other programs as well is no reason to stop.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    assert live_keys(None) is None
    assert "($SSLKEYLOGFILE)" in capsys.readouterr().err
