"""Inputs at the limits of the package net."""

from __future__ import annotations

import zlib
from dataclasses import replace

from mqttscope.net.checksum import UNJUDGED, WRONG, judge_checksum
from mqttscope.net.duplicates import Deduplication
from mqttscope.net.flow import Flow
from mqttscope.net.flows import FlowTable
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.host_names import HostNames, answers
from mqttscope.net.proxy_protocol import header_length
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import Fragment, NotSegment, direction_key
from mqttscope.net.tap_views import differs
from mqttscope.net.tcp_clock import read_clock
from mqttscope.net.tls_hello import TlsObserver
from mqttscope.net.websocket import Inflater, WebSocket
from tests.mqtt.octets import framed, string
from tests.net import dns, framing, heads, hellos
from tests.net.octets import A4, B4, IP4, ethernet, extension, frame, ip4, ip6, tcp, tzsp, vlan
from tests.net.script import FORWARD, feed, parse, play, render, script

__all__ = ["IP4", "UNJUDGED", "WRONG", "ethernet", "extension", "header_length", "ip6", "judge_checksum", "play",
           "string", "tzsp", "vlan"]  # fmt: skip
IPV4 = "10.0.0.2"
CONNECT = "\x10\x0e~\x04MQTT\x04~~<~\x02ab"


def read(data: bytes, link_type: int = 228, length: int | None = None) -> str:
    """What is found in a frame: ``TCP``, or why there is none."""
    result = segment(frame(data, link_type, length))
    return result.detail if isinstance(result, NotSegment) else "TCP"


def tunnels(count: int) -> bytes:
    """As many tunnels of GRE, one in the other."""
    packet = ip4(tcp())
    for _ in range(count):
        packet = ip4(b"\0\0\x08\0" + packet, 47)
    return packet


def named(count: int) -> tuple[int, bool]:
    """Of answers that came one after the other: names that are remembered, the first one among them."""
    names = HostNames()
    for number in range(count):
        names.feed(dns.received(dns.answer(f"n{number}.example", f"10.0.{number // 256}.{number % 256}")))
    return len(names), names.name(b"", bytes((10, 0, 0, 0))) == "n0.example"


def answered(count: int, pointers: int = 1) -> tuple[int, int]:
    """Addresses that are read of so many, and those that are not; so many pointers lead to their name."""
    places = [12, *range(43, 41 + 2 * pointers, 2)]
    *chain, owner = ((0xC000 | place).to_bytes(2, "big") for place in places)
    carrier = [dns.record(b"\0", 16, b"".join(chain))] if chain else []
    number = len(list(answers(dns.message(dns.name("broker.example"), *carrier, *[dns.host(IPV4, owner)] * count))))
    return number, count - number


def asked(length: int) -> int:
    """Addresses of a name that is so many bytes long on the wire."""
    text = ".".join("x" * min(63, left - 2) for left in range(length, 2, -64))
    return len(list(answers(dns.answer(text, IPV4))))


def part(offset: int, size: int, identification: int = 1, now: int = 0) -> Fragment:
    """A fragment that others follow."""
    key = identification.to_bytes(2, "big")
    return Fragment(key, offset, True, 6, bytes(size), 0, A4, B4, b"", 1, now, "x.pcap")


def incomplete(*parts: Fragment) -> tuple[int, int, int]:
    """Of fragments in a table: datagrams that wait, datagrams that were evicted, fragments that were lost."""
    table = FragmentTable()
    for fragment in parts:
        table.feed(fragment)
    return len(table.datagrams), table.evicted, table.lost.total()


