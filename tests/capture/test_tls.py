"""What is inside TLS, decrypted by tshark: the same packets as without TLS, each in the frame that completed it."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.keylog import BadKeysError, read_keys
from mqttscope.capture.tls import (
    MAX_PAYLOAD,
    SERVER_PORT,
    Decryption,
    exported_pdu,
    frames,
)
from mqttscope.capture.tshark import MissingToolError, find_tshark
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Publish
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import ACK, SYN, Segment, endpoints
from tests.dissect.secure import TLS_1_2, TLS_1_3, Secure, SecureTalk, write
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, SUBACK, SUBSCRIBE, Talk, connect, only, wire
from tests.each import some
from tests.net.framing import frame as websocket_frame
from tests.net.framing import request, response


def made(payload: bytes, missing: int = 0, flags: int = ACK, sequence: int = 2**32 - 2) -> Segment:
    return Segment(b"k" * 12, sequence, 7, flags, 100, payload, missing, 9, 1_000, "a")


def read_frames(segment: Segment, *, from_client: bool = True) -> list[Segment]:
    found = [segment_of(frame) for frame in frames(segment, 258, from_client=from_client)]
    assert all(isinstance(one, Segment) for one in found)
    return found  # type: ignore[return-value]


def test_both_directions() -> None:
    (up,), (down,) = read_frames(made(b"abc")), read_frames(made(b"abc"), from_client=False)

    assert endpoints(up.key) == ("10.0.1.2:49152", f"192.0.2.1:{SERVER_PORT}")
    assert endpoints(down.key) == endpoints(up.key)[::-1]
    assert (up.sequence, up.acknowledgment, up.payload, up.missing, up.timestamp_ns) == (2**32 - 2, 7, b"abc", 0, 1_000)


def test_what_the_snap_length_cut_off_is_missing() -> None:
    assert [one.missing for one in read_frames(made(b"abc", missing=5))] == [5]


def test_long_segments_and_those_without_payload() -> None:
    parts = read_frames(made(bytes(2 * MAX_PAYLOAD) + b"x"))

    assert [len(one.payload) for one in parts] == [MAX_PAYLOAD, MAX_PAYLOAD, 1]
    assert [one.sequence for one in parts] == [2**32 - 2, MAX_PAYLOAD - 2, 2 * MAX_PAYLOAD - 2]
    assert read_frames(made(b"")) == []


def test_data_that_comes_with_a_syn_lies_behind_it() -> None:
    assert [one.sequence for one in read_frames(made(b"abc", flags=SYN))] == [2**32 - 1]


pytestmark = pytest.mark.tshark
VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])


def read(capture: Path, keys: bytes) -> list[Event]:
    """Events of a capture, decrypted."""
    source = [str(capture)]
    decryption = Decryption(lambda: open_capture(source), keys)
    dissector = Dissector(Options(decrypting=True))
    return list(dissect_segments(decryption.join(segments(open_capture(source))), dissector=dissector))


def raw(events: list[Event]) -> list[tuple[str, bytes]]:
    return [(str(event.direction), event.packet.raw) for event in only(events, PacketEvent)]


def publish(size: int) -> Publish:
    return Publish(topic_name="plant/7", payload=bytes(size))


def converse(talk: Talk | SecureTalk) -> None:
    """The same things said with TLS and without."""

    def say(who: str, *packets: object, records: int = 1) -> None:
        if isinstance(talk, SecureTalk):
            talk.say(who, *packets, records=records)  # type: ignore[arg-type]
        else:
            (talk.client if who == "client" else talk.server)(*packets)  # type: ignore[arg-type]

    say("client", connect())
    say("server", CONNACK)
    say("client", SUBSCRIBE, PINGREQ, publish(10), publish(11))
    say("server", SUBACK, PINGRESP, records=2)
    say("client", publish(40_000), PINGREQ, records=9)
    say("server", PINGRESP, publish(3), publish(4), publish(5), records=4)


@VERSIONS
@pytest.mark.parametrize("chunk", some([7, 0, 1_000]))
def test_the_same_packets_as_without_tls(version: ssl.TLSVersion, chunk: int, tmp_path: Path) -> None:
    """Several packets in a record, packets over several records, records over segments, several of them in one."""
    secure, talk, plain = Secure(version), Talk(port=8883).handshake(), Talk().handshake()
    converse(plain)
    converse(secure.connection(talk, chunk=chunk))
    talk.close()

    events = read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes())

    assert raw(events) == raw(plain.events())
    (opened,), (closed,) = only(events, ConnectionOpened), only(events, ConnectionClosed)
    assert (opened.connection.transport, closed.connection.decrypted) == ("tls", True)
    assert closed.connection.details["server_name"] == "broker.example"
    assert not only(events, UnparsedEvent)


def test_equal_layers_of_a_frame_are_all_there(tmp_path: Path) -> None:
    """Twenty records in one frame, two packets in each."""
    secure, talk = Secure(), Talk(port=8883).handshake()
    inside = secure.connection(talk)
    inside.say("client", connect())
    inside.say("server", CONNACK)
    inside.say("client", *[wire(PINGREQ, PINGREQ)] * 20, records=20)

    found = only(read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes()), PacketEvent)

    pings = [event for event in found if event.type == "pingreq"]
    assert len(pings) == 40
    assert {event.frame for event in pings} == {talk.tape.segments[-1].frame}
    assert {event.timestamp_ns for event in pings} == {talk.tape.segments[-1].timestamp_ns}


@VERSIONS
def test_resumed_sessions_and_ports_nobody_knows(version: ssl.TLSVersion, tmp_path: Path) -> None:
    secure, first = Secure(version), Talk(port=9443, client_port=50_001).handshake()
    converse(secure.connection(first))
    first.close()
    second = Talk(first.tape, port=9443, client_port=50_002).handshake()
    inside = secure.connection(second)
    assert inside.ends["client"].session_reused
    converse(inside)
    second.close()

    events = read(write(first.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes())

    half = len(raw(events)) // 2
    assert raw(events)[:half] == raw(events)[half:] != []
    assert [event.connection.number for event in only(events, ConnectionClosed)] == [0, 1]


@pytest.mark.parametrize("alpn", some(["h2", "http/1.1", "mqtt", ""]))
def test_names_of_protocols_change_nothing(alpn: str, tmp_path: Path) -> None:
    """tshark has dissectors for them, which would keep bytes for themselves."""
    secure, talk, plain = Secure(alpn=alpn), Talk(port=443).handshake(), Talk().handshake()
    converse(plain)
    converse(secure.connection(talk, chunk=1_000))
    talk.close()

    events = read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes())

    assert raw(events) == raw(plain.events())


def test_websocket_inside(tmp_path: Path) -> None:
    secure, talk = Secure(alpn="http/1.1"), Talk(port=443).handshake()
    inside = secure.connection(talk)
    inside.say("client", request())
    inside.say("server", response())
    inside.say("client", websocket_frame(wire(connect(), PINGREQ), key=b"abcd"))
    inside.say("server", websocket_frame(wire(CONNACK)))
    inside.say("client", websocket_frame(wire(publish(40_000)), key=b"abcd"), records=3)
    talk.close()

    events = read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes())

    assert [event.type for event in only(events, PacketEvent)] == ["connect", "pingreq", "connack", "publish"]
    connection = only(events, ConnectionClosed)[0].connection
    assert (connection.transport, connection.decrypted) == ("tls", True)
    assert connection.websocket is not None
    assert connection.websocket["path"] == "/mqtt"
    assert connection.details["alpn_offered"] == ["http/1.1"]


def test_what_is_no_mqtt_inside_is_left_alone(tmp_path: Path) -> None:
    secure, talk = Secure(), Talk(port=443).handshake()
    inside = secure.connection(talk)
    inside.say("client", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    inside.say("server", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    talk.close()

    assert read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes()) == []


@pytest.mark.long
@VERSIONS
def test_lost_records_are_a_gap_and_no_packets_are_made_up(version: ssl.TLSVersion, tmp_path: Path) -> None:
    secure, talk = Secure(version), Talk(port=8883).handshake()
    converse(secure.connection(talk, chunk=1_000))
    talk.close()
    whole = raw(read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes()))
    # The big message is on its way there.
    del talk.tape.segments[-20:-18]

    events = read(write(talk.tape, tmp_path / "b.pcapng"), secure.keylog.read_bytes())

    found = raw(events)
    assert whole[0] in found
    assert all(one in whole for one in found)
    assert len(found) < len(whole)
    assert only(events, ConnectionClosed)[0].connection.gap_bytes > 0


def test_keys_of_other_sessions_open_nothing(tmp_path: Path) -> None:
    secure, other = Secure(), Secure()
    talk = Talk(port=8883).handshake()
    converse(secure.connection(talk))
    other.connection(Talk().handshake())

    events = read(write(talk.tape, tmp_path / "a.pcapng"), other.keylog.read_bytes())

    assert only(events, PacketEvent) == []
    assert [event.connection.decrypted for event in only(events, ConnectionOpened)] == [False]


@pytest.mark.long
def test_sessions_that_run_over_several_captures(tmp_path: Path) -> None:
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    whole = raw(read(write(talk.tape, tmp_path / "whole.pcapng"), secure.keylog.read_bytes()))
    first, second = talk.tape.segments[:9], talk.tape.segments[9:]
    talk.tape.segments = first
    write(talk.tape, tmp_path / "1.pcapng")
    talk.tape.segments = second
    write(talk.tape, tmp_path / "2.pcapng")
    both = [str(tmp_path / "1.pcapng"), str(tmp_path / "2.pcapng")]

    decryption = Decryption(lambda: open_capture(both), secure.keylog.read_bytes())
    events = list(dissect_segments(decryption.join(segments(open_capture(both)))))

    assert raw(events) == whole
    assert {event.capture for event in only(events, PacketEvent)} == set(both)


@pytest.mark.long
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    capture = write(talk.tape, tmp_path / "a.pcapng")
    before = set((tmp_path / "temporary").iterdir())

    joined = Decryption(lambda: open_capture([str(capture)]), secure.keylog.read_bytes()).join(
        segments(open_capture([str(capture)]))
    )
    assert set((tmp_path / "temporary").iterdir()) != before
    next(joined)
    joined.close()  # type: ignore[attr-defined]

    assert set((tmp_path / "temporary").iterdir()) == before


def test_a_missing_tshark_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(MissingToolError, match="apt-get install tshark"):
        find_tshark()


@pytest.mark.parametrize("content", [b"hello\n", b"\x00\x01\x02", b"CLIENT_RANDOM nothing\n"])
def test_files_that_are_no_key_log(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content)

    with pytest.raises(BadKeysError, match=r"keys\.txt: holds no lines like CLIENT_RANDOM"):
        read_keys(str(path))


def test_key_logs_may_be_empty_as_long_as_no_session_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(b"")

    assert read_keys(str(path)).strip() == b""


def test_key_logs_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(BadKeysError, match="key log"):
            read_keys(str(path))


def test_pdus_without_the_number_of_a_frame() -> None:
    assert exported_pdu(b"") == (0, b"")
    assert exported_pdu(bytes.fromhex("000c0004 6d717474 00000000") + b"xy") == (0, b"xy")
    assert exported_pdu(bytes.fromhex("001e0004 00000102 00000000") + b"xy") == (0x102, b"xy")


def test_tshark_reads_link_type_252_as_we_do(tmp_path: Path) -> None:
    """The layout of an exported PDU is what tshark says of it."""
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    path = write(talk.tape, tmp_path / "a.pcapng")
    subprocess.run(
        ["tshark", "-n", "-Q", "-r", str(path), "-o", f"tls.keylog_file:{secure.keylog}", "-d", "tls.port==8883,data",
         "-U", "OSI layer 7", "-w", str(tmp_path / "pdus.pcapng")],
        check=True, capture_output=True,
    )  # fmt: skip
    told = subprocess.run(
        ["tshark", "-n", "-r", str(tmp_path / "pdus.pcapng"), "-T", "fields", "-e", "exported_pdu.orig_fno"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip

    frames = [item for item in open_capture([str(tmp_path / "pdus.pcapng")]) if hasattr(item, "link_type")]

    assert {item.link_type for item in frames} == {252}
    assert [str(exported_pdu(item.data)[0]) for item in frames] == told  # type: ignore[union-attr]
