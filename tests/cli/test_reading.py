"""Keys of TLS on the command line: where they come from, what is said when they do not help."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tests.capture.test_tls import converse
from tests.cli.running import Done, run
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk

pytestmark = pytest.mark.tshark


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A capture of TLS and its keys."""
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    return write(talk.tape, tmp_path_factory.mktemp("tls") / "a.pcapng"), secure.keylog


def with_secrets(capture: Path, keys: bytes, target: Path) -> Path:
    """The capture with a Decryption Secrets Block behind its section header."""
    data = capture.read_bytes()
    header = struct.unpack_from("<I", data, 4)[0]
    padded = keys + bytes(-len(keys) % 4)
    length = 20 + len(padded)
    block = struct.pack("<IIII", 10, length, 0x544C534B, len(keys)) + padded + struct.pack("<I", length)
    target.write_bytes(data[:header] + block + data[header:])
    return target


def packets(done: Done) -> list[str]:
    """What kinds of packets were shown."""
    return [line["type"] for line in done.packets]


def inspect(*arguments: str | Path, given: bytes = b"", env: dict[str, str] | None = None) -> Done:
    """The JSON lines of captures."""
    return run("inspect", "--format", "jsonl", *arguments, given=given, env=env)


def test_keys_by_option(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded
    done = inspect(capture, "--keylog", keys)

    assert (done.code, done.err) == (0, "")
    assert packets(done)[:3] == ["connect", "connack", "subscribe"]
    assert done.of("connection_closed")[0]["tls"]["decrypted"] is True


def test_keys_by_the_environment(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded

    assert len(packets(inspect(capture, env={"SSLKEYLOGFILE": str(keys)}))) == 14
    assert packets(inspect(capture, env={"SSLKEYLOGFILE": "/nowhere/keys"})) == []


def test_keys_in_the_capture(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    both = with_secrets(capture, keys.read_bytes(), tmp_path / "both.pcapng")

    assert packets(inspect(both)) == packets(inspect(capture, "--keylog", keys)) != []


def test_keys_in_a_capture_on_standard_input_need_a_file(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    both = with_secrets(capture, keys.read_bytes(), tmp_path / "both.pcapng")
    done = inspect("-", given=both.read_bytes())

    assert packets(done) == []
    assert "holds keys of TLS, which are used where the capture is a file" in done.err


def test_standard_input(recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded

    assert len(packets(inspect("-", "--keylog", keys, given=capture.read_bytes()))) == 14


@pytest.mark.parametrize("command", ["inspect", "lint", "stats"])
def test_every_command_that_reads_captures_takes_keys(command: str, recorded: tuple[Path, Path]) -> None:
    capture, keys = recorded
    without = run(command, capture)
    done = run(command, capture, "--keylog", keys)

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


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [("none.txt", None, "No such file"), ("text.txt", "no keys", "holds no lines like CLIENT_RANDOM")],
)
def test_key_logs_that_are_none(
    name: str, content: str | None, told: str, recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    done = run("inspect", recorded[0], "--keylog", path)

    assert done.code == 3
    assert told in done.err
    assert "Traceback" not in done.err


def test_without_tshark_it_is_said_how_to_get_it(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    done = inspect(capture, "--keylog", keys, env={"PATH": str(tmp_path)})

    assert done.code == 3
    assert "apt-get install tshark" in done.err
    inside = with_secrets(capture, keys.read_bytes(), tmp_path / "both.pcapng")
    told = inspect(inside, env={"PATH": str(tmp_path)})
    assert told.code == 0
    assert "holds keys of TLS; tshark is needed" in told.err


def test_no_temporary_file_is_left(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = recorded
    for arguments, given in (((capture,), b""), (("-",), capture.read_bytes())):
        inspect(*arguments, "--keylog", keys, given=given, env={"TMPDIR": str(tmp_path)})

    assert os.listdir(tmp_path) == []


def test_frames_of_packets_inside_are_written_with_all_that_opens_them(
    recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    capture, keys = recorded
    target = tmp_path / "some.pcapng"
    done = inspect(capture, "--keylog", keys, "--filter", "suback", "--output", target)
    assert packets(done) == ["suback"]

    again = inspect(target, "--keylog", keys)

    assert "suback" in packets(again)
    assert len(packets(again)) < 14
