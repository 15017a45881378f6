"""What a test expects of the traffic that it makes: packets that have to pass, and findings that must not be.

The traffic is what passes a `Proxy`, while the test runs, or what a capture holds.  The fixture ``mqtt_capture`` of the
pytest plugin makes it (docs/pytest.md).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from mqttscope import arguments
from mqttscope.api.captures import Captures, Packet, Path, Source
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
"""So often it is looked whether a packet has passed."""
TIMEOUT_S = 5.0
"""How long a packet is waited for."""
MAX_SHOWN = 20
"""Packets that a message names; further ones are counted."""
TYPES = frozenset(kind.name.lower() for kind in PacketType)
Passed = Seen | Packet
"""One packet that passed a proxy, or that a capture holds."""


class Traffic:
    """The traffic of a test.

    Questions about a running proxy are answered with all that clients had sent before.  Each raises `AssertionError`
    where it does not hold, and says what passed instead.
    """

    def __init__(self, source: Proxy | Path | Sequence[Path]) -> None:
        """``source``: a proxy that runs, or one or more captures; errors as of `open`."""
        self.proxy: Proxy | None = source if isinstance(source, Proxy) else None
        """The proxy; ``None`` for captures."""
        names = [source] if isinstance(source, str | os.PathLike) else source
        if not isinstance(names, Proxy | Sequence) or isinstance(names, bytes):
            raise ArgumentError(f"source is {source!r}: it is a Proxy, a capture, or a list of captures")
        self._source = None if isinstance(names, Proxy) else Source(names)
        self._known: dict[tuple[str, ...], Findings] = {}
        """What was found last, by the rules that ran beside the usual ones."""

    @property
    def port(self) -> int:
        """Where clients connect; `InvalidStateError` for captures, and before the start of the proxy."""
        return self._running().port

    @property
    def url(self) -> str:
        """Where clients connect, as a URL; `InvalidStateError` as for `port`."""
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
        """What has passed, oldest first, as far as it matches.

        ``type``: name of a packet type, ``publish``.  ``topic``: a topic or a Topic Filter.  ``payload``: bytes, or
        text that is UTF-8.  ``direction``: ``client_to_server`` or ``server_to_client``.  ``where``: asked about each
        packet that matches otherwise.  `ArgumentError` for what no packet can have: a type or a direction that does
        not exist, a topic that is no Topic Filter, a payload that is neither bytes nor text.
        """
        __tracebackhide__ = True
        _check(type, topic, payload, direction, client_identifier, where)
        wanted = payload.encode() if isinstance(payload, str) else payload

        def is_wanted(one: Passed) -> bool:
            return (
                type in (None, one.type)
                and (topic is None or (one.topic is not None and (one.topic == topic or matches(topic, one.topic))))
                and wanted in (None, one.payload)
                and direction in (None, one.direction)
                and client_identifier in (None, one.client_identifier)
                and (where is None or bool(where(one)))
            )

        return [one for one in self._all() if is_wanted(one)]

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
        """The first packet that matches, as for `packets`; it is waited for up to ``timeout`` seconds.

        ``count``: how many there have to be, at least one unless given.  See `absent` for none at all.
        """
        __tracebackhide__ = True
        if count is not None and arguments.whole("count", count, 0) < 1:
            raise ArgumentError(f"count is {count}: absent() is for packets that must not pass")
        asked = {
            "topic": topic, "payload": payload, "direction": direction, "client_identifier": client_identifier,
        }  # fmt: skip
        end = time.monotonic() + arguments.seconds("timeout", timeout)
        while True:
            found = self.packets(type, where=where, **asked)  # type: ignore[arg-type]
            if len(found) >= (count or 1) or self.proxy is None or time.monotonic() >= end:
                break
            time.sleep(LOOK_S)
        if len(found) < (count or 1) or (count is not None and len(found) > count):
            what = _described(type, where=where, **asked)
            wanted = "no packet" if not found else f"{counted(len(found), 'packet')}, not {count or 1},"
            raise AssertionError(f"{wanted} passed with {what}\n{self._seen()}")
        return found[0]

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
        """No packet matches, as for `packets`, of all that have passed so far; and some have."""
        __tracebackhide__ = True
        asked = {
            "topic": topic, "payload": payload, "direction": direction, "client_identifier": client_identifier,
        }  # fmt: skip
        found = self.packets(type, where=where, **asked)  # type: ignore[arg-type]
        if found:
            what = _described(type, where=where, **asked)
            raise AssertionError(f"{counted(len(found), 'packet')} passed with {what}\n{_shown(found)}")
        self._require_packets()

    def never(self, *rules: str) -> None:
        """No finding of these rules, of any severity and confidence; none of them failed, and some packets have passed.

        ``rules``: codes, prefixes or names of rules.  `UnknownRuleError` for one that does not exist, `ArgumentError`
        for one that the proxy does not run: ``extend_select`` makes it run.
        """
        __tracebackhide__ = True
        if not rules:
            raise ArgumentError("never() needs the code, prefix or name of a rule")
        codes: set[str] = set()
        for name in names_of(rules, "never"):
            codes.update(self._codes(name))
        found = [one for one in self._findings_of(rules) if one.rule in codes]
        if found:
            raise AssertionError(f"there are findings of {', '.join(rules)}\n\n{self._told(found)}")
        failed = failed_text({code: why for code, why in self._failed_of(rules).items() if code in codes})
        if failed:
            raise AssertionError(failed)
        self._require_packets()

    def findings(self) -> list[Finding]:
        """What the linter has found, of any severity."""
        return self._findings_of(())

    def assert_conformant(
        self,
        *,
        fail_on: str | None = None,
        min_confidence: str | None = None,
        ignore: Iterable[str] = (),
        require_packets: int = 1,
    ) -> None:
        """Nothing breaks the specification, as `Proxy.assert_conformant` has it.

        ``fail_on`` is the lowest severity that counts, ``min_confidence`` the lowest confidence: ``error`` and
        ``certain`` unless given, or what the policy of the proxy says.
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
        found = [
            one
            for one in self.findings()
            if one.severity.rank >= lowest and one.confidence.rank >= surest and one.rule not in ignored
        ]
        if found:
            raise AssertionError(f"the traffic does not conform\n\n{self._told(found)}")
        failed = failed_text({code: why for code, why in self._failed_of(()).items() if code not in ignored})
        if failed:
            raise AssertionError(failed)
        if require_packets > 0:
            self._require_packets(require_packets)

    def _running(self) -> Proxy:
        if self.proxy is None:
            raise InvalidStateError("a capture has no place to connect to")
        return self.proxy

    def _all(self) -> Sequence[Passed]:
        return self._captured if self.proxy is None else self.proxy.packets()

    @cached_property
    def _captured(self) -> Sequence[Passed]:
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
        """What is to be said of the capture, with these rules beside the usual ones."""
        if rules not in self._known:
            assert self._source is not None
            self._known = {rules: judge(self._source, extend_select=rules)}
        return self._known[rules]

    def _codes(self, name: str) -> list[str]:
        __tracebackhide__ = True
        try:
            codes = expand(name) if self.proxy is None else self.proxy.codes_of(name)
        except UnknownRuleError as error:
            raise error.with_traceback(None) from None  # pytest shows the line of the test, and none of the library
        if self.proxy is not None and not set(codes) & set(self.proxy.rules):
            raise ArgumentError(f"{name} does not run, so that it finds nothing: extend_select=[{name!r}] makes it run")
        return codes

    def _require_packets(self, least: int = 1) -> None:
        __tracebackhide__ = True
        passed = len(self._all())
        if not passed:
            raise AssertionError("nothing to judge: no MQTT packet has passed")
        if passed < least:
            raise AssertionError(f"too little to judge: {counted(passed, 'packet')}, {least:,} are required")

    def _told(self, findings: list[Finding]) -> str:
        if self.proxy is not None:
            return self.proxy.shown(findings)
        where = ", ".join(self._source.names if self._source else ())
        codes = dict.fromkeys(one.rule for one in findings)
        return findings_text(findings, [all_rules()[code]() for code in codes if code in all_rules()], where)

    def _seen(self) -> str:
        notes = self.proxy.notes if self.proxy is not None else []
        return "\n".join([_shown(self._all()), *notes[-MAX_SHOWN:]])


