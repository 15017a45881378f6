"""Causes that a packet names: DISCONNECT of either side, CONNACK; and what a CONNECT without an answer implies."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE, OF_DISCONNECT, OF_REFUSED_CONNECT, OF_SUBPROTOCOL, refused
from mqttscope.explain.book import Arrival
from mqttscope.explain.causes.case import (
    AT_ONCE_NS,
    MEANING,
    RETURN_NS,
    SECOND,
    SHORTLY_NS,
    Case,
    advice_of,
    candidate,
    code_of,
    declined,
    exceeded,
    framed,
    lost_before,
    took_over,
    twin,
    twin_sentence,
)
from mqttscope.explain.causes.lifetimes import OF_TOKEN, expiry_text, is_taken_late
from mqttscope.explain.causes.listener import OF_HEADER
from mqttscope.explain.causes.mqtt import again, odd_text, of_odd_text
from mqttscope.explain.causes.timing import (
    OF_UNFINISHED,
    OF_UNREAD,
    closed_window,
    keep_alive_sentences,
    of_the_link,
    unfinished,
)
from mqttscope.explain.logins import ANONYMOUS, EMPTY
from mqttscope.explain.model import Broken, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.story import ReasonPacket
from mqttscope.lint.shared_checks import NOT_OFFERED, problem
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import host_of

SUCCESS = 0x00
WITH_WILL = 0x04
OF_TEXT = (0x81, 0x82, 0x8F, 0x90)
"""Reason codes for a packet, a Topic Filter or a Topic Name that is not accepted."""
OF_EXPIRY = (0x80, 0x87, 0x98, 0xA0)
"""Reason codes that brokers use when a token has expired."""
BAD_METHOD, SERVER_MOVED = 0x8C, 0x9D
PROTOCOL_NAME = "CON101"
"""The rule of the linter about a protocol name that does not go with the protocol level."""


_OF_THE_CLIENT = (
    "Look which Maximum Packet Size the CONNECT of the client announced: the broker must not send what exceeds it.",
    "If the client should take such messages, raise its Maximum Packet Size and its buffers.",
)


def normal(case: Case) -> Iterator[Candidate]:
    """The client sent DISCONNECT."""
    disconnect = case.story.disconnects.get("client")
    if disconnect is None:
        return
    before = case.story.disconnects.get("server")
    if before is not None and before.timestamp_ns <= disconnect.timestamp_ns:
        return
    version = case.connection.version
    text = describe.reason(PacketType.DISCONNECT, disconnect.code, version) if version == ProtocolVersion.V5 else ""
    sent = Evidence(
        f"the client sent DISCONNECT {text}".rstrip() + _quoted(disconnect), disconnect.frame, disconnect.timestamp_ns
    )
    if disconnect.code in (SUCCESS, WITH_WILL):
        will = " and asked for its will to be published" if disconnect.code == WITH_WILL else ""
        yield candidate(
            Cause.NORMAL, Certainty.CERTAIN, f"The client said goodbye with DISCONNECT{will}.", [sent, case.closing()],
            weight=100, stated_by="DISCONNECT",
        )  # fmt: skip
        return
    cause, meaning = OF_DISCONNECT.get(disconnect.code, (Cause.CLIENT_DISCONNECT, "the client names its reason"))
    if cause in (Cause.SERVER_RESTART, Cause.TAKEN_OVER, Cause.KEEP_ALIVE, Cause.ADMINISTRATIVE_ACTION):
        cause = Cause.CLIENT_DISCONNECT
    broken = _of_code(case, "server", disconnect.code)
    advice = _OF_THE_CLIENT if disconnect.code == 0x95 else ()
    if broken and broken[0].confidence == "certain":
        place = f"its packet in frame {broken[0].frame} ({broken[0].rule})"
        advice = (" ".join((f"Correct the broker, at {place}.", *advice_of(broken[0]))), *advice)
    meaning = broken[0].message if broken else exceeded(case, "client", disconnect.code) or meaning
    yield candidate(
        cause, Certainty.CERTAIN, f"The client ended the connection with {text}: {meaning}.",
        [*case.last_packet("server"), *declined(case), sent, case.closing()],
        broken=broken, weight=100, reason_code=disconnect.code, stated_by="DISCONNECT", advice=advice,
        usual=disconnect.code != 0x95,
    )  # fmt: skip


def server_disconnect(case: Case) -> Iterator[Candidate]:
    """The server sent DISCONNECT with a reason."""
    disconnect = case.story.disconnects.get("server")
    if disconnect is None:
        return
    before = case.story.disconnects.get("client")
    if before is not None and before.timestamp_ns < disconnect.timestamp_ns:
        return
    if took_over(case) is not None:
        return  # the cause of `mqtt.taken_over`
    if case.connection.version != ProtocolVersion.V5:
        yield candidate(
            Cause.SERVER_DISCONNECT, Certainty.CERTAIN,
            "The broker sent DISCONNECT, which a server must not do before MQTT 5.0; the packet has no reason code"
            " there, so that nothing says why.",
            [
                *case.last_packet("client"), *_refusals(case),
                Evidence("the broker sent DISCONNECT", disconnect.frame, disconnect.timestamp_ns), case.closing(),
            ],
            broken=case.violations("server"), weight=100, stated_by="DISCONNECT",
        )  # fmt: skip
        return
    text = describe.reason(PacketType.DISCONNECT, disconnect.code, case.connection.version)
    cause, meaning = OF_DISCONNECT.get(disconnect.code, (Cause.SERVER_DISCONNECT, "the broker names no closer reason"))
    sent = Evidence(
        f"the broker sent DISCONNECT {text}{_quoted(disconnect)}", disconnect.frame, disconnect.timestamp_ns
    )
    reasons: list[Evidence | None] = [sent]
    broken = _of_code(case, "client", disconnect.code)
    advice: tuple[str, ...] = ()
    is_advised = cause is Cause.USE_ANOTHER_SERVER
    if is_advised:
        meaning, advice = _elsewhere(disconnect)
    elif cause in OF_LOGIN and not broken and case.is_authenticating:
        is_advised = True
        meaning = f"it most probably did not accept the authentication with {_method(case)}"
        advice = _OF_AUTHENTICATION
    packet = unfinished(case) if cause is Cause.KEEP_ALIVE else ""
    if cause is Cause.KEEP_ALIVE:
        reasons = [*keep_alive_sentences(case, disconnect.timestamp_ns), sent]
    elif cause is Cause.TAKEN_OVER:
        other = twin(case)
        if other is not None:
            reasons = [twin_sentence(case, other), sent]
    else:
        reasons = [*case.last_packet("client"), *_refusals(case), sent]
    meaning = exceeded(case, "server", disconnect.code) or meaning
    if broken:
        last = case.story.last_of("client")
        repeated, often = again(case) if last is not None and last.frame == broken[0].frame else ([], "")
        meaning = broken[0].message + often
        reasons += repeated
        advice = advice_of(broken[0])
    odd = "" if broken or disconnect.code not in OF_TEXT else odd_text(case)
    if odd:
        repeated, often = again(case)
        meaning, advice = f"the client had sent a {odd}{often}, and a receiver may close for that", of_odd_text()
        reasons += repeated
    if disconnect.code in OF_EXPIRY and not broken and not case.story.refusals:
        proofs: list[Evidence] = []
        meaning, advice = _expired(case, disconnect.timestamp_ns, proofs) or (meaning, advice)
        reasons += proofs
    unread = closed_window(case)
    reasons.append(unread)
    if unread is not None and cause is Cause.KEEP_ALIVE and not packet:
        meaning, advice = f"{unread.text}, so it sent no PINGREQ", OF_UNREAD
    gone = _out_of_reach(case, disconnect) if cause in (Cause.KEEP_ALIVE, Cause.TAKEN_OVER) and not packet else None
    if gone is not None:
        reasons.append(gone)
        meaning, advice = f"{meaning}; {gone.text}", of_the_link(case)[1]
    if packet:
        meaning = f"the client was sending a {packet}, and brokers count only complete packets"
        advice = OF_UNFINISHED
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker disconnected the client with {text}: {meaning}.",
        [*reasons, case.closing()], broken=broken, advice=advice, usual=not (packet or odd or is_advised or gone),
        weight=100,
        reason_code=disconnect.code, stated_by="DISCONNECT",
    )  # fmt: skip


def _out_of_reach(case: Case, disconnect: ReasonPacket) -> Evidence | None:
    """That the client's TCP had not answered the broker for seconds when it was disconnected, and never did."""
    lost, client = lost_before(case, disconnect.timestamp_ns - SHORTLY_NS), case.half("client")
    if lost is None or client is None or client.last is None or client.last.timestamp_ns > lost.since_ns:
        return None
    waited = describe.span(disconnect.timestamp_ns - lost.since_ns)
    text = f"the client was out of reach: its TCP had acknowledged nothing for {waited}"
    return Evidence(text, lost.since_frame, lost.since_ns)


