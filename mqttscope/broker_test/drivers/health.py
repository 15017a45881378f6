"""Whether the broker serves and lives: a witness that stays connected, and its process where that is known.

A process can be started again, and its memory is looked at over a whole run: what grows too slowly shows in no case.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import time
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
from mqttscope.broker_test.verdict import Ruling, Verdict
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError

AGAIN = 4
"""What seems to deviate is looked at again with so many times the patience."""
START_S = 20.0
"""How long a broker that is started here may take until it serves."""
TAKEN_S = 1.0
"""How long it may take to see whether somebody listens already."""
LOGIN = frozenset({0x04, 0x05, 0x86, 0x87})
"""Codes of a CONNACK about user name and password: of 3.1 and 3.1.1, and of 5.0."""
STOP_S = 5.0
"""How long a broker that is told to end may take."""
MIN_SAMPLES = 100
"""Fewer say nothing of a trend."""
MIN_BYTES = 16 * 1024 * 1024
"""Growth that is told of."""
MAX_SAMPLES = 4_096
"""Beyond that every second one is forgotten."""
PARTS = 4
"""In each of so many parts of the run it has to grow: a heap that fills and a cache that warms up come to an end."""
_LISTEN = "0A"
"""The state in /proc/net/tcp."""


class StartError(MqttscopeError):
    """The broker could not be started; the text says why."""


class NoBrokerError(MqttscopeError):
    """There is no broker that serves; the text says why."""


@dataclass(slots=True)
class HealthMonitor:
    """The broker as a whole."""

    access: BrokerAccess
    patience_s: float
    process: Process | None = None
    told: list[str] = field(default_factory=list)
    """What the user should know, in sentences."""
    witness: ProbeClient | None = None
    version: ProtocolVersion = ProtocolVersion.V3_1_1
    """What the last witness spoke."""
    _delivers: bool | None = None
    """Whether the broker delivered to the first witness; ``None`` before there was one."""
    _admits: bool = False
    """Whether it served another client beside the first witness."""

    async def begin(self) -> None:
        """Find the broker, or start it; `NoBrokerError` where none serves."""
        if self._ours:
            await self._launch()
        else:
            await self._meet(0.0)

    async def end(self, seconds: float | None = None) -> None:
        """Leave, and stop the broker if it was started here; it has ``seconds`` for that, where they are few."""
        if self.witness is not None:
            await self.witness.leave(LEAVE_S if seconds is None else min(LEAVE_S, seconds / 2))
        if self.process is not None:
            self.process.stop(STOP_S if seconds is None else seconds)

    async def alive(self) -> bool:
        """Whether a witness is served; a broker of ours that is gone, or has lasting damage, is started again."""
        own = self.process if self._ours else None
        if own is not None and self._is_damaged:
            own.stop()
        elif self.witness is not None and not self.witness.how:
            return True
        await self._drop_witness()
        if own is not None and not own.alive():
            await self._launch()
        else:
            try:
                await self._meet(self.patience_s * AGAIN)
            except NoBrokerError:
                if own is None:
                    return False
                # It lives and serves nobody: a new one takes its place.
                own.stop()
                await self._launch()
        return self.witness is not None

    async def ill(self, patience_s: float) -> Ruling | None:
        """What is wrong with the broker as a whole; ``None`` when it serves the witness.

        `NoBrokerError` where what was started here has ended, and another one serves in its place.
        """
        gone = self.process is not None and not self.process.alive()
        watching = self.witness
        if not gone and watching is not None and await watching.round_trip(patience_s) is not None:
            return await self._closed_to_others(patience_s)
        found = BrokerHealth.DEAD if gone else await self._pulse(patience_s)
        gone = gone or (self.process is not None and not self.process.alive())
        how = "" if watching is None else watching.how
        if gone and self._ours and not how and watching is not None and await watching.round_trip(patience_s):
            raise NoBrokerError(self._foreign())
        await self._drop_witness()
        if gone or found is BrokerHealth.DEAD:
            told = "its process is gone" if gone else "its port is dead, which served before"
            ending = self.process.ending if gone and self.process is not None else ""
            self._let_go()
            return Ruling(Verdict.CRASHED, f"{told} ({ending})" if ending else told)
        if found is BrokerHealth.SILENT:
            return Ruling(Verdict.HUNG, f"it takes connections and answers no CONNECT within {patience_s * AGAIN:g} s")
        why = f"the witness lost its connection ({how})" if how else "the witness hears nothing any more"
        maybe = "" if self.process is not None or not how else "; it may have ended and been started again"
        return Ruling(Verdict.COLLATERAL, f"{why}, while new clients are served{maybe}")

    async def lasting(self) -> bool:
        """Whether what was done to others lasts: a fresh witness hears nothing, where the first one did."""
        if self.witness is None:
            try:
                await self._meet(0.0)
            except NoBrokerError:
                return True
        return self._is_damaged

    async def _closed_to_others(self, patience_s: float) -> Ruling | None:
        """What is wrong with a broker that serves who is there already; ``None`` when it serves who comes as well."""
        if not self._admits or await self._pulse(patience_s) is BrokerHealth.SERVES:
            return None
        if self.process is not None and not self.process.alive():
            return await self.ill(patience_s)
        await self._drop_witness()
        told = f"it serves who is connected, and nobody who connects within {patience_s * AGAIN:g} s"
        return Ruling(Verdict.HUNG, told)

    @property
    def _is_damaged(self) -> bool:
        return bool(self._delivers and self.witness is not None and not self.witness.hears)

    @property
    def _ours(self) -> bool:
        return self.process is not None and bool(self.process.command)

    def _foreign(self) -> str:
        assert self.process is not None
        return (
            f"what was started has ended ({self.process.ending}), and something else serves at {self.access.target}: "
            "a broker has to stay in the foreground, at a port of its own"
        )

    def _let_go(self) -> None:
        """Look no longer at a process that has ended and is not ours to start: what serves next is another one."""
        process = self.process
        if process is not None and not process.command and not process.alive():
            self.told.append(f"process {process.pid} has ended; what serves since then is another one, not looked at")
            self.process = None

    async def _pulse(self, patience_s: float) -> BrokerHealth:
        """A fresh client, a second time where the first one fares badly."""
        assert self.witness is not None
        version = self.witness.version
        first = await broker_health(self.access, version, patience_s)
        if first is BrokerHealth.SERVES:
            return first
        await asyncio.sleep(min(0.2, patience_s))
        return await broker_health(self.access, version, patience_s * AGAIN)

    async def _launch(self) -> None:
        """Start our broker, and have it serve; whoever else listens in its place would be judged for it."""
        assert self.process is not None
        if await self._taken():
            told = f"something listens at {self.access.target} already"
            raise NoBrokerError(f"{told}, so that the broker cannot be started there")
        self.process.start()
        await self._meet(START_S)

    async def _taken(self) -> bool:
        """Whether anybody takes connections there."""
        for address in self.access.addresses or await resolve(self.access.target):
            try:
                async with asyncio.timeout(TAKEN_S):
                    _, writer = await asyncio.open_connection(*address.name[:2])
            except OSError:
                continue
            writer.transport.abort()
            return True
        return False

    async def _meet(self, seconds: float) -> None:
        """Have a witness; try so long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.witness = await witness(self.access, self.patience_s * AGAIN)
                why = f"{self.access.target} does not answer CONNECT"
            except LinkError as error:
                why = str(error)
            except FloodedError as error:
                raise NoBrokerError(f"{self.access.target} sends without end: {error}") from None
            except RefusedError as error:
                told = f"{self.access.target} refuses our own client: {error}"
                if error.code in LOGIN:
                    told += "; --user and --password-file say as whom to connect"
                raise NoBrokerError(told) from None
            if self._ours and self.process is not None and not self.process.alive():
                told = f"what was started as the broker has ended ({self.process.ending}) before it served"
                raise NoBrokerError(told if self.witness is None else self._foreign())
            if self.witness is not None:
                self.version = self.witness.version
                if self._delivers is None:
                    await self._known(self.witness)
                return
            if time.monotonic() >= deadline:
                raise NoBrokerError(why)
            await asyncio.sleep(0.05)

    async def _known(self, first: ProbeClient) -> None:
        """What can be held against the broker later: what it does before anything was mutated."""
        self._delivers = first.hears
        if not first.hears:
            self.told.append(
                "the broker does not let our own client subscribe or publish; whether others suffer is seen by PINGRESP"
            )
        self._admits = await broker_health(self.access, self.version, self.patience_s * AGAIN) is BrokerHealth.SERVES
        if not self._admits:
            self.told.append(
                "the broker serves no second client beside our own, so that it is not seen whether it serves new ones"
            )

    async def _drop_witness(self) -> None:
        if self.witness is not None:
            await self.witness.drop()
        self.witness = None


