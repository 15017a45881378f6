"""Causes that a packet names: DISCONNECT of either side, CONNACK; and what a CONNECT without an answer implies."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import OF_DISCONNECT, OF_REFUSED_CONNECT, refused
from mqttscope.explain.book import host
from mqttscope.explain.causes.case import (
    AT_ONCE_NS,
    MEANING,
    RETURN_NS,
    Case,
    advice_of,
    candidate,
    code_of,
    declined,
    exceeded,
    framed,
    other_side,
    took_over,
    twin,
    twin_sentence,
)
from mqttscope.explain.causes.mqtt import again
from mqttscope.explain.causes.timing import OF_UNFINISHED, keep_alive_sentences, unfinished
from mqttscope.explain.model import Broken, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.story import Said
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.wire import counted

SUCCESS = 0x00
WITH_WILL = 0x04
PROTOCOL_NAME = "CON101"
"""The rule of the linter about a protocol name that does not go with the protocol level."""


_OF_THE_CLIENT = (
    "Look which Maximum Packet Size the CONNECT of the client announced: the broker must not send what exceeds it.",
    "If the client should take such messages, raise its Maximum Packet Size and its buffers.",
)


def normal(case: Case) -> Iterator[Candidate]:
    """The client sent DISCONNECT."""
    said = case.story.disconnects.get("client")
    if said is None:
        return
    before = case.story.disconnects.get("server")
    if before is not None and before.timestamp_ns <= said.timestamp_ns:
        return
    version = case.connection.version
    text = describe.reason(PacketType.DISCONNECT, said.code, version) if version == ProtocolVersion.V5 else ""
    sent = Evidence(f"the client sent DISCONNECT {text}".rstrip() + _quoted(said), said.frame, said.timestamp_ns)
    if said.code in (SUCCESS, WITH_WILL):
        will = " and asked for its will to be published" if said.code == WITH_WILL else ""
        yield candidate(
            Cause.NORMAL, Certainty.CERTAIN, f"The client said goodbye with DISCONNECT{will}.", [sent, case.closing()],
            weight=100, stated_by="DISCONNECT",
        )  # fmt: skip
        return
    cause, meaning = OF_DISCONNECT.get(said.code, (Cause.CLIENT_DISCONNECT, "the client names its reason"))
    if cause in (Cause.SERVER_RESTART, Cause.TAKEN_OVER, Cause.KEEP_ALIVE, Cause.ADMINISTRATIVE_ACTION):
        cause = Cause.CLIENT_DISCONNECT
    broken = _of_code(case, "server", said.code)
    advice = _OF_THE_CLIENT if said.code == 0x95 else ()
    if broken and broken[0].confidence == "certain":
        place = f"its packet in frame {broken[0].frame} ({broken[0].rule})"
        advice = (" ".join((f"Correct the broker, at {place}.", *advice_of(broken[0]))), *advice)
    meaning = broken[0].message if broken else exceeded(case, "client", said.code) or meaning
    yield candidate(
        cause, Certainty.CERTAIN, f"The client ended the connection with {text}: {meaning}.",
        [*case.last_packet("server"), *declined(case), sent, case.closing()],
        broken=broken, weight=100, reason_code=said.code, stated_by="DISCONNECT", advice=advice,
        usual=said.code != 0x95,
    )  # fmt: skip


def server_disconnect(case: Case) -> Iterator[Candidate]:
    """The server sent DISCONNECT with a reason."""
    said = case.story.disconnects.get("server")
    if said is None:
        return
    before = case.story.disconnects.get("client")
    if before is not None and before.timestamp_ns < said.timestamp_ns:
        return
    if took_over(case) is not None:
        return  # as `mqtt.taken_over` says
    if case.connection.version != ProtocolVersion.V5:
        yield candidate(
            Cause.SERVER_DISCONNECT, Certainty.CERTAIN,
            "The broker sent DISCONNECT, which a server must not do before MQTT 5.0; the packet has no reason code"
            " there, so that nothing says why.",
            [
                *case.last_packet("client"), *_refusals(case),
                Evidence("the broker sent DISCONNECT", said.frame, said.timestamp_ns), case.closing(),
            ],
            broken=case.violations("server"), weight=100, stated_by="DISCONNECT",
        )  # fmt: skip
        return
    text = describe.reason(PacketType.DISCONNECT, said.code, case.connection.version)
    cause, meaning = OF_DISCONNECT.get(said.code, (Cause.SERVER_DISCONNECT, "the broker names no closer reason"))
    sent = Evidence(f"the broker sent DISCONNECT {text}{_quoted(said)}", said.frame, said.timestamp_ns)
    reasons: list[Evidence | None] = [sent]
    broken = _of_code(case, "client", said.code)
    advice: tuple[str, ...] = ()
    packet = unfinished(case) if cause is Cause.KEEP_ALIVE else ""
    if cause is Cause.KEEP_ALIVE:
        reasons = [*keep_alive_sentences(case, said.timestamp_ns), sent]
    elif cause is Cause.TAKEN_OVER:
        other = twin(case)
        if other is not None:
            reasons = [twin_sentence(case, other), sent]
    else:
        reasons = [*case.last_packet("client"), *_refusals(case), sent]
    meaning = exceeded(case, "server", said.code) or meaning
    if broken:
        last = case.story.last_of("client")
        repeated, often = again(case) if last is not None and last.frame == broken[0].frame else ([], "")
        meaning = broken[0].message + often
        reasons += repeated
        advice = advice_of(broken[0])
    if packet:
        meaning = f"the client was sending a {packet}, and brokers count only complete packets"
        advice = OF_UNFINISHED
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker disconnected the client with {text}: {meaning}.",
        [*reasons, case.closing()], broken=broken, advice=advice, usual=not packet, weight=100,
        reason_code=said.code, stated_by="DISCONNECT",
    )  # fmt: skip


def connack_refusal(case: Case) -> Iterator[Candidate]:
    """The CONNACK refused the client."""
    said = case.story.connack
    if said is None or not said.code:
        return
    asked = case.connection.version
    version = said.version or asked
    cause, meaning = refused(said.code, version)
    text = describe.reason(PacketType.CONNACK, said.code, version)
    sent = Evidence(f"the broker answered CONNACK {text}{_quoted(said)}", said.frame, said.timestamp_ns)
    reasons = case.sent_connect()
    if cause is Cause.BAD_CREDENTIALS and not case.story.user_name:
        reasons.append(Evidence("the CONNECT has no user name"))
    if cause is Cause.NOT_AUTHORIZED and not case.story.user_name:
        reasons.append(Evidence("the CONNECT has no user name: the broker may not allow anonymous clients"))
    reasons.append(sent)
    spoken = case.book.of(case.connection.server).versions.get(asked)
    if said.version is not None:
        layout = f"the CONNACK is laid out as in MQTT {said.version.text}"
        reasons.append(Evidence(layout if spoken else f"{layout}: the broker speaks no {asked.text}"))
    closing = case.closing()
    misnamed = [one for one in case.story.broken if one.rule == PROTOCOL_NAME and cause is Cause.UNSUPPORTED_VERSION]
    advice: tuple[str, ...] = OF_REFUSED_CONNECT if cause is Cause.NOT_AUTHORIZED else ()
    before = [
        arrival
        for arrival in case.book.other_arrivals(case.story, 0, said.timestamp_ns)
        if arrival.accepted
        and arrival.server == case.connection.server
        and arrival.credentials == case.story.credentials
    ]
    if before and cause is Cause.NOT_AUTHORIZED and case.story.connect is not None:
        known = "the same user name and password" if case.story.user_name else "no user name either"
        known = f"the broker had accepted this Client Identifier with {known} before"
        meaning = f"{known}, {counted(len(before), 'time')}"
        reasons.append(Evidence.at(f"{known}, as connection #{before[-1].connection}", before[-1]))
        advice = (_OF_BAN, OF_REFUSED_CONNECT[1])
    if misnamed:
        meaning, advice = misnamed[0].message.removeprefix("CONNECT: "), advice_of(misnamed[0])
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker refused the CONNECT with {text}: {meaning}.", [*reasons, closing],
        broken=[*misnamed, *case.violations("client")], weight=110, reason_code=said.code, advice=advice,
        usual=not advice, stated_by="CONNACK",
    )  # fmt: skip
    if misnamed:
        return
    if cause is Cause.UNSUPPORTED_VERSION and spoken is not None:
        speaks = f"MQTT {asked.text} is accepted on this port, with connection #{spoken.connection}"
        yield candidate(
            Cause.CONNECT_REFUSED, Certainty.CERTAIN,
            f"The broker refused the CONNECT with {text}, although {speaks}: a proxy or load balancer before it may"
            " send this client to another broker.",
            [*reasons, Evidence.at(speaks, spoken), closing], broken=case.violations("client"), weight=105,
            reason_code=said.code, stated_by="CONNACK",
        )  # fmt: skip


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
    unusual = list(story.unusual) if case.by == "server" else []
    versions = case.book.of(connection.server).versions
    if case.by == "server" and versions and story.version is not None and story.version not in versions:
        spoken, version = " and ".join(each.text for each in versions), story.version.text
        headline = headline[:-1] + f": it may not speak MQTT {version}."
        text = f"the broker accepted CONNECT packets of MQTT {spoken} from others, and none of {version}"
        unusual.insert(0, (text, f"Connect with MQTT {spoken}, or switch {version} on in the broker."))
    if connection.details.get("proxy"):
        unusual.append(("a PROXY protocol header came before it, which a broker has to be set to expect", ""))
    yield candidate(
        Cause.NO_CONNACK, certainty, headline,
        [
            *case.sent_connect(), reached, *(Evidence(text) for text, _ in unusual), *framed(case, "client"),
            Evidence(f"no packet of the broker was captured before {who} closed"), case.closing(),
        ],
        broken=broken, advice=waits or tuple(advice for _, advice in unusual if advice), usual=not waits, weight=85,
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
        if other.version not in (None, version) and host(other.client) == host(case.connection.client)
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


def tls_alert(case: Case) -> Iterator[Candidate]:
    """A fatal alert of TLS in clear."""
    details = case.connection.details
    alerts = details.get("alerts")
    if not isinstance(alerts, list):
        return
    fatal = [one for one in alerts if isinstance(one, dict) and one.get("level") == "fatal"]
    if not fatal:
        return
    last = fatal[-1]
    sender, what = str(last.get("from")), str(last.get("description")).replace("_", " ")
    accused = other_side(sender)
    meaning, *advices = _TLS_ALERTS.get(str(last.get("description")), ("", "", ""))
    advice = advices[sender == "server"]
    meaning = meaning.format(it=MEANING[accused]) or f"it did not accept what {MEANING[accused]} sent"
    yield candidate(
        Cause.TLS_FAILURE, Certainty.CERTAIN,
        f"The TLS handshake failed: {MEANING[sender]} sent the fatal alert “{what}”.",
        [Evidence(f"{MEANING[sender]} sent the fatal alert “{what}”: {meaning}"), case.closing()],
        advice=(advice,) if advice else (), usual=not advice, weight=100, stated_by="alert",
    )  # fmt: skip


_TRUST = "Give the device the certificate of the authority that signed the broker's, and check its clock."
_TRUST_CLIENT = (
    "Give the broker the certificate of the authority that signed the client's (mosquitto: cafile), and let the device"
    " send the intermediate certificates with its own."
)
_UNFIT = "it did not accept the certificate of {it}"
_VERSION = "Allow a version of TLS that both sides have."
_CIPHERS = "Allow a cipher suite that both sides have"
_TLS_ALERTS = {
    "unknown_ca": ("it does not know the authority that signed the certificate of {it}", _TRUST, _TRUST_CLIENT),
    "bad_certificate": (_UNFIT, _TRUST, _TRUST_CLIENT),
    "certificate_unknown": (_UNFIT, _TRUST, _TRUST_CLIENT),
    "unsupported_certificate": (
        _UNFIT, "Give the broker a certificate with a kind of key and a usage (server) that the device takes.",
        "Give the device a certificate with a kind of key and a usage (client) that the broker takes.",
    ),
    "certificate_expired": (
        "the certificate of {it} is not valid at the time of its clock",
        "Renew the certificate of the broker, and check the clock of the device.",
        "Renew the certificate of the client, and check the clock of the broker.",
    ),
    "certificate_revoked": (
        "the certificate of {it} was revoked", "Give the broker a new certificate.",
        "Give the device a new certificate.",
    ),
    "certificate_required": (
        "{it} sent no certificate", "", "Give the device a client certificate: the broker asks for one.",
    ),
    "access_denied": (
        "", "", "Look which client certificates the broker lets in, and for which names.",
    ),
    "decrypt_error": (
        "a signature or a key of {it} does not fit", "Look whether the key of the broker belongs to its certificate.",
        "Look whether the key of the device belongs to its certificate, or is the one that the broker has (PSK).",
    ),
    "unknown_psk_identity": (
        "it does not know this PSK identity", "", "Give the broker the PSK identity and the key of the device.",
    ),
    "protocol_version": ("it does not speak the version of TLS of {it}", _VERSION, _VERSION),
    "insufficient_security": ("", f"{_CIPHERS}, a stronger one.", f"{_CIPHERS}, a stronger one."),
    "handshake_failure": (
        "", f"{_CIPHERS}.", f"{_CIPHERS}; the broker may ask for a client certificate.",
    ),
    "unrecognized_name": (
        "it has no certificate for this name", "", "Connect by the name that is in the certificate of the broker.",
    ),
    "no_application_protocol": (
        "it knows none of the protocols that {it} offers (ALPN)", "",
        "Set ALPN to what the broker expects, such as mqtt.",
    ),
}  # fmt: skip
"""What a fatal alert means (RFC 8446 section 6.2), and what to change if the client or the broker sends it."""


def _refusals(case: Case) -> list[Evidence]:
    version = case.connection.version
    return [
        Evidence(
            f"the broker had refused {one.what}: {describe.reason(one.kind, one.code, version)}", one.frame,
            one.timestamp_ns,
        )
        for one in list(case.story.refusals)[-2:]
    ]  # fmt: skip


def _of_code(case: Case, by: str, code: int) -> list[Broken]:
    """Violations that a reason code may be about: those of its cause, else all at the end."""
    wanted = OF_DISCONNECT.get(code, (None, ""))[0]
    found = case.violations(by, 60_000_000_000 if wanted is Cause.KEEP_ALIVE else None)
    named = [one for one in found if code_of(one) == code]
    if named:
        return named[:3]
    if wanted is Cause.PROTOCOL_VIOLATION:
        return found[:3]
    if wanted is Cause.KEEP_ALIVE:
        return [one for one in found if one.rule.startswith("KAL")]
    return []


def _quoted(said: Said) -> str:
    return f", and says: “{said.text}”" if said.text else ""