def connack_refusal(case: Case) -> Iterator[Candidate]:
    """The CONNACK refused the client."""
    connack = case.story.connack
    if connack is None or not connack.code:
        return
    asked = case.connection.version
    version = connack.version or asked
    cause, meaning = refused(connack.code, version)
    text = describe.reason(PacketType.CONNACK, connack.code, version)
    sent = Evidence(f"the broker answered CONNACK {text}{_quoted(connack)}", connack.frame, connack.timestamp_ns)
    reasons = case.sent_connect()
    server = case.book.of(case.connection.server)
    login = case.story.login
    is_nameless = cause in OF_LOGIN and ANONYMOUS in login.kinds and connack.code != BAD_METHOD
    if is_nameless and (anonymous := server.logins.get(ANONYMOUS)) is not None:
        accepted = f"the broker accepted connection #{anonymous.connection} without one"
        reasons.append(Evidence.at(f"the CONNECT has no user name, but {accepted}", anonymous))
    elif is_nameless:
        likely = ": the broker may not allow anonymous clients" if cause is Cause.NOT_AUTHORIZED else ""
        reasons.append(Evidence(f"the CONNECT has no user name{likely}"))
    reasons.append(sent)
    spoken = server.versions.get(asked)
    if connack.version is not None:
        layout = f"the CONNACK is laid out as in MQTT {connack.version.text}"
        reasons.append(Evidence(layout if spoken else f"{layout}: the broker speaks no {asked.text}"))
    closing = case.closing()
    misnamed = [
        broken for broken in case.story.broken if broken.rule == PROTOCOL_NAME and cause is Cause.UNSUPPORTED_VERSION
    ]
    advice: tuple[str, ...] = OF_REFUSED_CONNECT if cause is Cause.NOT_AUTHORIZED else ()
    before = [
        arrival
        for arrival in case.book.other_arrivals(case.story, 0, connack.timestamp_ns)
        if arrival.accepted and arrival.server == case.connection.server and arrival.credentials == login.credentials
    ]
    if cause is Cause.USE_ANOTHER_SERVER:
        meaning, advice = _elsewhere(connack)
    elif cause is Cause.SERVER_UNAVAILABLE and (other := case.served) is not None:
        meaning = "it served others at that time, so that it may refuse new connections, or this client alone"
        heard = f"the broker sent on connection #{other.connection} before and after it"
        reasons.append(Evidence(heard, other.frame, other.heard_ns, other.capture))
    elif cause in OF_LOGIN and (login.authentication_method or connack.code == BAD_METHOD):
        meaning, advice = _of_method(case, connack.code, meaning, reasons)
    elif before and cause is Cause.NOT_AUTHORIZED and case.story.connect is not None:
        known = "the same user name and password" if login.has_user_name else "no user name either"
        known = f"the broker had accepted this Client Identifier with {known} before"
        meaning = f"{known}, {counted(len(before), 'time')}"
        reasons.append(Evidence.at(f"{known}, as connection #{before[-1].connection}", before[-1]))
        advice = (_OF_BAN, OF_REFUSED_CONNECT[1])
    elif not before:
        meaning, advice = _compared(case, cause, connack.code, reasons) or (meaning, advice)
    meaning, advice = _of_token(case, cause, reasons) or _of_twin(case, cause, reasons) or (meaning, advice)
    bridge = _bridge_bit(case) if cause is Cause.UNSUPPORTED_VERSION else None
    if bridge is not None:
        reasons.append(Evidence(bridge[0]))
        meaning, advice = bridge[0], (bridge[1], *(ADVICE[cause] if spoken is None else ()))
    if misnamed:
        meaning, advice = misnamed[0].message.removeprefix("CONNECT: "), advice_of(misnamed[0])
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker refused the CONNECT with {text}: {meaning}.", [*reasons, closing],
        broken=[*misnamed, *case.violations("client")], weight=110, reason_code=connack.code, advice=advice,
        usual=not advice, stated_by="CONNACK",
    )  # fmt: skip
    if misnamed:
        return
    if bridge is not None and spoken is not None:
        speaks = f"MQTT {asked.text} without that bit is accepted on this port, with connection #{spoken.connection}"
        yield candidate(
            Cause.CONNECT_REFUSED, Certainty.CERTAIN, f"The broker refused the CONNECT with {text}: {bridge[0]}.",
            [*reasons, Evidence.at(speaks, spoken), closing], broken=case.violations("client"), weight=105,
            reason_code=connack.code, stated_by="CONNACK", advice=(bridge[1],),
        )  # fmt: skip
        return
    if cause is Cause.UNSUPPORTED_VERSION and spoken is not None:
        speaks = f"MQTT {asked.text} is accepted on this port, with connection #{spoken.connection}"
        yield candidate(
            Cause.CONNECT_REFUSED, Certainty.CERTAIN,
            f"The broker refused the CONNECT with {text}, although {speaks}: a proxy or load balancer before it may"
            " send this client to another broker.",
            [*reasons, Evidence.at(speaks, spoken), closing], broken=case.violations("client"), weight=105,
            reason_code=connack.code, stated_by="CONNACK",
        )  # fmt: skip


