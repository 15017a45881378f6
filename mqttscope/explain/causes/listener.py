"""Causes of a client that speaks to the wrong port: plain MQTT, TLS, WebSockets and web servers mixed up."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain.advice import ADVICE
from mqttscope.explain.causes.case import AT_ONCE_NS, MEANING, Case, advice_of, candidate, other_side
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half
from mqttscope.lint.shared_checks import NOT_OFFERED, problem, problems
from mqttscope.mqtt.constants import ProtocolVersion

NOT_MQTT = "ENC109"
"""The rule of the linter about answers in another protocol."""
_TLS_HERE = ("Use TLS on this port, or send plain MQTT to the port for it (usually 1883).",)
_WEB_HERE = (
    (
        "This port is one for the web: use MQTT over WebSocket (ws://) here, or send MQTT to the port for it (usually"
        " 1883)."
    ),
)
_NO_WEB_HERE = ("Connect to the broker's port for WebSockets, or send plain MQTT to this one.",)
_BACK_END = "Look at the web server or proxy and at the broker that it forwards to."
_OF_STATUS = {
    401: (
        Cause.BAD_CREDENTIALS,
        "it asks for credentials",
        "Give the client what the web server or proxy asks for: user name and password, or a token.",
    ),
    403: (
        Cause.NOT_AUTHORIZED,
        "it does not let this client in",
        "Check what the web server or proxy allows: token, Origin header, address of the client.",
    ),
    404: (Cause.WRONG_PATH, "there is nothing at this path", ADVICE[Cause.WRONG_PATH][0]),
    429: (
        Cause.QUOTA_EXCEEDED,
        "there were too many requests",
        "Let the client wait longer before it tries again, or raise the limit of the proxy.",
    ),
    502: (Cause.SERVER_UNAVAILABLE, "the broker that it forwards to gave no answer", _BACK_END),
    503: (Cause.SERVER_UNAVAILABLE, "it is not ready to serve", _BACK_END),
    504: (Cause.SERVER_UNAVAILABLE, "the broker that it forwards to did not answer in time", _BACK_END),
}
"""What a status of HTTP means for a WebSocket (RFC 9110 section 15): the cause, a few words, and what to change."""
_OF_REQUEST = frozenset(
    ("request_not_get", "websocket_version_wrong", "key_missing", "key_invalid", "upgrade_header_missing", *NOT_OFFERED)
)
"""Faults of a request for a WebSocket (`net.http_upgrade`) for which a server refuses or closes."""
_OF_ANSWER = frozenset(("accept_missing", "accept_wrong", "subprotocol_missing", "subprotocol_wrong"))
"""Faults of an answer for which a client closes."""
_OF_FRAMES = frozenset(
    (
        "text_frame", "unmasked_client_frame", "masked_server_frame", "reserved_bits", "reserved_opcode",
        "length_too_large", "length_not_minimal", "fragmented_control_frame", "control_too_long",
        "continuation_without_start", "message_interrupted", "deflate_assumed", "inflate_error",
    )
)  # fmt: skip
"""Faults of frames for which a receiver closes (RFC 6455 section 7.1.7, MQTT-6.0.0-1)."""
_FRAMES = (
    "Send MQTT in binary messages of frames as RFC 6455 has them: a client masks its frames, a server does not.",
)
_SUBPROTOCOL = (
    "Let the client offer mqtt in Sec-WebSocket-Protocol: it is the subprotocol of 3.1.1 and 5.0 (mqttv3.1: of 3.1).",
    "Let the broker select a subprotocol that the client offers, or refuse the upgrade.",
)
_HEADER = (
    (
        "Let both agree on the PROXY protocol: switch it off in the load balancer (HAProxy: send-proxy, send-proxy-v2)"
        " or on in the listener of the broker."
    ),
)
_PLAIN_HERE = ("Switch TLS off for this port, or connect to the broker's port for TLS (usually 8883).",)


def answered_in_another_protocol(case: Case) -> Iterator[Candidate]:
    """The server answered a CONNECT with TLS, HTTP or something else that is no MQTT."""
    found = next((one for one in case.story.broken if one.rule == NOT_MQTT), None)
    if found is None:
        return
    known = case.book.of(case.connection.server)
    plain = known.plain or known.headed
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


def to_a_plain_port(case: Case) -> Iterator[Candidate]:
    """The client began TLS or a WebSocket, and the server closed without a word of it."""
    connection, server = case.connection, case.half("server")
    if not case.is_closed or case.by != "server" or server is None or case.lacks_bytes:
        return
    if connection.transport == "websocket":
        yield from _web_to_a_plain_port(case, server)
        return
    details = connection.details
    if connection.transport != "tls" or not details.get("client_hello") or details.get("server_hello"):
        return
    if details.get("alerts"):
        return
    port, plain = connection.server.rpartition(":")[2], case.book.of(connection.server).plain
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


def _web_to_a_plain_port(case: Case, server: Half) -> Iterator[Candidate]:
    """The client asked for a WebSocket, and nothing answered in HTTP: a proxy may close in this way too."""
    connection, web = case.connection, case.connection.websocket or {}
    plain = case.book.of(connection.server).plain
    if server.data or any(case.story.counts.values()) or not web.get("path") or web.get("status"):
        return
    reasons: list[Evidence | None] = [
        Evidence("the client sent an HTTP request for a WebSocket"), Evidence("the server sent nothing"),
    ]  # fmt: skip
    if plain is not None:
        reasons.append(Evidence.at(f"it speaks plain MQTT on this port, with connection #{plain.connection}", plain))
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.HYPOTHESIS if plain is None else Certainty.LIKELY,
        f"The client asked for a WebSocket on port {connection.server.rpartition(':')[2]}, which "
        + ("may be one for plain MQTT" if plain is None else "speaks plain MQTT")
        + ": the server closed without an answer.",
        [*reasons, case.closing()], advice=_NO_WEB_HERE, usual=False, weight=75,
    )  # fmt: skip


def refused_upgrade(case: Case) -> Iterator[Candidate]:
    """The server answered the request for a WebSocket with another status than 101."""
    web = case.connection.websocket or {}
    status = web.get("status")
    if not isinstance(status, int) or any(case.story.counts.values()):
        return
    places = [each["frame"] for each in problems(case.connection) if each["reason"] == "not_upgraded"]
    cause, meaning, advice = _OF_STATUS.get(status, (Cause.CONNECT_REFUSED, "", ""))
    yield candidate(
        cause, Certainty.CERTAIN,
        f"The server refused the WebSocket with HTTP status {status}{meaning and f' ({meaning})'}.",
        [
            Evidence("the client sent an HTTP request for a WebSocket"),
            *(Evidence(each["detail"]) for each in problems(case.connection) if each["reason"] in _OF_REQUEST),
            Evidence(f"the server answered with status {status}", places[-1] if places else None), case.closing(),
        ],
        advice=(advice or "Look in the log of the web server or proxy for the reason of the refusal.",), usual=False,
        weight=110, stated_by="HTTP",
    )  # fmt: skip


def broken_websocket(case: Case) -> Iterator[Candidate]:
    """A side used WebSocket in a wrong way, and the other one closed at once, without an answer in MQTT to that."""
    story, connection, by = case.story, case.connection, case.by
    half = None if by is None or not problems(connection) else case.half(other_side(by))
    if by is None or half is None or not case.is_closed or connection.gaps:
        return
    sent = [seen for seen in half.recent if seen.length and 0 <= case.ended_ns - seen.timestamp_ns <= AT_ONCE_NS]
    places, last = {seen.frame for seen in sent}, story.last_of(by)
    minded = set(_OF_FRAMES)
    if last is None:
        minded |= _OF_REQUEST if by == "server" else _OF_ANSWER
    if by == "server":
        minded -= case.book.borne_faults(connection.server)
    if story.version == ProtocolVersion.V3_1:
        minded.discard("subprotocol_old")
    if problem(connection, "subprotocol_not_offered"):
        minded -= {"subprotocol_missing", "subprotocol_wrong"}  # none is the right answer then
    faults = [
        fault
        for fault in problems(connection)
        if fault["reason"] in minded
        and fault["from_client"] is (by == "server")
        and (fault["reason"] not in _OF_FRAMES or fault["frame"] in places)
        and (last is None or last.frame < fault["frame"])
    ]
    if not sent or not faults:
        return
    blamed, detail = MEANING[other_side(by)], faults[0]["detail"]
    offered = problem(connection, "subprotocol_old", "subprotocol_foreign") if by == "client" else None
    if offered is not None and faults[0]["reason"].startswith("subprotocol_"):
        yield candidate(
            Cause.PROTOCOL_VIOLATION, Certainty.LIKELY,
            f"The client and the broker agreed on no subprotocol of WebSocket: {offered[1]}, and {detail}; the client"
            f" closed {case.apart(sent[-1].timestamp_ns)}after the response.",
            [
                Evidence(f"the client: {offered[1]}"), Evidence(f"the broker: {detail}"),
                Evidence("the client sent no packet of MQTT after that"), case.closing(),
            ],
            advice=_SUBPROTOCOL, usual=False, weight=95,
        )  # fmt: skip
        return
    broken = [rule for rule in story.broken if rule.rule.startswith("WSK2") and rule.by == other_side(by)]
    yield candidate(
        Cause.PROTOCOL_VIOLATION, Certainty.LIKELY,
        f"{MEANING[by].capitalize()} closed {case.apart(sent[-1].timestamp_ns)}after {blamed} had used WebSocket in a"
        f" wrong way: {detail}.",
        [
            *(
                Evidence(f"{blamed}: {fault['detail']}", fault["frame"] if fault["reason"] in _OF_FRAMES else None)
                for fault in faults[:3]
            ),
            Evidence(f"{MEANING[by]} sent no packet of MQTT after that"), case.closing(),
        ],
        broken=broken, advice=advice_of(broken[0]) if broken else _FRAMES, usual=False, weight=95,
    )  # fmt: skip


def plain_to_a_tls_port(case: Case) -> Iterator[Candidate]:
    """The client sent a CONNECT in clear, and the server closed a port on which it speaks TLS with others."""
    connection, story = case.connection, case.story
    secure = case.book.of(connection.server).secure
    if connection.transport != "tcp" or story.connect is None or story.connack is not None or secure is None:
        return
    if not case.is_closed or case.by != "server" or story.counts["server"] or case.lacks_bytes:
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


def proxy_header(case: Case) -> Iterator[Candidate]:
    """The server closed without an answer after a PROXY protocol header, or without one where others have one."""
    connection, story, header = case.connection, case.story, case.story.header
    known, last, server = case.book.of(connection.server), story.last_of("client"), case.half("server")
    if case.by != "server" or not case.is_closed or case.lacks_bytes or last is None:
        return
    if server is None or server.data:
        return
    if header is None:
        if known.headed is None or story.connect is None:
            return
        yield candidate(
            Cause.WRONG_LISTENER, Certainty.HYPOTHESIS,
            "The broker closed on a connection without a PROXY protocol header, which it may expect.",
            [
                *case.sent_connect(),
                Evidence.at(f"connection #{known.headed.connection} to this port has such a header", known.headed),
                case.closing(),
            ],
            advice=_HEADER, usual=False, weight=60,
        )  # fmt: skip
        return
    served = known.secure if connection.transport == "tls" else known.plain
    is_sure = served is not None and case.ended_ns - last.timestamp_ns <= AT_ONCE_NS
    reasons = [story.evidence(header, f"the client's connection begins with a {header.what}"), case.closing()]
    if served is not None:
        reasons.append(Evidence.at(f"it served connection #{served.connection} to this port, which has none", served))
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.LIKELY if is_sure else Certainty.HYPOTHESIS,
        f"The broker closed {case.apart(last.timestamp_ns)}after a PROXY protocol header of a load balancer, which it "
        + ("most probably" if is_sure else "perhaps") + " does not expect, and answered nothing.",
        reasons, advice=_HEADER, usual=False, weight=90,
    )  # fmt: skip
