"""Causes that a packet names: DISCONNECT of either side, CONNACK; and what a CONNECT without an answer implies."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import BY_VIOLATION, OF_DISCONNECT, OF_REFUSED_CONNECT, refused
from mqttscope.explain.causes.case import MEANING, Case, candidate, other_side, twin, twin_sentence
from mqttscope.explain.causes.timing import keep_alive_sentences
from mqttscope.explain.model import Broken, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.story import Said
from mqttscope.mqtt.constants import PacketType, ProtocolVersion

SUCCESS = 0x00
WITH_WILL = 0x04


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
            weight=100,
        )  # fmt: skip
        return
    cause, meaning = OF_DISCONNECT.get(said.code, (Cause.CLIENT_DISCONNECT, "the client names its reason"))
    if cause in (Cause.SERVER_RESTART, Cause.TAKEN_OVER, Cause.KEEP_ALIVE, Cause.ADMINISTRATIVE_ACTION):
        cause = Cause.CLIENT_DISCONNECT
    yield candidate(
        cause, Certainty.CERTAIN, f"The client ended the connection with {text}: {meaning}.",
        [*case.last_packet("server"), sent, case.closing()],
        broken=_of_code(case, "server", said.code), weight=100, reason_code=said.code,
    )  # fmt: skip


def server_disconnect(case: Case) -> Iterator[Candidate]:
    """The server sent DISCONNECT with a reason."""
    said = case.story.disconnects.get("server")
    if said is None:
        return
    before = case.story.disconnects.get("client")
    if before is not None and before.timestamp_ns < said.timestamp_ns:
        return
    if case.connection.version != ProtocolVersion.V5:
        yield candidate(
            Cause.SERVER_DISCONNECT, Certainty.CERTAIN,
            "The broker sent DISCONNECT, which a server must not do before MQTT 5.0; the packet has no reason code"
            " there, so that nothing says why.",
            [
                *case.last_packet("client"), *_refusals(case),
                Evidence("the broker sent DISCONNECT", said.frame, said.timestamp_ns), case.closing(),
            ],
            broken=case.violations("server"), weight=100,
        )  # fmt: skip
        return
    text = describe.reason(PacketType.DISCONNECT, said.code, case.connection.version)
    cause, meaning = OF_DISCONNECT.get(said.code, (Cause.SERVER_DISCONNECT, "the broker names no closer reason"))
    sent = Evidence(f"the broker sent DISCONNECT {text}{_quoted(said)}", said.frame, said.timestamp_ns)
    reasons: list[Evidence | None] = [sent]
    broken = _of_code(case, "client", said.code)
    advice: tuple[str, ...] = ()
    if cause is Cause.KEEP_ALIVE:
        reasons = [*keep_alive_sentences(case, said.timestamp_ns), sent]
    elif cause is Cause.TAKEN_OVER:
        other = twin(case)
        if other is not None:
            reasons = [twin_sentence(case, other), sent]
    else:
        reasons = [*case.last_packet("client"), *_refusals(case), sent]
    if broken:
        meaning = broken[0].message
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker disconnected the client with {text}: {meaning}.",
        [*reasons, case.closing()], broken=broken, advice=advice, weight=100, reason_code=said.code,
    )  # fmt: skip


def connack_refusal(case: Case) -> Iterator[Candidate]:
    """The CONNACK refused the client."""
    said = case.story.connack
    if said is None or not said.code:
        return
    version = case.connection.version
    cause, meaning = refused(said.code, version)
    text = describe.reason(PacketType.CONNACK, said.code, version)
    sent = Evidence(f"the broker answered CONNACK {text}{_quoted(said)}", said.frame, said.timestamp_ns)
    reasons: list[Evidence | None] = [_connect(case), sent, case.closing()]
    if cause is Cause.BAD_CREDENTIALS and not case.story.user_name:
        reasons.insert(1, Evidence("the CONNECT has no user name", None))
    if cause is Cause.NOT_AUTHORIZED and not case.story.user_name:
        reasons.insert(1, Evidence("the CONNECT has no user name: the broker may not allow anonymous clients", None))
    yield candidate(
        cause, Certainty.CERTAIN, f"The broker refused the CONNECT with {text}: {meaning}.", reasons,
        broken=case.violations("client"), weight=110, reason_code=said.code,
        advice=OF_REFUSED_CONNECT if cause is Cause.NOT_AUTHORIZED else (),
        usual=cause is not Cause.NOT_AUTHORIZED,
    )  # fmt: skip


def no_connack(case: Case) -> Iterator[Candidate]:
    """The CONNECT was not answered before the end."""
    story = case.story
    if story.connect is None or story.connack is not None or not case.is_closed or story.counts["server"]:
        return
    if case.connection.client_side.gapped or case.connection.server_side.gapped or case.connection.one_sided:
        return
    after = describe.span(case.ended_ns - story.connect.timestamp_ns)
    who = MEANING.get(case.by or "", "one side")
    broken = case.violations("client")
    headline = f"The broker closed {after} after the CONNECT, without a CONNACK."
    if case.by == "client":
        headline = f"The client gave up {after} after its CONNECT: no CONNACK had come."
    certainty = Certainty.LIKELY if case.by else Certainty.HYPOTHESIS
    yield candidate(
        Cause.NO_CONNACK, certainty, headline,
        [_connect(case), Evidence(f"no packet of the broker was captured before {who} closed"), case.closing()],
        broken=broken, weight=85,
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
    advice = _TLS_ADVICE.get(str(last.get("description")), ())
    yield candidate(
        Cause.TLS_FAILURE, Certainty.CERTAIN,
        f"The TLS handshake failed: {MEANING[sender]} sent the fatal alert “{what}”.",
        [
            Evidence(f"{MEANING[sender]} sent the fatal alert “{what}”: it did not accept what"
                     f" {MEANING[accused]} sent"),
            case.closing(),
        ],
        advice=advice, weight=100,
    )  # fmt: skip


_CERTIFICATE = ("Give the device the certificate of the authority that signed the broker's, and check its clock.",)
_TLS_ADVICE = {
    "unknown_ca": _CERTIFICATE,
    "bad_certificate": _CERTIFICATE,
    "certificate_unknown": _CERTIFICATE,
    "certificate_expired": ("Renew the certificate, and check the clock of the device.",),
    "protocol_version": ("Allow a version of TLS that both sides have.",),
    "handshake_failure": ("Allow a cipher suite that both sides have; the broker may ask for a client certificate.",),
    "certificate_required": ("Give the device a client certificate: the broker asks for one.",),
    "unrecognized_name": ("Connect by the name that is in the certificate of the broker.",),
    "no_application_protocol": ("Set ALPN to what the broker expects, such as mqtt.",),
}


def _connect(case: Case) -> Evidence | None:
    first = next((one for one in case.story.moments() if one.what.startswith("CONNECT ")), None)
    if first is not None:
        return case.story.evidence(first, f"the client sent {first.what}")
    said = case.story.connect
    return None if said is None else Evidence("the client sent CONNECT", said.frame, said.timestamp_ns)


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
    if wanted is Cause.PROTOCOL_VIOLATION or wanted in BY_VIOLATION.values():
        return found[:3]
    if wanted is Cause.KEEP_ALIVE:
        return [one for one in found if one.rule.startswith("KAL")]
    return []


def _quoted(said: Said) -> str:
    return f", and says: “{said.text}”" if said.text else ""