def _bridge_bit(case: Case) -> tuple[str, str] | None:
    """The bridge bit in the protocol level of the CONNECT, as a sentence, and advice."""
    return next((row for row in case.story.unusual if "bridge bit" in row[0]), None)


def _of_token(case: Case, cause: Cause, reasons: list[Evidence]) -> tuple[str, tuple[str, ...]] | None:
    """A token in the refused CONNECT that had expired: a meaning, and advice.  Adds to the reasons."""
    connack = case.story.connack
    if cause not in OF_LOGIN or connack is None:
        return None
    return _expired(case, connack.timestamp_ns, reasons)


def _expired(case: Case, at_ns: int, reasons: list[Evidence]) -> tuple[str, tuple[str, ...]] | None:
    token = case.story.login.token
    late_ns = 0 if token is None else at_ns - token.expires_s * SECOND
    if token is None or late_ns <= 0 or is_taken_late(case, token):
        return None
    reasons.append(Evidence(expiry_text(token)))
    return f"the {token.kind} in the CONNECT had expired {describe.span(late_ns)} before", OF_TOKEN


def _of_twin(case: Case, cause: Cause, reasons: list[Evidence]) -> tuple[str, tuple[str, ...]] | None:
    """A connection with the same Client Identifier that was open then: a meaning, and advice.  Adds to the reasons."""
    connack = case.story.connack
    if cause not in OF_TWIN or connack is None:
        return None
    other = _connected_twin(case, connack.timestamp_ns)
    if other is None or (cause is Cause.NOT_AUTHORIZED and other.credentials != case.story.login.credentials):
        return None  # the credentials are the likelier reason
    reasons.append(Evidence.at(_twin_text(other), other))
    return f"{refused(connack.code, case.connection.version)[1]}, or {_twin_text(other)}", _OF_TWIN


