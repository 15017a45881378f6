"""Causes of a client that speaks to the wrong port: plain MQTT, TLS, WebSockets and web servers mixed up."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain.causes.case import Case, candidate
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence

NOT_MQTT = "ENC109"
"""The rule of the linter about answers in another protocol."""
_TLS_HERE = ("Use TLS on this port, or send plain MQTT to the port for it (usually 1883).",)
_WEB_HERE = (
    (
        "This port is one for the web: use MQTT over WebSocket (ws://) here, or send MQTT to the port for it (usually"
        " 1883)."
    ),
)
_PLAIN_HERE = ("Switch TLS off for this port, or connect to the broker's port for TLS (usually 8883).",)


def answered_in_another_protocol(case: Case) -> Iterator[Candidate]:
    """The server answered a CONNECT with TLS, HTTP or something else that is no MQTT."""
    found = next((one for one in case.story.broken if one.rule == NOT_MQTT), None)
    if found is None:
        return
    plain = case.book.of(case.connection.server).plain
    if plain is not None:
        what = found.message.partition(", not in MQTT")[0]
        yield candidate(
            Cause.WRONG_LISTENER, Certainty.LIKELY,
            f"{what[0].upper()}{what[1:]}, on a port on which it speaks MQTT with others: a proxy or load balancer"
            " before it most probably has no broker for this client.",
            [
                *case.sent_connect(), Evidence(f"{what} [{found.rule}]", found.frame, found.timestamp_ns),
                Evidence.at(f"it speaks MQTT on this port, with connection #{plain.connection}", plain),
                case.closing(),
            ],
            advice=("Look in the log of what is before the broker.",), usual=False, weight=120,
        )  # fmt: skip
        return
    advice = _TLS_HERE if " in TLS" in found.message else _WEB_HERE if "HT" in found.message else ()
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.CERTAIN, f"{found.message[0].upper()}{found.message[1:]}.",
        [
            *case.sent_connect(),
            Evidence(f"{found.message} [{found.rule}]", found.frame, found.timestamp_ns),
            case.closing(),
        ],
        advice=advice, usual=not advice, weight=120,
    )  # fmt: skip


def tls_to_a_plain_port(case: Case) -> Iterator[Candidate]:
    """The client began TLS, and the server closed without a word of TLS."""
    connection, server = case.connection, case.half("server")
    details = connection.details
    if connection.transport != "tls" or not details.get("client_hello") or details.get("server_hello"):
        return
    if details.get("alerts") or not case.is_closed or case.by != "server" or server is None:
        return
    known = case.book.of(connection.server)
    if connection.gaps or connection.server_side.gapped or known.secure is not None:
        return
    port, plain = connection.server.rpartition(":")[2], known.plain
    reasons: list[Evidence | None] = [
        Evidence("the client sent a ClientHello of TLS"),
        Evidence("the server sent nothing of TLS" if server.data else "the server sent nothing"),
    ]
    if plain is not None:
        reasons.append(Evidence.at(f"it speaks plain MQTT on this port, with connection #{plain.connection}", plain))
    proven = bool(server.data) or plain is not None
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.CERTAIN if proven else Certainty.LIKELY,
        f"The client began TLS on port {port}, where the server does not speak TLS: it closed without an answer.",
        [*reasons, case.closing()], advice=_PLAIN_HERE, usual=False, weight=100,
    )  # fmt: skip


def plain_to_a_tls_port(case: Case) -> Iterator[Candidate]:
    """The client sent a CONNECT in clear, and the server closed a port on which it speaks TLS with others."""
    connection, story = case.connection, case.story
    known = case.book.of(connection.server)
    secure = known.secure
    if known.plain is not None or connection.gaps or connection.server_side.gapped:
        return
    if connection.transport != "tcp" or story.connect is None or story.connack is not None or secure is None:
        return
    if not case.is_closed or case.by != "server" or story.counts["server"]:
        return
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.CERTAIN,
        f"The client sent a CONNECT without TLS to port {connection.server.rpartition(':')[2]}, where the server speaks"
        " TLS.",
        [
            *case.sent_connect(),
            Evidence.at(f"the server speaks TLS on this port, with connection #{secure.connection}", secure),
            case.closing(),
        ],
        advice=_TLS_HERE, usual=False, weight=115,
    )  # fmt: skip
