"""Causes that the alerts and hellos of a TLS handshake show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from mqttscope.explain import describe
from mqttscope.explain.book import Hello
from mqttscope.explain.causes.case import MEANING, SECOND, Case, candidate, other_side, records_of
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.tls_flights import EMPTY, SENT
from mqttscope.session.connection import host_of, port_of


def tls_alert(case: Case) -> Iterator[Candidate]:
    """A fatal alert of TLS in clear."""
    details = case.connection.details
    alerts = details.get("alerts")
    if not isinstance(alerts, list):
        return
    fatal = [alert for alert in alerts if isinstance(alert, dict) and alert.get("level") == "fatal"]
    if not fatal:
        return
    last = fatal[-1]
    sender, name = str(last.get("from")), str(last.get("description")).replace("_", " ")
    accused = other_side(sender)
    half = case.half(sender) if case.by == accused else None
    if half is not None and any(seen.length and seen.timestamp_ns > case.ended_ns for seen in half.recent):
        return  # it answers the end
    meaning, *advices = _TLS_ALERTS.get(str(last.get("description")), ("", "", ""))
    advice = advices[sender == "server"]
    meaning = meaning.format(it=MEANING[accused]) or f"it did not accept what {MEANING[accused]} sent"
    statement = f"{MEANING[sender]} sent the fatal alert “{name}”"
    is_named = last.get("description") == "certificate_expired"
    if last.get("description") in _OF_CERTIFICATE and (
        is_named or _served(case, host_of(case.connection.client)) is None
    ):
        invalid = _invalid(case, accused, is_named=is_named)
        if invalid is not None:
            yield _of_validity(case, accused, invalid, statement)
            return
    if sender == "client" and last.get("description") in _OF_CERTIFICATE:
        clock = _wrong_clock(case)
        if clock:
            yield candidate(
                Cause.TLS_FAILURE, Certainty.LIKELY,
                f"The TLS handshake failed, most probably because the clock of the client was wrong: {clock[0].text},"
                f" and {statement}.",
                [*clock, Evidence(f"{statement}: {meaning}"), case.closing()],
                advice=_OF_CLOCK, usual=False, weight=100, stated_by="alert",
            )  # fmt: skip
            return
        served = _served(case, host_of(case.connection.client))
        if served is not None:
            text = f"it completed a handshake with this server as connection #{served.connection}"
            reason = Evidence.at(f"the same host did accept the broker: {text}", served)
            advice = f"Check the clock of the device, and whether the certificate of the broker changed: {text}."
            yield candidate(
                Cause.TLS_FAILURE, Certainty.CERTAIN, f"The TLS handshake failed: {statement}.",
                [Evidence(f"{statement}: {meaning}"), case.closing(), reason],
                advice=(advice,), usual=False, weight=100, stated_by="alert",
            )  # fmt: skip
            return
    if sender == "server" and last.get("description") in _OF_NO_CERTIFICATE:
        missing = _without_certificate(case, statement)
        if missing is not None:
            yield missing
            return
    is_agreed = sender == "server" and bool(details.get("server_hello"))
    if is_agreed and last.get("description") in _OF_OFFER:
        # The ServerHello chose a version and a cipher suite, so that these are not the reason.
        meaning, advice = "it had sent its ServerHello, so that version, cipher suite and name fitted", _OF_CLIENT_PART
    named = (
        None
        if is_agreed
        else _named_by_others(case)
        if sender == "server" and last.get("description") in _OF_NAME
        else None
    )
    is_unnamed = not details.get("server_name") and not details.get("encrypted_client_hello")
    if last.get("description") == "unrecognized_name" and is_unnamed:
        meaning, advice = "the hello of the client has no name of a server (SNI)", _OF_NO_NAME
        if named is not None:
            yield candidate(
                Cause.TLS_FAILURE, Certainty.LIKELY,
                f"The TLS handshake failed: {statement}, most probably because the client sent no name of the server"
                f" (SNI); a client that was served sent {named[0]}.",
                [Evidence(f"{statement}: {meaning}"), named[1], case.closing()],
                advice=(f"{_OF_NO_NAME.removesuffix('.')}: {named[0]}.",), usual=False, weight=100, stated_by="alert",
            )  # fmt: skip
            return
    no_alpn = _without_protocol(case) if sender == "server" else None
    advice_lines = [_OF_NO_PROTOCOL] if no_alpn is not None else []
    advice_lines += [advice] if advice else []
    reasons: list[Evidence | None] = [Evidence(f"{statement}: {meaning}"), no_alpn]
    valid = _valid(case, accused)
    if is_named and valid:
        latest, earliest = max(valid)[0], min(until for _, until in valid)
        text = f"by the clock of the capture the certificates of {MEANING[accused]} are valid, from {utc(latest)} to"
        reasons.append(Evidence(f"{text} {utc(earliest)}: the clock of {MEANING[sender]} may be wrong"))
        advice_lines[:0] = _OF_CLOCK if sender == "client" else ()
    if named is not None:
        reasons += [Evidence("the hello of this client has no name of a server (SNI)"), named[1]]
        advice_lines.append(f"{_OF_NO_NAME.removesuffix('.')}: {named[0]}.")
    yield candidate(
        Cause.TLS_FAILURE, Certainty.CERTAIN,
        f"The TLS handshake failed: {statement}.", [*reasons, case.closing()],
        advice=tuple(advice_lines), usual=not advice, weight=100, stated_by="alert",
    )  # fmt: skip


def handshake_cut(case: Case) -> Iterator[Candidate]:
    """A side ended the handshake of TLS up to 1.2 without an alert, and what the other one had sent shows why."""
    details, by = case.connection.details, case.by
    if by is None or not case.is_closed or details.get("alerts") or not details.get("server_hello"):
        return
    if any(records_of(case, side, "change_cipher_spec", "application_data") for side in (by, "server")):
        return
    ended = f"{MEANING[by]} ended the connection without an alert"
    invalid = _invalid(case, other_side(by), is_named=False)
    missing = _without_certificate(case, ended) if by == "server" else None
    if invalid is not None:
        yield _of_validity(case, other_side(by), invalid, ended)
    elif missing is not None:
        yield missing


def without_protocol(case: Case) -> Iterator[Candidate]:
    """The server closed at once on a client that offered no protocol (ALPN) on the port of the web."""
    missing = _without_protocol(case)
    if missing is None or case.connection.details.get("alerts") or case.by != "server" or not case.is_closed:
        return
    lasted_ns = case.ended_ns - case.connection.opened_ns
    # TLS 1.3 counts the end of the handshake as data; a CONNECT is one record, and more of them show an answer.
    is_served = records_of(case, "client", "application_data") > 2 or case.story.counts["server"]
    if case.lacks_bytes or lasted_ns > PROMPT_NS or is_served:
        return
    yield candidate(
        Cause.TLS_FAILURE, Certainty.HYPOTHESIS,
        f"The broker closed {describe.span(lasted_ns)} after the beginning of the connection: {missing.text}.",
        [missing, case.closing()], [Evidence("the end of the connection has no reason in the capture")],
        advice=(_OF_NO_PROTOCOL,), weight=61,
    )  # fmt: skip


def _without_protocol(case: Case) -> Evidence | None:
    """That the hello has no ALPN on the port of the web, which services share between protocols by ALPN.

    A connection without ALPN to the same server that the server kept disproves it.
    """
    connection, details = case.connection, case.connection.details
    if port_of(connection.server) != WEB_PORT or not details.get("client_hello") or details.get("alpn_offered"):
        return None
    if details.get("encrypted_client_hello"):
        return None  # it may have one inside
    hellos = case.book.hellos(connection.server, case.watch)
    if any(not hello.has_alpn and hello.lasted_ns > PROMPT_NS for hello in hellos if hello.is_served):
        return None
    text = f"the hello of the client has no ALPN, which some services need on port {WEB_PORT} to take it for MQTT"
    return Evidence(text, connection.frame, connection.opened_ns, connection.capture)


def _valid(case: Case, side: str) -> list[tuple[int, int]]:
    """When the certificates of a side are valid; empty if they are not known."""
    facts = case.story.facts
    if facts is None or facts.flights is None or facts.is_mixed:
        return []
    return (facts.flights.client if side == "client" else facts.flights.server).valid


def _invalid(case: Case, side: str, *, is_named: bool) -> Evidence | None:
    """Evidence that a certificate of a side was not valid by the clock of the capture, which may be wrong, too.

    Unless an alert names an expired certificate (``is_named``), only the one of the side itself counts: chains also
    have old certificates of authorities, which clients do not need.
    """
    opened_s = case.connection.opened_ns // SECOND
    for number, (start, until) in enumerate(_valid(case, side)[: None if is_named else 1]):
        which = "the certificate" if not number else f"certificate {number + 1} in the chain"
        if opened_s > until:
            after = describe.span((opened_s - until) * SECOND)
            return Evidence(f"{which} of {MEANING[side]} had expired: it was valid until {utc(until)}, {after} before")
        if opened_s < start:
            before = describe.span((start - opened_s) * SECOND)
            text = f"{which} of {MEANING[side]} was not yet valid: it is valid from {utc(start)}, {before} later"
            return Evidence(text)
    return None


def _of_validity(case: Case, side: str, invalid: Evidence, statement: str) -> Candidate:
    """A certificate of a side that is not valid by the clock of the capture, which the other side refused."""
    return candidate(
        Cause.TLS_FAILURE, Certainty.LIKELY,
        f"The TLS handshake failed, most probably because {invalid.text.partition(',')[0]}, and {statement}.",
        [invalid, Evidence(statement), case.closing()],
        advice=_OF_VALIDITY[side == "client"], usual=False, weight=100,
    )  # fmt: skip


def _without_certificate(case: Case, statement: str) -> Candidate | None:
    """That the server refused a client that sent an empty list of certificates, although it had asked for one.

    A client that was served with an empty list disproves it: the server does not need a certificate then.
    """
    facts, server = case.story.facts, case.connection.server
    if facts is None or facts.flights is None or facts.flights.certificate != EMPTY:
        return None
    hellos = case.book.hellos(server, case.watch)
    if any(hello.is_served and hello.certificate == EMPTY for hello in hellos):
        return None
    served = next((hello for hello in hellos if hello.is_served and hello.certificate == SENT), None)
    other = None
    if served is not None:
        text = f"{served.client} sent a certificate on connection #{served.connection}, and was served"
        other = Evidence.at(text, served)
    return candidate(
        Cause.TLS_FAILURE, Certainty.LIKELY,
        "The TLS handshake failed, most probably because the client sent no certificate: the broker asked for one, the"
        f" client answered with an empty list, and {statement}.",
        [
            Evidence("the broker sent CertificateRequest: it asks for a client certificate"),
            Evidence("the Certificate message of the client is empty"), Evidence(statement), case.closing(), other,
        ],
        advice=_OF_CERTIFICATE_ADVICE, usual=False, weight=100, stated_by="alert",
    )  # fmt: skip


def _wrong_clock(case: Case) -> list[Evidence]:
    """That the clock of the client was wrong when it refused a certificate, as the time in its hello shows; else empty.

    The first four bytes of the random number were the time of the client up to TLS 1.2 (RFC 5246 section 7.4.1.2), and
    many stacks fill them by chance.  By chance one in 1,600 is in the first month of 1970, and one in 25,000 within a
    day of the right time: such a time in another hello of the host proves that its stack writes the time.  A hello with
    the right time that was refused, too, proves that the clock is not the cause.
    """
    opened_s, facts = case.connection.opened_ns // SECOND, case.story.facts
    shown = 0 if facts is None else facts.hello_time
    if not shown or shown > opened_s - MONTH_S or case.story.clock_set:
        return []
    client = host_of(case.connection.client)
    hellos = [hello for hello in case.book.hellos(case.connection.server, case.watch) if hello.client == client]
    right = [hello for hello in hellos if abs(hello.time - hello.timestamp_ns // SECOND) <= DAY_S]
    if any(not hello.is_served for hello in right) or not (right or shown < MONTH_S):
        return []
    reasons = [Evidence(f"its hello has the time {utc(shown)}", case.connection.frame, case.connection.opened_ns)]
    for hello in right[:1]:
        text = f"its hello on connection #{hello.connection}, which was served, has the right time"
        reasons.append(Evidence.at(f"{text}: {utc(hello.time)}", hello))
    return reasons


def utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _served(case: Case, client: str) -> Hello | None:
    """A handshake of a host with the server that was completed."""
    hellos = case.book.hellos(case.connection.server, case.watch)
    return next((hello for hello in hellos if hello.client == client and hello.is_served), None)


def _named_by_others(case: Case) -> tuple[str, Evidence] | None:
    """The name of the server in a hello that was served, if the hello of this connection has no name."""
    details, client = case.connection.details, host_of(case.connection.client)
    if details.get("server_name") or details.get("encrypted_client_hello"):
        return None  # a hidden hello may have one
    hellos = case.book.hellos(case.connection.server, case.watch)
    if any(hello.is_served and not hello.server_name for hello in hellos):
        return None  # the server needs no name
    hello = next((hello for hello in hellos if hello.is_served and hello.client != client), None)
    hello = hello or next((hello for hello in hellos if hello.is_served), None)
    if hello is None:
        return None
    name = describe.name(hello.server_name)
    return name, Evidence.at(
        f"the broker served connection #{hello.connection} with the name {name} in its hello", hello
    )


DAY_S, MONTH_S = 86_400, 2_592_000
WEB_PORT = "443"
PROMPT_NS = 10 * SECOND
"""Maximum duration of a connection that a server refuses for its protocol; a served client sends data after it."""
_OF_NO_PROTOCOL = (
    "Let the client offer the protocol that the service names for this port (AWS IoT Core: x-amzn-mqtt-ca, mqtt), or"
    " connect to port 8883."
)
_OF_CERTIFICATE = ("bad_certificate", "certificate_unknown", "certificate_expired")
"""Alerts of a client that may take a certificate for not yet valid."""
_OF_NAME = ("unrecognized_name", "handshake_failure", "internal_error", "access_denied")
"""Alerts of a server that may have no certificate for a client without a name."""
_OF_NO_CERTIFICATE = (
    "handshake_failure", "bad_certificate", "no_certificate", "certificate_unknown", "certificate_required",
    "access_denied",
)  # fmt: skip
"""Alerts of a server that misses a client certificate: TLS 1.2 has no alert of its own for that."""
_OF_OFFER = ("handshake_failure", "insufficient_security", "unrecognized_name")
"""Alerts that speak of the hello of the client, unless the server has answered it."""
_OF_CERTIFICATE_ADVICE = (
    "Give the device its certificate and private key, and check that its TLS library uses them (path, key store).",
    "Otherwise let the broker not ask for client certificates (mosquitto: require_certificate false).",
)
_OF_CLIENT_PART = (
    "Look in the log of the broker for the part of the client's handshake that it refused; it may ask for a client"
    " certificate."
)
_OF_NO_NAME = "Let the client send the name of the server in its hello (SNI)."
_OF_CLOCK = (
    "Set the clock of the device before it connects (NTP, or a stored time): it takes certificates for not yet valid.",
)
_OF_VALIDITY = (
    ("Renew the certificate of the broker and of the authorities in its chain.",
     "Check the clock of the place where it was captured: the certificate is compared with that."),
    ("Renew the certificate of the client.", "Check the clocks of the broker and of the place of the capture."),
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
"""Meaning of a fatal alert (RFC 8446 section 6.2), and advice if the client or the broker sends it."""