def _twin_text(other: Arrival) -> str:
    return f"the same Client Identifier was connected then, as #{other.connection} from {other.client}"


def _connected_twin(case: Case, at_ns: int) -> Arrival | None:
    """A connection with the same Client Identifier that was open at a time.

    ``None`` if the server accepted the Client Identifier while it was connected: this server takes sessions over.
    """
    server, open_ns = case.connection.server, 1 << 63
    ended = {end.connection: end.timestamp_ns for end in case.book.of(server).ends}
    ended |= dict.fromkeys(case.book.open.get(server, ()), open_ns)
    others = [
        (other, ended.get(other.connection, 0))
        for other in case.book.other_arrivals(case.story, 0, open_ns)
        if other.accepted and other.server == server
    ]
    if any(older.timestamp_ns < other.timestamp_ns < end_ns for older, end_ns in others for other, _ in others):
        return None
    return next((other for other, end_ns in others if other.timestamp_ns <= at_ns < end_ns), None)


def _elsewhere(packet: ReasonPacket) -> tuple[str, tuple[str, ...]]:
    """Meaning of a packet that names another server, and advice."""
    where = packet.server_reference
    if packet.code == SERVER_MOVED:
        meaning = f"the broker has moved to {where}" if where else "the broker has moved, and names no new address"
    else:
        meaning = f"the broker sends the client to {where or 'another one'} for now" + ", without a name" * (not where)
    return meaning, (f"Let the client connect to {where}, the Server Reference of the packet." if where else
                     "Ask who operates the broker for the address: the packet has no Server Reference.",)  # fmt: skip


