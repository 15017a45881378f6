"""The second front end: tshark dissects frames, and pyshark extracts the TCP segments from its output.

tshark supports hundreds of tunnels and link layers and decrypts 802.11, unlike `net.headers`.  Its output is PDML, the
only format that keeps repeated layers of a frame separate and in order: pyshark's JSON and EK modes keep one of them.
Each relevant layer becomes a layer of pyshark.  tshark's stream reassembly is off, because ours follows: segments keep
the number, time and capture of their frame.

The frames come from `open_capture`, so this front end reads the same captures, including damaged ones.  Neither side
blocks: at most `MAX_AHEAD` frames are unanswered.
"""

from __future__ import annotations

import importlib
import select
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mqttscope.capture.tshark import MissingToolError, TsharkProcess, find_tool
from mqttscope.installation import package_command
from mqttscope.net import headers
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.net.links import SERVICE_MARK
from mqttscope.net.segment import RST, NoteSkipped, NotSegment, Segment, direction_key

if TYPE_CHECKING:
    from pyshark.packet.layers.xml_layer import XmlLayer

MAX_AHEAD = 512
"""Maximum number of unanswered frames."""
MAX_FRAME_BYTES = 262_144
"""Maximum frame length of tshark; further bytes count as cut off by a snap length."""
MAX_ANSWER_BYTES = 256 << 20
"""Maximum size of the answer for one frame."""
_END = b"</packet>"
_BEGIN = b"<packet>"

_PREFERENCES = (
    "tcp.relative_sequence_numbers:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
    # Our own reassembly follows.
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.reassemble_out_of_order:FALSE",
    # Frames captured on the sending host have no checksums yet.
    "tcp.check_checksum:FALSE",
    "udp.check_checksum:FALSE",
    "ip.check_checksum:FALSE",
    "ip.tso_support:TRUE",
    "ip.defragment:TRUE",
    "ipv6.defragment:TRUE",
)
_CONTENT = ("mqtt", "tls", "http", "http2", "websocket")
"""Protocols over TCP that contain no frames; their dissection would be discarded."""
_QUOTING = frozenset(("icmp", "icmpv6"))
"""Protocols that quote the beginning of an earlier datagram."""
_ADDRESSES = {"ip": ("ip.src", "ip.dst"), "ipv6": ("ipv6.src", "ipv6.dst")}
_MARKS = {"gtp": headers.MARK_GTP, "tzsp": headers.MARK_TZSP, "l2tp": headers.MARK_L2TP}
"""Tunnels with separate identifiers per direction."""
_WANTED = frozenset(("tcp", *_ADDRESSES, *_MARKS, "vlan", "ieee8021ad", "ieee8021ah", "gre", "vxlan", "geneve"))


