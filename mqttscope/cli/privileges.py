"""Help for missing capture privileges: one screen with the commands for this system."""

from __future__ import annotations

import getpass
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mqttscope.capture.live import NotPermittedError

GROUP = "wireshark"
MAC_GROUP = "access_bpf"
CAPABILITIES = "cap_net_raw,cap_net_admin=eip"
OS_RELEASE = Path("/etc/os-release")
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))


@dataclass(slots=True)
class System:
    """Properties of a system that determine the commands for capture privileges."""

    platform: str
    """Value of `sys.platform`."""
    user: str = "$USER"
    debian: bool = False
    """Whether it is Debian or a derivative."""
    group_exists: bool = False
    """Whether the group `GROUP` exists."""
    is_member: bool = False
    """Whether the user is a member, which takes effect in new sessions."""
    container: bool = False
    become: str = "sudo"
    """Command that runs another as root."""


def this_system() -> System:
    """Detect the properties of this system."""
    system = System(sys.platform)
    with suppress(OSError, KeyError, ImportError):  # a user without a name, as in containers
        system.user = shlex.quote(getpass.getuser())
    with suppress(OSError):
        system.debian = any(
            line.partition("=")[0] in ("ID", "ID_LIKE") and "debian" in line
            for line in OS_RELEASE.read_text("utf-8", "replace").splitlines()
        )
    with suppress(ImportError, KeyError):
        import grp

        members = grp.getgrnam(GROUP).gr_mem
        system.group_exists, system.is_member = True, system.user in members
    system.container = any(path.exists() for path in CONTAINER_FILES)
    if shutil.which("sudo") is None and shutil.which("doas") is not None:
        system.become = "doas"
    return system


def screen(error: NotPermittedError, system: System | None = None) -> str:
    """The cause, and three ways to get capture privileges, with commands."""
    system = this_system() if system is None else system
    _, group, commands = next(
        (row for row in _SYSTEMS if system.platform.startswith(row[0])), ("", _bsd_group, _bsd_device)
    )
    ways = [group(system, error.dumpcap), commands(system, error.dumpcap), _proxy()]
    lines = [f"{error.cause}. There are three solutions:"]
    for number, (title, steps) in enumerate(ways, 1):
        lines += ["", f"  {number}. {title}", *(f"       {step}" for step in steps)]
    if system.container:
        lines += ["", "In a container: start it with --cap-add NET_RAW --cap-add NET_ADMIN."]
    return "\n".join(lines)


Way = tuple[str, list[str]]


def _linux_group(system: System, dumpcap: str) -> Way:
    title = f"Membership in the group {GROUP}, which may capture:"
    again = f"newgrp {GROUP}    # or log in again"
    if system.is_member:
        return f"The group {GROUP}: you are a member, but this session is older:", [again]
    join = f"{system.become} usermod -aG {GROUP} {system.user}"
    if system.debian:
        return title, [f"{system.become} dpkg-reconfigure wireshark-common    # answer yes", join, again]
    if system.group_exists:
        return title, [join, again]
    path = shlex.quote(dumpcap)
    setup = [f"groupadd -r {GROUP}", f"chgrp {GROUP} {path}", f"chmod 750 {path}", f"setcap {CAPABILITIES} {path}"]
    return title, [*(f"{system.become} {command}" for command in setup), join, again]


def _linux_capabilities(system: System, dumpcap: str) -> Way:
    return (
        "Capabilities of the program, for all users who can run it:",
        [f"{system.become} setcap {CAPABILITIES} {shlex.quote(dumpcap)}"],
    )


def _mac_group(system: System, dumpcap: str) -> Way:
    return (
        f"Membership in the group {MAC_GROUP}, which may capture:",
        [
            "brew install --cask wireshark-chmodbpf",
            f"{system.become} dseditgroup -o edit -a {system.user} -t user {MAC_GROUP}    # then log in again",
        ],
    )


def _bsd_group(system: System, dumpcap: str) -> Way:
    return (
        "A group that may read the devices, until the next restart:",
        [f"{system.become} chgrp $(id -gn) /dev/bpf*", f"{system.become} chmod g+r /dev/bpf*"],
    )


def _bsd_device(system: System, dumpcap: str) -> Way:
    return (
        "Ownership of the devices, until the next restart (this system has no capabilities as on Linux):",
        [f"{system.become} chown {system.user} /dev/bpf*"],
    )


def _proxy() -> Way:
    return (
        "No privileges at all: clients connect to a proxy, which records their traffic:",
        ["mqttscope proxy --listen 127.0.0.1:1884 --upstream mqtt://BROKER:1883 --write out.pcapng"],
    )


_SYSTEMS: tuple[tuple[str, Callable[[System, str], Way], Callable[[System, str], Way]], ...] = (
    ("linux", _linux_group, _linux_capabilities),
    ("darwin", _mac_group, _bsd_device),
)
"""Prefix of a platform, and its first two solutions; other platforms are treated like BSD."""