def nested(levels: int) -> str:
    """What is found if one fragment completes as many datagrams, each of them a fragment of the next."""

    def numbered(payload: bytes, identification: int, fragment: int, protocol: int) -> bytes:
        data = ip4(payload, protocol, fragment=fragment)
        return data[:4] + identification.to_bytes(2, "big") + data[6:]

    # The last fragments come first, each inside the tunnels it will be found in.
    table, datagram = FragmentTable(), tcp(b"e" * 12)
    for level in range(levels):
        protocol = 4 if level else 6
        tail = numbered(datagram[-8:], level, (len(datagram) - 8) // 8, protocol)
        for _ in range(levels - 1 - level):
            tail = ip4(tail, 4)
        seed = segment(frame(tail, 228))
        assert isinstance(seed, Fragment)
        assert table.feed(seed) is None
        datagram = numbered(datagram[:-8], level, 0x2000, protocol)
        datagram += bytes(-len(datagram) % 8)
    first = segment(frame(datagram, 228))
    assert isinstance(first, Fragment)
    result = table.feed(first)
    return result.detail if isinstance(result, NotSegment) else type(result).__name__


def deduplicated(*rows: tuple[int, bytes, int, int]) -> tuple[list[int], int, list[int]]:
    """Of frames, each with a time, a payload, an interface and a host: which pass, how many copies may be left, and
    the frames of each tap."""
    deduplication, passed = Deduplication(), list[int]()
    for at, (now, payload, interface, host) in enumerate(rows):
        data = ip4(tcp(payload))
        data = data[:15] + bytes([host]) + data[16:]
        if deduplication.take(Frame(1, now, 228, data, len(data), "x.pcap", interface)):
            passed.append(at)
    return passed, deduplication.forgotten, [tap.frames for tap in deduplication.taps()]


def story(text: str) -> list[str]:
    """What is reported of the segments of a script, before the capture ends."""
    return [render(event) for event in feed(FlowTable(), parse(script(text)))]


def later(text: str, now: int) -> list[str]:
    """What is reported after the segments of a script when capture time has come so far."""
    table = FlowTable()
    feed(table, parse(script(text)))
    return [render(event) for event in table.advance(now)]


def flow_of(text: str) -> Flow:
    """The first flow of a script."""
    return feed(FlowTable(), parse(script(text)))[0].flow


def opened(text: str) -> int:
    """How many connections a script has."""
    return play(script(text)).count("opened")


def clients(count: int) -> list[str]:
    """What is reported of as many connections."""
    (syn,) = parse(["> S 100"])
    table = FlowTable()
    ports = (direction_key(FORWARD[:8], (50_000 + number).to_bytes(2, "big") + FORWARD[10:]) for number in range(count))
    return [render(event) for key in ports for event in table.feed(replace(syn, key=key))]


def tagged(text: str, *again: str) -> int:
    """How many connections are found if lines come again after a script, each under another tag."""
    table = FlowTable()
    feed(table, parse(script(text)))
    for tag, line in enumerate(again, 1):
        (copy,) = parse([line])
        table.feed(replace(copy, key=direction_key(FORWARD[:8], FORWARD[8:], tag.to_bytes(2, "big"))))
    return table.opened_flows


def successive(count: int) -> int:
    """How many connections are found where as many follow another, whose data then comes again."""
    numbers = [number * 10_000_000 for number in range(count + 1)]
    talks = (
        f"> S {isn}; < SA {isn + 500} {isn + 1}; > A {isn + 1}:abc {isn + 501}; > FA {isn + 4} {isn + 501}; "
        f"< FA {isn + 501} {isn + 5}"
        for isn in numbers
    )
    return opened(f"{'; '.join(talks)}; > A 1:abc 501")


def undecided(*sizes: int, now: int = 0) -> tuple[int, int]:
    """How many segments are kept, and how many were given back, of those that begin as their connection began."""
    begin = CONNECT + "x" * 40_000
    lines = [f"> A 101:{begin[:size]} 501 t={1 + at / 100}" for at, size in enumerate(sizes)]
    table = FlowTable()
    feed(table, parse([*script(f"handshake; > A 101:{begin} 501; < A 501 40117"), *lines]))
    table.advance(now)
    (flow,) = table.flows.values()
    return len(flow.undecided), flow.initiator.retransmitted_segments


def damaged(*sizes: int) -> tuple[list[str], int]:
    """What is reported of segments with a wrong checksum, each of a size, and how many of them wait."""
    lines = [f">! A {1_000_000 + at * max(sizes)}:{'x' * size} 501 t=1" for at, size in enumerate(sizes)]
    events = feed(FlowTable(), parse([*script("verified"), *lines]))
    return [render(event) for event in events[1:]], len(events[0].flow.damaged)


def again(back: int, size: int, *, ended: bool = False) -> list[str]:
    """What is reported if of data a byte comes again with other content, that many bytes before its end."""
    end = f"> FA {101 + size} 501; < FA 501 {102 + size}; " if ended else ""
    events = story(f"handshake; > A 101:{'x' * size} 501 window=0; {end}> A {101 + size - back}:y 501")
    return [line for line in events if "overlap" in line or "discarded" in line]


def late(gaps: int) -> str:
    """What is reported last if a byte comes for the first of as many gaps."""
    pieces = "; ".join(f"> A {101 + 2 * at}:a 501 missing=1" for at in range(gaps))
    return story(f"handshake; {pieces}; > A 102:z 501")[-1]


def clock(ticks: int, *, span_ns: int, passed_ns: int) -> str:
    """What a time stamp says that is so many ticks ahead, of a clock with 1,000 ticks in the span that is known."""

    def stamp(value: int) -> bytes:
        return b"\x01\x01\x08\x0a" + value.to_bytes(4, "big") + bytes(4)

    half = HalfStream(first_stamp=0, first_stamp_ns=0, options=stamp(1_000), options_ns=span_ns)
    (now,) = parse(["> A 101 501"])
    return read_clock(half, replace(now, options=stamp(1_000 + ticks), timestamp_ns=span_ns + passed_ns)).value


def padded(size: int) -> bytes:
    """An upgrade request of so many bytes."""
    return heads.request({"X": "x" * (size - len(heads.request({"X": ""})))})


def requested(data: bytes) -> list[str]:
    """The first problem of what a client sends."""
    return framing.reasons(WebSocket().feed(True, data))[:1]


def inflate(payload: bytes) -> tuple[str | None, list[int]]:
    """What is wrong with a compressed message, and the sizes of its pieces."""
    pieces: list[bytes] = []
    return Inflater(True).feed(payload, True, pieces), list(map(len, pieces))


def zeros(size: int) -> bytes:
    """Zeros, compressed."""
    return framing.deflate([bytes(size)])[0]


def blown_up(more: int) -> str | None:
    """What is wrong with a message that inflates to 1 MiB, 200 times its size, and more bytes."""
    begin, empty = zeros(3_000_000) + framing.FLUSH, b"\0\0\0\xff\xff"
    # A block of zeros that are not compressed takes 5 bytes more than they; the end of the last one is not sent.
    beyond = 3_000_000 - 1_048_576 - 200 * (len(begin) - 4) - more
    size = beyond * pow(199, -1, 1_000) % 1_000
    block = b"\0" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + bytes(size)
    return inflate((begin + block + empty * ((beyond - 199 * size) // 1_000 - 1))[:-4])[0]


def written_down(count: int) -> str | None:
    """What is wrong with a message whose state is written down after so many compressed bytes."""
    payload = stored(70_000)
    inflater = Inflater(True)
    assert inflater.feed(payload[:count], False, []) is None
    inflater.zlib_object = None
    return inflater.feed(payload[count:], True, [])


def stored(size: int) -> bytes:
    """A PUBLISH that takes so many bytes where it is compressed without making it smaller."""
    room = size
    while True:
        compressor = zlib.compressobj(0, zlib.DEFLATED, -15)
        packet = framed(0x30, string("a"), bytes(room))
        payload = (compressor.compress(packet) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
        if len(payload) == size:
            return payload
        room -= len(payload) - size


def found_again(payload: bytes, first: int = 0x82) -> list[str]:
    """Problems of a server's frame after a gap."""
    websocket = framing.opened("; server_no_context_takeover")
    websocket.gap(False, 5)
    return framing.reasons(websocket.feed(False, framing.frame(payload, first)))


def overlong(beyond: int) -> int | None:
    """Length of a record that is so much longer than the 512 bytes of both hellos, if it is reported."""
    asks = hellos.extension(1, b"\1")
    observer = tls(hellos.client_hello(asks))
    observer.feed(False, hellos.record(22, hellos.server_hello(asks)) + hellos.record(23, bytes(512 + beyond)))
    return None if observer.overlong_record is None else observer.overlong_record[1]


def tls(*payloads: bytes, content_type: int = 22) -> TlsObserver:
    """What is known after records of a client."""
    observer = TlsObserver()
    for payload in payloads:
        observer.feed(True, hellos.record(content_type, payload))
    return observer


def hello(size: int) -> tuple[bool, list[str]]:
    """Whether a ClientHello of so many bytes is read, and what is wrong."""
    padding = size - len(hellos.client_hello(hellos.extension(21, b"")))
    message = hellos.client_hello(hellos.extension(21, bytes(padding)))
    observer = tls(*(message[at : at + 16_384] for at in range(0, size, 16_384)))
    return observer.client_hello, observer.problems


def alerts(count: int) -> tuple[int, int]:
    """How many alerts are kept, and how many are counted alone."""
    observer = tls(*[b"\1\0"] * count, content_type=21)
    return len(observer.alerts), observer.alerts_dropped


def offered(count: int) -> tuple[int, list[str]]:
    """How many of so many protocols are kept, and what is said."""
    names = hellos.extension(16, hellos.vector(2, hellos.vector(1, b"a") * count))
    observer = tls(hellos.client_hello(names))
    return len(observer.alpn_offered), observer.problems


def remembered(place: int) -> bool:
    """Whether another byte at a place of a long stream is known to differ."""
    more = "; ".join(f"> A {701 + at}:x 501" for at in range(40))
    return differs(flow_of(f"handshake; > A 101:{'x' * 600} 501; {more}").initiator, place, b"y")