def _method(case: Case) -> str:
    """The Authentication Method of the client, as it may be shown."""
    method = case.story.login.authentication_method
    return "(hidden)" if case.connection.doubtful else describe.name(method)


def _of_method(case: Case, code: int, meaning: str, reasons: list[Evidence]) -> tuple[str, tuple[str, ...]]:
    """Meaning of the refusal of an Authentication Method, and advice.  Adds to the reasons."""
    login, name = case.story.login, _method(case)
    if not login.authentication_method:
        reasons.append(Evidence("the CONNECT has no Authentication Method"))
        return "the CONNECT has no Authentication Method, which the broker may require", _OF_METHOD
    accepted = next(filter(None, map(case.book.of(case.connection.server).logins.get, login.kinds)), None)
    reasons.append(Evidence(f"the Authentication Method of the CONNECT is {name}"))
    if accepted is not None:
        text = f"the broker accepted the Authentication Method {name} with connection #{accepted.connection}"
        reasons.append(Evidence.at(text, accepted))
    if code == BAD_METHOD and accepted is not None:
        return f"it refused the Authentication Method {name}, although {reasons[-1].text}", _OF_METHOD
    if code == BAD_METHOD:
        return f"the broker does not offer the Authentication Method {name}", _OF_METHOD
    return f"{meaning}, or did not accept the authentication with {name}", _OF_AUTHENTICATION


def authentication_cut(case: Case) -> Iterator[Candidate]:
    """The server closed on an AUTH of the client."""
    last = case.story.last_of("client")
    if case.by != "server" or not case.is_authenticating or last is None or case.lacks_bytes:
        return
    if case.ended_ns - last.timestamp_ns > AT_ONCE_NS:
        return
    yield candidate(
        Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS,
        f"The broker closed {case.apart(last.timestamp_ns)}after the client's AUTH: it may not have accepted the"
        f" authentication with {_method(case)}.",
        [*case.last_packet("client"), case.closing()], [Evidence("no packet names the reason of the end")],
        advice=_OF_AUTHENTICATION, usual=False, weight=62,
    )  # fmt: skip


