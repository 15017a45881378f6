"""Expectations of a test about its traffic: packets that must pass, and findings that must not occur.

The traffic passes a `Proxy` while the test runs, or comes from a capture.  The fixture ``mqtt_capture`` of the pytest
plugin makes a `Traffic` (docs/pytest.md).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from mqttscope import arguments
from mqttscope.api.captures import Captures, CaptureSelection, Packet, Path
from mqttscope.api.linting import Findings, judge
from mqttscope.errors import ArgumentError, InvalidStateError
from mqttscope.lint.catalogue import UnknownRuleError, all_rules, expand
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.given_rules import names_of
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.mqtt.topics import FILTER_PROBLEMS, matches, topic_filter_problem
from mqttscope.mqtt.wire import counted
from mqttscope.proxy import Proxy, Seen, failed_text, findings_text
from mqttscope.secrets.credentials import starred_name

LOOK_S = 0.02
"""Interval of checks for a packet."""
TIMEOUT_S = 5.0
"""Default timeout for a packet."""
MAX_SHOWN = 20
"""Maximum number of packets in a message; the rest is counted."""
TYPES = frozenset(kind.name.lower() for kind in PacketType)
Passed = Seen | Packet
"""One packet that passed a proxy, or of a capture."""


class Traffic:
    """The traffic of a test.

    Expectations of a running proxy cover everything that clients have sent before.  A failed expectation raises
    `AssertionError`, which lists the packets that passed instead.
    """

    def __init__(self, source: Proxy | Path | Sequence[Path]) -> None:
        """``source``: a running proxy, or one or more captures; errors like `open`."""
        self.proxy: Proxy | None = source if isinstance(source, Proxy) else None
        """The proxy; ``None`` for captures."""
        names = [source] if isinstance(source, str | os.PathLike) else source
        if not isinstance(names, Proxy | Sequence) or isinstance(names, bytes):
            raise ArgumentError(f"source must be a Proxy, a capture, or a list of captures, not {source!r}")
        self._source = None if isinstance(names, Proxy) else CaptureSelection(names)
        self._known: dict[tuple[str, ...], Findings] = {}
        """Latest findings, by the rules that ran in addition to the usual ones."""

    @property
    def port(self) -> int:
        """Port for clients; `InvalidStateError` for captures, and before the start of the proxy."""
        return self._running().port

    @property
    def url(self) -> str:
        """URL for clients; `InvalidStateError` like `port`."""
        return self._running().url

    def packets(
        self,
        type: str | None = None,  # noqa: A002 - the word of the JSON form
        *,
        topic: str | None = None,
        payload: str | bytes | None = None,
        direction: str | None = None,
        client_identifier: str | None = None,
        where: Callable[[Passed], object] | None = None,
    ) -> list[Passed]:
        """Matching packets up to now, oldest first.

        ``type``: name of a packet type, ``publish``.  ``topic``: a topic or a Topic Filter.  ``payload``: bytes, or
        text in UTF-8.  ``direction``: ``client_to_server`` or ``server_to_client``.  ``where``: a predicate for
        packets that match otherwise.  `ArgumentError` for values that no packet can have: an unknown type or
        direction, an invalid Topic Filter, a payload that is neither bytes nor text.
        """
        __tracebackhide__ = True
        _check(type, topic, payload, direction, client_identifier, where)
        wanted = payload.encode() if isinstance(payload, str) else payload

        def is_wanted(packet: Passed) -> bool:
            return (
                type in (None, packet.type)
                and (
                    topic is None
                    or (packet.topic is not None and (packet.topic == topic or matches(topic, packet.topic)))
                )
                and wanted in (None, packet.payload)
                and direction in (None, packet.direction)
                and client_identifier in (None, packet.client_identifier)
                and (where is None or bool(where(packet)))
            )

        return [packet for packet in self._all() if is_wanted(packet)]

    def expect(
        self,
        type: str | None = None,  # noqa: A002 - the word of the JSON form
        *,
        topic: str | None = None,
        payload: str | bytes | None = None,
        direction: str | None = None,
        client_identifier: str | None = None,
        where: Callable[[Passed], object] | None = None,
        count: int | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Passed:
        """Wait up to ``timeout`` seconds for a packet that matches, as for `packets`; returns the first one.

        ``count``: exact number of packets, at least one by default.  To expect no packet use `absent`.
        """
        __tracebackhide__ = True
        if count is not None and arguments.whole("count", count, 0) < 1:
            raise ArgumentError(f"count is {count}: absent() is for packets that must not pass")
        asked = {
            "topic": topic, "payload": payload, "direction": direction, "client_identifier": client_identifier,
        }  # fmt: skip
        end = time.monotonic() + arguments.seconds("timeout", timeout)
        while True:
            matching = self.packets(type, where=where, **asked)  # type: ignore[arg-type]
            if len(matching) >= (count or 1) or self.proxy is None or time.monotonic() >= end:
                break
            time.sleep(LOOK_S)
        if len(matching) < (count or 1) or (count is not None and len(matching) > count):
            what = _described(type, where=where, **asked)
            wanted = "no packet" if not matching else f"{counted(len(matching), 'packet')}, not {count or 1},"
            raise AssertionError(f"{wanted} passed with {what}\n{self._seen()}")
        return matching[0]

    def absent(
        self,
        type: str | None = None,  # noqa: A002 - the word of the JSON form
        *,
        topic: str | None = None,
        payload: str | bytes | None = None,
        direction: str | None = None,
        client_identifier: str | None = None,
        where: Callable[[Passed], object] | None = None,
    ) -> None:
        """Expect that packets have passed, but no matching packet; conditions are as for `packets`."""
        __tracebackhide__ = True
        asked = {
            "topic": topic, "payload": payload, "direction": direction, "client_identifier": client_identifier,
        }  # fmt: skip
        matching = self.packets(type, where=where, **asked)  # type: ignore[arg-type]
        if matching:
            what = _described(type, where=where, **asked)
            raise AssertionError(f"{counted(len(matching), 'packet')} passed with {what}\n{_packet_lines(matching)}")
        self._require_packets()

    def never(self, *rules: str) -> None:
        """Expect that these rules run without failing, and have no finding, of any severity and confidence.

        ``rules``: codes, prefixes or names of rules.  `UnknownRuleError` for an unknown rule, `ArgumentError` for a
        rule that the proxy does not run: ``extend_select`` adds it.
        """
        __tracebackhide__ = True
        if not rules:
            raise ArgumentError("never() needs the code, prefix or name of a rule")
        codes: set[str] = set()
        for name in names_of(rules, "never"):
            codes.update(self._codes(name))
        findings = [finding for finding in self._findings_of(rules) if finding.rule in codes]
        if findings:
            raise AssertionError(f"there are findings of {', '.join(rules)}\n\n{self._listed(findings)}")
        failed = failed_text({code: why for code, why in self._failed_of(rules).items() if code in codes})
        if failed:
            raise AssertionError(failed)
        self._require_packets()

    def findings(self) -> list[Finding]:
        """Findings of the linter, of any severity."""
        return self._findings_of(())

    def assert_conformant(
        self,
        *,
        fail_on: str | None = None,
        min_confidence: str | None = None,
        ignore: Iterable[str] = (),
        require_packets: int = 1,
    ) -> None:
        """Expect conformance to the specification, like `Proxy.assert_conformant`.

        ``fail_on`` and ``min_confidence``: lowest severity and confidence that fail; by default from the policy of
        the proxy, or ``error`` and ``certain``.
        """
        __tracebackhide__ = True
        if self.proxy is not None:
            self.proxy.assert_conformant(
                fail_on=fail_on, min_confidence=min_confidence, ignore=ignore, require_packets=require_packets
            )
            return
        arguments.whole("require_packets", require_packets, 0)
        ignored = {code for name in names_of(ignore, "ignore") for code in expand(name)}
        lowest = arguments.choice("fail_on", "error" if fail_on is None else fail_on, Severity).rank
        confidence = "certain" if min_confidence is None else min_confidence
        surest = arguments.choice("min_confidence", confidence, Confidence).rank
        findings = [
            finding
            for finding in self.findings()
            if finding.severity.rank >= lowest and finding.confidence.rank >= surest and finding.rule not in ignored
        ]
        if findings:
            raise AssertionError(f"the traffic does not conform\n\n{self._listed(findings)}")
        failed = failed_text({code: why for code, why in self._failed_of(()).items() if code not in ignored})
        if failed:
            raise AssertionError(failed)
        if require_packets > 0:
            self._require_packets(require_packets)

    def _running(self) -> Proxy:
        if self.proxy is None:
            raise InvalidStateError("a capture has no address to connect to")
        return self.proxy

    def _all(self) -> Sequence[Passed]:
        return self._captured_packets if self.proxy is None else self.proxy.packets()

    @cached_property
    def _captured_packets(self) -> Sequence[Passed]:
        assert self._source is not None
        self._source.raise_errors = True
        return list(Captures(self._source))

    def _findings_of(self, rules: Sequence[str]) -> list[Finding]:
        if self.proxy is not None:
            return self.proxy.findings()
        return list(self._judged(tuple(rules)))

    def _failed_of(self, rules: Sequence[str]) -> dict[str, str]:
        if self.proxy is not None:
            return self.proxy.failed()
        return self._judged(tuple(rules)).failed

    def _judged(self, rules: tuple[str, ...]) -> Findings:
        """Findings of the capture, with these rules in addition to the usual ones."""
        if rules not in self._known:
            assert self._source is not None
            self._known = {rules: judge(self._source, extend_select=rules)}
        return self._known[rules]

    def _codes(self, name: str) -> list[str]:
        __tracebackhide__ = True
        try:
            codes = expand(name) if self.proxy is None else self.proxy.codes_of(name)
        except UnknownRuleError as error:
            raise error.with_traceback(None) from None  # pytest then shows only the line of the test
        if self.proxy is not None and not set(codes) & set(self.proxy.rules):
            raise ArgumentError(f"{name} does not run, so it finds nothing: add extend_select=[{name!r}]")
        return codes

    def _require_packets(self, least: int = 1) -> None:
        __tracebackhide__ = True
        passed = len(self._all())
        if not passed:
            raise AssertionError("nothing to judge: no MQTT packet has passed")
        if passed < least:
            raise AssertionError(f"too little to judge: {counted(passed, 'packet')}, {least:,} are required")

    def _listed(self, findings: list[Finding]) -> str:
        if self.proxy is not None:
            return self.proxy.shown(findings)
        where = ", ".join(self._source.names if self._source else ())
        codes = dict.fromkeys(finding.rule for finding in findings)
        return findings_text(findings, [all_rules()[code]() for code in codes if code in all_rules()], where)

    def _seen(self) -> str:
        notes = self.proxy.notes if self.proxy is not None else []
        return "\n".join([_packet_lines(self._all()), *notes[-MAX_SHOWN:]])


def _check(
    type: str | None,  # noqa: A002 - as above
    topic: str | None,
    payload: str | bytes | None,
    direction: str | None,
    client_identifier: str | None,
    where: Callable[[Passed], object] | None,
) -> None:
    """Raise `ArgumentError` for values that no packet can have."""
    __tracebackhide__ = True
    if type is not None and arguments.text("type", type, "the name of a packet type, such as publish") not in TYPES:
        raise ArgumentError(f"{type!r} is not a packet type: {', '.join(sorted(TYPES))}")
    if direction is not None:
        arguments.choice("direction", direction, Direction)
    if topic is not None and topic != "":
        problem = topic_filter_problem(arguments.text("topic", topic, "a Topic Name or a Topic Filter"))
        if problem is not None:
            raise ArgumentError(f"{topic!r} is not a Topic Filter, so no topic matches it: {FILTER_PROBLEMS[problem]}")
    if not isinstance(payload, str | bytes | None):
        raise ArgumentError(f"payload must be bytes or text, not {payload!r}")
    if client_identifier is not None:
        arguments.text("client_identifier", client_identifier, "the Client Identifier of a CONNECT")
    if where is not None and not callable(where):
        raise ArgumentError(f"where must be a function of a packet, not {where!r}")


def _described(type: str | None, *, where: object = None, **asked: object) -> str:  # noqa: A002 - as above
    conditions = {"type": type, **asked}
    words = [f"{name} {value!r}" for name, value in conditions.items() if value is not None]
    return ", ".join([*words, *(["the predicate where"] if where is not None else [])]) or "any type"


def _packet_lines(packets: Sequence[Passed]) -> str:
    """The last packets, one per line, without secrets."""
    if not packets:
        return "nothing passed at all"
    lines = []
    for packet in packets[-MAX_SHOWN:]:
        arrow = "->" if packet.direction == "client_to_server" else "<-"
        name = starred_name(packet.client_identifier) if packet.client_identifier else "?"
        topic = f" {starred_name(packet.topic)!r}" if packet.topic is not None else ""
        wrong = f" malformed: {packet.malformed.reason}" if packet.malformed is not None else ""
        lines.append(f"  {name!r} {arrow} {(packet.type or '?').upper()}{topic}{wrong}")
    left = len(packets) - len(lines)
    counts = Counter(packet.type or "?" for packet in packets)
    total = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    return "\n".join([f"passed: {total}", *([f"  {left:,} more before"] if left else []), *lines])