@dataclass(slots=True)
class Process:
    """A broker of which the process is known: one that runs already, or one that is started here."""

    pid: int = 0
    command: str = ""
    """How to start it, as for a shell; empty for one that runs already."""
    starts: int = 0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, where it is ours to start and does not run; in a session of its own.

        What is typed at the terminal is for us: a broker that ended by Ctrl-C would look like one that has crashed.
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
        """Whether it runs; a process that has ended and was not collected yet does not."""
        if self._child is not None:
            return self._child.poll() is None
        # One that is ours to start and was not started runs nowhere.
        return not self.command and system.is_running(self.pid) is not False

    @property
    def ending(self) -> str:
        """How a process that we started ended, for people; empty where that is not known."""
        code = None if self._child is None else self._child.poll()
        if code is None:
            return ""
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def memory(self) -> int:
        return system.resident_bytes(self.pid)

    def stop(self, seconds: float = STOP_S) -> None:
        """End one that was started here, with all that it has started; at once when it does not end within so long."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        # Its session is its process group as well: a shell in between would keep the signal for itself.
        if not system.end_all(child.pid, at_once=False):
            child.terminate()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            if not system.end_all(child.pid, at_once=True):
                child.kill()
            child.wait()


class MemoryTrend:
    """Looks at the memory after each case.  It says what it saw, and accuses of nothing."""

    def __init__(self, process: Process | None) -> None:
        self.process = process
        self._pid = 0
        self._samples: list[int] = []
        self._looks = 0
        self._every = 1

    def looked(self) -> None:
        """A case is over."""
        process = self.process
        if process is None or not process.alive():
            return
        if process.pid != self._pid:
            # Another one: what was started again begins again.
            self._pid, self._samples, self._looks, self._every = process.pid, [], 0, 1
        self._looks += 1
        if self._looks % self._every == 0 and (resident := process.memory()):
            self.add(resident)

    def add(self, resident: int) -> None:
        """So many bytes were resident."""
        self._samples.append(resident)
        if len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def told(self) -> str:
        """A sentence about memory that grew all the time, empty where it did not."""
        size = len(self._samples) // PARTS
        if size * PARTS < MIN_SAMPLES:
            return ""
        marks = [self._samples[place * size] for place in range(PARTS)] + [self._samples[-1]]
        grown = marks[-1] - marks[0]
        if grown < MIN_BYTES or any(last - first < grown / (2 * PARTS) for first, last in pairwise(marks)):
            return ""
        times = len(self._samples) * self._every
        return (
            f"the broker's memory grew all the time, by {grown >> 20:,} MiB while cases were played {times:,} times "
            f"({grown // times >> 10:,} KiB for each): no proof of a leak, but worth a look"
        )


def listening_ports(pid: int) -> frozenset[int] | None:
    """The TCP ports on which a process listens itself; ``None`` where that cannot be told.

    It cannot for processes of other users, in other network namespaces (containers), and without Linux's /proc.
    """
    us, own = system.process_folder("self"), system.process_folder(pid)
    if us is None or own is None:
        return None
    try:
        if (us / "ns/net").readlink() != (own / "ns/net").readlink():
            return None
        sockets = _listening(us)
        # Whoever may look into the folder may read its links; those that are gone by then do not listen.
        held = [one.readlink() for one in (own / "fd").iterdir() if one.is_symlink()]
    except OSError:
        return None
    return frozenset(sockets[str(one)] for one in held if str(one) in sockets)


def _listening(own: Path) -> dict[str, int]:
    """The port of every socket that listens, by the name that it has among a process's descriptors."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        table = own / "net" / name
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            columns = line.split()
            if columns[3] == _LISTEN:
                found[f"socket:[{columns[9]}]"] = int(columns[1].rpartition(":")[2], 16)
    return found
