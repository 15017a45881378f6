"""The tables of statistics: captures, connections, clients and topics, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from mqttscope.report import statistics_rows as at
from mqttscope.report.page import Column, Page, number, per_second, plural, size
from mqttscope.report.statistics_json import rate, span
from mqttscope.report.statistics_rows import CaptureRow, ClientRow, ConnectionRow, TopicRow, Traffic
from mqttscope.report.when import duration

R = TypeVar("R")


def time_of(page: Page, nanoseconds: int) -> str:
    """A length of time in the characters of the page."""
    return duration(nanoseconds, unicode=page.unicode)


def tcp_of(traffic: Traffic) -> dict[str, int]:
    """TCP counters by name, both directions together."""
    width = len(at.TCP_COUNTERS)
    first = traffic.counts[at.TCP : at.TCP + width]
    return {name: first[index] + traffic.counts[at.TCP + width + index] for index, name in enumerate(at.TCP_COUNTERS)}


_HOW = {
    "fin": "FIN",
    "capture_end": "still open at the end of the capture",
    "port_reused": "replaced by a new connection on the same ports",
    "idle": "given up after silence",
    "evicted": "given up to save memory",
}


_OPEN = {"capture_end": "open", "port_reused": "replaced", "idle": "silent", "evicted": "given up"}
"""How connections ended of which the capture has no end, where there is little room."""


def ending_of(how: str | None, by: str | None) -> str:
    """How a transport ended and who ended it, in words."""
    how = _HOW.get(how or "", how or "")
    return f"{how} by {by}" if by in ("client", "server") else how


def _trouble(traffic: Traffic) -> str:
    """What went wrong, in short."""
    counts, tcp = traffic.counts, tcp_of(traffic)
    gaps = sum(counts[at.GAPS : at.GAPS + 2])
    bad = (
        (sum(counts[at.MALFORMED : at.MALFORMED + 2]), "malformed"),
        (gaps, "gap" if gaps == 1 else "gaps"),
        (sum(counts[at.UNPARSED : at.UNPARSED + 2]), "unparsed"),
        (tcp["retransmitted_segments"], "retr."),
        (tcp["zero_windows"], "0-win."),
    )
    return ", ".join(f"{count:,} {word}" for count, word in bad if count)


def _column(title: str, rows: Sequence[R], shown: Callable[[R], str], rank: int = 0, *, right: bool = True) -> Column:
    return Column(title, [shown(row) for row in rows], rank, right)


def _slowest(page: Page, row: Any) -> str:
    slowest = row.traffic.slowest
    return time_of(page, slowest) if slowest >= 0 else ""


def _more(page: Page, shown: int, total: int, word: str) -> None:
    if total > shown:
        page.line([f"{page.ellipsis} and {plural(total - shown, word)} more (--top N shows N)"], style="dim")


def _shares(parts: Iterable[int], whole: int, rank: int) -> Column:
    return Column("", shares=[part / whole if whole else 0.0 for part in parts], rank=rank, style="cyan")


def captures_table(page: Page, rows: list[CaptureRow], total: int) -> None:
    """One row per capture; ``total`` is how many there are."""
    everything = sum(row.traffic.packets for row in rows)
    page.title("Captures")
    page.table(
        Column("capture", [row.capture for row in rows]),
        [
            _column("frames", rows, lambda row: number(row.frames), 3),
            _column("time", rows, lambda row: time_of(page, row.duration_ns), 2),
            _column("conn.", rows, lambda row: number(row.outcomes.connections)),
            _column("packets", rows, lambda row: number(row.traffic.packets)),
            _shares((row.traffic.packets for row in rows), everything, 1),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: per_second(rate(row.traffic.packets, row.duration_ns)), 4),
            _column("peak/s", rows, lambda row: number(row.traffic.window.peak_packets), 5),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 2, right=False),
            _column("errors", rows, lambda row: number(row.error_count), 1),
        ],
    )
    _more(page, len(rows), total, "capture")


def connections_table(page: Page, rows: list[ConnectionRow], total: int, totals: CaptureRow) -> None:
    """One row per connection; bars are shares of all packets."""

    def ended(row: ConnectionRow) -> str:
        if row.outcome in ("refused", "unanswered"):
            code = row.connack_reason_code
            return row.outcome if code is None else f"refused 0x{code:02x}"
        if row.disconnect_by is not None:
            reason = f" 0x{row.disconnect_reason:02x}" if row.disconnect_reason else ""
            return f"DISCONNECT{' by server' if row.disconnect_by == 'server' else ''}{reason}"
        if row.closed_how not in ("fin", "reset"):
            return _OPEN.get(row.closed_how or "", row.closed_how or "")
        return f"{'no DISCONNECT, ' if row.ending == 'broken' else ''}{ending_of(row.closed_how, row.closed_by)}"

    def in_flight(row: ConnectionRow) -> str:
        shown = []
        for peak, allowed in zip(row.in_flight_peak, row.receive_maximum, strict=True):
            shown.append(f"{peak}/{allowed}" if allowed is not None and allowed < 65_535 else f"{peak}")
        return ", ".join(shown) if any(row.in_flight_peak) else ""

    def silence(row: ConnectionRow) -> str:
        share = row.keep_alive_share
        return f"{share * 100:.0f} % of {row.keep_alive} s" if share else ""

    page.title("Connections")
    page.table(
        Column("client", [row.client_identifier or row.client for row in rows], style="green"),
        [
            Column("no.", [str(row.number) for row in rows]),
            _column("endpoint", rows, lambda row: row.client if row.client_identifier else "", 9, right=False),
            _column("server", rows, lambda row: row.server, 8, right=False),
            _column("MQTT", rows, lambda row: row.version or row.transport, 3, right=False),
            _column("packets", rows, lambda row: number(row.traffic.packets)),
            _shares((row.traffic.packets for row in rows), totals.traffic.packets, 4),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: per_second(rate(row.traffic.packets, row.ended_ns - row.opened_ns)), 5),
            _column("p90", rows, lambda row: _slowest(page, row), 2),
            _column("in flight", rows, in_flight, 6),
            _column("silence", rows, silence, 7),
            _column("time", rows, lambda row: time_of(page, row.ended_ns - row.opened_ns), 7),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 3, right=False),
            _column("end", rows, ended, 1, right=False),
        ],
    )
    _more(page, len(rows), total, "connection")


def clients_table(page: Page, rows: list[ClientRow], total: int, totals: CaptureRow) -> None:
    """One row per client; bars are shares of all packets."""

    def silence(row: ClientRow) -> str:
        return f"{row.keep_alive_share * 100:.0f} %" if row.keep_alive_share else ""

    def addresses(row: ClientRow) -> str:
        first = next(iter(row.addresses), "")
        more = len(row.addresses) - 1
        if more > 0:
            first += f" +{more}{' or more' if row.more_addresses else ''}"
        return first if row.client_identifier or more > 0 else ""

    page.title("Clients")
    page.table(
        Column(
            "client identifier",
            [row.client_identifier or f"({next(iter(row.addresses), '')})" for row in rows],
            style="green",
        ),
        [
            _column("conn.", rows, lambda row: number(row.connections)),
            _column("broken", rows, lambda row: number(row.broken), 1),
            _column("refused", rows, lambda row: number(row.refused), 1),
            _column("sent", rows, lambda row: number(sum(row.traffic.counts[at.PACKETS : 16]))),
            _column("received", rows, lambda row: number(sum(row.traffic.counts[16 : at.BYTES]))),
            _shares((row.traffic.packets for row in rows), totals.traffic.packets, 4),
            _column("bytes", rows, lambda row: size(row.traffic.bytes)),
            _column("per s", rows, lambda row: per_second(rate(row.traffic.packets, span(row))), 6),
            _column("p90", rows, lambda row: _slowest(page, row), 3),
            _column("topics", rows, lambda row: f"{row.topics_published:,}/{row.topics_received:,}", 5),
            _column("silence", rows, silence, 2),
            _column("trouble", rows, lambda row: _trouble(row.traffic), 4, right=False),
            _column("address", rows, addresses, 1, right=False),
        ],
    )
    _more(page, len(rows), total, "client")


def topics_table(page: Page, rows: list[TopicRow], total: int, totals: CaptureRow) -> None:
    """One row per topic; bars are shares of all messages."""

    def qos(row: TopicRow) -> str:
        return "/".join(f"{row.qos[level] + row.qos[4 + level]:,}" for level in range(3))

    def clients(from_server: int) -> Callable[[TopicRow], str]:
        return lambda row: (
            (f"{len(row.clients[from_server]):,}" if row.clients[from_server] else "")
            + ("" if row.complete[from_server] else "+")
        )

    messages = sum(totals.traffic.counts[at.QOS : at.QOS + 8])
    page.title("Topics")
    page.table(
        Column(
            "topic",
            ["(alias set before the capture)" if row.topic is None else row.topic for row in rows],
            style="green",
        ),
        [
            _column("published", rows, lambda row: number(row.messages[0])),
            _column("delivered", rows, lambda row: number(row.messages[1])),
            _shares((sum(row.messages) for row in rows), messages, 1),
            _column("bytes", rows, lambda row: size(sum(row.bytes))),
            _column("per s", rows, lambda row: per_second(rate(sum(row.messages), totals.duration_ns)), 5),
            _column("peak/s", rows, lambda row: number(row.window.peak_packets), 7),
            _column("QoS 0/1/2", rows, qos, 2),
            _column("from", rows, clients(0), 3),
            _column("to", rows, clients(1), 3),
            _column("retained", rows, lambda row: number(sum(row.retain)), 4),
            _column("DUP", rows, lambda row: number(sum(row.dup)), 6),
            _column("payload", rows, lambda row: size(sum(row.payload)), 8),
        ],
    )
    _more(page, len(rows), total, "topic")
