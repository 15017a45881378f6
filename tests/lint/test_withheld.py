"""What may be of a secret in damaged packets is kept as long as their connection is open, and no longer."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, MalformedEvent
from mqttscope.lint import withheld
from mqttscope.lint.withheld import MAX_RUNS, Withheld
from mqttscope.mqtt import Connect, Publish, encode
from mqttscope.session.connection import Connection
from tests.dissect.talk import Talk
from tests.redact.mutants import V3_1_1

LOGIN = encode(Connect(client_identifier="dev-7", user_name="ford", password=b"Xyzzy-Plugh"), V3_1_1)
DAMAGED = LOGIN.replace(b"\x00\x04ford", b"\x00\x34ford")


def damaged(raw: bytes) -> tuple[MalformedEvent, Connection]:
    talk = Talk().handshake()
    talk.client(raw)
    talk.close("client")
    found = list(dissect_segments(talk.tape.segments))
    assert isinstance(found[0], ConnectionOpened)
    assert isinstance(found[-1], ConnectionClosed)
    return next(one for one in found if isinstance(one, MalformedEvent)), found[0].connection


def test_what_is_hidden_of_a_connect_is_kept_until_its_connection_ends() -> None:
    event, connection = damaged(DAMAGED)
    kept = Withheld()
    kept.note(event)
    assert any(b"Xyzzy-Plugh" in one for one in kept.of(connection))
    kept.forget(connection)
    assert kept.of(connection) == ()


def test_of_a_packet_of_which_nothing_is_remembered_nothing_is_kept() -> None:
    raw = encode(Publish(topic_name="plant/a", payload=b"21.5"), V3_1_1).replace(b"\x00\x07", b"\x00\x47")
    event, connection = damaged(LOGIN + raw)
    kept = Withheld()
    kept.note(event)
    assert kept.of(connection) == ()


def test_it_is_bounded() -> None:
    event, connection = damaged(DAMAGED)
    kept = Withheld()
    for _ in range(3 * MAX_RUNS):
        kept.note(event)
    assert len(kept.of(connection)) == MAX_RUNS
    limit, withheld.MAX_CONNECTIONS = withheld.MAX_CONNECTIONS, 1
    try:
        other, its = damaged(DAMAGED)
        kept.note(other)
    finally:
        withheld.MAX_CONNECTIONS = limit
    assert kept.of(its)
    assert kept.of(connection) == ()
