"""What records without keys let one infer."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.net.frame import Plaintext
from tests.dissect.talk import CONNACK, Talk, Tape, connect, wire
from tests.each import each
from tests.explain.running import of_segments
from tests.net.hellos import client_hello, message, record, server_hello

PING = record(23, bytes(21))
LARGE = record(23, bytes(200))


def shaken(port: int = 8883, tape: Tape | None = None, client_port: int = 50_000) -> Talk:
    talk = Talk(tape, port, client_port).handshake()
    talk.client(record(22, message(1, client_hello())))
    talk.server(record(22, message(2, server_hello())))
    talk.ack("client")
    return talk


def ended(talk: Talk, waits: float, by: str) -> Explanation:
    talk.tape.wait(waits)
    talk.fin(by)
    talk.ack("client" if by == "server" else "server")
    return of_segments(talk.tape.segments)[0]


def pinging(*waits: float, answered: bool = True, ping: bytes = PING) -> Talk:
    """A client that pings after each of these times; the last ping has an answer if it is ``answered``."""
    talk = shaken()
    talk.client(LARGE)
    for number, seconds in enumerate(waits):
        talk.tape.wait(seconds)
        talk.client(ping)
        if answered or number < len(waits) - 1:
            talk.server(PING)
    return talk


@each(
    "waits, silent, cause",
    [
        ((30, 30, 30), 45, Cause.KEEP_ALIVE),
        ((30, 30, 30), 60, Cause.KEEP_ALIVE),
        ((30, 30, 30), 61, Cause.SERVER_CLOSED),
        ((30, 30, 30), 40, Cause.SERVER_CLOSED),
        ((30, 34, 30), 48, Cause.SERVER_CLOSED),
        ((30, 30), 45, Cause.SERVER_CLOSED),
        ((0.5, 0.5, 0.5), 0.75, Cause.UNREADABLE),
    ],
)
def test_a_rhythm_that_stops(waits: tuple[float, ...], silent: float, cause: Cause) -> None:
    one = ended(pinging(*waits), silent, "server")

    assert one.cause is cause
    if cause is Cause.KEEP_ALIVE:
        assert one.first.certainty is Certainty.HYPOTHESIS
        assert "inferred from encrypted traffic" in one.first.headline


@each("answered, waits, cause", [(False, 3, Cause.NO_PING_RESPONSE), (False, 1, None), (True, 3, None)])
def test_a_record_without_an_answer(answered: bool, waits: float, cause: Cause | None) -> None:
    one = ended(pinging(30, 30, 30, answered=answered), waits, "client")

    assert one.cause is (cause or Cause.UNREADABLE)


@each(
    "answer, waits, cause",
    [
        (record(23, bytes(25)), 0.1, Cause.CONNECT_REFUSED),
        (record(23, bytes(25)), 1.1, Cause.SERVER_CLOSED),
        (record(23, bytes(300)), 0.1, Cause.UNREADABLE),
    ],
)
def test_a_small_answer_and_the_end(answer: bytes, waits: float, cause: Cause) -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.server(answer)

    assert ended(talk, waits, "server").cause is cause


@each("again", [False, True])
def test_a_client_that_was_served_was_not_refused(again: bool) -> None:
    """A DISCONNECT and the close_notify of a server that had answered the CONNECT, which may have been sent twice."""
    talk = shaken()
    talk.client(LARGE)
    sent = talk.tape.segments[-1]
    talk.server(record(23, bytes(25)))
    if again:
        talk.tape.add(sent.key, sent.sequence, sent.acknowledgment, sent.flags, sent.payload, 0)
    talk.tape.wait(1.2)
    talk.server(record(23, bytes(20)))
    talk.server(record(23, bytes(19)))

    assert ended(talk, 0.001, "server").cause is Cause.SERVER_CLOSED


@each("waits, cause", [(0.09, Cause.UNREADABLE), (0.2, Cause.SERVER_RESTART)])
def test_what_may_be_a_goodbye_ends_no_server(waits: float, cause: Cause) -> None:
    """A server that ends connections together stopped, unless each client may have sent its DISCONNECT just before."""
    tape = Tape()
    talks = [shaken(tape=tape, client_port=port) for port in (50_000, 50_001, 50_002)]
    for talk in talks:
        talk.client(LARGE)
        talk.server(PING)
    tape.wait(5)
    for talk in talks:
        talk.client(record(23, bytes(19)))
    tape.wait(waits)
    for talk in talks:
        talk.fin("server")
        talk.ack("client")

    assert {end.cause for end in of_segments(tape.segments)} == {cause}


def test_large_records_have_no_rhythm() -> None:
    assert ended(pinging(30, 30, 30, ping=LARGE), 45, "server").cause is Cause.SERVER_CLOSED


@each("waits, by, cause", [
    (1.1, "server", Cause.SERVER_CLOSED), (0.9, "server", Cause.UNREADABLE), (1.1, "client", Cause.UNREADABLE),
])  # fmt: skip
def test_an_end_by_the_broker_that_answers_nothing(waits: float, by: str, cause: Cause) -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.server(LARGE)

    assert ended(talk, waits, by).cause is cause


@each("client, waits, cause", [
    ("192.0.2.4", 0.3, Cause.TAKEN_OVER), ("192.0.2.4", 1.1, Cause.SERVER_CLOSED),
    ("192.0.2.5", 0.3, Cause.SERVER_CLOSED),
])  # fmt: skip
def test_ends_that_each_follow_a_new_connection(client: str, waits: float, cause: Cause) -> None:
    """Each connection of the host is closed just after it opened another one, or each one of another host."""
    tape = Tape()
    talks: list[Talk] = []
    for number in range(4):
        talk = Talk(tape, 8883, 50_000 + number, client if number % 2 else "192.0.2.4").handshake()
        talk.client(record(22, message(1, client_hello())))
        talk.server(record(22, message(2, server_hello())))
        talk.client(LARGE)
        talk.server(LARGE)
        tape.wait(waits)
        if talks:
            talks[-1].fin("server")
            talks[-1].ack("client")
        talks.append(talk)
        tape.wait(5 + number)
    found = of_segments(tape.segments)

    assert {end.cause for end in found[:3]} == {cause}
    assert {end.first.certainty for end in found[:3]} == {Certainty.HYPOTHESIS}


def test_a_reset_in_tls_shows_no_missing_disconnect() -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.reset("client")
    first = of_segments(talk.tape.segments)[0].first

    assert (first.cause, first.certainty) == (Cause.CLIENT_RESET, Certainty.HYPOTHESIS)
    assert "without a DISCONNECT" not in first.headline


@each(
    "by, alert, says",
    [
        ("client", 48, "Give the device the certificate of the authority that signed the broker's"),
        ("server", 48, "Give the broker the certificate of the authority that signed the client's"),
        ("client", 42, "Give the device the certificate"),
        ("server", 42, "Give the broker the certificate"),
        ("client", 45, "Renew the certificate of the broker"),
        ("server", 45, "Renew the certificate of the client"),
        ("client", 44, "Give the broker a new certificate"),
        ("server", 44, "Give the device a new certificate"),
        ("server", 116, "Give the device a client certificate"),
        ("client", 116, "Check the certificates"),
        ("client", 51, "the key of the broker"),
        ("server", 51, "the key of the device"),
        ("server", 40, "may ask for a client certificate"),
        ("client", 40, "Allow a cipher suite that both sides have."),
        ("client", 80, "Check the certificates"),
    ],
)
def test_what_an_alert_asks_for_depends_on_its_sender(by: str, alert: int, says: str) -> None:
    talk = shaken()
    (talk.client if by == "client" else talk.server)(record(21, bytes([2, alert])))
    first = ended(talk, 0.01, by).first

    assert (first.cause, first.certainty) == (Cause.TLS_FAILURE, Certainty.CERTAIN)
    assert says in first.advice[0]


def decrypted(ends: str) -> Cause:
    """Why a connection ended: ``server 70`` is a segment with a record that holds no packet, of so many bytes."""
    talk = shaken()
    first = talk.tape.segments[0]
    for who, packet, begun in (("client", connect(), 1001), ("server", CONNACK, 5001)):
        offset = talk.position[who] - begun
        getattr(talk, who)(record(23, bytes(60)))
        last = talk.tape.segments.pop()
        place = last.frame, last.timestamp_ns, last.capture
        flow = first.key, first.frame, first.capture
        talk.tape.segments += [Plaintext(flow, who == "client", wire(packet), offset, *place), last]  # type: ignore[list-item]
    for step in ends.split(", "):
        who, what = step.split()
        if what.isdecimal():
            getattr(talk, who)(record(23, bytes(int(what) - 5)))
        else:
            talk.fin(who)
            # It was sent before the last segment of the other side had come.
            talk.tape.segments[-1].acknowledgment -= 24 * (what == "crossing")
    return of_segments(talk.tape.segments)[0].cause


@each(
    "ends, cause",
    [
        ("client fin, server fin", Cause.CLIENT_CLOSED),
        ("server 24, client fin, server fin", Cause.SERVER_CLOSED),
        ("server 24, client crossing, server fin", Cause.CLIENT_CLOSED),
        ("server 24, client 24, client fin, server fin", Cause.SERVER_CLOSED),
        ("server 71, client fin, server fin", Cause.CLIENT_CLOSED),
        ("client 24, server fin, client fin", Cause.CLIENT_CLOSED),
        ("client 24, server 24, client fin, server fin", Cause.CLIENT_CLOSED),
        ("client 24, server 24, server fin, client fin", Cause.CLIENT_CLOSED),
        ("server 24, client 24, server fin, client fin", Cause.SERVER_CLOSED),
    ],
)
def test_who_ended_tls(ends: str, cause: Cause) -> None:
    assert decrypted(ends) is cause
