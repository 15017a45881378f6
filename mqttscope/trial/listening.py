"""On which TCP ports a process of this host listens, as far as Linux tells it."""

from __future__ import annotations

from pathlib import Path

_LISTEN = "0A"
"""The state in /proc/net/tcp."""


def listening_ports(pid: int) -> frozenset[int] | None:
    """The TCP ports on which a process listens itself; ``None`` where that cannot be told.

    It cannot for processes of other users, in other network namespaces (containers), and without Linux's /proc.
    """
    own = Path(f"/proc/{pid}")
    try:
        if Path("/proc/self/ns/net").readlink() != (own / "ns/net").readlink():
            return None
        sockets = _listening()
        # Whoever may look into the folder may read its links; those that are gone by then do not listen.
        held = [one.readlink() for one in (own / "fd").iterdir() if one.is_symlink()]
    except OSError:
        return None
    return frozenset(sockets[str(one)] for one in held if str(one) in sockets)


def _listening() -> dict[str, int]:
    """The port of every socket that listens, by the name that it has among a process's descriptors."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/self/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            columns = line.split()
            if columns[3] == _LISTEN:
                found[f"socket:[{columns[9]}]"] = int(columns[1].rpartition(":")[2], 16)
    return found
