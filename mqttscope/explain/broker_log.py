"""Reads the log of a broker, and finds the lines that confirm or contradict why a connection ended.

Each broker has a few patterns in one table (`PATTERNS`).  The clocks of log and capture may differ, also by a time
zone: lines about connecting clients show the difference.  A cause that a line states is certain: the broker decided to
close.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median_low
from typing import BinaryIO

from mqttscope.explain import describe
from mqttscope.explain.causes.case import Case, candidate
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.secrets.findings import masked
from mqttscope.session.connection import host_of

SECOND = 1_000_000_000
NEAR_NS = 3 * SECOND
"""Maximum time between an end and its log line, after the clock difference; logs have whole seconds."""
MAX_LINES = 2_000_000
"""Lines of a log about clients that are kept."""
MAX_LINE = 4_096
"""Bytes of a line that are read."""
MAX_SHOWN = 200
"""Characters of a line that are shown."""
CONNECTED = "connected"
_BY_SERVER = frozenset(
    (Cause.KEEP_ALIVE, Cause.TAKEN_OVER, Cause.NOT_AUTHORIZED, Cause.PACKET_TOO_LARGE, Cause.ADMINISTRATIVE_ACTION)
)
"""Causes that make the broker close."""

_ADDRESS = r"(?P<address>\[?[0-9A-Fa-f:.]+\]?:\d+)"
_NAME = r"(?P<client>.{1,512}?)"
"""A Client Identifier; patterns are bounded, since what a client calls itself is in the log."""
_MOSQUITTO = rf"Client (?!ID: ){_NAME}"
_HIVEMQ = rf"Client ID: {_NAME}, IP: ?(?P<host>[^, ]+)"
_EMQX = rf"clientid: (?P<client>[^,]{{1,512}}),.{{0,200}}peername: {_ADDRESS}"
PATTERNS: tuple[tuple[str, re.Pattern[str], Cause | str], ...] = tuple(
    (broker, re.compile(text), about)
    for broker, text, about in (
        ("mosquitto", rf"New client connected from {_ADDRESS} as {_NAME} \(p\d", CONNECTED),
        ("mosquitto", rf"{_MOSQUITTO} already connected, closing old connection", Cause.TAKEN_OVER),
        ("mosquitto", rf"{_MOSQUITTO} has exceeded timeout, disconnecting", Cause.KEEP_ALIVE),
        (
            "mosquitto",
            rf"{_MOSQUITTO} been disconnected by administrative action",
            Cause.ADMINISTRATIVE_ACTION,
        ),
        ("mosquitto", rf"{_MOSQUITTO} closed its connection", Cause.CLIENT_CLOSED),
        (
            "mosquitto",
            r"(?:Socket error on client|Bad socket read/write on client) (?P<client>[^,:]+)",
            Cause.CLIENT_RESET,
        ),
        ("mosquitto", rf"{_MOSQUITTO}(?: \[{_ADDRESS}\])? disconnected(?P<why>[ ,:].*)", ""),
        ("mosquitto", rf"{_MOSQUITTO} disconnected\.?$", Cause.NORMAL),
        ("mosquitto", r"mosquitto version \S+ terminating", Cause.SERVER_RESTART),
        ("EMQX", rf"{_EMQX}.{{0,200}}(?:msg: |, )connected", CONNECTED),
        ("EMQX", rf"{_EMQX}.{{0,200}}reason: [{{]?(?:shutdown, ?)?(?P<why>[^,}}]+)", ""),
        ("HiveMQ", rf"{_HIVEMQ},.{{0,200}}\bconnected\.", CONNECTED),
        ("HiveMQ", rf"{_HIVEMQ} .{{0,200}}[Rr]eason(?: given)?: (?P<why>.*)", ""),
        ("HiveMQ", rf"{_HIVEMQ} disconnected gracefully", Cause.NORMAL),
        ("HiveMQ", rf"{_HIVEMQ} disconnected ungracefully", Cause.CLIENT_CLOSED),
        ("NATS", rf"{_ADDRESS} - mid:\d+ - \"{_NAME}\" - Client connected", CONNECTED),
        ("NATS", rf"{_ADDRESS} - mid:\d+ - \"{_NAME}\" - .{{0,200}}connection closed: (?P<why>.*)", ""),
    )
)
"""Lines of brokers about a client with their meaning: a cause, or the group ``why`` for `REASONS`."""
REASONS: tuple[tuple[re.Pattern[str], Cause], ...] = tuple(
    (re.compile(words, re.IGNORECASE), cause)
    for words, cause in (
        (r"exceeded timeout|keep.?alive|stale connection|idle", Cause.KEEP_ALIVE),
        (r"taken.?over|take.?over|discarded|already connected|duplicate client|same client", Cause.TAKEN_OVER),
        (r"qos too high|not supported", Cause.NOT_SUPPORTED),
        (r"receive.maximum|too many concurrent", Cause.RECEIVE_MAXIMUM),
        (r"not authori[sz]ed|permission|authori[sz]ation|acl|authentication", Cause.NOT_AUTHORIZED),
        (r"oversize|too large|too long|max.?payload|packet size", Cause.PACKET_TOO_LARGE),
        (r"protocol|malformed|invalid|bad |parse|second connect", Cause.PROTOCOL_VIOLATION),
        (r"quota|rate|slow consumer|buffer", Cause.QUOTA_EXCEEDED),
        (r"administrative|kicked|banned", Cause.ADMINISTRATIVE_ACTION),
        (r"shutdown|shutting down|restart", Cause.SERVER_RESTART),
        (r"tls|ssl|handshake", Cause.TLS_FAILURE),
        (
            r"client closed|closed by (?:peer|client)|tcp_closed|connection lost|closed the connection",
            Cause.CLIENT_CLOSED,
        ),
        (r"reset|broken pipe|econnreset", Cause.CLIENT_RESET),
    )
)
"""Meanings of a broker's words for the end of a connection, the surest first."""
_TIMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(text), form)
    for text, form in (
        (r"(\d{10})(?:\.\d+)?: ", "epoch"),
        (r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)[: ]", "iso"),
        (r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)", "iso"),
        (r"(?:\[\d+\] )?(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)", "iso"),
    )
)


