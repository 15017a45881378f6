"""The generator says the truth, is the same in every run, and its frames are sound; no times are asserted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import dpkt
import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect
from mqttscope.events import ConnectionOpened, PacketEvent
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.mqtt import Connect, Publish
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, reverse_key
from tests.bench.generate import TrafficMix, Truth, capture, generate

FRAMES = 20_000


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    path = tmp_path_factory.mktemp("bench") / "generated.pcapng"
    return path, generate(path, FRAMES, seed=7, devices=120)


def test_what_dissecting_finds_is_the_generators_truth(generated: tuple[Path, Truth]) -> None:
    path, truth = generated
    counts: Counter[str] = Counter()
    qos: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    others: Counter[str] = Counter()
    dissector = Dissector()
    opened = 0
    for event in dissect(open_capture([path]), dissector=dissector):
        if isinstance(event, PacketEvent):
            counts[event.type] += 1
            if isinstance(event.packet, Publish):
                qos[str(event.packet.qos)] += 1
                assert event.topic
            elif isinstance(event.packet, Connect):
                versions[str(event.packet.protocol_level)] += 1
        elif isinstance(event, ConnectionOpened):
            opened += 1
            assert event.connection.handshake_seen
        else:
            others[type(event).__name__] += 1

    assert counts == truth.packets
    assert qos == truth.qos
    assert versions == truth.versions
    assert opened == truth.connections
    assert others.pop("ConnectionEnding") <= truth.connections
    assert others == {"ConnectionClosed": truth.connections}
    assert truth.total == dissector.packets > FRAMES // 2


def test_the_capture_has_the_mix_that_it_promises(generated: tuple[Path, Truth]) -> None:
    _, truth = generated

    assert truth.frames == truth.data_segments + truth.empty_segments == FRAMES
    assert 0.25 < truth.empty_segments / FRAMES < 0.35
    assert 0.007 < truth.retransmissions / FRAMES < 0.013
    assert 0.003 < truth.reorderings / FRAMES < 0.008
    assert truth.connections > 120
    assert truth.shared_segments > 200
    assert truth.spanning_packets > 200
    assert set(truth.versions) == {"3", "4", "5"}
    assert len(truth.packets) == 14


def test_frames_are_whole_in_order_of_time_and_have_right_checksums(generated: tuple[Path, Truth]) -> None:
    path, truth = generated
    kinds: Counter[str] = Counter()
    last = 0.0
    size = 0
    with path.open("rb") as file:
        for time, data in dpkt.pcapng.Reader(file):
            assert time >= last
            last = time
            size += len(data)
            ethernet = dpkt.ethernet.Ethernet(data)
            kinds[type(ethernet.data).__name__ + ("+VLAN" if hasattr(ethernet, "vlan_tags") else "")] += 1
            ip = ethernet.data
            segment = ip.data
            if sum(kinds.values()) % 10 == 0:
                result, segment.sum = segment.sum, 0
                ip_told = getattr(ip, "sum", None)
                if ip_told is not None:
                    ip.sum = 0
                bytes(ip)  # works the checksums out
                assert {result, segment.sum} <= {0, 0xFFFF} or result == segment.sum
                assert ip_told is None or ip.sum == ip_told

    assert sum(kinds.values()) == truth.frames
    assert size == truth.bytes
    assert all(kinds[text] > FRAMES // 50 for text in ("IP", "IP6", "IP+VLAN"))


def test_the_same_seed_gives_the_same_capture_and_the_cache_gives_it_back(tmp_path: Path) -> None:
    path, truth = capture(3_000, seed=3, devices=30, cache=tmp_path)
    again = generate(tmp_path / "again.pcapng", 3_000, seed=3, devices=30)
    other = generate(tmp_path / "other.pcapng", 3_000, seed=4, devices=30)

    assert (tmp_path / "again.pcapng").read_bytes() == path.read_bytes()
    assert (tmp_path / "other.pcapng").read_bytes() != path.read_bytes()
    assert again == truth != other
    before = path.stat().st_mtime_ns
    assert capture(3_000, seed=3, devices=30, cache=tmp_path) == (path, truth)
    assert path.stat().st_mtime_ns == before


def test_one_in_so_many_packets_breaks_the_specification(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pcapng"
    truth = generate(path, FRAMES // 2, seed=7, devices=120, mix=TrafficMix(wrong=0.1))
    linter = Linter([usual_rule(rule) for rule in select().values()], strict=True)
    counts = Counter(finding.rule for event in dissect(open_capture([path])) for finding in linter.feed(event))
    mistakes = [counts[code] for code in ("PUB102", "ENC103", "PUB103", "KAL206", "PUB104")]

    assert 0.09 < truth.wrong_packets / truth.total < 0.11
    assert sum(mistakes) == truth.wrong_packets
    assert min(mistakes) > truth.wrong_packets // 6


def test_a_giant_connection_has_its_share(tmp_path: Path) -> None:
    path = tmp_path / "giant.pcapng"
    truth = generate(path, FRAMES, seed=7, devices=120, mix=TrafficMix(giant=0.95))
    sizes: Counter[bytes] = Counter()
    for frame in open_capture([path]):
        assert isinstance(frame, Frame)
        actual_segment = segment(frame)
        assert isinstance(actual_segment, Segment)
        sizes[min(actual_segment.key, reverse_key(actual_segment.key))] += len(actual_segment.payload)

    assert truth.frames == FRAMES
    assert sizes.most_common(1)[0][1] > 0.95 * sizes.total()
