"""Where Wireshark's programs are found, and without which packages; what a program in tshark's place takes, and how it
ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqttscope import system
from mqttscope.capture.tshark import MissingToolError, TsharkProcess, decrypting, find_tool, find_tshark
from mqttscope.installation import package_command
from mqttscope.net.frame import Frame
from tests.capture.test_tls import converse
from tests.cli.running import environment
from tests.conftest import ROOT
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk


def test_a_tool_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dumpcap").touch()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_tool("dumpcap", "to capture") == str(tmp_path / "dumpcap")


def test_a_missing_tool_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingToolError, match=r"dumpcap is needed to capture and was not found.*install tshark"):
        find_tool("dumpcap", "to capture")


def test_the_first_folder_of_the_path_counts_and_a_folder_of_the_name_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "tshark").mkdir()
    (tmp_path / "two" / "tshark").touch()
    (tmp_path / "three" / "tshark").touch(mode=0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in ("one", "two", "three")))

    assert find_tshark() == str(tmp_path / "two" / "tshark"), "starting it says that it may not be run"


def test_a_file_in_the_working_directory_names_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").touch(mode=0o755)
    (tmp_path / "tshark").touch(mode=0o755)
    (tmp_path / "config.ini").write_text(f"[tshark]\ntshark_path = {tmp_path / 'mine'}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    with pytest.raises(MissingToolError, match="add its folder to PATH"):
        find_tshark()


@pytest.mark.parametrize(
    ("platform", "folder", "name"),
    [("win32", "Wireshark", "tshark.exe"), ("darwin", None, "tshark")],
)
def test_where_the_installer_puts_a_tool(
    platform: str, folder: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PATHEXT", ".exe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    if folder is None:
        monkeypatch.setattr(system, "wireshark_folders", lambda: [str(tmp_path / "app")])
        folder = "app"
    monkeypatch.setenv("ProgramFiles", str(tmp_path))
    with pytest.raises(MissingToolError):
        find_tshark()
    (tmp_path / folder).mkdir()
    (tmp_path / folder / name).touch()

    assert find_tshark() == str(tmp_path / folder / name)


def test_where_macos_has_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.wireshark_folders() == ["/Applications/Wireshark.app/Contents/MacOS"]
    monkeypatch.setattr(sys, "platform", "linux")
    assert system.wireshark_folders() == []


HIDE = """
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyshark", "lxml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
"""


def without_packages(tmp_path: Path, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program where neither pyshark nor lxml can be imported."""
    folder = tmp_path / "site"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(HIDE)
    return subprocess.run(
        [sys.executable, "-m", "mqttscope", *map(str, words)],
        env=environment({"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **variables}),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_interfaces_are_listed_without_pyshark_and_lxml(tmp_path: Path) -> None:
    dumpcap = tmp_path / "bin" / "dumpcap"
    dumpcap.parent.mkdir()
    dumpcap.write_text("#!/bin/sh\necho '1. lo\t\t\t\t127.0.0.1\tloopback'\n")
    dumpcap.chmod(0o755)

    done = without_packages(tmp_path, "sniff", "--list-interfaces", PATH=f"{dumpcap.parent}:/bin:/usr/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert "lo" in done.stdout


def test_a_missing_dumpcap_is_named_without_pyshark_and_lxml(tmp_path: Path) -> None:
    text = "dumpcap is needed to capture and was not found; install it (Debian: apt-get install tshark, "
    for words in (("sniff", "lo"), ("sniff", "--list-interfaces")):
        done = without_packages(tmp_path, *words, PATH=str(tmp_path / "empty"))
        assert done.returncode == 3
        assert done.stderr.startswith(f"Error: {text}")


@pytest.mark.tshark
def test_tls_is_decrypted_without_pyshark_and_lxml(tmp_path: Path) -> None:
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    path = write(talk.tape, tmp_path / "a.pcapng")

    done = without_packages(tmp_path, "inspect", path, "--keylog", secure.keylog)
    assert done.returncode == 0, done.stderr
    assert "CONNECT " in done.stdout


@pytest.mark.parametrize("command", ["inspect", "lint", "stats"])
def test_tshark_as_front_end_says_which_packages_to_install(command: str, tmp_path: Path) -> None:
    capture = ROOT / "captures" / "v5-qos" / "capture.pcapng"
    done = without_packages(tmp_path, command, capture, "--via", "tshark")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "Error: --via tshark needs packages that are not installed (No module named 'lxml'): "
        f"{package_command('pyshark', 'lxml')}\n"
    )


@pytest.mark.tshark
def test_ports_keys_and_what_would_look_inside() -> None:
    words = decrypting(find_tshark(), "-", "keys.txt", {8883, 443})

    assert words[1:6] == ["-n", "-r", "-", "-o", "tls.keylog_file:keys.txt"]
    assert [word for word in words if "port" in word] == [
        "tcp.port==443,tls", "tls.port==443,data", "tcp.port==8883,tls", "tls.port==8883,data",
    ]  # fmt: skip
    hidden = {words[at + 1] for at, word in enumerate(words) if word == "--disable-protocol"}
    assert {"http", "http2", "mqtt", "websocket"} < hidden


def test_a_tshark_that_cannot_be_asked() -> None:
    assert decrypting("/nowhere/tshark", "a", "b", ())[0] == "/nowhere/tshark"


FRAME = Frame(0, 0, 1, bytes(1_000), 1_000, "")


def running(program: str) -> TsharkProcess:
    return TsharkProcess([sys.executable, "-c", program])


def all_of_it(process: TsharkProcess) -> bytes:
    """Everything that it says until it ends, while it is given what it takes."""
    raw, until = b"", time.monotonic() + 30
    while time.monotonic() < until:
        process.push()
        if not process.behind:
            process.end_input()
        process.listen()
        piece = process.read()
        if piece is None:
            time.sleep(0.005)
        elif piece:
            raw += piece
        else:
            return raw
    raise AssertionError("it did not end")


def test_what_is_fed_arrives_whole_and_in_order() -> None:
    process = running("import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)")
    for number in range(500):
        process.feed(Frame(0, number, 1, number.to_bytes(2, "big") * 500, 1_000, ""))

    raw = all_of_it(process)
    places = [raw.find(number.to_bytes(2, "big") * 500) for number in range(1, 500)]
    assert -1 not in places
    assert places == sorted(places)
    process.close()


def test_one_that_reads_nothing_holds_nobody_up() -> None:
    process = running("import time; time.sleep(60)")
    for _ in range(2_000):
        process.feed(FRAME)
    process.push()

    assert process.behind
    assert process.read() is None
    # Who waits for it waits until it has ended.
    assert not process.ended
    process.close()
    assert process.ended


def test_its_last_words_and_its_end() -> None:
    process = running(
        "import sys; print('Running as user root', file=sys.stderr); "
        "print('tshark: that is no capture', file=sys.stderr); "
        "print('12 packets captured', file=sys.stderr); sys.exit(2)"
    )
    assert all_of_it(process) == b""
    assert process.give_up(10) == ("; exit code 2", ": that is no capture")
    process.close()


def test_one_that_stays_is_ended() -> None:
    process = running("import time; time.sleep(60)")
    assert process.give_up(0.01) == ("", "")
    assert process.ended
    process.close()
