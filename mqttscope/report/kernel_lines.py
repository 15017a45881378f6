"""JSON Lines of a capture file by the kernel: it writes the lines of frequent packets itself.

Python makes the parts that recur or are rare, with the code of `report.jsonl`, so that both write equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mqttscope.capture.mapped import map_capture
from mqttscope.dissect.dissector import Dissector
from mqttscope.dissect.kernel_path import KernelFlow, KernelHost, read_properties, reason_codes
from mqttscope.events import Event
from mqttscope.kernel import native
from mqttscope.mqtt.constants import V3_1_1, V5, PacketType, ProtocolVersion, reason_name
from mqttscope.net.frame import Frame
from mqttscope.report.jsonl import OUTCOMES, EventJsonLines, PacketLines, dumps, harmless
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.names import is_doubtful_name, is_secret_name, more_stems

if TYPE_CHECKING:
    from mqttscope.capture.pcap import FrameSink

SUBACK, UNSUBACK = PacketType.SUBACK, PacketType.UNSUBACK


class _Introductions(dict[int, Any]):
    """The names of connections in a report; `clear` reports that they are dropped."""

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        self._forget = forget

    def clear(self) -> None:
        super().clear()
        self._forget()


class _KernelSink:
    """Puts the lines of other events between the lines of the kernel."""

    immediate = True

    def __init__(self, append: Callable[[bytes], None]) -> None:
        self.write = append


class KernelLines(KernelHost):
    """Writes the JSON lines of one capture file; `attempt` makes it."""

    def __init__(self, dissector: Dissector, reporter: EventJsonLines, capture: str, data: Any) -> None:
        super().__init__(dissector, reporter.feed, capture, data)
        module = native()
        assert module is not None
        self.reporter = reporter
        self.lines: PacketLines = reporter.packet_lines
        self.lines.open(capture)
        self.sink = reporter.sink
        self.kernel = module.Kernel(
            data=data,
            host=self,
            sink=self.sink,
            counting=dissector.packet_events.counting,
            opening=harmless(self.lines.packet_opening.encode()),
            outcomes=tuple(outcome.encode() for outcome in OUTCOMES),
            reasons=(_reasons(SUBACK, V3_1_1), _reasons(SUBACK, V5), _reasons(UNSUBACK, V5)),
            allowed=reason_codes(),
            payload_limit=reporter.payload_limit,
            shows_secrets=reporter.show_secrets,
            has_stems=bool(more_stems()),
        )

    def frames(self, direct: FrameSink, seen: Callable[[int], object] | None) -> Iterator[Frame]:
        """Write the lines of ordinary connections; yields the frames of all others.

        ``direct`` is offered each of these first; ``seen`` is called with the number of bytes of each read.
        """
        self.seen_bytes = seen
        self.reporter.write_through(_KernelSink(self.kernel.append))
        self.lines.connections = _Introductions(self.kernel.forget_names)
        self._dissector.close_beside = self.closing
        return self.run(direct)

    def closing(self) -> Iterator[Event]:
        """The ends of all connections in order."""
        return self.end_all()

    # The kernel calls these.

    def ready(self, state: KernelFlow) -> tuple[bytes, bytes, int, int, list[int], list[int]]:
        """Leave the frequent packets of a connection to the kernel."""
        connection = self.check(state)
        introduction = state.introduction = self.lines.introduce(connection)
        offsets = connection.client_side.stream_offset, connection.server_side.stream_offset
        latest = list(introduction.of_client), list(introduction.of_server)
        return *_names(introduction), *offsets, *latest

    def introduce(self, state: KernelFlow) -> tuple[bytes, bytes]:
        """Name a connection again."""
        assert state.connection is not None
        introduction = state.introduction = self.lines.introduce(state.connection)
        return _names(introduction)

    def packet(self, state: KernelFlow, *args: Any) -> tuple[bytes, bytes] | None:
        """Read a packet that is not frequent; returns the names of the connection if they have changed."""
        super().packet(state, *args)
        assert state.connection is not None
        introduction = self.lines.introduce(state.connection)
        if introduction is state.introduction:
            return None
        state.introduction = introduction
        return _names(introduction)

    def closed(self, state: KernelFlow, *args: Any) -> None:
        """End the connection."""
        is_ready, initiator, responder, _ = args[6:]
        if is_ready and state.connection is not None:
            introduction = self.lines.connections.get(state.connection.number)
            if introduction is not None:
                for latest, numbers in ((introduction.of_client, initiator[2]), (introduction.of_server, responder[2])):
                    latest.clear()
                    latest.extend(numbers)
        super().closed(state, *args)

    def turn(self, timestamp_ns: int) -> tuple[int, bytes, bytes, bool]:
        """Begin of the second of a time, the text before and after its nanoseconds, and whether digits are divided."""
        return self.lines.second_of(timestamp_ns)

    def topic(self, name: bytes) -> bytes:
        """JSON of a topic."""
        return harmless(self.lines.topic(name.decode()).encode())

    def names_secret(self, name: bytes) -> bytes:
        """Not empty if values of a User Property with this name may be hidden."""
        text = name.decode()
        return b"x" if is_secret_name(text) or is_doubtful_name(text) or starred_name(text) != text else b""

    def block(self, raw: bytes) -> bytes:
        """JSON of the properties of a PUBLISH, up to the value of its payload."""
        return harmless(self.lines.block(read_properties(raw)).encode())

    def payload(self, payload: bytes) -> bytes:
        """JSON of a payload, up to the resolved topic."""
        return harmless(self.lines.payload(payload).encode())


def _reasons(kind: PacketType, version: ProtocolVersion) -> tuple[bytes, ...]:
    """JSON of the names of all codes."""
    return tuple(dumps(reason_name(kind, code, version)) for code in range(256))


def _names(introduction: Any) -> tuple[bytes, bytes]:
    return harmless(introduction.from_client.encode()), harmless(introduction.from_server.encode())


def attempt(captures: Sequence[str], dissector: Dissector, reporter: Any) -> KernelLines | None:
    """The kernel for these captures, surveyed; ``None`` if it is not built, or cannot read them."""
    if native() is None or type(reporter) is not EventJsonLines or getattr(reporter.sink, "immediate", False):
        return None
    if not KernelHost.fits(dissector.options):
        return None
    data = map_capture(captures)
    if data is None:
        return None
    try:
        lines = KernelLines(dissector, reporter, captures[0], data)
    except ValueError:
        return None
    return lines if lines.is_ordinary() else None
