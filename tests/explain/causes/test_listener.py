"""Clients that speak to the wrong port."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from tests.dissect.talk import Talk
from tests.each import each
from tests.explain.running import ending, of_segments

HELLO = "raw 16 03 01002f0100002b0303" + " 11" * 32 + " 000004130113020100"


@each(
    "answer, protocol",
    [
        ('raw "HTTP/1.1 400 Bad Request\\r\\n\\r\\n"', "HTTP"),
        ("raw 15 03 0300020228", "TLS"),
        ('raw "220 mail.example ESMTP ready for everything that is a mail\\r\\n"', "FTP or SMTP"),
    ],
)
def test_a_server_that_answers_in_another_protocol(answer: str, protocol: str) -> None:
    one = ending(f"> connect 3.1.1; < {answer}; < fin")

    assert (one.cause, one.first.certainty) == (Cause.WRONG_LISTENER, Certainty.CERTAIN)
    assert one.first.headline.startswith(f"The server answers in {protocol}")


@each("port, certainty", [(1883, Certainty.CERTAIN), (8883, Certainty.LIKELY)])
def test_tls_to_a_port_that_does_not_answer_in_it(port: int, certainty: Certainty) -> None:
    talk = Talk(port=port).handshake()
    talk.client(bytes.fromhex(HELLO.removeprefix("raw")))
    talk.fin("server")
    (one,) = of_segments(talk.tape.segments)

    assert (one.cause, one.first.certainty) == (Cause.WRONG_LISTENER, certainty)


def test_a_client_that_gives_tls_up_itself_proves_nothing() -> None:
    assert ending(f"silent > {HELLO}; > fin").cause is Cause.UNREADABLE