@dataclass(slots=True, frozen=True)
class LogLine:
    """One line of a log that concerns a client, or the broker itself."""

    timestamp_ns: int
    client: str
    address: str
    """Address, with the port if the line has it; empty without an address."""
    about: Cause | str
    """The cause that it states, `CONNECTED`, or empty if it states no known cause."""
    text: str

    @property
    def by(self) -> str | None:
        """Side that closed first, if the line shows it."""
        if self.about in (Cause.NORMAL, Cause.CLIENT_CLOSED):
            return "client"
        return "server" if self.about in _BY_SERVER else None


@dataclass(slots=True)
class BrokerLog:
    """The lines of a log by client.  Feed it connections that were accepted, then ask it about ends."""

    lines: dict[str, list[LogLine]] = field(default_factory=dict)
    """By Client Identifier, those about the broker under an empty one; in order of time."""
    read: int = 0
    """Lines of the log."""
    left_out: int = 0
    """Lines about clients beyond `MAX_LINES`."""
    apart: list[int] = field(default_factory=list)
    """Lead of the log's clock over the capture's clock, at each client that connected."""
    servers: set[str] = field(default_factory=set)
    """Servers that accepted clients which the log lists as connected."""
    _connected: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Connect times of clients, by Client Identifier and address."""
    _used: set[int] = field(default_factory=set)
    """Lines that are about an end."""
    confirmed: int = 0
    contradicted: int = 0
    unknown: int = 0
    """Ends about which the log has no line."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> BrokerLog:
        """The log with these lines."""
        log = cls()
        count = 0
        addresses: dict[str, str] = {}
        for text in texts:
            log.read += 1
            line = read_line(text[:MAX_LINE])
            if line is None:
                continue
            if count >= MAX_LINES:
                log.left_out += 1
                continue
            if line.about == CONNECTED:
                addresses[line.client] = line.address
            elif not line.address:
                # The lines of a client are about its last connection.
                line = replace(line, address=addresses.get(line.client, ""))
            log.lines.setdefault(line.client, []).append(line)
            count += 1
        for client, lines in log.lines.items():
            lines.sort(key=lambda line: line.timestamp_ns)
            for line in lines:
                if line.about == CONNECTED:
                    log._connected.setdefault((client, line.address), []).append(line.timestamp_ns)
        return log

    def accepted(self, client: str, address: str, server: str, timestamp_ns: int) -> None:
        """A server has accepted a client; the nearest line with the same address shows how far the clocks are apart."""
        times = self._connected.get((client, address))
        if times is None:
            return
        at = bisect_left(times, timestamp_ns)
        nearest = min(times[max(at - 1, 0) : at + 1], key=lambda time: abs(time - timestamp_ns))
        self.apart.append(nearest - timestamp_ns)
        self.servers.add(server)

    @property
    def ahead_ns(self) -> int:
        """How far the clock of the log is ahead."""
        return median_low(self.apart) if self.apart else 0

    def about(self, case: Case) -> list[LogLine]:
        """Lines that may be about the end of a connection, the nearest first; each is about one end only.

        A line from before the connection began is about an earlier one, and one about the broker is about the
        connections that it closed.
        """
        ended, began = case.ended_ns + self.ahead_ns, case.connection.opened_ns + self.ahead_ns
        client = case.connection.client_identifier or ""
        of_broker = case.by == "server" and (not self.servers or case.connection.server in self.servers)
        lines = []
        for name in (client, *([""] if of_broker and client else [])):
            known = self.lines.get(name, [])
            first = bisect_left(known, ended - NEAR_NS, key=lambda line: line.timestamp_ns)
            last = bisect_right(known, ended + NEAR_NS, key=lambda line: line.timestamp_ns)
            lines += [line for line in known[first:last] if line.about != CONNECTED and id(line) not in self._used]
        address = case.connection.client
        lines = [line for line in lines if line.address in ("", address) or line.address == host_of(address)]
        # Logs have whole seconds.
        lines = [line for line in lines if line.timestamp_ns + SECOND > began]
        lines = [line for line in lines if case.by is None or line.by in (None, case.by)]
        return sorted(lines, key=lambda line: abs(line.timestamp_ns - ended))

    def judged(self, case: Case, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Candidates judged by the log: the cause that it states is certain, and other causes are no longer possible.

        A reason in a captured packet has precedence: a line that contradicts it is a doubt.
        """
        lines = self.about(case)
        if not lines or not case.is_closed:
            self.unknown += case.is_closed
            return candidates
        stated = next((line for line in lines if isinstance(line.about, Cause)), lines[0])
        if stated.client:
            self._used.add(id(stated))
        evidence = Evidence(f"the broker's log says: {shown(stated.text)}", None, stated.timestamp_ns - self.ahead_ns)
        if not isinstance(stated.about, Cause):
            return (replace(candidates[0], reasons=(*candidates[0].reasons, evidence)), *candidates[1:])
        same = [candidate for candidate in candidates if fits(candidate.cause, stated.about)]
        if same:
            self.confirmed += 1
            first = same[0]
            headline = f"{first.headline} The broker's log confirms it."
            sure = replace(first, certainty=Certainty.CERTAIN, headline=headline, doubts=())
            return (replace(sure, reasons=(*first.reasons, evidence)),)
        self.contradicted += 1
        if case.story.disconnects or (case.story.connack is not None and case.story.connack.code):
            return (replace(candidates[0], doubts=(*candidates[0].doubts, evidence)), *candidates[1:])
        before = f"the capture alone would suggest: {candidates[0].headline}"
        return (
            candidate(
                stated.about, Certainty.CERTAIN if stated.client else Certainty.LIKELY,
                f"The broker's log names the reason: {shown(stated.text)}",
                [evidence, *case.last_packet("client"), case.closing()], [Evidence(before)], weight=120,
            ),
        )  # fmt: skip

    def summary(self) -> list[str]:
        """Sentences about the use of the log."""
        text = f"The broker's log ({self.read:,} lines) confirmed {self.confirmed:,} causes"
        text += f" and named another reason for {self.contradicted:,}; it has no line about {self.unknown:,} ends."
        if self.apart:
            ahead = self.ahead_ns
            what = "more" if ahead >= 0 else "less"
            text += f" Its clock shows {describe.span(abs(ahead))} {what} than that of the capture."
        if self.left_out:
            text += f" Lines about clients after the first {MAX_LINES:,} were left out: {self.left_out:,}."
        return [text]


_FITS = {
    Cause.CLIENT_CLOSED: {Cause.CLIENT_CLOSED, Cause.CLIENT_RESET, Cause.NO_PING_RESPONSE, Cause.HALF_OPEN},
    Cause.CLIENT_RESET: {Cause.CLIENT_CLOSED, Cause.CLIENT_RESET, Cause.MIDDLEBOX_RESET, Cause.HALF_OPEN},
    Cause.KEEP_ALIVE: {Cause.KEEP_ALIVE, Cause.HALF_OPEN},
    Cause.NOT_AUTHORIZED: {Cause.NOT_AUTHORIZED, Cause.BAD_CREDENTIALS},
    Cause.PROTOCOL_VIOLATION: {
        Cause.PROTOCOL_VIOLATION, Cause.NOT_SUPPORTED, Cause.TOPIC_ALIAS, Cause.RECEIVE_MAXIMUM,
    },
}  # fmt: skip
"""Causes that a line about a less exact one fits."""


def fits(cause: Cause, stated: Cause) -> bool:
    """Whether what a log states may be a cause of the capture in the words of the broker."""
    return cause is stated or cause in _FITS.get(stated, ())


def shown(text: str) -> str:
    """A line as it may be shown."""
    line = masked(text.strip())
    return f"“{line[:MAX_SHOWN]}{'…' if len(line) > MAX_SHOWN else ''}”"


def read_line(text: str) -> LogLine | None:
    """The statement of a log line about a client; ``None`` for other lines."""
    for _, pattern, about in PATTERNS:
        match = pattern.search(text)
        if match is None:
            continue
        when = read_time(text)
        if when is None:
            return None
        named = match.groupdict()
        why = named.get("why") or ""
        stated = about or next((cause for words, cause in REASONS if words.search(why)), "")
        address = named.get("address") or named.get("host") or ""
        return LogLine(when, named.get("client") or "", address, stated, text)
    return None


def read_time(text: str) -> int | None:
    """The time of a line, in nanoseconds since 1970; without a zone as if in UTC, which `BrokerLog.apart` corrects."""
    for pattern, form in _TIMES:
        match = pattern.search(text)
        if match is None:
            continue
        if form == "epoch":
            return int(match[1]) * SECOND
        return _nanoseconds(match[1].replace("/", "-").replace(",", ".").replace("Z", "+00:00"))
    return None


def _nanoseconds(text: str) -> int | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp()) * SECOND + when.microsecond * 1_000


def iterate(lines: BinaryIO) -> Iterator[str]:
    """Lines of a file as text, whatever its bytes are; of each the first `MAX_LINE` bytes."""
    is_rest = False
    while line := lines.readline(MAX_LINE):
        if not is_rest:
            yield line.decode("utf-8", "replace")
        is_rest = not line.endswith(b"\n")