def _compared(case: Case, cause: Cause, code: int, reasons: list[Evidence]) -> tuple[str, tuple[str, ...]] | None:
    """The difference between a refused CONNECT and the accepted ones: a meaning, and advice.

    Adds to the reasons.
    """
    story, server, login = case.story, case.book.of(case.connection.server), case.story.login
    keep_alive, longest = story.announced_keep_alive, server.longest_keep_alive
    if code == IDENTIFIER_REJECTED and keep_alive is not None and longest and (not keep_alive or keep_alive > longest):
        text = f"its Keep Alive is {keep_alive} s, and no accepted client has 0 s or more than {longest} s"
        reasons.append(Evidence(text))
        return f"{refused(code, case.connection.version)[1]}, or minds that {text}", _OF_LONGEST
    if login.is_user_name_empty and cause in OF_LOGIN and EMPTY not in server.logins:
        text = "the user name in the CONNECT is empty"
        reasons.append(Evidence(text))
        return f"{refused(code, case.connection.version)[1]}; {text}", _OF_EMPTY_NAME
    if not login.has_user_name and server.credentials and ANONYMOUS not in server.logins:
        if cause not in OF_LOGIN:
            return None
        named = next(reversed(server.credentials.values()))
        reasons.append(Evidence.at(f"the broker accepted connection #{named.connection} with a user name", named))
        return "the CONNECT has no user name, and the broker accepted only clients with one", _OF_ANONYMOUS
    other = server.credentials.get(login.credentials) if login.has_user_name else None
    if other is None or cause not in OF_LOGIN | {Cause.CLIENT_IDENTIFIER_REJECTED}:
        return None
    text = f"the broker accepted the same user name and password as connection #{other.connection}"
    reasons.append(Evidence.at(text, other))
    return f"{text}, so that something else than these is refused, or they were changed", _OF_COMPARISON


OF_LOGIN = frozenset((Cause.BAD_CREDENTIALS, Cause.NOT_AUTHORIZED))
"""Causes of refusals that are about credentials, or an Authentication Method."""
OF_TWIN = frozenset(
    (Cause.CLIENT_IDENTIFIER_REJECTED, Cause.SERVER_UNAVAILABLE, Cause.CONNECT_REFUSED, Cause.NOT_AUTHORIZED)
)
"""Causes of refusals that brokers also give for a Client Identifier that is in use."""
_OF_TWIN = (
    "Give each client a Client Identifier of its own; let a client end its old connection before it connects again.",
    "Look in the broker why it does not end the older connection, as a server has to (5.0 and 3.1.1, 3.1.4).",
)
IDENTIFIER_REJECTED = 2
"""Return code of CONNACK before 5.0."""
_OF_LONGEST = (
    "Set a Keep Alive that the broker takes: mosquitto with max_keepalive refuses 0 and longer ones with this code.",
    "Otherwise use a Client Identifier that the broker allows.",
)
_OF_EMPTY_NAME = (
    "Set the user name in the configuration of the client, or remove it if the broker allows anonymous clients.",
    OF_REFUSED_CONNECT[1],
)
_OF_METHOD = (
    "Compare the Authentication Method of the client with the methods of the broker; passwords need no method.",
)
_OF_AUTHENTICATION = (
    "Compare the account and the secret of the client for this Authentication Method with the account in the broker.",
    OF_REFUSED_CONNECT[1],
)
_OF_ANONYMOUS = (
    "Give the client a user name and password, or let the broker allow anonymous clients (allow_anonymous true).",
    OF_REFUSED_CONNECT[1],
)
_OF_COMPARISON = (
    "Compare the rules of the broker for Client Identifiers, addresses and connections per user.",
    "Check whether the account was changed or locked meanwhile.",
)
_OF_BAN = (
    "Look in the broker for a ban (such as one for clients that connect too often), a limit or an access rule that"
    " changed: it had accepted the same user name and password."
)
_OF_NO_ANSWER = (
    (
        "Look whether the broker itself runs and is ready: a container, proxy or load balancer accepts connections for"
        " one that is not."
    ),
    "Look in the log of the broker whether it waits for something at each CONNECT, such as an authentication service.",
)


