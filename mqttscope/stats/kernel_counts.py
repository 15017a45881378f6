"""Statistics of a capture file by the kernel: it counts the packets of ordinary connections itself.

Python counts all other packets, and the beginnings and ends of connections.  The kernel gives its sums to the rows of
`Statistics` at the end of each connection and of the run, and its part of the current second whenever Python counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from mqttscope.capture.mapped import map_capture
from mqttscope.dissect.fast_path import FastPath
from mqttscope.dissect.kernel_path import KernelFlow, KernelHost, count_frames, reason_codes
from mqttscope.events import Event
from mqttscope.kernel import native
from mqttscope.net.frame import Frame
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, ConnectionSide, Exchange
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import ConnectionRow, Histogram, TopicCounts, TrafficCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqttscope.capture.pcap import FrameSink

_KINDS: Final = ("", "publish", "subscribe", "unsubscribe")
_PHASES: Final = (SENT, RECEIVED, RELEASED)
_NEVER: Final = -(1 << 63)
_Numbers = tuple[int, int, int, int, int]
"""Key, kind, QoS, phase and value of an exchange; key and value of a PUBREL or a bucket."""
_Sums = list[tuple[int, int, int, int, int]]
"""Latencies of handshakes: key, count, minimum, maximum and total."""


class _Topics(dict[str | None, TopicCounts]):
    """The rows of topics; Python gets one after the kernel has added its counts."""

    def __init__(self, rows: dict[str | None, TopicCounts], settle: Callable[[bytes], None]) -> None:
        super().__init__(rows)
        self._settle = settle

    def get(self, topic: str | None, default: Any = None) -> Any:
        """The row of a topic."""
        self._settle((topic or "").encode("utf-8", "surrogateescape"))
        return super().get(topic, default)


class KernelCounts(KernelHost):
    """Counts the packets of one capture file; `attempt` makes it."""

    def __init__(self, statistics: Statistics, path: FastPath, capture: str, data: Any) -> None:
        super().__init__(path.dissector, statistics.feed, capture, data)
        module = native()
        assert module is not None
        self._path = path
        self._statistics = statistics
        texts = (b"",) * 256
        self.kernel = module.Kernel(
            data=data, host=self, sink=None, counting=path.dissector.packet_events.counting, opening=b"",
            outcomes=texts, reasons=(texts, texts, texts), allowed=reason_codes(), payload_limit=0,
            shows_secrets=False, has_stems=False,
        )  # fmt: skip

    def frames(self, direct: FrameSink, seen: Callable[[int], object] | None) -> Iterator[Frame]:
        """Count the packets of ordinary connections; yields the frames of all others.

        ``direct`` is offered each of these first; ``seen`` is called with the number of bytes of each read.
        """
        self.seen_bytes = seen
        self._dissector.close_beside = self.closing
        if self.kernel.counts()["flows"]:  # else the capture may have no row
            whole, row, other_topic, releases = self._statistics.kernel_rows(self.capture)
            self.kernel.make_counts(self._statistics, whole, row.traffic.window, other_topic, releases)
            self._statistics.topics = _Topics(self._statistics.topics, self.kernel.settle_topic)
        is_read = False
        try:
            yield from self.run(direct)
            is_read = True
        finally:
            count_frames(self._path, self.capture, self.kernel.counts())
            if not is_read:
                self._settle()

    def closing(self) -> Iterator[Event]:
        """The ends of all connections in order."""
        try:
            yield from self.end_all()
        finally:
            self._settle()

    def _settle(self) -> None:
        """Take all counts of the kernel."""
        self.kernel.settle()
        self._statistics.topics = dict(self._statistics.topics)

    # The kernel calls these.

    def ready(self, state: KernelFlow) -> tuple[Any, ...]:
        """Leave the packets of a connection to the kernel."""
        connection = self.check(state)
        row = self._statistics.live_row(connection)
        assert row.client_row is not None
        sides = connection.client_side, connection.server_side
        client, server = sides
        last_ns = client.last_timestamp_ns
        assert last_ns is not None
        return (
            row.traffic.window, row.client_row.number, client.stream_offset, server.stream_offset, row.last_ns, last_ns,
            connection.closed_ns, *(_NEVER if side.ping_packet is None else side.ping_timestamp_ns for side in sides),
            client.in_flight, server.in_flight, client.in_flight_peak, server.in_flight_peak, _exchanges(client),
            _exchanges(server), [(key, 0, 0, 0, ns) for key, ns in row.releases.items()],
        )  # fmt: skip

    def topic_row(self, name: bytes, timestamp_ns: int) -> tuple[TopicCounts, Any, set[int], set[int]]:
        """The row of a topic, the window of its current second, and its clients."""
        row = self._statistics.topic_row(name.decode() if name else None, timestamp_ns)
        return row, row.window, *row.clients

    def client_of_topic(self, row: TopicCounts, from_server: int, number: int) -> None:
        """Note a client of a topic."""
        self._statistics.note_client(row, from_server, number)

    def node_message(
        self, state: KernelFlow, from_server: int, topic: bytes, payload: bytes, timestamp_ns: int
    ) -> None:
        """Count a message of Sparkplug."""
        assert state.connection is not None
        self._statistics.nodes.message(state.connection, from_server, topic.decode(), payload, timestamp_ns)

    def topic_counted(self, row: TopicCounts, raw: bytes, last_ns: int) -> None:
        """Add the counts of a topic."""
        numbers = iter(array("q", raw))
        for counts in (row.messages, row.bytes, row.payload, row.qos, row.retain, row.dup):
            for place in range(len(counts)):
                counts[place] = counts[place] + next(numbers)
        row.last_ns = last_ns

    def ended(self, state: KernelFlow, *args: Any) -> int:  # type: ignore[override]
        """End one direction; returns the time of the first end."""
        super().ended(state, *args)
        return 0 if state.connection is None else state.connection.closed_ns

    def closed(self, state: KernelFlow, *args: Any) -> None:
        """End the connection."""
        if self._path.order is not None:
            self._path.order.see(self.capture, args[-1])
        super().closed(state, *args)

    def counted(
        self, state: KernelFlow, raw: bytes, latencies: _Sums, buckets: list[_Numbers], last_ns: int, silence_ns: int,
        of_client: list[_Numbers], of_server: list[_Numbers], releases: list[_Numbers], client_pings: bool,
        server_pings: bool, *in_flight: int,
    ) -> None:  # fmt: skip
        """Add the counts of a connection to its row, and its unanswered packets to its state."""
        connection = state.connection
        assert connection is not None
        row: ConnectionRow = self._statistics.live_row(connection)
        _add(row.traffic, raw, latencies, buckets)
        row.last_ns = last_ns
        row.longest_silence_ns = max(row.longest_silence_ns, silence_ns)
        row.releases = {key: ns for key, _, _, _, ns in releases}
        sides = connection.client_side, connection.server_side
        for at, (side, exchanges, pings) in enumerate(
            zip(sides, (of_client, of_server), (client_pings, server_pings), strict=True)
        ):
            side.exchanges = {
                key: Exchange(key, 0, 0, ns, _KINDS[kind], qos, phase=_PHASES[phase])
                for key, kind, qos, phase, ns in exchanges
            }
            side.ping_packet = 0 if pings else None
            side.in_flight, side.in_flight_peak = in_flight[at], in_flight[2 + at]

    def counted_all(self, raw: bytes, latencies: _Sums, buckets: list[_Numbers], missed_releases: int) -> None:
        """Add the counts of all connections to the row of the capture."""
        _, row, _, _ = self._statistics.kernel_rows(self.capture)
        _add(row.traffic, raw, latencies, buckets)
        self._statistics.missed_releases += missed_releases


def _exchanges(side: ConnectionSide) -> list[_Numbers]:
    """The unanswered packets of a side, in numbers."""
    return [
        (key, _KINDS.index(exchange.kind), exchange.qos, _PHASES.index(exchange.phase), exchange.timestamp_ns)
        for key, exchange in side.exchanges.items()
    ]


def _add(traffic: TrafficCounts, raw: bytes, latencies: _Sums, buckets: list[_Numbers]) -> None:
    """Add counts of the kernel to a row."""
    counts = traffic.counts
    for place, count in enumerate(array("q", raw)):
        if count:
            counts[place] = counts[place] + count
    if not latencies:
        return
    measured = {key: Histogram(*values) for key, *values in latencies}  # type: ignore[arg-type]
    for key, _, _, _, count in sorted(buckets):
        measured[key >> 16].buckets[(key & 0xFFFF) - 1] = count
    for key, histogram in measured.items():
        traffic.latencies.setdefault(key, Histogram()).merge(histogram)


def attempt(captures: Sequence[str], statistics: Statistics, path: FastPath) -> KernelCounts | None:
    """The kernel for these captures, surveyed; ``None`` if it is not built, or cannot read them."""
    if native() is None or statistics.along is not None or path.placing or not KernelHost.fits(path.dissector.options):
        return None
    data = map_capture(captures)
    if data is None:
        return None
    try:
        counts = KernelCounts(statistics, path, captures[0], data)
    except ValueError:
        return None
    return counts if counts.is_ordinary() else None
