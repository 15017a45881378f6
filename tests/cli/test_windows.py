"""What can be tested of Windows elsewhere: commands do without the modules and calls that only POSIX systems have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import capture, environment, invoke

WITHOUT_POSIX = """
import asyncio, click, ctypes, getpass, os, rich.console, signal, shutil, subprocess, sys, tempfile, uuid, zoneinfo
# All these are as they are on this system; what comes after is as it would be on Windows.
sys.platform = "win32"
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "geteuid", "getuid", "killpg", "mkfifo", "sched_getaffinity", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGWINCH", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
from mqttscope.cli.main import group
for line in sys.stdin.read().splitlines():
    with group.make_context("mqttscope", line.split("\\t")) as context:
        print("code", group.invoke(context), flush=True)
"""


@pytest.mark.long
def test_commands_need_nothing_of_posix(tmp_path: Path) -> None:
    path, out = str(capture("v5-qos")), str(tmp_path / "out.pcapng")
    commands = [
        ["inspect", path], ["inspect", path, "--format", "jsonl"], ["inspect", path, "--write", out],
        ["lint", path, "--exit-zero"], ["stats", path], ["explain", path], ["compare", path, path],
        ["decode", "300500036162", "2f00"], ["rules", "PUB101"],
        ["redact", path, "--output", str(tmp_path / "redacted.pcapng")],
        ["replay", path, "--broker", "mqtt://127.0.0.1:9", "--dry-run"], ["mutate", "--list"],
    ]  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], input="\n".join("\t".join(command) for command in commands), text=True,
        capture_output=True, env=environment(), timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    codes = [line for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == [f"code {1 if command[0] == 'decode' else 0}" for command in commands], done.stderr


def test_sniff_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.capture.live.sys.platform", "win32")
    done = invoke("sniff", "-i", "Ethernet 2")
    assert done.code == 3
    assert "dumpcap -i 1 -w - | mqttscope inspect -" in done.err
