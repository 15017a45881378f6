"""Monitors the health of the broker: with a witness that stays connected, and with its process if that is known.

The process can be restarted.  Its memory is sampled over the whole run, because slow growth is invisible in one case.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from mqttscope import system
from mqttscope.broker_test.drivers.probe_client import (
    LEAVE_S,
    BrokerAccess,
    BrokerHealth,
    FloodedError,
    ProbeClient,
    RefusedError,
    broker_health,
    witness,
)
from mqttscope.broker_test.verdict import BrokerVerdict, Ruling
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError

AGAIN = 4
"""Factor of the timeouts when an apparent deviation is checked again."""
START_S = 20.0
"""Timeout until a broker started by mqttscope serves clients."""
TAKEN_S = 1.0
"""Timeout of the check whether the port is already in use."""
LOGIN = frozenset({0x04, 0x05, 0x86, 0x87})
"""Codes of CONNACK about user name and password, in 3.1 and 3.1.1, and in 5.0."""
STOP_S = 5.0
"""Timeout of the termination of a broker started by mqttscope."""
MIN_SAMPLES = 100
"""Minimum number of samples for a trend."""
MIN_BYTES = 16 * 1024 * 1024
"""Minimum growth that is reported."""
MAX_SAMPLES = 4_096
"""Maximum number of samples; beyond it, every second sample is dropped."""
PARTS = 4
"""Number of parts of a run that must all show growth: filling heaps and caches stop growing at some point."""
_LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""


class StartError(MqttscopeError):
    """The broker could not be started; the message gives the reason."""


class NoBrokerError(MqttscopeError):
    """No broker serves clients; the message gives the reason."""


@dataclass(slots=True)
class HealthMonitor:
    """Monitors the broker as a whole."""

    access: BrokerAccess
    patience_s: float
    process: Process | None = None
    notices: list[str] = field(default_factory=list)
    """Sentences for the user."""
    witness: ProbeClient | None = None
    version: ProtocolVersion = ProtocolVersion.V3_1_1
    """Version of the last witness."""
    _delivers: bool | None = None
    """Whether the broker delivered messages to the first witness; ``None`` before that."""
    _admits: bool = False
    """Whether the broker served a second client besides the first witness."""

    async def begin(self) -> None:
        """Connect to the broker, or start it; raises `NoBrokerError` if no broker serves clients."""
        if self._ours:
            await self._start_broker()
        else:
            await self._connect_witness(0.0)

    async def end(self, seconds: float | None = None) -> None:
        """Disconnect, and stop the broker if mqttscope started it; ``seconds`` overrides the timeouts."""
        if self.witness is not None:
            await self.witness.leave(LEAVE_S if seconds is None else min(LEAVE_S, seconds / 2))
        if self.process is not None:
            self.process.stop(STOP_S if seconds is None else seconds)

    async def alive(self) -> bool:
        """Whether the broker serves a witness; our own broker is restarted if it ended or has lasting damage."""
        own = self.process if self._ours else None
        if own is not None and self._is_damaged:
            own.stop()
        elif self.witness is not None and not self.witness.ended_by:
            return True
        await self._drop_witness()
        if own is not None and not own.alive():
            await self._start_broker()
        else:
            try:
                await self._connect_witness(self.patience_s * AGAIN)
            except NoBrokerError:
                if own is None:
                    return False
                # The process runs but serves no client: replace it.
                own.stop()
                await self._start_broker()
        return self.witness is not None

    async def diagnose(self, patience_s: float) -> Ruling | None:
        """The ruling on harm to the broker as a whole; ``None`` if it serves the witness.

        Raises `NoBrokerError` if the process started by mqttscope has ended and another broker serves in its place.
        """
        gone = self.process is not None and not self.process.alive()
        watching = self.witness
        if not gone and watching is not None and await watching.round_trip(patience_s) is not None:
            return await self._closed_to_others(patience_s)
        health = BrokerHealth.DEAD if gone else await self._probe_health(patience_s)
        gone = gone or (self.process is not None and not self.process.alive())
        how = "" if watching is None else watching.ended_by
        if gone and self._ours and not how and watching is not None and await watching.round_trip(patience_s):
            raise NoBrokerError(self._other_broker())
        await self._drop_witness()
        if gone or health is BrokerHealth.DEAD:
            reason = "its process has ended" if gone else "its port no longer accepts connections"
            ending = self.process.ending if gone and self.process is not None else ""
            self._forget_process()
            return Ruling(BrokerVerdict.CRASHED, f"{reason} ({ending})" if ending else reason)
        if health is BrokerHealth.SILENT:
            reason = f"it accepts TCP connections but answers no CONNECT within {patience_s * AGAIN:g} s"
            return Ruling(BrokerVerdict.HUNG, reason)
        why = f"the witness lost its connection ({how})" if how else "the witness no longer receives anything"
        maybe = "" if self.process is not None or not how else "; the broker may have been restarted"
        return Ruling(BrokerVerdict.COLLATERAL, f"{why}, but new clients are served{maybe}")

    async def damage_lasts(self) -> bool:
        """Whether the harm to other clients lasts: a new witness receives nothing, although the first one did."""
        if self.witness is None:
            try:
                await self._connect_witness(0.0)
            except NoBrokerError:
                return True
        return self._is_damaged

    async def _closed_to_others(self, patience_s: float) -> Ruling | None:
        """The ruling on a broker that serves connected clients but no new ones; ``None`` if it serves both."""
        if not self._admits or await self._probe_health(patience_s) is BrokerHealth.SERVES:
            return None
        if self.process is not None and not self.process.alive():
            return await self.diagnose(patience_s)
        await self._drop_witness()
        reason = f"it serves connected clients, but no new client within {patience_s * AGAIN:g} s"
        return Ruling(BrokerVerdict.HUNG, reason)

    @property
    def _is_damaged(self) -> bool:
        return bool(self._delivers and self.witness is not None and not self.witness.hears)

    @property
    def _ours(self) -> bool:
        return self.process is not None and bool(self.process.command)

    def _other_broker(self) -> str:
        assert self.process is not None
        return (
            f"the started process has ended ({self.process.ending}), but another broker is at {self.access.target}: "
            "a broker must stay in the foreground and use its own port"
        )

    def _forget_process(self) -> None:
        """Stop watching an ended process that mqttscope did not start; the next broker is another process."""
        process = self.process
        if process is not None and not process.command and not process.alive():
            self.notices.append(f"process {process.pid} has ended; the broker that serves since then is not watched")
            self.process = None

    async def _probe_health(self, patience_s: float) -> BrokerHealth:
        """The health seen by a new client; if it is bad, by a second one."""
        assert self.witness is not None
        version = self.witness.version
        first = await broker_health(self.access, version, patience_s)
        if first is BrokerHealth.SERVES:
            return first
        await asyncio.sleep(min(0.2, patience_s))
        return await broker_health(self.access, version, patience_s * AGAIN)

    async def _start_broker(self) -> None:
        """Start our broker and wait until it serves; the port must be free, or another broker would be judged."""
        assert self.process is not None
        if await self._is_port_in_use():
            reason = f"another program already listens at {self.access.target}"
            raise NoBrokerError(f"{reason}, so that the broker cannot be started there")
        self.process.start()
        await self._connect_witness(START_S)

    async def _is_port_in_use(self) -> bool:
        """Whether the address already accepts connections."""
        for address in self.access.addresses or await resolve(self.access.target):
            with socket.socket(address.family, socket.SOCK_STREAM) as sock, suppress(OSError):
                sock.setblocking(False)
                async with asyncio.timeout(TAKEN_S):
                    await asyncio.get_running_loop().sock_connect(sock, address.name)
                return True
        return False

    async def _connect_witness(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.witness = await witness(self.access, self.patience_s * AGAIN)
                why = f"{self.access.target} does not answer CONNECT"
            except LinkError as error:
                why = str(error)
            except FloodedError as error:
                raise NoBrokerError(f"{self.access.target} floods its clients: {error}") from None
            except RefusedError as error:
                reason = f"{self.access.target} refuses our own client: {error}"
                if error.code in LOGIN:
                    reason += "; set the login with --user and --password-file"
                raise NoBrokerError(reason) from None
            if self._ours and self.process is not None and not self.process.alive():
                reason = f"the process started as the broker has ended ({self.process.ending}) before it served"
                raise NoBrokerError(reason if self.witness is None else self._other_broker())
            if self.witness is not None:
                self.version = self.witness.version
                if self._delivers is None:
                    await self._note_baseline(self.witness)
                return
            if time.monotonic() >= deadline:
                raise NoBrokerError(why)
            await asyncio.sleep(0.05)

    async def _note_baseline(self, first: ProbeClient) -> None:
        """Note the behaviour of the broker before any mutation, for comparison."""
        self._delivers = first.hears
        if not first.hears:
            self.notices.append(
                "the broker does not let our own client subscribe or publish, so harm to others is detected by PINGREQ"
            )
        self._admits = await broker_health(self.access, self.version, self.patience_s * AGAIN) is BrokerHealth.SERVES
        if not self._admits:
            self.notices.append(
                "the broker serves only one client at a time, so it is not checked whether it serves new clients"
            )

    async def _drop_witness(self) -> None:
        if self.witness is not None:
            await self.witness.drop()
        self.witness = None


@dataclass(slots=True)
class Process:
    """The process of a broker, already running or started by mqttscope."""

    pid: int = 0
    command: str = ""
    """Shell command that starts the broker; empty for a process that already runs."""
    starts: int = 0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the broker in its own session, if there is a command and it does not run.

        The broker must not receive Ctrl-C from the terminal: its end would look like a crash.
        """
        if not self.command or self.alive():
            return
        words = shlex.split(self.command)
        try:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **system.apart(),
            )
        except (OSError, ValueError) as error:
            raise StartError(f"cannot start {words[0]}: {getattr(error, 'strerror', None) or error}") from None
        self.pid = self._child.pid
        self.starts += 1

    def alive(self) -> bool:
        """Whether the process runs; a zombie does not."""
        if self._child is not None:
            return self._child.poll() is None
        # A broker with a command that was not started yet has no process.
        return not self.command and system.is_running(self.pid) is not False

    @property
    def ending(self) -> str:
        """Exit code or signal of a process that mqttscope started, as text; empty if unknown."""
        code = None if self._child is None else self._child.poll()
        if code is None:
            return ""
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def memory(self) -> int:
        return system.resident_bytes(self.pid)

    def stop(self, seconds: float = STOP_S) -> None:
        """End a process started by mqttscope and its children; kill them after ``seconds``."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        # The signal goes to the whole process group, because a shell in between would not pass it on.
        if not system.end_all(child.pid, at_once=False):
            child.terminate()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            if not system.end_all(child.pid, at_once=True):
                child.kill()
            child.wait()


class MemoryTrend:
    """Samples the memory after each case, and reports growth without a verdict."""

    def __init__(self, process: Process | None) -> None:
        self.process = process
        self._pid = 0
        self._samples: list[int] = []
        self._looks = 0
        self._every = 1

    def sample(self) -> None:
        """Sample the memory after a case."""
        process = self.process
        if process is None or not process.alive():
            return
        if process.pid != self._pid:
            # A restarted process starts a new trend.
            self._pid, self._samples, self._looks, self._every = process.pid, [], 0, 1
        self._looks += 1
        if self._looks % self._every == 0 and (resident := process.memory()):
            self.add(resident)

    def add(self, resident: int) -> None:
        """Add a sample of resident bytes."""
        self._samples.append(resident)
        if len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def notice(self) -> str:
        """A sentence about constantly growing memory, or an empty string."""
        size = len(self._samples) // PARTS
        if size * PARTS < MIN_SAMPLES:
            return ""
        marks = [self._samples[place * size] for place in range(PARTS)] + [self._samples[-1]]
        grown = marks[-1] - marks[0]
        if grown < MIN_BYTES or any(last - first < grown / (2 * PARTS) for first, last in pairwise(marks)):
            return ""
        times = len(self._samples) * self._every
        return (
            f"the broker's memory grew constantly, by {grown >> 20:,} MiB while cases were played {times:,} times "
            f"({grown // times >> 10:,} KiB per play): not proof of a leak, but worth checking"
        )


def listening_ports(pid: int) -> frozenset[int] | None:
    """The TCP ports of a process's own listening sockets; ``None`` if they cannot be determined.

    They cannot for processes of other users, in other network namespaces (containers), and without Linux's /proc.
    """
    us, own = system.process_folder("self"), system.process_folder(pid)
    if us is None or own is None:
        return None
    try:
        if (us / "ns/net").readlink() != (own / "ns/net").readlink():
            return None
        sockets = _listening(us)
        # Access to the folder includes its links; descriptors that are closed meanwhile do not listen.
        held = [link.readlink() for link in (own / "fd").iterdir() if link.is_symlink()]
    except OSError:
        return None
    return frozenset(sockets[str(link)] for link in held if str(link) in sockets)


def _listening(own: Path) -> dict[str, int]:
    """Port of every listening socket, by its name in the file descriptors of a process."""
    ports: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        table = own / "net" / name
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            columns = line.split()
            if columns[3] == _LISTEN:
                ports[f"socket:[{columns[9]}]"] = int(columns[1].rpartition(":")[2], 16)
    return ports