def _check(
    type: str | None,  # noqa: A002 - as above
    topic: str | None,
    payload: str | bytes | None,
    direction: str | None,
    client_identifier: str | None,
    where: Callable[[Passed], object] | None,
) -> None:
    """`ArgumentError` for what no packet can have."""
    __tracebackhide__ = True
    if type is not None and arguments.text("type", type, "the name of a packet type, such as publish") not in TYPES:
        raise ArgumentError(f"{type!r} is no packet type: {', '.join(sorted(TYPES))}")
    if direction is not None:
        arguments.choice("direction", direction, Direction)
    if topic is not None and topic != "":
        problem = topic_filter_problem(arguments.text("topic", topic, "a Topic Name or a Topic Filter"))
        if problem is not None:
            raise ArgumentError(
                f"{topic!r} is no Topic Filter, so that no topic matches it: {FILTER_PROBLEMS[problem]}"
            )
    if not isinstance(payload, str | bytes | None):
        raise ArgumentError(f"payload is {payload!r}, which is neither bytes nor text")
    if client_identifier is not None:
        arguments.text("client_identifier", client_identifier, "the Client Identifier of a CONNECT")
    if where is not None and not callable(where):
        raise ArgumentError(f"where is {where!r}, which is no function of a packet")


def _described(type: str | None, *, where: object = None, **asked: object) -> str:  # noqa: A002 - as above
    said = {"type": type, **asked}
    words = [f"{name} {value!r}" for name, value in said.items() if value is not None]
    return ", ".join([*words, *(["what where asks for"] if where is not None else [])]) or "any type"


def _shown(packets: Sequence[Passed]) -> str:
    """Packets on a line each, the last ones, without secrets."""
    if not packets:
        return "nothing passed at all"
    lines = []
    for one in packets[-MAX_SHOWN:]:
        arrow = "->" if one.direction == "client_to_server" else "<-"
        name = starred_name(one.client_identifier) if one.client_identifier else "?"
        topic = f" {starred_name(one.topic)!r}" if one.topic is not None else ""
        wrong = f" malformed: {one.malformed.reason}" if one.malformed is not None else ""
        lines.append(f"  {name!r} {arrow} {(one.type or '?').upper()}{topic}{wrong}")
    left = len(packets) - len(lines)
    counts = Counter(one.type or "?" for one in packets)
    total = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    return "\n".join([f"passed: {total}", *([f"  {left:,} more before"] if left else []), *lines])
