"""Reads the log of a broker, and finds the lines that confirm or contradict why a connection ended.

Each broker has a few patterns in one table (`PATTERNS`).  The clocks of log and capture may differ, also by a time
zone: lines about clients that connected show by how much.  A line that names a cause states it: the broker knows why
it closed.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median_low

from mqttscope.explain import describe
from mqttscope.explain.causes.case import Case, candidate
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.secrets.findings import masked

SECOND = 1_000_000_000
NEAR_NS = 3 * SECOND
"""So far from the end of a connection, after the difference of the clocks, its line may be: logs have whole seconds."""
MAX_LINES = 2_000_000
"""Lines of a log about clients that are kept."""
MAX_LINE = 4_096
"""Characters of a line that are read."""
MAX_SHOWN = 200
"""Characters of a line that are shown."""
CONNECTED = "connected"

_ADDRESS = r"(?P<address>\[?[0-9A-Fa-f:.]+\]?:\d+)"
PATTERNS: tuple[tuple[str, re.Pattern[str], Cause | str], ...] = tuple(
    (broker, re.compile(text), about)
    for broker, text, about in (
        ("mosquitto", rf"New client connected from {_ADDRESS} as (?P<client>.+?) \(p\d", CONNECTED),
        ("mosquitto", r"Client (?P<client>.+?) already connected, closing old connection", Cause.TAKEN_OVER),
        ("mosquitto", r"Client (?P<client>.+?) has exceeded timeout, disconnecting", Cause.KEEP_ALIVE),
        (
            "mosquitto",
            r"Client (?P<client>.+?) been disconnected by administrative action",
            Cause.ADMINISTRATIVE_ACTION,
        ),
        ("mosquitto", r"Client (?P<client>.+?) closed its connection", Cause.CLIENT_CLOSED),
        (
            "mosquitto",
            r"(?:Socket error on client|Bad socket read/write on client) (?P<client>[^,:]+)",
            Cause.CLIENT_RESET,
        ),
        ("mosquitto", rf"Client (?P<client>.+?)(?: \[{_ADDRESS}\])? disconnected(?P<why>[ ,:].*)", ""),
        ("mosquitto", r"Client (?P<client>.+?) disconnected\.?$", Cause.NORMAL),
        ("mosquitto", r"mosquitto version \S+ terminating", Cause.SERVER_RESTART),
        ("EMQX", rf"clientid: (?P<client>[^,]+),.*peername: {_ADDRESS}.*(?:msg: |, )connected", CONNECTED),
        ("EMQX", rf"clientid: (?P<client>[^,]+),.*peername: {_ADDRESS}.*reason: (?P<why>[^,]+)", ""),
        ("HiveMQ", r"Client ID: (?P<client>.+?), IP: ?(?P<host>[^, ]+),.*\bconnected\.", CONNECTED),
        ("HiveMQ", r"Client ID: (?P<client>.+?), IP: ?(?P<host>[^, ]+) .*[Rr]eason(?: given)?: (?P<why>.*)", ""),
        ("HiveMQ", r"Client ID: (?P<client>.+?), IP: ?(?P<host>[^, ]+) disconnected gracefully", Cause.NORMAL),
        ("HiveMQ", r"Client ID: (?P<client>.+?), IP: ?(?P<host>[^, ]+) disconnected ungracefully", Cause.CLIENT_CLOSED),
        ("NATS", rf"{_ADDRESS} - mid:\d+ - \"(?P<client>.+?)\" - Client connected", CONNECTED),
        ("NATS", rf"{_ADDRESS} - mid:\d+ - \"(?P<client>.+?)\" - .*connection closed: (?P<why>.*)", ""),
    )
)
"""Lines of brokers about a client, and what they say: a cause, or ``why``, in which `REASONS` look for words."""
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
"""What the words of a broker for the end of a connection mean, the surest first."""
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
    """With the port where the line has it; empty without one."""
    about: Cause | str
    """The cause that it states, `CONNECTED`, or empty: it names none that is known."""
    text: str


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
    """How far the clock of the log was ahead of that of the capture, at each client that connected."""
    confirmed: int = 0
    contradicted: int = 0
    unknown: int = 0
    """Ends about which the log has no line."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> BrokerLog:
        """The log of which these are the lines."""
        made = cls()
        kept = 0
        addresses: dict[str, str] = {}
        for text in texts:
            made.read += 1
            line = read_line(text[:MAX_LINE])
            if line is None:
                continue
            if kept >= MAX_LINES:
                made.left_out += 1
                continue
            if line.about == CONNECTED:
                addresses[line.client] = line.address
            elif not line.address:
                # The lines of a client are about its last connection.
                line = replace(line, address=addresses.get(line.client, ""))
            made.lines.setdefault(line.client, []).append(line)
            kept += 1
        for found in made.lines.values():
            found.sort(key=lambda one: one.timestamp_ns)
        return made

    def accepted(self, client: str, address: str, timestamp_ns: int) -> None:
        """A server has accepted a client; a line with the same address shows how far the clocks are apart."""
        for line in self.lines.get(client, ()):
            if line.about == CONNECTED and line.address == address:
                self.apart.append(line.timestamp_ns - timestamp_ns)
                return

    @property
    def ahead_ns(self) -> int:
        """How far the clock of the log is ahead."""
        return median_low(self.apart) if self.apart else 0

    def about(self, case: Case) -> list[LogLine]:
        """Lines about the end of a connection, the nearest first."""
        ended = case.ended_ns + self.ahead_ns
        found = []
        for client in (case.connection.client_identifier or "", ""):
            known = self.lines.get(client, [])
            first = bisect_left(known, ended - NEAR_NS, key=lambda one: one.timestamp_ns)
            last = bisect_right(known, ended + NEAR_NS, key=lambda one: one.timestamp_ns)
            found += [one for one in known[first:last] if one.about != CONNECTED]
        address = case.connection.client
        found = [one for one in found if one.address in ("", address) or one.address == address.rpartition(":")[0]]
        return sorted(found, key=lambda one: abs(one.timestamp_ns - ended))

    def judged(self, case: Case, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Candidates with what the log says: the one that it states is certain, and others are no longer possible."""
        lines = self.about(case)
        if not lines or not case.is_closed:
            self.unknown += case.is_closed
            return found
        stated = next((one for one in lines if isinstance(one.about, Cause)), lines[0])
        told = Evidence(f"the broker's log says: {shown(stated.text)}", None, stated.timestamp_ns - self.ahead_ns)
        if not isinstance(stated.about, Cause):
            return (replace(found[0], reasons=(*found[0].reasons, told)), *found[1:])
        same = [one for one in found if fits(one.cause, stated.about)]
        if same:
            self.confirmed += 1
            first = same[0]
            headline = f"{first.headline} The broker's log confirms it."
            sure = replace(first, certainty=Certainty.CERTAIN, headline=headline, doubts=())
            return (replace(sure, reasons=(*first.reasons, told)),)
        self.contradicted += 1
        before = f"the capture alone would suggest: {found[0].headline}"
        return (
            candidate(
                stated.about, Certainty.CERTAIN, f"The broker's log names the reason: {shown(stated.text)}",
                [told, *case.last_packet("client"), case.closing()], [Evidence(before)], weight=120,
            ),
        )  # fmt: skip

    def summary(self) -> list[str]:
        """What became of the log, in sentences."""
        told = f"The broker's log ({self.read:,} lines) confirmed {self.confirmed:,} causes"
        told += f" and named another reason for {self.contradicted:,}; it has no line about {self.unknown:,} ends."
        if self.apart:
            ahead = self.ahead_ns
            what = "more" if ahead >= 0 else "less"
            told += f" Its clock shows {describe.span(abs(ahead))} {what} than that of the capture."
        if self.left_out:
            told += f" Lines about clients after the first {MAX_LINES:,} were left out: {self.left_out:,}."
        return [told]


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
    """What a line of a log says about a client; ``None`` for all other lines."""
    for _, pattern, about in PATTERNS:
        found = pattern.search(text)
        if found is None:
            continue
        when = read_time(text)
        if when is None:
            return None
        named = found.groupdict()
        why = named.get("why") or ""
        stated = about or next((cause for words, cause in REASONS if words.search(why)), "")
        address = named.get("address") or named.get("host") or ""
        return LogLine(when, named.get("client") or "", address, stated, text)
    return None


def read_time(text: str) -> int | None:
    """The time of a line, in nanoseconds since 1970; without a zone as if in UTC, which `BrokerLog.apart` corrects."""
    for pattern, form in _TIMES:
        found = pattern.search(text)
        if found is None:
            continue
        if form == "epoch":
            return int(found[1]) * SECOND
        return _nanoseconds(found[1].replace("/", "-").replace(",", ".").replace("Z", "+00:00"))
    return None


def _nanoseconds(text: str) -> int | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp()) * SECOND + when.microsecond * 1_000


def iterate(lines: Iterable[bytes]) -> Iterator[str]:
    """Lines of a file as text, whatever its bytes are."""
    for line in lines:
        yield line.decode("utf-8", "replace")
