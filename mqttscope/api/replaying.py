"""Recorded clients played against a live broker, and what it did otherwise than the recorded one.

    result = mqttscope.Replay("a.pcapng", broker="mqtt://127.0.0.1:1883", pace="asap").run()
    for difference in result.differences:
        print(difference["kind"], difference["message"])

`AsyncReplay` is the same inside a running event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from mqttscope import arguments
from mqttscope.api.captures import Path, Ports, Source
from mqttscope.api.reading import read_path
from mqttscope.api.recorded import RECORDED, Wanted, read_moment, read_pace, read_recorded
from mqttscope.errors import ArgumentError, InvalidStateError
from mqttscope.net.frame import CaptureError
from mqttscope.replay.client import ClientOptions
from mqttscope.replay.drivers.run import CONNECT_SECONDS, PATIENCE_SECONDS, BrokerTarget
from mqttscope.replay.drivers.run import Replay as Playing
from mqttscope.report.base import View
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.summary import Outcome, compare, summary_document
from mqttscope.transport.client import resolve
from mqttscope.transport.recording import Recording
from mqttscope.transport.target import loopback, parse_broker
from mqttscope.transport.tls import upstream_context


@dataclass(slots=True, frozen=True)
class Replayed:
    """What a replay did, and what the broker did otherwise than the recorded one."""

    connections: int
    """Recorded connections that were played."""
    connected: int
    """Those of them that were made."""
    sent: int
    """MQTT packets that were sent."""
    received: int
    """MQTT packets that came."""
    seconds: float
    """How long it took."""
    differences: list[dict[str, Any]]
    """What the broker did otherwise: the lines ``difference`` of ``mqttscope replay --verify --format jsonl``, without
    secrets and without what certainly follows from the arguments (docs/replay.md)."""
    failures: dict[str, int]
    """Why connections could not be made, or broke, and how many."""
    shortfalls: dict[str, int]
    """Why connections could not be played as recorded, although nothing broke; what never came is among it."""
    changes: list[str]
    """What differed from the captures before anything was sent, as sentences."""
    errors: list[CaptureError]
    """What of the captures could not be read."""
    _document: dict[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether everything was played, and nothing differs."""
        return not (self.differences or self.failures or self.shortfalls or self.errors)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``replay`` of ``mqttscope replay --format jsonl``."""
        return dict(self._document)


class _Clients:
    """Recorded clients, and the broker that they are played against."""

    def __init__(
        self,
        *captures: Path,
        broker: str,
        pace: str | float = RECORDED,
        clients: Iterable[str] = (),
        start: str | None = None,
        end: str | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the option
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
        connect_timeout: float = CONNECT_SECONDS,
        record: Path | None = None,
        allow_remote: bool = False,
    ) -> None:
        self._target = parse_broker(arguments.text("broker", broker, "a URL, such as mqtt://127.0.0.1:1883"))
        tls = self._target.tls
        arguments.tls_files(self._target, tls=tls, insecure=insecure, ca=ca, cert=cert, key=key)
        self._pace = read_pace(pace)
        source = Source(captures, filter=filter, keys=keys, ports=ports, version=version)
        if user_name is not None:
            arguments.text("user_name", user_name, "the User Name of a CONNECT")
        if not isinstance(password, str | bytes | None):
            raise ArgumentError("password is neither text nor bytes")
        user_name = user_name or self._target.user_name
        self._credentials = user_name, password.encode() if isinstance(password, str) else password
        arguments.credentials(*self._credentials)
        wanted = Wanted(
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
        if not self._allow_remote and not loopback(one.ip for one in addresses):
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
        outcome = Outcome(str(self._target), self._pace.text, changes=self._recorded.changes)
        outcome.left_out.update(why for _, why in self._recorded.left_out)
        scripts, live, skipped = outcome.take(playing)
        found = compare(playing, scripts, live, skipped, self._recorded.alterations)
        writer = ReplayJson(BytesIO(), View())
        shortfalls = dict(outcome.shortfalls)
        shortfalls |= {f"never came: {what}": times for what, times in outcome.never_came.items()}
        return Replayed(
            len(outcome.recorded), outcome.performed, outcome.sent, outcome.received, outcome.seconds,
            [writer.difference(one) for one in found.counting], dict(outcome.failures), shortfalls, outcome.changes,
            self._errors, summary_document(outcome),
        )  # fmt: skip


class Replay(_Clients):
    """Recorded clients, ready to be played against a broker.

    ``captures``, ``filter``, ``keys``, ``ports`` and ``version`` are as for `open`.  ``broker``: a URL with
    ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://``.  ``clients``: globs of Client Identifiers.  ``start`` and
    ``end``: part of the recording, as ``2026-01-02T03:04:05Z`` or from its beginning as ``90s``.  ``pace``:
    ``recorded``, ``asap``, ``causal`` (each packet after those it depends on), or a factor such as ``2.0``.
    ``patience`` and ``connect_timeout``: seconds to wait for an answer, and for a connection.  ``user_name`` and
    ``password`` replace the recorded ones.  ``ca``, ``cert``, ``key`` and ``insecure``: TLS with the broker.
    ``record``: a pcapng file for what passes.  Nothing is sent to another host unless ``allow_remote``.

    The constructor reads the captures, and sends nothing.  `AddressError` for a URL that cannot be meant,
    `NothingRecordedError` where no connection can be played, `RewriteError` for times that cannot be read, `TlsError`
    for certificates, and the errors of `open`; ``run`` raises `ArgumentError` for another host, `LinkError` where the
    name of the broker leads nowhere, and :class:`OSError` where ``record`` cannot be written.
    """

    def run(self) -> Replayed:
        """Play the recording once, to its end; each call plays it again.

        `InvalidStateError` inside a running event loop, where `AsyncReplay` is for.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._play())
        raise InvalidStateError("an event loop is running here: await AsyncReplay(...).run()")


class AsyncReplay(_Clients):
    """The same inside a running event loop; the arguments are those of `Replay`."""

    async def run(self) -> Replayed:
        """Play the recording once, to its end; each call plays it again.  A cancelled run ends its connections."""
        return await self._play()
