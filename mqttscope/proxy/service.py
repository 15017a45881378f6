"""A proxy for programs and tests: runs in its own thread, and returns the packets that passed and the findings."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from mqttscope import arguments
from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.errors import InvalidStateError
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import expand
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import FindingBaseline, Gate, Policy
from mqttscope.lint.given_rules import chosen_rules, given_rules, names_of, refuse_none, selected_names
from mqttscope.lint.quality import is_whole_packet
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.wire import counted
from mqttscope.proxy.relay import CLIENT_TIMEOUT_S, CONNECT_TIMEOUT_S, Relay, Route
from mqttscope.report.base import View
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.shown import make_reporter
from mqttscope.secrets.findings import HidingOptions, client_name
from mqttscope.transport.recording import Recording
from mqttscope.transport.server import MAX_CONNECTIONS
from mqttscope.transport.target import parse_listen, parse_upstream
from mqttscope.transport.tls import listen_context, upstream_context

DEFAULT_MAX_PACKET_BYTES = 1 << 20
"""Default maximum length of a packet that is judged; longer ones are forwarded, recorded and counted."""
MAX_PACKETS = 100_000
"""Maximum number of packets kept; the oldest are dropped first and counted in `Proxy.forgotten`."""
MAX_FINDINGS = 10_000
WIDTH = 100
"""Width of reports in columns."""
_QUIET_S = 0.05
"""Silence before a question is answered: a sender may wait 40 ms for an acknowledgment."""
_BUSY_S = 0.25
"""Maximum wait of a question while packets keep coming."""
_CONNECTING_S = 1.0
"""Maximum wait of a question while connections are being made."""
_LOOK_S = 0.005
_ANSWER_S = 30.0
_JUDGED_S = 25.0
"""Maximum wait of a question for judging that lags; then :class:`TimeoutError`."""

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Seen:
    """One packet that passed through the proxy."""

    connection: int
    """Number of its connection, from 0."""
    client: str
    """Address of the client."""
    client_identifier: str | None
    direction: str
    """``client_to_server`` or ``server_to_client``."""
    type: str | None
    """``publish``; ``None`` if not even the type can be read."""
    topic: str | None
    """Resolved topic of a PUBLISH."""
    packet: ControlPacket | None
    """The packet; a malformed one as far as it can be read."""
    malformed: Malformed | None
    """The fault of a malformed packet, ``None`` for good packets."""
    timestamp_ns: int
    frame: int

    @property
    def payload(self) -> bytes | None:
        return self.packet.payload if isinstance(self.packet, Publish) else None


class Proxy:
    """A transparent proxy in front of a broker; a context manager that runs while its body does.

    ``upstream``, ``listen`` and the files for TLS take the values of ``mqttscope proxy``.  ``select``,
    ``extend_select`` and ``ignore`` choose rules as for ``mqttscope lint``.  ``rules``, classes or instances with
    settings, run in addition unless they are ignored, as for `mqttscope.lint`.  ``policy`` decides which findings fail
    and which are suppressed; findings in ``baseline`` do not fail.  Questions (`packets`, `findings`, `write`,
    `assert_conformant`) are answered after everything that clients sent before, while the proxy runs and afterwards.

    `AddressError`, `UnknownRuleError` and `ArgumentError` for invalid addresses, rules and other arguments,
    `TlsError` for certificates, and :class:`OSError` from `start` if it cannot listen.  `InvalidStateError` from
    methods that need a started proxy, and from a second start.
    """

    def __init__(
        self,
        upstream: str,
        listen: str = "127.0.0.1:0",
        *,
        listen_cert: str | None = None,
        listen_key: str | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        insecure: bool = False,
        select: Iterable[str] = (),
        extend_select: Iterable[str] = (),
        ignore: Iterable[str] = (),
        rules: Iterable[type[Rule] | Rule] = (),
        policy: Policy | None = None,
        baseline: FindingBaseline | None = None,
        max_connections: int = MAX_CONNECTIONS,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        client_timeout: float = CLIENT_TIMEOUT_S,
        max_packet: int = DEFAULT_MAX_PACKET_BYTES,
    ) -> None:
        address = parse_listen(arguments.text("listen", listen, "HOST:PORT, such as 127.0.0.1:1884"))
        broker = parse_upstream(arguments.text("upstream", upstream, "a URL, such as mqtt://127.0.0.1:1883"))
        arguments.tls_files(broker, tls=broker.tls, insecure=insecure, ca=ca, cert=cert, key=key)
        arguments.tls_pair("listen_cert", "listen_key", (listen_cert, listen_key))
        route = Route(*address, broker)
        route.max_connections = arguments.whole("max_connections", max_connections, 1)
        route.connect_timeout_s = arguments.seconds("connect_timeout", connect_timeout)
        route.client_timeout_s = arguments.seconds("client_timeout", client_timeout)
        self._max_packet = arguments.whole("max_packet", max_packet, 1)
        self._policy = Policy() if policy is None else arguments.instance("policy", policy, Policy)
        self._baseline = (
            FindingBaseline() if baseline is None else arguments.instance("baseline", baseline, FindingBaseline)
        )
        if listen_cert is not None:
            route.listen_tls = listen_context(listen_cert, listen_key)
        if route.upstream.tls:
            route.upstream_tls = upstream_context(ca, cert, key, insecure=insecure)
        self._route = route
        added = given_rules(rules)
        chosen = selected_names(select), names_of(extend_select, "extend_select"), names_of(ignore, "ignore")
        self._rules = chosen_rules(*chosen, added)
        self._names = dict(zip(("select", "extend_select", "ignore"), chosen, strict=True))
        self._own_rules = {rule.code: type(rule) for rule in added}
        """Rules given to the proxy, by code; names in ``ignore`` may select them."""
        self._connects = 0
        """CONNECT packets that passed completely."""
        self._connacks = 0
        """CONNACK packets that passed completely, whatever their Reason Code."""
        self._whole = 0
        """Packets that passed completely."""
        self._too_large = 0
        """Packets longer than ``max_packet`` bytes, which are not judged."""
        self.forgotten: int = 0
        """Number of packets dropped because of `MAX_PACKETS`."""
        self.forgotten_findings: int = 0
        """Number of findings dropped because of `MAX_FINDINGS`."""
        self.notes: list[str] = []
        """Problems with connections and rules, as sentences."""
        self._address = ""
        self._port = 0
        self._linter = Linter(self._rules)
        self._failed: dict[str, str] = {}
        self._packets: deque[Seen] = deque(maxlen=MAX_PACKETS)
        self._findings: list[Finding] = []
        self._shown: tuple[str, list[Finding]] = ("", [])
        """Latest text returned by `shown`, and its findings."""
        self._recording: Recording | None = None
        self._relay: Relay | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        if self._thread is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rules(self) -> list[str]:
        return [rule.code for rule in self._rules]

    @property
    def address(self) -> str:
        """Where clients connect: ``127.0.0.1:41234``; `InvalidStateError` before the start."""
        if not self._address:
            raise InvalidStateError("the proxy was not started: clients cannot connect yet")
        return self._address

    @property
    def port(self) -> int:
        """Port that clients connect to; `InvalidStateError` before the start."""
        return self._port if self.address else 0

    @property
    def url(self) -> str:
        """Where clients connect, as a URL; `InvalidStateError` before the start."""
        scheme = {(False, False): "mqtt", (False, True): "mqtts", (True, False): "ws", (True, True): "wss"}
        return f"{scheme[self._route.upstream.websocket, self._route.listen_tls is not None]}://{self.address}"

    def start(self) -> None:
        """Listen; returns once clients can connect."""
        if self._thread is not None:
            raise InvalidStateError("a proxy runs only once")
        descriptor, path = tempfile.mkstemp(".pcapng", "mqttscope-")
        os.close(descriptor)
        # Kept as long as the proxy can be asked for it.
        weakref.finalize(self, _remove, path)
        options = Options(max_packet_bytes=self._max_packet)
        self._recording = Recording(
            "proxy",
            path=path,
            dissector=Dissector(options),
            listener=self._on_event,
            note=self.notes.append,
        )
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started, options)), name="mqttscope proxy", daemon=True
        )
        self._thread.start()
        try:
            started.result(_ANSWER_S)
        except BaseException:
            self._thread.join(_ANSWER_S)
            raise

    def close(self) -> None:
        """End the proxy and its connections; packets and findings stay available."""
        relay, thread, loop = self._relay, self._thread, self._loop
        if relay is not None and thread is not None and thread.is_alive() and loop is not None:
            with suppress(TimeoutError, RuntimeError):
                self._ask(_nothing)
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(relay.stop)
            thread.join(_ANSWER_S)
            if thread.is_alive():
                self.notes.append("the proxy did not end in time")

    def packets(self) -> list[Seen]:
        return self._ask(lambda: list(self._packets))

    def findings(self) -> list[Finding]:
        return self._ask(lambda: list(self._findings))

    def failed(self) -> dict[str, str]:
        """Rules that failed on some packet, with the reason; findings may be missing because of that."""
        return self._ask(lambda: dict(self._failed))

    def codes_of(self, name: str) -> list[str]:
        """Codes of the rules that a code, prefix or name selects, including rules given to the proxy.

        `UnknownRuleError` if no rule matches.
        """
        return expand(name, self._own_rules)

    def write(self, path: str | Path) -> None:
        """Write everything that has passed as a pcapng file."""
        target, recording = arguments.path("path", path), self._recording
        if recording is None or recording.path is None:
            raise InvalidStateError("the proxy was not started: nothing has passed")
        source = recording.path
        self._ask(lambda: shutil.copyfile(source, target))

    def report(
        self,
        *,
        min_confidence: str | None = None,
        fail_on: str | None = None,
        ignore: Iterable[str] = (),
        beside: str = "",
    ) -> str:
        """Findings in the form of ``mqttscope lint --format full``, and failed rules; empty without either.

        ``fail_on`` is the lowest severity shown, ``min_confidence`` the lowest confidence; by default the policy's
        (``info``, ``heuristic``).  ``beside``: another text that is shown too, such as the message of a failed
        `assert_conformant`; the report leaves out the findings and rules in it, even after more traffic.
        """
        __tracebackhide__ = True
        policy = self._policy
        severity, confidence = _lowest_levels(fail_on, min_confidence, policy.min_severity, policy.min_confidence)
        ignored = self._ignored(ignore)
        text, shown = self._shown
        repeated = {_identity(finding) for finding in shown} if text and text in beside else set()
        failing = self._failing_findings(severity, confidence, ignored)
        findings = [finding for finding in failing if _identity(finding) not in repeated]
        failed_rules = {
            code: why for code, why in self._failing(ignored).items() if failed_sentence(code, why) not in beside
        }
        return "\n".join(filter(None, (self._text(findings), failed_text(failed_rules))))

    def assert_conformant(
        self,
        *,
        min_confidence: str | None = None,
        fail_on: str | None = None,
        ignore: Iterable[str] = (),
        require_packets: int = 1,
    ) -> None:
        """Raise :class:`AssertionError` with the findings if something breaks the specification.

        ``fail_on`` is the lowest severity that fails, ``min_confidence`` the lowest confidence; by default the policy's
        (``error``, ``certain``).  ``ignore`` takes codes of rules, prefixes and names.

        It also raises if a rule failed that ``ignore`` does not cover, since findings may be missing, and if there is
        nothing to judge: the broker was never reached, no whole CONNECT passed, no CONNACK came back, or fewer than
        ``require_packets`` packets passed; 0 allows all of that.  `ArgumentError` if the proxy has no rule to check
        with.
        """
        __tracebackhide__ = True
        refuse_none(self._rules, **self._names)
        arguments.whole("require_packets", require_packets, 0)
        policy = self._policy
        severity, confidence = _lowest_levels(fail_on, min_confidence, policy.fail_on, policy.fail_confidence)
        ignored = self._ignored(ignore)
        counting = self._failing_findings(severity, confidence, ignored)
        failed = failed_text(self._failing(ignored))
        broken = self._recording.judge_error if self._recording is not None else None
        if broken is not None:
            raise AssertionError(f"the traffic could not be judged to its end: {broken!r}")
        nothing = self._nothing(require_packets)
        if counting:
            parts = [f"the traffic does not conform\n\n{self.shown(counting)}", failed, nothing]
            raise AssertionError("\n\n".join(filter(None, parts)))
        if failed:
            raise AssertionError("\n\n".join(filter(None, (failed, nothing))))
        unjudged = self._recording.unjudged_bytes if self._recording is not None else 0
        if unjudged:
            raise AssertionError(f"{unjudged:,} bytes were forwarded but not judged: judging was too slow")
        if self._too_large:
            large = counted(self._too_large, "packet")
            raise AssertionError(f"not judged: {large} of more than {self._max_packet:,} bytes (max_packet)")
        if nothing:
            raise AssertionError(nothing)
        if self.forgotten_findings:
            lost = counted(self.forgotten_findings, "finding")
            raise AssertionError(f"{lost} beyond the first {MAX_FINDINGS:,} were not kept, and may fail the check")

    def _nothing(self, required: int) -> str:
        """Why there is nothing, or too little, to judge; empty if there is enough."""
        if required <= 0:
            return ""
        connects, connacks, packets, relay = self._ask(
            lambda: (self._connects, self._connacks, self._whole, self._relay)
        )
        allowed = "require_packets=0 allows that"
        if relay is None:
            return f"nothing to judge: the proxy was not started ({allowed})"
        if relay.unreached and not relay.reached:
            why = f": {self.notes[-1]}" if self.notes else ""
            return f"nothing to judge: {self._route.upstream} was never reached{why} ({allowed})"
        if not connects:
            if not relay.served:
                clients = "no client connected"
            else:
                clients = f"no CONNECT passed in {counted(relay.served, 'connection')}"
            return f"nothing to judge: {clients} to {self._address} ({allowed})"
        if not connacks:
            requests = counted(connects, "CONNECT packet")
            return f"nothing to judge: {self._route.upstream} sent no CONNACK, {requests} passed ({allowed})"
        if packets < required:
            return f"too little to judge: {counted(packets, 'packet')}, {required:,} are required"
        return ""

    def shown(self, findings: list[Finding]) -> str:
        """Findings in the form of ``mqttscope lint --format full``; empty without findings."""
        self._shown = self._text(findings), findings
        return self._shown[0]

    def _text(self, findings: list[Finding]) -> str:
        return findings_text(findings, self._rules, self._address)

    def _ignored(self, names: Iterable[str]) -> set[str]:
        __tracebackhide__ = True
        return {code for name in names_of(names, "ignore") for code in self.codes_of(name)}

    def _failing(self, ignored: set[str]) -> dict[str, str]:
        return {code: why for code, why in self.failed().items() if code not in ignored}

    def _failing_findings(self, severity: Severity, confidence: Confidence, ignored: set[str]) -> list[Finding]:
        """Findings of at least this severity and confidence that nothing suppresses."""
        gate = Gate(
            replace(self._policy, fail_on=severity, fail_confidence=confidence, min_severity=Severity.INFO),
            self._baseline,
            rules=self._rules,
            name=partial(client_name, hiding=HidingOptions()),
        )
        judged = [(finding, gate.judge(finding)) for finding in self.findings() if finding.rule not in ignored]
        counting = [finding for finding, verdict in judged if verdict.shown and verdict.counts]
        return counting + [finding for finding, verdict in gate.summed_up() if verdict.counts]

    def _on_event(self, event: Event) -> None:
        if isinstance(event, PacketEvent | MalformedEvent):
            self._keep_packet(event)
        elif isinstance(event, UnparsedEvent):
            self._too_large += event.unparsed.reason == "too_large"
        findings = self._linter.feed(event)
        if len(self._linter.failures) > len(self._failed):
            for failure in self._linter.internal_errors:
                if failure.rule not in self._failed:
                    self._failed[failure.rule] = failure.error
                    self.notes.append(failed_sentence(failure.rule, failure.error))
        room = max(0, MAX_FINDINGS - len(self._findings))
        self._findings += findings[:room]
        self.forgotten_findings += len(findings[room:])

    def _keep_packet(self, event: PacketEvent | MalformedEvent) -> None:
        malformed = event.malformed if isinstance(event, MalformedEvent) else None
        packet = event.packet if isinstance(event, PacketEvent) else event.malformed.packet
        connection = event.connection
        identifier = packet.client_identifier if isinstance(packet, Connect) else connection.client_identifier
        self.forgotten += len(self._packets) == MAX_PACKETS
        if is_whole_packet(event):
            self._whole += 1
            self._connects += isinstance(packet, Connect)
            self._connacks += isinstance(packet, Connack)
        self._packets.append(
            Seen(
                connection.number,
                connection.client,
                identifier,
                str(event.direction),
                event.type,
                event.topic,
                packet,
                malformed,
                event.timestamp_ns,
                event.frame,
            )
        )

    async def _run(self, started: Future[None], options: Options) -> None:
        assert self._recording is not None
        relay = Relay(self._route, self._recording, self.notes.append)
        try:
            await relay.start()
        except BaseException as error:
            self._recording.close()
            started.set_exception(error)
            return
        self._loop, self._relay = asyncio.get_running_loop(), relay
        self._address, self._port = relay.address, relay.addresses[0][1]
        self._recording.capture = self._address
        options.ports[self._port] = WEBSOCKET if self._route.upstream.websocket else MQTT
        started.set_result(None)
        try:
            await relay.stopping.wait()
        finally:
            await relay.close()

    def _ask(self, question: Callable[[], T]) -> T:
        """Answer in the proxy's thread after everything that has arrived; after the end, in the caller's thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or thread is threading.current_thread() or not thread.is_alive():
            return question()
        work: Coroutine[Any, Any, T] = self._answer(question)
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # it has just ended
            work.close()
            return question()
        try:
            return future.result(_ANSWER_S)
        except CancelledError:  # it ended before the answer
            return question()

    async def _answer(self, question: Callable[[], T]) -> T:
        relay, recording = self._relay, self._recording
        assert relay is not None
        assert recording is not None
        clock = asyncio.get_running_loop().time
        began = quiet_since = clock()
        before = recording.frames
        while clock() - quiet_since < _QUIET_S or relay.connecting:
            if clock() - began > (_CONNECTING_S if relay.connecting else _BUSY_S):
                break
            await asyncio.sleep(_LOOK_S)
            if recording.frames != before:
                before, quiet_since = recording.frames, clock()
        # In the judging thread: after everything before it, and while nothing changes the answer.
        return await asyncio.wait_for(asyncio.wrap_future(recording.ask(question)), _JUDGED_S)


