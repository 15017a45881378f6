"""What is remembered of a connection."""

from __future__ import annotations

from tests.explain.running import ending

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwdW1wIn0.abcdef0123456789"


def test_packets_are_told_with_what_matters() -> None:
    explanation = ending(
        "opened 3.1.1 keep_alive=30; > subscribe 1 a/#:1; < suback 1 0x80; > publish a/b xyz qos=1 id=2; < puback 2",
        "> fin",
    )

    assert [each.what for each in explanation.timeline] == [
        "CONNECT 3.1.1, clean session, keep alive 30 s",
        "CONNACK 0 Connection Accepted",
        "SUBSCRIBE id=1 a/# (q1)",
        "SUBACK id=1 0x80 Failure",
        "PUBLISH q1 id=2 a/b (12 bytes)",
        "PUBACK id=2",
        "TCP FIN",
        "TCP FIN",
    ]


def test_secrets_in_reasons_and_names_are_not_told() -> None:
    text = repr(ending(f'opened; < disconnect code=0x98 reason_string="sold, token={TOKEN}"; < fin'))
    assert "sold" in text
    assert TOKEN not in text

    named = repr(
        ending(f"opened client={TOKEN} user_name=u password=s3cretPlantPw; > publish a/{TOKEN} qos=1 id=1; < fin")
    )
    assert TOKEN not in named
    assert "s3cretPlantPw" not in named
