"""Damage done to recorded captures: order, loss, cuts, one side only, other ports."""

from __future__ import annotations

import struct
import tomllib

import dpkt
import mqttbytes as mb
import wrap
from about import HERE
from derived import Made, derivation, judge, load, ordered
from pcapng import Frame

STRANGE_PORT = 40123


def _same(base: str, frames: list[Frame], versions: list[str], connections: int = 1) -> Made:
    """A copy in which nothing is missing."""
    whole = wrap.streams(wrap.segments(load(base)))
    packets = ordered(mb.count(*(stream for _, stream in whole.values())))
    return Made(frames, versions, packets, connections)


def _pieces(size: int) -> wrap.Cut:
    return lambda data: [data[at : at + size] for at in range(0, len(data), size)]


@derivation(
    "reordered",
    "Segments out of order",
    "Both streams cut into segments of 24 bytes; of each four in a row the last comes first.",
    base="v5-publish-properties",
)
def reordered() -> Made:
    """Segments in groups of four, backwards."""

    def backwards(frames: list[Frame]) -> list[Frame]:
        return [frame for at in range(0, len(frames), 4) for frame in reversed(frames[at : at + 4])]

    base = "v5-publish-properties"
    return _same(base, wrap.resend(wrap.segments(load(base)), _pieces(24), backwards), ["5.0"], 2)


@derivation(
    "duplicated",
    "Every segment with data comes twice",
    "Exact copies a microsecond later, as a capture on two interfaces or a retransmission leaves them; every third "
    "one comes a third time after its successor.",
    base="v311-qos",
)
def duplicated() -> Made:
    """Copies of segments."""
    base = load("v311-qos")
    data = {one.index for one in wrap.segments(base) if one.data}
    frames: list[Frame] = []
    late: Frame | None = None
    for index, frame in enumerate(base):
        frames.append(frame)
        if index in data:
            frames.append(Frame(frame.timestamp_ns + 1000, frame.data))
        if late is not None:
            frames.append(Frame(frames[-1].timestamp_ns + 1000, late.data))
        late = frame if index in data and index % 3 == 0 else None
    return _same("v311-qos", frames, ["3.1.1"], 2)


@derivation(
    "byte-by-byte",
    "One byte in each segment",
    "Both streams of a 5.0 connection, every byte a segment of its own.",
    base="v5-limits",
)
def byte_by_byte() -> Made:
    """The finest segments there are."""
    return _same("v5-limits", wrap.resend(wrap.segments(load("v5-limits")), _pieces(1)), ["5.0"])


@derivation(
    "split-at-odd-places",
    "Segments that end in the middle of everything",
    "All streams cut into segments of 7 bytes, so that lengths, topics and properties are split.",
    base="v311-qos",
)
def split_at_odd_places() -> Made:
    """Segments of seven bytes."""
    return _same("v311-qos", wrap.resend(wrap.segments(load("v311-qos")), _pieces(7)), ["3.1.1"], 2)


@derivation(
    "coalesced",
    "All packets of one side in one segment",
    "Everything that a side sent until the other side answered is one segment: deliveries, aliases and DISCONNECT "
    "together.",
    base="v5-topic-alias-client",
)
def coalesced() -> Made:
    """As few segments as possible."""
    base = "v5-topic-alias-client"
    return _same(base, wrap.resend(wrap.segments(load(base)), lambda data: [data]), ["5.0"], 3)


@derivation(
    "lost-segment",
    "The capture lost one segment with a whole packet",
    "The publisher's QoS 1 PUBLISH is missing; the broker's ACK and PUBACK prove that it was there.",
    base="v311-qos",
)
def lost_segment() -> Made:
    """A hole of exactly one packet."""
    base = load("v311-qos")
    lost = next(one for one in wrap.segments(base) if one.side == 0 and one.data[:1] == b"\x32")
    return _damaged(base, [frame for index, frame in enumerate(base) if index != lost.index], ["3.1.1"], 2)