def no_connack(case: Case) -> Iterator[Candidate]:
    """The CONNECT was not answered before the end."""
    story, connection = case.story, case.connection
    if story.connect is None or story.counts["server"]:
        return
    waited = case.ended_ns - story.connect.timestamp_ns
    if waited < 0:
        return  # the end came first
    after = describe.span(waited)
    who = MEANING.get(case.by or "", "one side")
    broken = case.violations("client")
    client = case.half("client")
    is_lost = client is not None and client.outstanding_bytes and not client.missed and not case.lacks_bytes
    if case.by == "client" and client is not None and is_lost:
        many = client.repeats
        again = f"it sent it {many} times again" if many > 1 else "it sent it once again" if many else "it sent it once"
        yield candidate(
            Cause.HALF_OPEN, Certainty.LIKELY if many else Certainty.HYPOTHESIS,
            f"The CONNECT was lost on the way: TCP never acknowledged it, and the client gave up after {after}.",
            [
                *case.sent_connect(), Evidence(f"{again}, and nothing acknowledged it"), case.closing(),
            ],
            weight=88,
        )  # fmt: skip
        return
    headline = f"The broker closed {after} after the CONNECT, without a CONNACK."
    reached, waits = None, tuple[str, ...]()
    if case.by == "client":
        headline = f"The client gave up {after} after its CONNECT: no CONNACK had come."
        if client is not None and client.is_acknowledged and client.data and not client.outstanding_bytes:
            reached = Evidence("TCP acknowledged the CONNECT: it reached the host of the broker, or a proxy before it")
            waits = _OF_NO_ANSWER
    certainty = Certainty.LIKELY if case.by else Certainty.HYPOTHESIS
    accepted = [
        arrival
        for arrival in case.book.other_arrivals(story, 0, case.watch.now_ns)
        if arrival.accepted
        and (arrival.server, arrival.credentials, arrival.version)
        == (connection.server, story.login.credentials, story.version)
    ]
    if case.by == "server" and accepted and case.served is None:
        yield _not_ready(case, accepted[-1], headline)
        return
    unusual = list(story.unusual) if case.by == "server" else []
    if case.by == "server" and (other := _connected_twin(case, story.connect.timestamp_ns)) is not None:
        headline = f"{headline[:-1]}; {_twin_text(other)}, and some brokers refuse the second connection."
        unusual.append((_twin_text(other), _OF_TWIN[0]))
    if case.by == "server" and story.login.is_user_name_empty and EMPTY not in case.book.of(connection.server).logins:
        unusual.append(("the user name in the CONNECT is empty", _OF_EMPTY_NAME[0]))
    versions = case.book.of(connection.server).versions
    if case.by == "server" and versions and story.version is not None and story.version not in versions:
        spoken, version = " and ".join(each.text for each in versions), story.version.text
        bridge = _bridge_bit(case)
        if bridge is None:
            headline = headline[:-1] + f": it may not speak MQTT {version}."
        text = f"the broker accepted CONNECT packets of MQTT {spoken} from others, and none of {version}"
        unusual.insert(
            0 if bridge is None else 1, (text, f"Connect with MQTT {spoken}, or switch {version} on in the broker.")
        )
    request = problem(connection, *NOT_OFFERED)
    served = case.book.of(connection.server).web
    if request is not None and served is not None and request[0] not in case.book.borne_faults(connection.server):
        headline = f"{headline[:-1]}; unlike others that are served, its request for a WebSocket does not offer mqtt."
        unusual.append((request[1], OF_SUBPROTOCOL))
        waits = (OF_SUBPROTOCOL,)
    if connection.details.get("proxy"):
        is_new = case.by == "server" and case.book.of(connection.server).headed is None
        unusual.append(
            ("a PROXY protocol header came before it, which a broker has to be set to expect", OF_HEADER[0] * is_new)
        )
        if is_new:
            headline = f"{headline[:-1]}: a PROXY protocol header came before it, which the broker may not expect."
    yield candidate(
        Cause.NO_CONNACK, certainty, headline,
        [
            *case.sent_connect(), reached, *(Evidence(text) for text, _ in unusual), *framed(case, "client"),
            Evidence(f"no packet of the broker was captured before {who} closed"), case.closing(),
        ],
        broken=broken, advice=waits or tuple(advice for _, advice in unusual if advice), usual=not waits, weight=85,
    )  # fmt: skip


