"""Keys of TLS on the command line: where they come from, what is said when they do not help."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from tests.building import write_program
from tests.capture import doubled
from tests.capture.test_tls import converse
from tests.cli.running import Done, command, environment, run
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk
from tests.each import some
from tests.forked import Forked
from tests.proxy.rig import until

pytestmark = pytest.mark.tshark


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A capture of TLS and its keys."""
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    return write(talk.tape, tmp_path_factory.mktemp("tls") / "a.pcapng"), secure.keylog


def with_secrets(capture: Path, keys: bytes, target: Path) -> Path:
    """The capture with a Decryption Secrets Block after its section header."""
    data = capture.read_bytes()
    header = struct.unpack_from("<I", data, 4)[0]
    target.write_bytes(data[:header] + block_of_secrets(keys) + data[header:])
    return target


def packets(done: Done) -> list[str]:
    """What kinds of packets were shown."""
    return [line["type"] for line in done.packets]


def inspect(*arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
    """The JSON lines of captures."""
    return run("inspect", "--format", "jsonl", *arguments, stdin=stdin, env=env)


def test_keys_by_option(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded
    done = inspect(capture, "--keylog", keys)

    assert (done.code, done.err) == (0, "")
    assert packets(done)[:3] == ["connect", "connack", "subscribe"]
    assert done.of("connection_closed")[0]["tls"]["decrypted"] is True
    assert len(packets(inspect("-", "--keylog", keys, stdin=capture.read_bytes()))) == 14


def test_keys_by_the_environment(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded

    assert len(packets(inspect(capture, env={"SSLKEYLOGFILE": str(keys)}))) == 14
    assert packets(inspect(capture, env={"SSLKEYLOGFILE": "/nowhere/keys"})) == []


def test_keys_in_the_capture(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    both = with_secrets(capture, keys.read_bytes(), tmp_path / "both.pcapng")
    done = inspect("-", stdin=both.read_bytes())

    assert (len(packets(done)), done.err) == (14, "")
    assert packets(inspect(both)) == packets(done)


def block_of_secrets(keys: bytes) -> bytes:
    """A Decryption Secrets Block."""
    padded = keys + bytes(-len(keys) % 4)
    length = 20 + len(padded)
    return struct.pack("<IIII", 10, length, 0x544C534B, len(keys)) + padded + struct.pack("<I", length)


@pytest.mark.parametrize("option", [False, True])
def test_keys_that_come_later_in_the_captures(option: bool, recorded: tuple[Path, Path], tmp_path: Path) -> None:
    """At the end of the file: sessions that have begun before and not ended are decrypted all the same."""
    capture, keys = recorded
    opened = doubled.write(tmp_path / "open.pcapng", doubled.recorded(capture)[:-3])
    (tmp_path / "late.pcapng").write_bytes(opened.read_bytes() + block_of_secrets(keys.read_bytes()))
    (tmp_path / "keys.txt").write_bytes(b"")
    pair = ("--keylog", tmp_path / "keys.txt") if option else ()

    done = inspect(tmp_path / "late.pcapng", *pair)

    assert (done.code, done.err) == (0, "")
    assert packets(done)[:3] == ["connect", "connack", "subscribe"]
    assert len(packets(done)) == 14


@pytest.mark.parametrize("name", some(["inspect", "lint", "stats"], 3))
def test_every_command_that_reads_captures_takes_keys(name: str, recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded
    without = run(name, capture)
    done = run(name, capture, "--keylog", keys)

    assert done.code == 0
    assert done.out != without.out
    assert "could be decrypted" not in done.err


def test_text_shows_the_packets_and_what_tls_was(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded
    shown = run("inspect", capture, "--keylog", keys).text

    assert "opened (TLS" in shown
    assert "plant/7" in shown
    assert "TLS 1.3" in shown.splitlines()[-1]
    assert "packets" in shown.splitlines()[-1]


def test_keys_that_open_nothing(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, _ = recorded
    other = tmp_path / "keys.txt"
    other.write_text(f"CLIENT_RANDOM {'0' * 64} {'1' * 96}\n")
    done = inspect(capture, "--keylog", other)

    assert (done.code, packets(done)) == (0, [])
    assert f"no TLS record could be decrypted with the keys in {other}" in done.err
    reason = "the key log has no keys for this session"
    assert f"TLS not decrypted: connection 0 (192.0.2.4:50000 to 192.0.2.2:8883): {reason}" in done.err
    assert [line["tls"].get("undecrypted") for line in done.of("connection_closed")] == [reason]
    explained = run("explain", capture, "--connection", "0", "--keylog", other)
    assert f"not decrypted: {reason}" in " ".join(explained.text.split())


@pytest.mark.parametrize(("content", "expected"), [(None, "No such file"), ("no keys", "no lines like CLIENT_RANDOM")])
def test_key_logs_that_are_none(
    content: str | None, expected: str, recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "keys.txt"
    if content is not None:
        path.write_text(content)
    done = run("inspect", recorded[0], "--keylog", path)

    assert done.code == 3
    assert expected in done.err
    assert "Traceback" not in done.err


def test_without_tshark_it_is_said_how_to_get_it(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    done = inspect(capture, "--keylog", keys, env={"PATH": str(tmp_path)})

    assert done.code == 3
    assert "apt-get install tshark" in done.err
    inside = with_secrets(capture, keys.read_bytes(), tmp_path / "both.pcapng")
    result = inspect(inside, env={"PATH": str(tmp_path)})
    assert result.code == 0
    assert "contains TLS keys; tshark is needed" in result.err


@pytest.mark.long
def test_no_temporary_file_is_left(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    for arguments, raw in (((capture,), b""), (("-",), capture.read_bytes())):
        inspect(*arguments, "--keylog", keys, stdin=raw, env={"TMPDIR": str(tmp_path)})

    assert os.listdir(tmp_path) == []


@pytest.mark.long
def test_frames_of_packets_inside_are_written_with_all_that_opens_them(
    recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    capture, keys = recorded
    target = tmp_path / "some.pcapng"
    done = inspect(capture, "--keylog", keys, "--filter", "suback", "--write", target)
    assert packets(done) == ["suback"]

    again = inspect(target, "--keylog", keys)

    assert "suback" in packets(again)
    assert len(packets(again)) < 14


@pytest.mark.long
def test_keys_beside_a_capture_without_tls(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    talk = Talk().handshake()
    converse(talk)
    plain = write(talk.tape, tmp_path / "plain.pcapng")

    done = inspect(plain, env={"SSLKEYLOGFILE": str(recorded[1])})

    assert (done.code, len(packets(done))) == (0, 14)


def fake(folder: Path, script: str) -> dict[str, str]:
    """An environment in which tshark is a script."""
    path, temporary = folder / "bin" / "tshark", folder / "temporary"
    path.parent.mkdir()
    temporary.mkdir()
    write_program(path, script)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}", "TMPDIR": str(temporary)}


def test_a_tshark_that_fails_is_no_clean_capture(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    done = run("lint", capture, "--keylog", keys, env=fake(tmp_path, "echo 'no memory' >&2; exit 2"))

    assert done.code == 3
    assert "failed while decrypting TLS" in done.err
    assert "exit code 2): no memory" in done.err
    assert "could be decrypted with the keys" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_keys_do_not_stay_behind_when_it_is_ended(number: int, recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    changes = fake(tmp_path, 'case "$1" in -G) exit 0;; esac; touch "$0.started"; exec sleep 60')
    running = Forked(command("inspect", capture, "--keylog", keys), env=environment(changes), stdout=subprocess.PIPE)
    until((tmp_path / "bin" / "tshark.started").exists, "the start of tshark")

    running.send_signal(number)
    running.communicate(timeout=20)

    assert os.listdir(changes["TMPDIR"]) == []
