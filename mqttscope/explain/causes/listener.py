"""Causes of a client that speaks to the wrong port: plain MQTT, TLS, WebSockets and web servers mixed up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE, OF_CLOSE, OF_SUBPROTOCOL
from mqttscope.explain.book import web_path
from mqttscope.explain.causes.case import AT_ONCE_NS, MEANING, SECOND, Case, advice_of, candidate, other_side
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half
from mqttscope.lint.shared_checks import NOT_OFFERED, problem, problems
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.session.connection import host_of, port_of

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
_REQUEST = re.compile(rb"(GET|HEAD|POST|PUT|OPTIONS|CONNECT) [^ \r\n]{1,2000} HTTP/1")
_OF_REQUESTS = (
    "Look which program sends it: a health check of a load balancer, a browser, a scan.",
    "Let a health check of this port open a TCP connection only.",
)
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
"""Meaning of an HTTP status for a WebSocket (RFC 9110 section 15): cause, a few words, advice."""
_OF_REQUEST = frozenset(
    ("request_not_get", "websocket_version_wrong", "key_missing", "key_invalid", "upgrade_header_missing", *NOT_OFFERED)
)
"""Faults of a WebSocket request (`net.http_upgrade`) that make a server refuse or close."""
_OF_ANSWER = frozenset(("accept_missing", "accept_wrong", "subprotocol_missing", "subprotocol_wrong"))
"""Faults of an answer that make a client close."""
_OF_FRAMES = frozenset(
    (
        "text_frame", "unmasked_client_frame", "masked_server_frame", "reserved_bits", "reserved_opcode",
        "length_too_large", "length_not_minimal", "fragmented_control_frame", "control_too_long",
        "continuation_without_start", "message_interrupted", "deflate_assumed", "inflate_error",
    )
)  # fmt: skip
"""Faults of frames that make a receiver close (RFC 6455 section 7.1.7, MQTT-6.0.0-1)."""
_FRAMES = (
    "Send MQTT in binary messages of frames as RFC 6455 has them: a client masks its frames, a server does not.",
)
_SUBPROTOCOL = (
    OF_SUBPROTOCOL,
    "Let the broker select a subprotocol that the client offers, or refuse the upgrade.",
)
OF_HEADER = (
    (
        "Let both agree on the PROXY protocol: switch it off in the load balancer (HAProxy: send-proxy, send-proxy-v2)"
        " or on in the listener of the broker."
    ),
)
_OF_HEALTH_CHECK = (
    (
        "Look in the load balancer whether its health checks succeed; a server has to take such a connection (PROXY"
        " protocol section 2.2), or let the health check open a TCP connection only."
    ),
)
_PLAIN_HERE = ("Switch TLS off for this port, or connect to the broker's port for TLS (usually 8883).",)
UNSPECIFIC_CLOSE = (1008, 1011)
"""Status codes that servers send for faults of many kinds: policy violation and internal error."""
GIVE_UP_NS = 2 * SECOND
"""Minimum time that a client waits for a ServerHello before it gives up for that."""
MOST_WEB_PINGS = 3
"""Maximum number of Ping frames without a Pong before an end that most probably has this cause."""
ORDINARY_CLOSE = (1000, 1001)
"""Status codes of a WebSocket Close frame that name no fault: normal closure and going away."""


def answered_in_another_protocol(case: Case) -> Iterator[Candidate]:
    """The server answered a CONNECT with TLS, HTTP or another protocol."""
    broken = next((broken for broken in case.story.broken if broken.rule == NOT_MQTT), None)
    if broken is None:
        return
    known = case.book.of(case.connection.server)
    plain = known.plain or known.headed
    if plain is not None:
        what = broken.message.partition(", not in MQTT")[0]
        yield candidate(
            Cause.WRONG_LISTENER, Certainty.LIKELY,
            f"{what[0].upper()}{what[1:]}, on a port on which it speaks MQTT with others: a proxy or load balancer"
            " before it most probably has no broker for this client.",
            [
                *case.sent_connect(), Evidence(f"{what} [{broken.rule}]", broken.frame, broken.timestamp_ns),
                Evidence.at(f"it speaks MQTT on this port, with connection #{plain.connection}", plain),
                case.closing(),
            ],
            advice=("Look in the log of what is before the broker.",), usual=False, weight=120,
        )  # fmt: skip
        return
    advice = _TLS_HERE if " in TLS" in broken.message else _WEB_HERE if "HT" in broken.message else ()
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.CERTAIN, f"{broken.message[0].upper()}{broken.message[1:]}.",
        [
            *case.sent_connect(),
            Evidence(f"{broken.message} [{broken.rule}]", broken.frame, broken.timestamp_ns),
            case.closing(),
        ],
        advice=advice, usual=not advice, weight=120,
    )  # fmt: skip


def other_protocol(case: Case) -> Iterator[Candidate]:
    """The client speaks another protocol than MQTT, such as HTTP without a request for a WebSocket."""
    spoken, server = case.story.foreign.get("client"), case.half("server")
    if spoken is None or case.story.connect is not None or server is None:
        return
    if spoken.protocol == "HTTP" and b" HTTP/" not in spoken.head:
        return  # a text that begins with a word of HTTP
    request = _REQUEST.match(spoken.head)
    what = f"bytes of {spoken.protocol}" if request is None else f"an HTTP request ({request[1].decode()})"
    answer, plain = case.story.foreign.get("server"), case.book.of(case.connection.server).plain
    served, port = None, port_of(case.connection.server)
    if plain is not None:
        served = Evidence.at(f"the server speaks plain MQTT on this port, with connection #{plain.connection}", plain)
    if answer is not None:
        then = f"the server answered in {answer.protocol}"
        headline = f"The client sent {what} to port {port}, and {then}: neither side spoke MQTT on this connection."
    elif server.data:
        then = f"the server did not answer in {spoken.protocol}"
        headline = f"The client sent {what} to port {port}, and {then}."
    else:
        is_plain = "most probably is" if plain is None else "is"
        headline = (
            f"The client sent {what} to port {port}, which {is_plain} for plain MQTT, and the server sent nothing."
        )
    is_sure = plain is not None or answer is not None
    yield candidate(
        Cause.WRONG_LISTENER, Certainty.CERTAIN if is_sure else Certainty.LIKELY, headline,
        [
            case.story.evidence(spoken.moment, f"the client sent {what}"), served,
            None if answer is None else case.story.evidence(answer.moment, then), case.closing(),
        ],
        advice=_OF_REQUESTS, usual=False, weight=100, stated_by=spoken.protocol,
    )  # fmt: skip


def to_a_plain_port(case: Case) -> Iterator[Candidate]:
    """The client began TLS or a WebSocket, and the server sent nothing of it until one side closed."""
    connection, client, server = case.connection, case.half("client"), case.half("server")
    if not case.is_closed or case.by is None or client is None or server is None or case.lacks_bytes:
        return
    gave_up = case.by == "client"
    if connection.transport == "websocket":
        if gave_up:
            return
        yield from _web_to_a_plain_port(case, server)
        return
    details = connection.details
    if connection.transport != "tls" or not details.get("client_hello") or details.get("server_hello"):
        return
    if details.get("alerts"):
        return
    sent = [seen.timestamp_ns for seen in client.recent if seen.length]
    waited_ns = case.ended_ns - max(sent, default=case.ended_ns)
    if gave_up and (waited_ns < GIVE_UP_NS or client.outstanding_bytes):
        return
    port, plain = port_of(connection.server), case.book.of(connection.server).plain
    reasons: list[Evidence | None] = [
        Evidence("the client sent a ClientHello of TLS"),
        Evidence("the server sent nothing of TLS" if server.data else "the server sent nothing"),
    ]
    if plain is not None:
        reasons.append(Evidence.at(f"it speaks plain MQTT on this port, with connection #{plain.connection}", plain))
    proven = bool(server.data) or plain is not None
    if gave_up:
        waited = describe.span(waited_ns)
        yield candidate(
            Cause.WRONG_LISTENER, Certainty.LIKELY if proven else Certainty.HYPOTHESIS,
            f"The client began TLS on port {port} and gave up after {waited} without an answer: the server "
            + ("most probably does" if proven else "may") + " not speak TLS there.",
            [*reasons, Evidence("TCP acknowledged the ClientHello: it reached the server"), case.closing()],
            advice=_PLAIN_HERE, usual=False, weight=65,
        )  # fmt: skip
        return
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
    asked, paths = web_path(case.connection), case.book.of(case.connection.server).web_paths
    good = next(iter(paths.items()), None) if cause is Cause.WRONG_PATH and asked and asked not in paths else None
    served: Evidence | None = None
    if cause is Cause.WRONG_PATH and asked in paths:
        text = f"connection #{paths[asked].connection} was accepted with this path: it is not wrong for every client"
        served = Evidence.at(text, paths[asked])
    elif good is not None:
        path, arrival = describe.name(good[0]), good[1]
        served = Evidence.at(f"connection #{arrival.connection} was accepted with the path {path}", arrival)
        meaning = f"there is nothing at the path {describe.name(asked)}; {host_of(arrival.client)} got in with {path}"
        advice = f"Set the path of the URL to {path}."
    elif cause is Cause.WRONG_PATH and asked:
        meaning = f"there is nothing at the path {describe.name(asked)}"
    name = describe.name(asked) if asked else ""
    yield candidate(
        cause, Certainty.CERTAIN,
        f"The server refused the WebSocket with HTTP status {status}{meaning and f' ({meaning})'}.",
        [
            Evidence(f"the client sent an HTTP request for a WebSocket{f' with the path {name}' if name else ''}"),
            *(Evidence(each["detail"]) for each in problems(case.connection) if each["reason"] in _OF_REQUEST),
            Evidence(f"the server answered with status {status}", places[-1] if places else None), served,
            case.closing(),
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
    if case.closing_party == by and 0 < case.party(by).closing_ns < min(
        (seen.timestamp_ns for seen in sent), default=0
    ):
        return  # it had begun to close the WebSocket before
    places, last = {seen.frame for seen in sent}, story.last_of(by)
    minded = set(_OF_FRAMES)
    if last is None:
        minded |= _OF_REQUEST if by == "server" else _OF_ANSWER
    if by == "server":
        minded -= case.book.borne_faults(connection.server)
    if story.version == ProtocolVersion.V3_1:
        minded.discard("subprotocol_old")
    if problem(connection, "subprotocol_not_offered"):
        minded -= {"subprotocol_missing", "subprotocol_wrong"}  # an answer without a subprotocol is right then
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
        broken=broken, advice=advice_of(broken[0]) if broken else _of_fault(faults[0]["reason"]), usual=False,
        weight=95,
    )  # fmt: skip


def _of_fault(reason: str) -> tuple[str, ...]:
    """Advice about a fault of WebSocket that no rule of the linter is about."""
    return _FRAMES if reason in _OF_FRAMES else _OF_OPENING[reason in _OF_ANSWER]


_OF_OPENING = (
    ("Correct the request of the client for the WebSocket (RFC 6455 section 4.1).",),
    (
        (
            "Look what answers the request: a server has to send Sec-WebSocket-Accept for its key (RFC 6455 section"
            " 4.2.2), and a proxy must pass these headers on."
        ),
    ),
)


def websocket_close(case: Case) -> Iterator[Candidate]:
    """A side closed the WebSocket with a status code that names a reason."""
    by, sent = case.closing_party, case.close_frame
    code = None if by is None else case.party(by).closing_code
    if by is None or sent is None or code is None or code in ORDINARY_CLOSE or case.story.disconnects:
        return
    if code in UNSPECIFIC_CLOSE and case.party(by).web_pings:
        return  # the cause of `unanswered_web_ping`
    cause = OF_CLOSE.get(code, (Cause.SERVER_DISCONNECT, ""))[0]
    if by == "client" and cause not in (Cause.PROTOCOL_VIOLATION, Cause.PACKET_TOO_LARGE):
        cause = Cause.CLIENT_DISCONNECT
    accused = other_side(by)
    faults = [fault for fault in problems(case.connection) if fault["from_client"] is (accused == "client")]
    faults = [fault for fault in faults if fault["frame"] < sent.frame] if cause is Cause.PROTOCOL_VIOLATION else []
    why = f": {faults[0]['detail']}" if faults else ""
    yield candidate(
        cause, Certainty.CERTAIN,
        f"{MEANING[by].capitalize()} closed the WebSocket{sent.text.partition(' a Close frame')[2]}{why}.",
        [
            *case.last_packet(accused), *(Evidence(f"{MEANING[accused]}: {fault['detail']}") for fault in faults[:3]),
            sent, case.closing(),
        ],
        broken=case.violations(accused)[:3] if cause is Cause.PROTOCOL_VIOLATION else (), weight=98, stated_by="Close",
    )  # fmt: skip


def unanswered_web_ping(case: Case) -> Iterator[Candidate]:
    """A side closed while its WebSocket Ping had no Pong, which RFC 6455 section 5.5.2 asks for."""
    by, connection = case.by, case.connection
    if by is None or connection.transport != "websocket" or not case.is_closed or case.lacks_bytes:
        return
    party, half = case.party(by), case.half(by)
    waited = case.ended_ns - party.web_ping_ns
    if not party.web_pings or waited < SECOND or half is None or half.outstanding_bytes:
        return
    accused, place = MEANING[other_side(by)], (party.web_ping_frame, party.web_ping_ns)
    often = "" if party.web_pings == 1 else f", nor {party.web_pings - 1} after it"
    yield candidate(
        Cause.PROTOCOL_VIOLATION, Certainty.LIKELY if party.web_pings <= MOST_WEB_PINGS else Certainty.HYPOTHESIS,
        f"{accused.capitalize()} did not answer a WebSocket Ping{often}, and {MEANING[by]} closed"
        f" {describe.span(waited)} after it.",
        [
            Evidence(f"{MEANING[by]} sent a Ping frame, and TCP acknowledged it", *place),
            Evidence(f"no Pong frame of {accused} was captured after it"), case.close_frame, case.closing(),
        ],
        advice=("Answer each WebSocket Ping with a Pong (RFC 6455 section 5.5.2): look at the WebSocket library.",),
        usual=False, weight=90,
    )  # fmt: skip


def plain_to_a_tls_port(case: Case) -> Iterator[Candidate]:
    """The client sent a CONNECT in clear to a port that serves others with TLS, and the server closed."""
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


def health_check(case: Case) -> Iterator[Candidate]:
    """The client sent a PROXY protocol header, or a part of it, and closed."""
    header, server = case.story.header, case.half("server")
    if case.by != "client" or header is None or server is None or server.data or case.story.counts["client"] != 1:
        return
    yield candidate(
        Cause.NO_MQTT, Certainty.CERTAIN,
        f"The connection has the {header.what} of a load balancer and no MQTT, as health checks do.",
        [case.story.evidence(header, f"the client sent the {header.what}"), case.closing()], weight=100,
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
            advice=OF_HEADER, usual=False, weight=60,
        )  # fmt: skip
        return
    if describe.LOCAL in header.what and story.connect is None:
        yield candidate(
            Cause.WRONG_LISTENER, Certainty.HYPOTHESIS,
            f"The broker closed {case.apart(last.timestamp_ns)}after a health check of a load balancer (PROXY protocol,"
            f" {describe.LOCAL}): no client uses the connection, but the load balancer may take the broker for"
            " down.",
            [story.evidence(header, f"the connection begins with a {header.what}"), case.closing()],
            advice=_OF_HEALTH_CHECK, usual=False, weight=90,
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
        reasons, advice=OF_HEADER, usual=False, weight=90,
    )  # fmt: skip
