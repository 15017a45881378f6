"""Whole captures: what TCP does to streams, what is left out, bounded memory, and bytes that nobody understands."""

from __future__ import annotations

import random
from dataclasses import replace

from mqttscope.dissect import dissect
from mqttscope.events import PacketEvent
from mqttscope.mqtt import Connect, Properties, Publish, Subscribe, Subscription
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import SYN, Fragment
from mqttscope.redact import pieces
from mqttscope.redact.kinds import TreatmentChoice
from tests.corpus.test_redacted import CAPTURES, before, values
from tests.dissect.scenes import mixed_tape
from tests.dissect.talk import CONNACK, PUBACK_3, V5, Talk, Tape, connect, wire
from tests.each import each
from tests.net.octets import ethernet, frame, ip4, udp
from tests.redact.redacting import redacted, redaction, reread, shapes, taped, written
from tests.secrets.leaks import Secrets

SECRET = b"secret-of-the-boiler"
PUBLISH = wire(Publish(topic_name="plant/boiler", payload=SECRET))


def opened(tape: Tape | None = None, client_port: int = 50_000) -> Talk:
    talk = Talk(tape, client_port=client_port).handshake()
    talk.client(connect())
    talk.server(CONNACK)
    return talk


def same(frames: list[Frame]) -> bytes:
    """The bytes that are shared, after a look at what the linter says of them."""
    new_frames = redacted(frames)
    assert shapes(new_frames) == shapes(frames)
    shared = b"".join(frame.data for frame in new_frames)
    for word in (b"secret", b"boiler", b"plant"):
        assert word not in shared
    return shared


def test_packets_over_many_segments_and_many_packets_in_one() -> None:
    for size in (2, 11, 1_000):
        talk, whole = opened(), PUBLISH * 2
        for at in range(0, len(whole), size):
            talk.client(whole[at : at + size])
        talk.close()
        same(taped(talk.tape))


def test_segments_that_come_again_overlap_or_come_out_of_order() -> None:
    for seed in range(6):
        draw = random.Random(seed)
        talk, whole = opened(), PUBLISH * 4
        for at in range(0, len(whole), 9):
            talk.client(whole[at : at + 9])
        talk.ack("server")
        talk.close()
        frames = taped(talk.tape)
        for _ in range(4):
            at = draw.randrange(6, len(frames) - 4)
            if draw.random() < 0.5:
                frames[at], frames[at + 1] = frames[at + 1], frames[at]
            else:
                frames.insert(at + 1, frames[at])
        new_frames = [replace(frame, number=at, timestamp_ns=at * 1_000_000) for at, frame in enumerate(frames, 1)]
        same(new_frames)


def test_bytes_that_come_again_with_other_content_stay_other_bytes() -> None:
    talk = opened()
    talk.client(PUBLISH)
    talk.position["client"] -= len(PUBLISH)
    talk.client(PUBLISH[:-6] + b"BOILER")
    talk.close()
    frames = taped(talk.tape)

    assert b"BOILER" not in same(frames)
    new_frames = redacted(frames)
    first, again = (frame.data[-len(PUBLISH) :] for frame in new_frames if len(frame.data) == len(new_frames[6].data))
    assert first != again
    assert first[:-6] == again[:-6]


def test_gaps_and_cut_frames() -> None:
    talk = opened()
    talk.client(PUBLISH[:20])
    talk.lose("client", len(PUBLISH) - 20)
    talk.client(PUBLISH)
    talk.server(PUBACK_3)
    talk.client(PUBLISH, missing=0)
    talk.close()
    frames = taped(talk.tape)
    same(frames)
    for length in (60, 70, 80):
        same([replace(frame, data=frame.data[:length]) for frame in frames])


