"""Plays recorded clients against a live broker, and compares it with the recorded broker.

    result = mqttscope.Replay("a.pcapng", broker="mqtt://127.0.0.1:1883", pace="asap").run()
    for difference in result.differences:
        print(difference["kind"], difference["message"])

`AsyncReplay` is for use inside a running event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from mqttscope import arguments
from mqttscope.api.captures import CaptureSelection, Path, Ports
from mqttscope.api.reading import read_path
from mqttscope.api.recorded import RECORDED, RecordedSelection, read_moment, read_pace, read_recorded
from mqttscope.errors import ArgumentError, InvalidStateError
from mqttscope.net.frame import CaptureError
from mqttscope.replay.client import ClientOptions
from mqttscope.replay.drivers.run import PATIENCE_SECONDS, BrokerTarget
from mqttscope.replay.drivers.run import ReplayRunner as Playing
from mqttscope.report.base import View
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.summary import ReplayOutcome, compare, summary_document
from mqttscope.transport.client import CONNECT_TIMEOUT_S, resolve
from mqttscope.transport.recording import Recording
from mqttscope.transport.target import loopback, parse_broker
from mqttscope.transport.tls import upstream_context


@dataclass(slots=True, frozen=True)
class Replayed:
    """Result of a replay, with differences between the live broker and the recorded one."""

    connections: int
    """Number of recorded connections played."""
    connected: int
    """Number of connections established."""
    sent: int
    """Number of MQTT packets sent."""
    received: int
    """Number of MQTT packets received."""
    seconds: float
    """Duration of the replay."""
    differences: list[dict[str, Any]]
    """Differences of the broker: the lines ``difference`` of ``mqttscope replay --verify --format jsonl``, without
    secrets and without certain effects of the arguments (docs/replay.md)."""
    failures: dict[str, int]
    """Number of connections that failed or broke, by reason."""
    shortfalls: dict[str, int]
    """Number of deviations from the recording without a failure, by reason, such as packets that never came."""
    changes: list[str]
    """Changes from the captures before sending, as sentences."""
    errors: list[CaptureError]
    """Errors of captures."""
    _document: dict[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether everything was played without differences."""
        return not (self.differences or self.failures or self.shortfalls or self.errors)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``replay`` of ``mqttscope replay --format jsonl``."""
        return dict(self._document)


class _Clients:
    """Recorded clients, and the broker to play them against."""

    def __init__(
        self,
        *captures: Path,
        broker: str,
        pace: str | float = RECORDED,
        clients: Iterable[str] = (),
        start: str | None = None,
        end: str | None = None,
        filter: str | None = None,  # noqa: A002 - name of the option
        keys: Path | None = None,
        ports: Ports = (),
        version: str | None = None,
        user_name: str | None = None,
        password: str | bytes | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        insecure: bool = False,
        patience: float = PATIENCE_SECONDS,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        record: Path | None = None,
        allow_remote: bool = False,
    ) -> None:
        self._target = parse_broker(arguments.text("broker", broker, "a URL, such as mqtt://127.0.0.1:1883"))
        tls = self._target.tls
        arguments.tls_files(self._target, tls=tls, insecure=insecure, ca=ca, cert=cert, key=key)
        self._pace = read_pace(pace)
        source = CaptureSelection(captures, filter=filter, keys=keys, ports=ports, version=version)
        if user_name is not None:
            arguments.text("user_name", user_name, "the User Name of a CONNECT")
        if not isinstance(password, str | bytes | None):
            raise ArgumentError("password is neither text nor bytes")
        user_name = user_name or self._target.user_name
        self._credentials = user_name, password.encode() if isinstance(password, str) else password
        arguments.credentials(*self._credentials)
        wanted = RecordedSelection(
            clients=arguments.texts("clients", clients, "globs of Client Identifiers"),
            start=read_moment("start", start),
            end=read_moment("end", end),
            credentials=user_name is not None or password is not None,
        )
        context = upstream_context(ca, cert, key, insecure=insecure) if tls else None
        self._goal = BrokerTarget(self._target, context, None, arguments.seconds("connect_timeout", connect_timeout))
        self._recorded = read_recorded(source, wanted)
        self._errors = source.errors
        self._patience = arguments.seconds("patience", patience)
        self._record = read_path(record, "record")
        self._allow_remote = arguments.flag("allow_remote", allow_remote)

    async def _play(self) -> Replayed:
        addresses = await resolve(self._target)
        if not self._allow_remote and not loopback(address.ip for address in addresses):
            raise ArgumentError(f"{self._target} is another host: allow_remote=True allows sending to it")
        self._goal.addresses = addresses
        recorded, (user_name, password) = self._recorded, self._credentials
        recording = None if self._record is None else Recording("replay", path=self._record)
        playing = Playing(
            recorded.scripts,
            self._goal,
            self._pace,
            ClientOptions(user_name=user_name, password=password),
            patience_s=self._patience,
            recording=recording,
            unreachable=recorded.unreachable,
        )
        try:
            await playing.run()
        except asyncio.CancelledError:
            playing.stop()
            raise
        finally:
            if recording is not None:
                recording.close()
        if recording is not None and recording.write_error is not None:
            raise recording.write_error
        return self._replayed(playing)

    def _replayed(self, playing: Playing) -> Replayed:
        outcome = ReplayOutcome(str(self._target), self._pace.text, changes=self._recorded.changes)
        outcome.left_out.update(why for _, why in self._recorded.left_out)
        scripts, live, skipped = outcome.add_replay(playing)
        verification = compare(playing, scripts, live, skipped, self._recorded.alterations)
        writer = ReplayJson(BytesIO(), View())
        shortfalls = dict(outcome.shortfalls)
        shortfalls |= {f"never came: {what}": times for what, times in outcome.never_came.items()}
        return Replayed(
            len(outcome.recorded), outcome.performed, outcome.sent, outcome.received, outcome.seconds,
            list(map(writer.difference, verification.counting)), dict(outcome.failures), shortfalls, outcome.changes,
            self._errors, summary_document(outcome),
        )  # fmt: skip


class Replay(_Clients):
    """Recorded clients, ready to play against a broker.

    ``captures``, ``filter``, ``keys``, ``ports`` and ``version`` are as for `open`.  ``broker``: a URL with
    ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://``.  ``clients``: globs of Client Identifiers.  ``start`` and
    ``end``: part of the recording, as ``2026-01-02T03:04:05Z`` or as ``90s`` from its start.  ``pace``: ``recorded``,
    ``asap``, ``causal`` (each packet after the packets it depends on), or a factor such as ``2.0``.  ``patience`` and
    ``connect_timeout``: timeouts in seconds for an answer, and for a connection.  ``user_name`` and ``password``
    replace the recorded ones.  ``ca``, ``cert``, ``key`` and ``insecure``: TLS with the broker.  ``record``: a pcapng
    file for the live traffic.  Sending to another host needs ``allow_remote``.

    The constructor reads the captures, and sends nothing.  `AddressError` for an invalid URL, `NothingRecordedError`
    if no connection can be played, `RewriteError` for invalid times, `TlsError` for certificates, and the errors of
    `open`; ``run`` raises `ArgumentError` for another host, `LinkError` if the host name of the broker cannot be
    resolved, and :class:`OSError` if ``record`` cannot be written.
    """

    def run(self) -> Replayed:
        """Play the recording once, to its end; each call plays it again.

        `InvalidStateError` inside a running event loop: use `AsyncReplay` there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._play())
        raise InvalidStateError("an event loop is running here: await AsyncReplay(...).run()")


class AsyncReplay(_Clients):
    """`Replay` inside a running event loop, with the same arguments."""

    async def run(self) -> Replayed:
        """Play the recording once, to its end; each call plays it again.  A cancelled run ends its connections."""
        return await self._play()
