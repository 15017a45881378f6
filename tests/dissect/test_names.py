"""Names of servers: DNS answers that count for a connection."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import Dissector, dissect
from mqttscope.events import ConnectionClosed
from mqttscope.net.frame import Frame
from mqttscope.session.connection import Connection
from tests.dissect.scenes import HELLO
from tests.dissect.secure import as_frame
from tests.dissect.talk import START, Talk
from tests.net.dns import CLIENT, SERVER, answer, datagram, framed


def frames(*parts: bytes | Talk | list[Frame]) -> list[Frame]:
    """DNS messages to the client and conversations, one after the other, a frame each millisecond."""
    actual_frames: list[Frame] = []
    for part in parts:
        if isinstance(part, Talk):
            actual_frames += map(as_frame, part.tape.segments)
        else:
            actual_frames += [framed(datagram(part))] if isinstance(part, bytes) else part
    return [
        replace(frame, number=number, timestamp_ns=START + number * 1_000_000, capture="a.pcap")
        for number, frame in enumerate(actual_frames, 1)
    ]


def connections(*parts: bytes | Talk | list[Frame]) -> list[Connection]:
    return [event.connection for event in dissect(frames(*parts)) if isinstance(event, ConnectionClosed)]


def talk(port: int = 50_000, words: str = "> connect; < connack; close") -> Talk:
    return Talk(client_port=port).handshake().tell(words)


def names(*parts: bytes | Talk | list[Frame]) -> list[str | None]:
    return [connection.server_name for connection in connections(*parts)]


def test_the_latest_answer_before_a_connection_names_its_server() -> None:
    first, second = answer("one.example", SERVER), answer("two.example", SERVER)
    assert names(first, talk()) == ["one.example"]
    assert names(talk(), first) == [None]
    assert names(first, second, talk()) == ["two.example"]
    assert names(first, talk(), second, talk(50_001)) == ["one.example", "two.example"]
    assert names(answer("client.example", CLIENT), talk()) == [None]


def test_an_answer_to_another_host_counts_if_the_client_was_not_seen_to_ask() -> None:
    other = framed(datagram(answer("other.example", SERVER), "192.0.2.77"))
    assert names([other], talk()) == ["other.example"]
    assert names(answer("own.example", SERVER), [other], talk()) == ["own.example"]


def test_an_answer_after_the_first_segment_does_not_count() -> None:
    """Also where the answer comes before it is known what the connection speaks, and who its client is."""
    whole = frames(talk())
    for at in range(1, len(whole)):
        assert names(whole[:at], answer("late.example", SERVER), whole[at:]) == [None]


def test_a_connection_whose_beginning_was_not_captured_has_no_name() -> None:
    """The answer comes before its first segment in the capture, and not before the connection."""
    middle = frames(talk(words="> connect; < connack; > publish; < puback; close"))[3:]
    assert names(answer("late.example", SERVER), middle) == [None]
    assert names(answer("broker.example", SERVER), frames(talk())[1:]) == ["broker.example"]


def test_the_name_in_the_hello_of_tls_comes_first() -> None:
    def secure(hello: bytes) -> Talk:
        new_talk = Talk(port=8883).handshake()
        new_talk.client(hello)
        return new_talk

    (connection,) = connections(answer("dns.example", SERVER), secure(HELLO))
    assert (connection.server_name, connection.resolved_name) == ("broker.example", "dns.example")
    connection.details["encrypted_client_hello"] = True
    assert connection.server_name == "dns.example"
    connection.resolved_name = None
    assert connection.server_name == "broker.example"
    for hostile in ("a\x1b[2J", "broker..example", "bröker", "", "x" * 256, None):
        connection.details["server_name"] = hostile
        assert connection.server_name is None


def test_a_capture_without_tcp() -> None:
    dissector = Dissector()
    assert list(dissect(frames(answer("broker.example", SERVER)), dissector=dissector)) == []
    assert dissector.names.name(b"", bytes((192, 0, 2, 2))) == "broker.example"


def test_the_user_name_of_a_connection_is_that_of_its_accepted_or_last_connect() -> None:
    def result(words: str) -> str | None:
        (connection,) = connections(talk(words=words))
        return connection.user_name

    assert result("> connect; < connack; close") is None
    assert result("> connect user_name=jane; < connack; close") == "jane"
    assert result("> connect user_name=jane; < connack reason_code=5; > connect user_name=joe; close") == "joe"
    assert result("> connect user_name=jane; < connack; > connect user_name=joe; close") == "jane"