class Dissection:
    """Frames of captures, dissected by tshark.

    ``items``: frames and notices.  ``skipped``: counts the frames without a TCP segment, by reason.  ``waiting``:
    pass frames to tshark one by one, for a live capture with long pauses between frames.  `MissingToolError` if
    tshark is not installed, `OSError` if it cannot be started.
    """

    def __init__(
        self,
        items: Iterable[Frame | CaptureNotice],
        skipped: Counter[str] | None = None,
        *,
        waiting: bool = False,
        note_skipped: NoteSkipped | None = None,
    ) -> None:
        """``note_skipped`` is called with capture, reason and number of the frames that ``skipped`` counts."""
        tshark = find_tshark()
        self.fault: str | None = None
        """Reason of tshark's failure, or ``None``."""
        self.answered = 0
        """Number of frames that tshark has dissected."""
        self._items = iter(items)
        self._most_ahead = 1 if waiting else MAX_AHEAD
        self._skipped: Counter[str] = Counter() if skipped is None else skipped
        self._note_skipped = note_skipped
        self._ahead: deque[Frame | CaptureNotice] = deque()
        self._frames_ahead = 0
        self._capture = ""
        self._exhausted = False
        self._output = bytearray()
        self._searched = 0
        self._process = TsharkProcess(command(tshark))

    def segments(self) -> Iterator[Segment | CaptureNotice]:
        """Segments in the order of the frames; notices among them pass through.

        A failure of tshark is a `CaptureError` after the segments before it.
        """
        try:
            while self.fault is None:
                self._fill()
                if not self._ahead and self._exhausted:
                    break
                while self._ahead and not isinstance(self._ahead[0], Frame):
                    yield self._ahead.popleft()  # type: ignore[misc]
                if self._frames_ahead:
                    self._exchange()
                    for answer in self._answers():
                        yield from self._take(answer)
            yield from self._rest()
        finally:
            self.close()

    def close(self) -> None:
        self._process.close()

    def _fill(self) -> None:
        """Feed frames while tshark has room."""
        while not self._exhausted and self._frames_ahead < self._most_ahead:
            item = next(self._items, None)
            if item is None:
                self._exhausted = True
                return
            if not isinstance(item, Frame):
                self._ahead.append(item)
                return  # yield it without delay
            data = item.data[:MAX_FRAME_BYTES]
            try:
                self._process.feed(Frame(0, 0, item.link_type, data, max(item.original_length, len(item.data)), ""))
            except ValueError:
                # A link type that pcapng cannot represent: an empty frame keeps the count.
                self._process.feed(Frame(0, 0, 1, b"", 0, ""))
            self._ahead.append(item)
            self._frames_ahead += 1

    def _exchange(self) -> None:
        """Wait until a pipe is ready, then write or read it."""
        process = self._process
        if self._exhausted and not process.behind:
            process.end_input()
        writing = [process.input] if process.behind and process.takes_input else []
        reading = [process.output, process.errors] if process.complains else [process.output]
        readable, writable, _ = select.select(reading, writing, [])
        if process.errors in readable:
            process.listen()
        if writable:
            process.push()
        if process.output in readable:
            data = process.read()
            if data:
                self._output += data
            elif data is not None:
                self._fail("ended early")
        if len(self._output) > MAX_ANSWER_BYTES:
            self._fail(f"printed more than {MAX_ANSWER_BYTES:,} bytes for one frame")

    def _answers(self) -> Iterator[bytes]:
        """The complete answers in tshark's output."""
        output, start = self._output, 0
        while True:
            end = output.find(_END, max(start, self._searched))
            if end < 0:
                break
            end += len(_END)
            begin = output.find(_BEGIN, start, end)
            self._searched = 0
            if begin >= 0:
                yield bytes(output[begin:end])
            start = end
        del output[:start]
        self._searched = max(0, len(output) - len(_END))

    def _take(self, answer: bytes) -> Iterator[Segment | CaptureNotice]:
        """The segments of the next frame, after the notices before it."""
        while self._ahead:
            item = self._ahead.popleft()
            if not isinstance(item, Frame):
                yield item
                continue
            self._frames_ahead -= 1
            self.answered += 1
            number, segments = dissected(answer, item)
            if number != self.answered:
                self._fail(f"answered for frame {number} in place of {self.answered}")
                return
            self._capture = item.capture
            if segments:
                yield from segments
            else:
                self._count(item)
            return
        if self.fault is None:
            self._fail("answered for more frames than it was given")

    def _count(self, frame: Frame) -> None:
        """Count a frame without TCP by the reason from our own parser; IP fragments are not counted."""
        why = headers.walk(frame)
        if isinstance(why, NotSegment | Segment):
            reason = why.reason if isinstance(why, NotSegment) else "not_tcp"
            self._skipped[reason] += 1
            if self._note_skipped is not None:
                self._note_skipped(frame.capture, reason, 1)

    def _rest(self) -> Iterator[CaptureNotice]:
        """The remaining notices, and the error of tshark, if any."""
        capture = self._capture
        for item in self._ahead:
            if not isinstance(item, Frame):
                yield item
            elif not capture:
                capture = item.capture
        self._ahead.clear()
        if self.fault is not None:
            yield CaptureError(capture or "tshark", self.fault, None, self.answered)

    def _fail(self, what: str) -> None:
        if self.fault is None:
            how, last = self._process.give_up(0.5)
            self.fault = f"tshark failed ({what}{how}){last}; frames not yet dissected are missing"


