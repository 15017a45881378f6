"""One screen for a user who may not capture, with the commands of the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mqttscope.capture.live import NotPermittedError
from mqttscope.cli import privileges
from mqttscope.cli.privileges import System, screen, this_system

ERROR = NotPermittedError("no permission to capture from eth0", "/usr/local/my bin/dumpcap")


def test_debian() -> None:
    assert (
        screen(ERROR, System("linux", "ann", debian=True))
        == """\
no permission to capture from eth0. There are three solutions:

  1. Membership in the group wireshark, which may capture:
       sudo dpkg-reconfigure wireshark-common    # answer yes
       sudo usermod -aG wireshark ann
       newgrp wireshark    # or log in again

  2. Capabilities of the program, for all users who can run it:
       sudo setcap cap_net_raw,cap_net_admin=eip '/usr/local/my bin/dumpcap'

  3. No privileges at all: clients connect to a proxy, which records their traffic:
       mqttscope proxy --listen 127.0.0.1:1884 --upstream mqtt://BROKER:1883 --write out.pcapng"""
    )


@pytest.mark.parametrize(
    ("system", "expected", "not_told"),
    [
        (System("linux", "ann", group_exists=True), ["sudo usermod -aG wireshark ann", "newgrp"], ["groupadd", "dpkg"]),
        (System("linux", "ann"), ["sudo groupadd -r wireshark", "chmod 750", "setcap"], ["dpkg"]),
        (System("linux", "ann", debian=True, is_member=True), ["you are a member", "newgrp wireshark"], ["usermod"]),
        (System("linux", "ann", container=True), ["--cap-add NET_RAW --cap-add NET_ADMIN"], []),
        (System("linux", "ann", become="doas"), ["doas setcap"], ["sudo"]),
        (
            System("darwin", "ann"),
            ["wireshark-chmodbpf", "dseditgroup -o edit -a ann", "chown ann /dev/bpf*"],
            ["setcap"],
        ),
        (System("freebsd14", "ann"), ["chmod g+r /dev/bpf*", "chown ann /dev/bpf*"], ["setcap", "dseditgroup"]),
        (System("openbsd7", "ann", become="doas"), ["doas chown ann /dev/bpf*"], ["sudo", "setcap"]),
    ],
)
def test_other_systems(system: System, expected: list[str], not_told: list[str]) -> None:
    text = screen(ERROR, system)
    assert all(
        other_text in text for other_text in (*expected, "mqttscope proxy --listen", "  1. ", "  2. ", "  3. ")
    ), text
    assert not any(other_text in text for other_text in not_told), text
    assert len(text.splitlines()) <= 24
    assert all(len(line) <= 110 for line in text.splitlines())


def test_this_system_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tmp_path / "os-release"
    monkeypatch.setattr(privileges, "OS_RELEASE", release)
    monkeypatch.setattr(privileges, "CONTAINER_FILES", (tmp_path / "container",))
    monkeypatch.setenv("LOGNAME", "o'neil")
    assert not this_system().debian
    assert this_system().user == "'o'\"'\"'neil'"
    release.write_text('NAME=x\nID=mint\nID_LIKE="ubuntu debian"\n', "utf-8")
    assert this_system().debian
    assert not this_system().container
    (tmp_path / "container").touch()
    assert this_system().container
    monkeypatch.setattr(
        "mqttscope.cli.privileges.shutil.which", lambda name: f"/bin/{name}" if name == "doas" else None
    )
    assert this_system().become == "doas"


def test_members_are_those_of_the_group_file(monkeypatch: pytest.MonkeyPatch) -> None:
    grp = pytest.importorskip("grp")
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr(grp, "getgrnam", lambda name: grp.struct_group((name, "x", 99, ["ann"])))
    system = this_system()
    assert (system.group_exists, system.is_member) == (True, True)
    monkeypatch.setitem(sys.modules, "grp", None)
    assert not this_system().group_exists