def test_fragments_are_replaced_where_they_lie() -> None:
    talk = opened()
    talk.client(PUBLISH * 3)
    talk.close()
    frames: list[Frame] = []
    for single_frame in taped(talk.tape):
        at = 0 if single_frame.link_type == 101 else 14
        datagram = single_frame.data[at:]
        if len(datagram) < 100:
            frames.append(single_frame)
            continue
        body = datagram[20:]
        cuts = [body[:48], body[48:72], body[72:]]
        order = [(0, cuts[0]), (72, cuts[2]), (48, cuts[1])]
        for offset, part in order:
            head = bytearray(datagram[:20])
            head[2:4] = (20 + len(part)).to_bytes(2, "big")
            head[6:8] = (offset // 8 | (0 if offset == 72 else 0x2000)).to_bytes(2, "big")
            frames.append(replace(single_frame, data=single_frame.data[:at] + bytes(head) + part))
    frames = [replace(frame, number=number) for number, frame in enumerate(frames, 1)]

    assert sum(isinstance(segment(frame), Fragment) for frame in frames) == 3
    same(frames)
    assert len(redacted(frames)) == len(frames)
    # One that is never complete holds nothing that anybody reads.
    assert len(redacted(frames[:-5])) < len(frames) - 5


def test_ports_that_are_used_again_and_equal_numbers() -> None:
    tape = Tape()
    talk = opened(tape)
    talk.client(PUBLISH)
    talk.close()
    tape.wait(5)
    again = opened(tape)
    again.client(wire(Publish(topic_name="plant/boiler", payload=b"secret-of-another-one")))
    again.close()
    same(taped(tape))


@each("choice, expected", [(TreatmentChoice(), False), (TreatmentChoice.of(["payloads"]), True)])
def test_what_is_to_stay_stays(choice: TreatmentChoice, expected: bool) -> None:
    talk = opened()
    talk.client(PUBLISH)
    talk.close()
    run = redaction(choice)
    shared = b"".join(frame.data for frame in redacted(taped(talk.tape), run))

    assert (SECRET in shared) is expected
    assert b"boiler/" not in shared
    assert run.choice.counts["topics"] == 1


def test_other_protocols_are_left_out() -> None:
    talk = opened()
    talk.close()
    other = Talk(talk.tape, 22, 40_000).handshake()
    other.client(b"SSH-2.0-secretbox\r\n")
    other.close()
    name = frame(ethernet(0x0800, ip4(udp(53, b"query for secret"), 17)))
    frames = [*taped(talk.tape), name]

    run = redaction()
    new_frames = redacted(frames, run)
    assert len(new_frames) == sum(frame.data.find(b"\x07\x5b") >= 0 for frame in taped(talk.tape))
    assert run.dropped["not_tcp"] == 1
    assert run.dropped["no_mqtt"] > 4
    assert run.read == len(frames) == run.written + sum(run.dropped.values())


def test_equal_keys_give_equal_captures_and_others_do_not() -> None:
    frames = taped(mixed_tape())

    assert redacted(frames) == redacted(frames)
    assert redacted(frames) != redacted(frames, redaction(key=b"another"))
    assert shapes(redacted(frames)) == shapes(frames)


def test_what_is_shared_can_be_shared_again() -> None:
    frames = taped(mixed_tape())
    once = redacted(frames)

    assert shapes(redacted(once, redaction(key=b"another"))) == shapes(frames)


def test_a_small_memory_gives_the_same() -> None:
    frames = list(before(CAPTURES[0]))
    run = redaction()
    run._spool._limit = 1

    assert redacted(frames, run) == redacted(frames)
    assert pieces.MEMORY_BYTES > 1


def test_data_in_a_syn_is_replaced() -> None:
    talk = Talk()
    talk._send("client", SYN, wire(connect()))
    talk.position["client"] = 1001
    talk.server_opens()
    talk.ack("client")
    talk.client(wire(connect()), PUBLISH)
    talk.close()
    shared = b"".join(frame.data for frame in redacted(taped(talk.tape)))

    assert b"secret" not in shared


def test_topics_match_the_same_filters_afterwards() -> None:
    talk = Talk().handshake()
    talk.client(Connect(protocol_level=5, client_identifier="pump-7", properties=Properties()), version=V5)
    talk.client(Subscribe(packet_identifier=1, subscriptions=[Subscription("site/pump-7/#")]), version=V5)
    talk.server(Publish(topic_name="site/pump-7/temp", payload=b"21", properties=Properties()), version=V5)
    talk.close()
    packets = [event.packet for event in dissect(redacted(taped(talk.tape))) if isinstance(event, PacketEvent)]
    subscribe = next(control_packet for control_packet in packets if isinstance(control_packet, Subscribe))
    publish = next(control_packet for control_packet in packets if isinstance(control_packet, Publish))

    assert publish.topic_name.startswith(subscribe.subscriptions[0].topic_filter[:-1])
    assert not publish.topic_name.startswith("site")


def test_whatever_the_frames_are_nothing_fails_and_nothing_of_a_secret_is_left() -> None:
    pool = [path for path in CAPTURES if len(before(path)) < 60]
    for seed in range(60):
        draw = random.Random(seed)
        frames: list[Frame] = []
        path = draw.choice(pool)
        for single_frame in before(path):
            data = bytearray(single_frame.data)
            luck = draw.random()
            if luck < 0.2:
                for _ in range(draw.randrange(1, 4)):
                    data[draw.randrange(len(data))] = draw.choice((0, 255, draw.randrange(256)))
            elif luck < 0.25:
                del data[draw.randrange(len(data)) :]
            elif luck < 0.3:
                continue
            kind = single_frame.link_type if luck < 0.98 else draw.choice((0, 101, 113, 276, 105, 127, 9, 239))
            frames.append(replace(single_frame, data=bytes(data), link_type=kind, number=len(frames) + 1))
        run = redaction()
        new_frames = redacted(frames, run)
        assert reread(written(new_frames)) == [replace(frame, capture="shared") for frame in new_frames]
        secrets = [raw for raw in values(path) if len(raw) >= 8 and len(set(raw)) > 4 and raw.isascii()]
        assert Secrets(secrets).leak(b"\n".join(frame.data for frame in new_frames)) is None
        assert run.read == len(frames) == run.written + sum(run.dropped.values())
