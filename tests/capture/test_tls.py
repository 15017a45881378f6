"""What is inside TLS, decrypted by tshark: the same packets as without TLS, each in the frame that completed it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.keylog import BadKeysError, KeyLog, Keys, read_keys
from mqttscope.capture.tls import Decryption
from mqttscope.capture.tshark import MissingToolError, find_tshark
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Publish
from tests.dissect.secure import TLS_1_2, TLS_1_3, Secure, SecureTalk, write
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, SUBACK, SUBSCRIBE, Talk, connect, only, wire
from tests.each import some
from tests.net.framing import frame as websocket_frame
from tests.net.framing import request, response

pytestmark = pytest.mark.tshark
VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])


def read(capture: Path, keys: bytes) -> list[Event]:
    """Events of a capture, decrypted."""
    source = [str(capture)]
    decryption = Decryption(Keys(keys))
    dissector = Dissector(Options(decrypting=True))
    return list(dissect_segments(decryption.join(segments(open_capture(source))), dissector=dissector))


def from_file(talk: Talk, secure: Secure) -> list[Event]:
    """Events of a talk that was written to a file, with a key log that was read before."""
    return read(write(talk.tape, secure.folder / "a.pcapng"), secure.keylog.read_bytes())


def live(talk: Talk, secure: Secure) -> list[Event]:
    """Events of a talk as it comes, with a key log that is followed."""
    joined = Decryption(KeyLog(str(secure.keylog))).join(iter(talk.tape.segments))
    return list(dissect_segments(joined, dissector=Dissector(Options(decrypting=True))))


Way = Callable[[Talk, Secure], list[Event]]
WAYS = pytest.mark.parametrize("way", [from_file, live])


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
def test_the_same_packets_as_without_tls(version: ssl.TLSVersion, chunk: int) -> None:
    """Several packets in a record, packets over several records, records over segments, several of them in one."""
    secure, talk, plain = Secure(version), Talk(port=8883).handshake(), Talk().handshake()
    converse(plain)
    converse(secure.connection(talk, chunk=chunk))
    talk.close()

    events = from_file(talk, secure)

    assert raw(events) == raw(plain.events())
    (opened,), (closed,) = only(events, ConnectionOpened), only(events, ConnectionClosed)
    assert (opened.connection.transport, closed.connection.decrypted) == ("tls", True)
    assert closed.connection.details["server_name"] == "broker.example"
    assert not only(events, UnparsedEvent)


def test_equal_layers_of_a_frame_are_all_there() -> None:
    """Twenty records in one frame, two packets in each."""
    secure, talk = Secure(), Talk(port=8883).handshake()
    inside = secure.connection(talk)
    inside.say("client", connect())
    inside.say("server", CONNACK)
    inside.say("client", *[wire(PINGREQ, PINGREQ)] * 20, records=20)

    events = only(from_file(talk, secure), PacketEvent)

    pings = [event for event in events if event.type == "pingreq"]
    assert len(pings) == 40
    assert {event.frame for event in pings} == {talk.tape.segments[-1].frame}
    assert {event.timestamp_ns for event in pings} == {talk.tape.segments[-1].timestamp_ns}


@WAYS
@VERSIONS
@pytest.mark.parametrize("same_port", some([False, True]))
def test_resumed_sessions_and_ports_nobody_knows(version: ssl.TLSVersion, way: Way, same_port: bool) -> None:
    secure, first = Secure(version), Talk(port=9443, client_port=50_001).handshake()
    converse(secure.connection(first))
    first.close()
    second = first.again() if same_port else Talk(first.tape, port=9443, client_port=50_002).handshake()
    inside = secure.connection(second)
    assert inside.ends["client"].session_reused
    converse(inside)
    second.close()

    events = way(first, secure)

    half = len(raw(events)) // 2
    assert raw(events)[:half] == raw(events)[half:] != []
    assert [event.connection.number for event in only(events, ConnectionClosed)] == [0, 1]


@WAYS
@pytest.mark.parametrize("alpn", some(["h2", "http/1.1", "mqtt", ""]))
def test_names_of_protocols_change_nothing(alpn: str, way: Way) -> None:
    """tshark has dissectors for them, which would keep bytes for themselves."""
    secure, talk, plain = Secure(alpn=alpn), Talk(port=443).handshake(), Talk().handshake()
    converse(plain)
    converse(secure.connection(talk, chunk=1_000))
    talk.close()

    assert raw(way(talk, secure)) == raw(plain.events())


@WAYS
def test_websocket_inside(way: Way) -> None:
    secure, talk = Secure(alpn="http/1.1"), Talk(port=443).handshake()
    inside = secure.connection(talk)
    inside.say("client", request())
    inside.say("server", response())
    inside.say("client", websocket_frame(wire(connect(), PINGREQ), key=b"abcd"))
    inside.say("server", websocket_frame(wire(CONNACK)))
    inside.say("client", websocket_frame(wire(publish(40_000)), key=b"abcd"), records=3)
    talk.close()

    events = way(talk, secure)

    assert [event.type for event in only(events, PacketEvent)] == ["connect", "pingreq", "connack", "publish"]
    connection = only(events, ConnectionClosed)[0].connection
    assert (connection.transport, connection.decrypted) == ("tls", True)
    assert connection.websocket is not None
    assert connection.websocket["path"] == "/mqtt"
    assert connection.details["alpn_offered"] == ["http/1.1"]


@WAYS
def test_what_is_no_mqtt_inside_is_left_alone(way: Way) -> None:
    secure, talk = Secure(), Talk(port=443).handshake()
    inside = secure.connection(talk)
    inside.say("client", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    inside.say("server", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    talk.close()

    assert way(talk, secure) == []


@WAYS
@pytest.mark.parametrize(("port", "alpn"), [(8883, ""), (443, "mqtt")])
def test_what_does_not_begin_with_connect_is_mqtt_where_the_port_or_the_alpn_says_so(
    port: int, alpn: str, way: Way
) -> None:
    secure, talk = Secure(alpn=alpn), Talk(port=port).handshake()
    secure.connection(talk).say("client", publish(3))
    talk.close("server")

    events = way(talk, secure)

    assert [event.type for event in only(events, PacketEvent)] == ["publish"]
    assert only(events, ConnectionClosed)[0].connection.decrypted


@pytest.mark.long
@VERSIONS
def test_lost_records_are_a_gap_and_no_packets_are_made_up(version: ssl.TLSVersion, tmp_path: Path) -> None:
    secure, talk = Secure(version), Talk(port=8883).handshake()
    converse(secure.connection(talk, chunk=1_000))
    talk.close()
    whole = raw(from_file(talk, secure))
    # The big message is on its way there.
    del talk.tape.segments[-20:-18]

    events = read(write(talk.tape, tmp_path / "b.pcapng"), secure.keylog.read_bytes())

    pairs = raw(events)
    assert whole[0] in pairs
    assert all(pair in whole for pair in pairs)
    assert len(pairs) < len(whole)
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

    decryption = Decryption(Keys(secure.keylog.read_bytes()))
    events = list(dissect_segments(decryption.join(segments(open_capture(both)))))

    assert raw(events) == whole
    assert {event.capture for event in only(events, PacketEvent)} == set(both)


def test_a_missing_tshark_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(MissingToolError, match="apt-get install tshark"):
        find_tshark()


@pytest.mark.parametrize("content", [b"hello\n", b"\x00\x01\x02", b"CLIENT_RANDOM nothing\n", b"# keys\nnone\n"])
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