def find_tshark() -> str:
    """Path of tshark; `MissingToolError` if it, or a package that parses its output, is missing."""
    try:
        for name in ("lxml.etree", "pyshark.packet.layers.xml_layer"):
            importlib.import_module(name)
    except ImportError as error:
        install = package_command("pyshark", "lxml")
        raise MissingToolError(f"--via tshark needs packages that are not installed ({error}): {install}") from None
    return find_tool("tshark", "to read captures with --via tshark")


def command(tshark: str) -> list[str]:
    """The command line of tshark: pcapng from standard input, PDML to standard output, frame by frame."""
    words = [tshark, "-n", "-l", "-r", "-", "-T", "pdml"]
    for preference in _PREFERENCES:
        words += ["-o", preference]
    for name in _CONTENT:
        words += ["--disable-protocol", name]
    # The default port of Linux, which no other protocol uses.
    return [*words, "-d", "udp.port==8472,vxlan"]


def dissected(answer: bytes, frame: Frame) -> tuple[int, list[Segment]]:
    """The number of a frame in tshark, and the TCP segments in it, from the PDML of the frame.

    A frame with several datagrams side by side has several segments, as in aggregated 802.11; of nested datagrams,
    the innermost counts.  Segments quoted by ICMP are ignored.
    """
    from lxml import etree
    from pyshark.packet.layers.xml_layer import XmlLayer

    tree = etree.fromstring(answer, etree.XMLParser(recover=True, huge_tree=True, encoding="utf-8"))
    number = 0
    layers: list[tuple[XmlLayer, Segment]] = []
    containers: dict[Any, _LayerContext] = {}
    around: dict[Any, _LayerContext] = {}
    # All elements are kept in memory, because they are dictionary keys by identity.
    protocols = [] if tree is None else list(tree.iter("proto"))
    for element in protocols:
        name = element.get("name")
        if name == "geninfo":
            number = _number(XmlLayer(element), "num") or 0
            continue
        container = element.getparent()
        place = containers.get(container)
        if place is None:
            place = containers[container] = _LayerContext()
            outer = next(
                (around[ancestor] for ancestor in (container, *container.iterancestors()) if ancestor in around), None
            )
            if outer is not None:
                place.take_over(outer)
        around[element] = place if name not in _QUOTING else _LayerContext(quoted=True)
        if place.quoted or name not in _WANTED:
            continue
        layer = XmlLayer(element)
        if name in _ADDRESSES:
            place.enter_ip(layer, 4 if name == "ip" else 6)
        elif name == "tcp":
            segment = None if place.ip is None else _segment(place.ip, layer, place.encapsulation, frame)
            if segment is not None:
                if layers and _is_inside(layer, *layers[-1]):
                    layers.pop()
                layers.append((layer, segment))
            place.begin_again()
        else:
            place.enter(name, layer)
    return number, [segment for _, segment in layers]


