"""What a recording needs: a mosquitto of its own, dumpcap beside it, and tshark to count what was caught.

Everything is on loopback, in a temporary folder, and ends with the recording; only processes started here are ended.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pcapng
from mqttbytes import TYPES
from tamper import Proxy

TOOLS = {
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
    "mosquitto_sub": "mosquitto-clients",
    "mosquitto_rr": "mosquitto-clients",
    "mosquitto_passwd": "mosquitto",
    "dumpcap": "wireshark-common",
    "tshark": "tshark",
    "openssl": "openssl",
}
"""Program -> Debian package."""

START_SECONDS = 10.0
FLUSH_SECONDS = 0.7
"""How long dumpcap gets to fetch the last frames from the kernel; its ring is emptied several times a second."""


def missing_tools() -> str | None:
    """What to install, or None when every program is there."""
    packages = sorted({package for program, package in TOOLS.items() if not find(program)})
    if not packages:
        return None
    return f"programs are missing; on Debian: apt-get install --no-install-recommends {' '.join(packages)}"


def find(program: str) -> str | None:
    """Path of a program; Debian keeps mosquitto in a folder that is not on every user's path."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def program(name: str) -> str:
    """Path of a program that must be there."""
    path = find(name)
    if path is None:
        raise FileNotFoundError(f"{name}: on Debian: apt-get install {TOOLS[name]}")
    return path


def free_port(wanted: int) -> int:
    """The wanted port when nobody listens there, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on loopback")


@dataclass(slots=True)
class Rig:
    """A running broker and its folder, as a scenario sees them."""

    port: int
    folder: Path
    config: str
    host: str = "127.0.0.1"
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    broker: subprocess.Popen[bytes] | None = None
    logged: Counter[str] = field(default_factory=Counter)
    """Packet types that clients of the scenario said they sent or received, where tshark cannot tell."""
    broker_port: int = 0
    """Where the broker listens when a proxy has the port of the rig."""
    between: Proxy | None = None

    @property
    def proxy(self) -> Proxy:
        """The proxy of a scenario that asks for one."""
        if self.between is None:
            raise RuntimeError("the scenario asks for no proxy")
        return self.between

    def start_proxy(self) -> None:
        """Stand between the port of the rig and the broker's own."""
        self.between = Proxy(self.host, self.port, self.broker_port)

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.between is not None:
            self.between.close()
        for process in reversed(self.processes):
            end(process)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program that ends with the rig."""
        log = (self.folder / "log.txt").open("ab")
        process = subprocess.Popen([program(command[0]), *command[1:]], stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def run(self, *command: str) -> None:
        """Run a program to its end; which exit code it has is part of the scenario, not an error."""
        subprocess.run([program(command[0]), *command[1:]], capture_output=True, timeout=30, check=False)

    def start_broker(self) -> None:
        """Start mosquitto on its port and wait until it listens."""
        port = self.broker_port or self.port
        text = f"user root\npersistence false\nlistener {port} {self.host}\n" + self.config.format(
            folder=self.folder, spare=free_port(0)
        )
        if "allow_anonymous" not in self.config:
            text += "\nallow_anonymous true\n"
        path = self.folder / "mosquitto.conf"
        path.write_text(text)
        self.broker = self.start("mosquitto", "-v", "-c", str(path))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.broker.poll() is None:
            with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
                probe.settimeout(START_SECONDS)
                if probe.connect_ex((self.host, port)) == 0:
                    # The broker must be done with this connection before the recording starts.
                    probe.shutdown(socket.SHUT_WR)
                    with suppress(OSError):
                        while probe.recv(4096):
                            pass
                    return
            time.sleep(0.05)
        raise RuntimeError(f"mosquitto did not start:\n{(self.folder / 'log.txt').read_text()}")

    def stop_broker(self) -> None:
        """End the broker as an operator would (SIGTERM)."""
        if self.broker is not None:
            end(self.broker)


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End one process that was started here."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def recording(rig: Rig, path: Path) -> Iterator[None]:
    """Capture the rig's port on loopback into a file while the body runs."""
    log = rig.folder / "dumpcap.txt"
    with log.open("wb") as errors:
        dumpcap = subprocess.Popen(
            [program("dumpcap"), "-q", "-i", "lo", "-f", f"tcp port {rig.port}", "-w", str(path)], stderr=errors
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while "File:" not in log.read_text():
            if dumpcap.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dumpcap did not start (capturing needs root or cap_net_raw):\n{log.read_text()}")
            time.sleep(0.05)
        time.sleep(0.3)
        yield
        time.sleep(FLUSH_SECONDS)
    finally:
        end(dumpcap, signal.SIGINT)


@contextmanager
def rig(config: str, port: int, host: str) -> Iterator[Rig]:
    """A rig with a broker that listens; everything is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="record-") as folder,
        Rig(free_port(port), Path(folder), config, host) as made,
    ):
        yield made


@contextmanager
def beside(port: int, host: str) -> Iterator[Rig]:
    """A rig whose broker runs already, and continues."""
    with tempfile.TemporaryDirectory(prefix="record-") as folder, Rig(port, Path(folder), "", host) as made:
        yield made


def tidy(source: Path, target: Path) -> int:
    """Copy a recording without what dumpcap writes about the machine; returns the number of frames."""
    frames = pcapng.read(source)
    pcapng.write(target, frames, version("dumpcap"))
    return len(frames)


def tshark(path: Path, *arguments: str) -> list[str]:
    """Lines that tshark prints about a capture."""
    done = subprocess.run(
        [program("tshark"), "-n", "-r", str(path), "-o", "tcp.reassemble_out_of_order:TRUE", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def count_packets(path: Path, port: int) -> dict[str, int]:
    """Packets by type as tshark counts them, several per frame included."""
    lines = tshark(path, "-d", f"tcp.port=={port},mqtt", "-T", "fields", "-e", "mqtt.msgtype")
    counted = Counter(int(value) for line in lines for value in line.split(",") if value)
    return {TYPES[kind]: counted[kind] for kind in sorted(counted)}


def count_connections(path: Path) -> int:
    """TCP connections as tshark counts them."""
    return len(set(tshark(path, "-T", "fields", "-e", "tcp.stream")))


def versions(path: Path, port: int) -> list[str]:
    """Protocol versions of the CONNECTs, in order."""
    names = {"3": "3.1", "4": "3.1.1", "5": "5.0"}
    lines = tshark(path, "-d", f"tcp.port=={port},mqtt", "-Y", "mqtt.ver", "-T", "fields", "-e", "mqtt.ver")
    return sorted({names[value] for line in lines for value in line.split(",") if value in names})


def version(name: str) -> str:
    """Name and version of a program, as `about.toml` states it."""
    flag = "--version" if name in ("dumpcap", "tshark") else "--help"
    done = subprocess.run([program(name), flag], capture_output=True, text=True, check=False)
    words = (done.stdout or done.stderr).split()
    number = next(word for word in words if word[0].isdigit())
    return f"{name} {number.rstrip('.,')}"


def note(text: str) -> None:
    """One line for the person who runs the script."""
    sys.stderr.write(text + "\n")