@derivation(
    "lost-in-payload",
    "The capture lost a segment in the middle of a payload",
    "One of the broker's segments of a 24,000 byte PUBLISH is missing; its Remaining Length still shows where the next "
    "packet starts.",
    base="big-payload",
)
def lost_in_payload() -> Made:
    """A hole inside a packet of known length."""
    base = load("big-payload")
    large = [one.index for one in wrap.segments(base) if one.side == 1 and len(one.data) >= 1000]
    lost = large[len(large) // 2]
    return _damaged(base, [frame for index, frame in enumerate(base) if index != lost], ["3.1.1"])


@derivation(
    "snaplen-96",
    "A capture cut at 96 bytes per frame",
    "Headers are whole, of the data at most 30 bytes are there; longer packets lack their ends.",
    base="v5-publish-properties",
)
def snaplen_96() -> Made:
    """Frames shortened by the snap length."""
    base = load("v5-publish-properties")
    frames = [
        Frame(frame.timestamp_ns, frame.data[:96], len(frame.data) if len(frame.data) > 96 else None) for frame in base
    ]
    made = _damaged(base, frames, ["5.0"], 2)
    made.snaplen = 96
    return made


@derivation(
    "joined-v311",
    "A 3.1.1 capture that begins in the middle",
    "No handshake, no CONNECT, no SUBSCRIBE: the capture begins with the first PUBLISH.",
    base="v311-qos",
    notes="The version is that of the recording; nothing here tells 3.1 and 3.1.1 apart.",
)
def joined_v311() -> Made:
    """Begin at the first PUBLISH."""
    return _joined("v311-qos", ["3.1.1"], 2)


@derivation(
    "joined-v5",
    "A 5.0 capture that begins in the middle",
    "No handshake, no CONNECT, no SUBSCRIBE: only the properties of PUBLISH show that it is 5.0.",
    base="v5-publish-properties",
)
def joined_v5() -> Made:
    """Begin at the first PUBLISH."""
    return _joined("v5-publish-properties", ["5.0"], 2)


@derivation(
    "joined-after-alias",
    "A capture that begins after an alias was set",
    "The first PUBLISH uses alias 1 with an empty topic; its topic is unknown, while topics mapped later are known. "
    "The second connection is complete.",
    base="v5-topic-alias-client",
)
def joined_after_alias() -> Made:
    """Begin at the first use of an alias."""
    base = load("v5-topic-alias-client")
    use = next(one for one in wrap.segments(base) if one.data[:1] == b"\x30" and one.data[2:4] == b"\0\0")
    made = _damaged(base, base[use.index :], ["5.0"], 3)
    known = tomllib.loads((HERE / "v5-topic-alias-client" / "about.toml").read_text())["expect"]["topics"]
    made.topics = ["", *known[3:]]
    return made


@derivation(
    "joined-in-payload",
    "A capture that begins inside a payload",
    "The first frame is the middle of the client's 24,000 byte PUBLISH; everything after it is there.",
    base="big-payload",
)
def joined_in_payload() -> Made:
    """Begin with the second large segment of the client."""
    base = load("big-payload")
    large = [one.index for one in wrap.segments(base) if one.side == 0 and len(one.data) >= 1000]
    return _damaged(base, base[large[1] :], ["3.1.1"])


@derivation(
    "client-side-only",
    "Only what the clients sent",
    "One direction of every connection, as an asymmetric route or a one-way tap shows it.",
    base="v5-qos",
)
def client_side_only() -> Made:
    """Segments of the clients."""
    return _one_side("v5-qos", 0, ["5.0"], 2)


@derivation(
    "server-side-only",
    "Only what the broker sent",
    "The other direction: CONNACK without CONNECT, deliveries without SUBSCRIBE.",
    base="v311-retained",
    notes="The version is that of the recording; it shows in the length of CONNACK and PUBACK only.",
)
def server_side_only() -> Made:
    """Segments of the broker."""
    return _one_side("v311-retained", 1, ["3.1.1"], 3)


@derivation(
    "strange-port",
    "MQTT on port 40123",
    "Complete connections to a port without a known service; the CONNECT shows that it is MQTT.",
    base="v311-retained",
)
def strange_port() -> Made:
    """Another port."""
    base = load("v311-retained")
    made = _damaged(base, base, ["3.1.1"], 3)
    return _move(made)


@derivation(
    "strange-port-joined",
    "MQTT on port 40123, joined in the middle",
    "Neither the port nor a CONNECT helps: only the run of plausible packets in both directions.",
    base="v311-qos",
    notes="The version is that of the recording; nothing here tells 3.1 and 3.1.1 apart.",
)
def strange_port_joined() -> Made:
    """Another port and no beginning."""
    return _move(_joined("v311-qos", ["3.1.1"], 2))


def _damaged(base: list[Frame], kept: list[Frame], versions: list[str], connections: int = 1) -> Made:
    packets, holes = judge(base, kept)
    return Made(kept, versions, packets, connections, gaps=holes)


def _joined(name: str, versions: list[str], connections: int) -> Made:
    base = load(name)
    first = next(one for one in wrap.segments(base) if one.data[:1] and one.data[0] >> 4 == 3)
    return _damaged(base, base[first.index :], versions, connections)


def _one_side(name: str, side: int, versions: list[str], connections: int) -> Made:
    base = load(name)
    indexes = {one.index for one in wrap.segments(base) if one.side == side}
    kept = [frame for index, frame in enumerate(base) if index in indexes]
    return _damaged(base, kept, versions, connections)


def _move(made: Made) -> Made:
    made.frames = [Frame(frame.timestamp_ns, _other_port(frame.data)) for frame in made.frames]
    made.ports = [STRANGE_PORT]
    return made


def _other_port(data: bytes) -> bytes:
    # The words around the ports stay byte for byte; dpkt writes both checksums when their fields are 0.
    frame = dpkt.ethernet.Ethernet(data)
    tcp = frame.data.data
    tcp.sport = STRANGE_PORT if tcp.sport == 1883 else tcp.sport
    tcp.dport = STRANGE_PORT if tcp.dport == 1883 else tcp.dport
    tcp.sum = frame.data.sum = 0
    moved = bytes(frame)
    assert struct.unpack_from(">H", moved, 16) == struct.unpack_from(">H", data, 16)
    return moved