class _LayerContext:
    """Layers seen in one container of PDML: the packet, or a protocol or field that contains others."""

    def __init__(self, *, quoted: bool = False) -> None:
        self.quoted = quoted
        self.ip: XmlLayer | None = None
        self.encapsulation = b""
        self._entered = True
        """Whether a tunnel header followed the last IP header."""
        self._begin: tuple[XmlLayer | None, bytes, bool] = (None, b"", True)

    def take_over(self, around: _LayerContext) -> None:
        self.quoted = around.quoted
        self._begin = around.ip, around.encapsulation, around._entered
        self.begin_again()

    def begin_again(self) -> None:
        """Return to the state at the begin of the container, for layers beside or inside the previous ones."""
        self.ip, self.encapsulation, self._entered = self._begin

    def enter_ip(self, layer: XmlLayer, version: int) -> None:
        """Record an IP header; an IP header directly inside another is a tunnel, too."""
        if not self._entered:
            self.encapsulation += headers.MARK_IN_IP[version]
        self.ip, self._entered = layer, False

    def enter(self, name: str, layer: XmlLayer) -> None:
        """Record a layer that separates networks with equal addresses, encoded as in `net.headers`."""
        if name in ("vlan", "ieee8021ad"):
            identifier = _number(layer, f"{name}.id")
            self.encapsulation += identifier.to_bytes(2, "big") if identifier else b""
        elif name == "ieee8021ah":
            self.encapsulation += SERVICE_MARK + (_number(layer, "ieee8021ah.isid") or 0).to_bytes(4, "big")
        else:
            self.encapsulation += _tunnel(name, layer)
            self._entered = True


def _tunnel(name: str, layer: XmlLayer) -> bytes:
    """The encoding of a tunnel, with its identifier if both directions share it."""
    if name in _MARKS:
        return _MARKS[name]
    if name == "gre":
        if (_number(layer, "gre.flags.version") or 0) == 1:
            return headers.MARK_PPTP
        key = _octets(layer, "gre.key")
        return headers.MARK_GRE_KEY + key if key else headers.MARK_GRE
    mark = headers.MARK_VXLAN if name == "vxlan" else headers.MARK_GENEVE
    return mark + (_number(layer, f"{name}.vni") or 0).to_bytes(4, "big")


def _segment(ip: XmlLayer, tcp: XmlLayer, encapsulation: bytes, frame: Frame) -> Segment | None:
    """The segment of a TCP layer; ``None`` if the header is incomplete."""
    name = "ip" if ip.get_field("ip.src") is not None else "ipv6"
    addresses = b"".join(_octets(ip, field) for field in _ADDRESSES[name])
    ports = _octets(tcp, "tcp.srcport") + _octets(tcp, "tcp.dstport")
    sequence, acknowledgment = _number(tcp, "tcp.seq_raw"), _number(tcp, "tcp.ack_raw")
    flags, window = _number(tcp, "tcp.flags"), _number(tcp, "tcp.window_size_value")
    length, header = _number(tcp, "tcp.len"), _number(tcp, "tcp.hdr_len")
    if sequence is None or flags is None or window is None or length is None or header is None or header < 20:
        return None
    if len(ports) != 4 or len(addresses) not in (8, 32) or tcp.get_field("tcp.checksum") is None:
        return None
    # The data of a reset has a separate field.
    payload = _octets(tcp, "tcp.payload") or (_octets(tcp, "tcp.reset_cause") if flags & RST else b"")
    return Segment(
        direction_key(addresses, ports, encapsulation),
        sequence,
        acknowledgment or 0,
        flags & 0xFF,
        window,
        payload,
        max(0, length - len(payload)),
        frame.number,
        frame.timestamp_ns,
        frame.capture,
        _octets(tcp, "tcp.options"),
    )


def _is_inside(inner: XmlLayer, outer: XmlLayer, segment: Segment) -> bool:
    """Whether a TCP layer is inside the payload of another one, by its offset and the bytes there."""
    payload = outer.get_field("tcp.payload")
    if payload is None:
        return False
    at = int(inner.get_field("tcp.srcport").pos) - int(payload.pos)
    begin = _octets(inner, "tcp.srcport") + _octets(inner, "tcp.dstport") + _octets(inner, "tcp.seq_raw")
    return at >= 0 and segment.payload[at : at + len(begin)] == begin


def _number(layer: XmlLayer, name: str) -> int | None:
    field = layer.get_field(name)
    try:
        return None if field is None else int(field.show, 0)
    except (TypeError, ValueError):
        return None


def _octets(layer: XmlLayer, name: str) -> bytes:
    field = layer.get_field(name)
    try:
        return b"" if field is None else bytes.fromhex(field.raw_value or "")
    except ValueError:
        return b""