def _not_ready(case: Case, accepted: Arrival, headline: str) -> Candidate:
    """The server closed on a CONNECT that it accepts at other times, and on CONNECT packets of other clients too."""
    near = [
        arrival
        for arrival in case.book.of(case.connection.server).closed_on_connect
        if abs(arrival.timestamp_ns - case.ended_ns) <= RETURN_NS
    ]
    clients = len({arrival.client for arrival in near})
    others = f"it closed on {counted(len(near), 'CONNECT')} of {counted(clients, 'client')} in that time"
    return candidate(
        Cause.SERVER_UNAVAILABLE, Certainty.LIKELY if clients > 1 else Certainty.HYPOTHESIS,
        f"{headline[:-1]}, and accepts this client at other times: the broker was not ready, or a proxy before it had"
        " no broker to forward to.",
        [
            *case.sent_connect(), Evidence.at(
                f"it accepted this Client Identifier with the same user name and password as #{accepted.connection}",
                accepted,
            ),
            Evidence(others), case.closing(),
        ],
        advice=_OF_NO_ANSWER, usual=False, weight=87,
    )  # fmt: skip


def other_version(case: Case) -> Iterator[Candidate]:
    """The server closed at once on a CONNECT of one version, and accepted another version from the same host."""
    story, connect, version = case.story, case.story.connect, case.story.version
    if connect is None or version is None or story.counts["server"] or case.by != "server":
        return
    if not case.is_closed or not 0 <= case.ended_ns - connect.timestamp_ns <= AT_ONCE_NS:
        return
    near = case.book.begun_in(case.connection.server, case.ended_ns - RETURN_NS, case.ended_ns + RETURN_NS)
    others = [
        other
        for other in near
        if other.version not in (None, version) and host_of(other.client) == host_of(case.connection.client)
    ]
    if not others:
        return
    other = next((each for each in others if each.timestamp_ns > case.ended_ns), others[-1])
    spoken = "" if other.version is None else other.version.text
    doubts = [Evidence(text) for text, _ in story.unusual]
    yield candidate(
        Cause.UNSUPPORTED_VERSION, Certainty.HYPOTHESIS if doubts else Certainty.LIKELY,
        f"The broker closed {case.apart(connect.timestamp_ns)}after a CONNECT of MQTT {version.text}, and accepted MQTT"
        f" {spoken} from the same host: it most probably does not speak {version.text}.",
        [
            *case.sent_connect(), case.closing(),
            Evidence.at(f"the broker accepted MQTT {spoken} from this host, as connection #{other.connection}", other),
            Evidence(f"it accepted no CONNECT of MQTT {version.text} in the capture"),
        ],
        doubts, broken=case.violations("client"), weight=88,
    )  # fmt: skip


def _refusals(case: Case) -> list[Evidence]:
    version = case.connection.version
    return [
        Evidence(
            f"the broker had refused {refusal.what}: {describe.reason(refusal.kind, refusal.code, version)}",
            refusal.frame, refusal.timestamp_ns,
        )
        for refusal in list(case.story.refusals)[-2:]
    ]  # fmt: skip


def _of_code(case: Case, by: str, code: int) -> list[Broken]:
    """Violations that may have caused a reason code: violations of its cause, else all at the end."""
    wanted = OF_DISCONNECT.get(code, (None, ""))[0]
    violations = case.violations(by, 60_000_000_000 if wanted is Cause.KEEP_ALIVE else None)
    named = [broken for broken in violations if code_of(broken) == code]
    if named:
        return named[:3]
    if wanted is Cause.PROTOCOL_VIOLATION:
        return violations[:3]
    if wanted is Cause.KEEP_ALIVE:
        return [broken for broken in violations if broken.rule.startswith("KAL")]
    return []


def _quoted(packet: ReasonPacket) -> str:
    return f", and says: “{packet.text}”" if packet.text else ""