def findings_text(findings: list[Finding], rules: Sequence[Rule], capture: str) -> str:
    """Findings in the form of ``mqttscope lint --format full``; empty without findings."""
    if not findings:
        return ""
    sink = io.BytesIO()
    reporter = make_reporter("full", sink, View(width=WIDTH, payload_limit=256))
    for finding in findings:
        reporter.feed(finding)
    counts = Counter(finding.severity for finding in findings)
    reporter.close(RunSummary(rules=list(rules), captures=[capture], counts=counts))
    return sink.getvalue().decode("utf-8", "replace")


def _identity(finding: Finding) -> tuple[object, ...]:
    """Values that identify a finding of one proxy; a `Finding` itself cannot be hashed."""
    return finding.rule, finding.connection, finding.frame, finding.packet, finding.offset, finding.message


def failed_text(failed: dict[str, str]) -> str:
    """Sentences about failed rules, by code with the reason; empty without any."""
    if not failed:
        return ""
    lines = [f"  {failed_sentence(code, why)}" for code, why in sorted(failed.items())]
    return "\n".join(["rules that failed, so that findings may be missing:", *lines])


def failed_sentence(code: str, why: str) -> str:
    return f"rule {code} failed: {why}"


def _lowest_levels(
    fail_on: str | None, min_confidence: str | None, severity: Severity, confidence: Confidence
) -> tuple[Severity, Confidence]:
    __tracebackhide__ = True
    return (
        severity if fail_on is None else arguments.choice("fail_on", fail_on, Severity),
        confidence if min_confidence is None else arguments.choice("min_confidence", min_confidence, Confidence),
    )


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _nothing() -> None:
    """A question without an answer: it only waits until everything before it is judged."""
