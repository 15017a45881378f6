"""Connections that one side ends at a fixed age or once a token has expired, and devices that sleep between theirs.

Proof for a server: it ended three connections of the client or more, each with its beginning in the capture, at ages
that differ by at most 1 %.  A connection of the client that lasted longer disproves it, and so does a common end with
others.

An idle time-out and the Keep Alive explain equal ages, too, if a client sends nothing after a while.  They are
contradicted if the end came sooner after the last data of the client than a pause that the connection survived; without
such a pause a fixed age is not claimed.  Neither times nor sizes show a token: that is a guess.

A token in the CONNECT shows when it expires (`tokens`).  A server that ends the connection of an active client then, or
within the time that services allow for clocks, most probably minds that: right then, or if it refuses the same token
afterwards.  A server that accepts the token later disproves it.

A client that closes at an equal age without DISCONNECT, three times or more, has a timer of its own if nothing that
either side sent came shortly before.  A connection of it that lasted longer disproves that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mqttscope.explain import describe
from mqttscope.explain.book import Arrival, End, client_key
from mqttscope.explain.causes.case import AT_ONCE_NS, MEANING, ODD_NS, RETURN_NS, SECOND, SLEEP, Case, candidate
from mqttscope.explain.causes.handshake import utc
from mqttscope.explain.causes.timing import LEAST_ALIKE, first_of, numbers_of
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Seen
from mqttscope.explain.story import ALIKE
from mqttscope.explain.tokens import ExpiringToken
from mqttscope.session.connection import host_of

LEEWAY_NS = 5 * SECOND
"""A server that closes within this time of the expiry of a token most probably does so because of it."""
GRACE_NS = 900 * SECOND
"""Maximum time that services wait after the expiry of a token: 10 min at Google, 5 to 10 min at Azure."""
OF_TOKEN = (
    "Let the client make a new token before the old one expires, and connect again with it; check its clock.",
    "Otherwise let the token be valid for longer.",
)
LEAST_AGE_NS = 60 * SECOND
"""Minimum age; younger connections have more other reasons to end alike."""
LEAST_CLIENT_AGE_NS = SECOND // 2
"""Minimum age of connections that a client ends with a timer."""
MAX_CLIENT_AGE_NS = 3600 * SECOND
"""Maximum age of such connections: an end is explained when three of them may have come."""
SAME_AGE = 100
"""Ages that differ by less than this fraction are equal."""
LEAST_WAKES = 4
"""Minimum number of CONNECT packets at even intervals."""
EVEN = 10
"""Even: intervals differ by less than this fraction."""
STILL = 4
"""An end by a timer comes this fraction of the age, or `ODD_NS`, after everything else."""
_ADVICE = (
    (
        "If the client uses a token or a certificate for a short time (Azure IoT Hub: SAS token), let it renew that and"
        " reconnect before its end."
    ),
    "Otherwise look in the broker, service or proxy for a maximum duration of connections.",
)


def fixed_age(case: Case) -> Iterator[Candidate]:
    """The server ends each connection of the client at the same age, while data still comes."""
    last, connection = _last_data(case), case.connection
    if last is None:
        return
    age_ns, ends = _age(case), _of_client(case)
    alike = [end for end in ends if end.by == "server" and not end.explained and _is_same(_age_of(end), age_ns)]
    ages = [_age_of(end) for end in alike]
    if len(alike) < LEAST_ALIKE or not _is_same(max(ages), min(ages)) or case.together:
        return
    if any(_age_of(end) > max(ages) and not _is_same(_age_of(end), age_ns) for end in ends):
        return
    others = case.book.open.get(connection.server, {}).values()
    older = [story.connection for story in others if case.watch.now_ns - story.connection.opened_ns > max(ages)]
    older = [other for other in older if not _is_same(case.watch.now_ns - other.opened_ns, age_ns)]
    if any(client_key(other) == client_key(connection) for other in older):
        return
    quiet, pause = describe.span(case.ended_ns - last.timestamp_ns), case.story.facts
    borne = "" if pause is None else describe.span(pause.pause_ns)
    spread, age = describe.span(max(ages) - min(ages)), describe.span(age_ns)
    yield candidate(
        Cause.FIXED_AGE, Certainty.LIKELY,
        f"The server ends the connections of this client at a fixed age: this one after {age}, as {len(alike)} of them"
        f" ({numbers_of(alike)}), with differences of at most {spread}. Perhaps a token expires then; an idle"
        f" time-out does not fit: data came {quiet} before the end.",
        [
            Evidence("the connection began", connection.frame, connection.opened_ns, connection.capture),
            Evidence.at(f"the last data of the client, {quiet} before the end", last),
            Evidence(f"the connection had survived {borne} without data"),
            *(Evidence(f"connection #{other.number} of {other.client} was open for longer: it has no such limit",
                       other.frame, other.opened_ns, other.capture) for other in older[:1]),
            case.closing(),
        ],
        advice=_ADVICE, usual=False, weight=84,
    )  # fmt: skip


def token_expired(case: Case) -> Iterator[Candidate]:
    """The server closed when the token in the CONNECT had expired."""
    token, story = case.story.login.token, case.story
    if token is None or case.by != "server" or not case.is_closed or story.connack is None or story.disconnects:
        return
    late_ns = case.ended_ns - token.expires_s * SECOND
    if not -LEEWAY_NS <= late_ns <= GRACE_NS or story.connack.timestamp_ns > token.expires_s * SECOND:
        return
    later = [
        arrival
        for arrival in case.book.other_arrivals(story, case.ended_ns, case.watch.now_ns)
        if arrival.credentials == story.login.credentials
    ]
    if any(arrival.accepted for arrival in later) or is_taken_late(case, token):
        return
    refused = next((arrival for arrival in later if arrival.accepted is False), None)
    again = None
    if refused is not None:
        again = Evidence.at(f"the broker refused the same credentials on connection #{refused.connection}", refused)
    when = "when" if abs(late_ns) <= LEEWAY_NS else f"{describe.span(late_ns)} after"
    is_sure = refused is not None or abs(late_ns) <= LEEWAY_NS
    yield candidate(
        Cause.BAD_CREDENTIALS, Certainty.LIKELY if is_sure else Certainty.HYPOTHESIS,
        f"The broker closed {when} the token of the client ({token.kind} in its CONNECT) had expired.",
        [
            *case.sent_connect(), Evidence(expiry_text(token)), *case.last_packet("client"), case.closing(), again,
        ],
        advice=OF_TOKEN, usual=False, weight=86 if is_sure else 62,
    )  # fmt: skip


def is_taken_late(case: Case, token: ExpiringToken) -> bool:
    """Whether the server accepted these credentials after the expiry: it ignores that, or has another clock."""
    arrival = case.book.of(case.connection.server).credentials.get(case.story.login.credentials)
    return arrival is not None and arrival.timestamp_ns > token.expires_s * SECOND


def expiry_text(token: ExpiringToken) -> str:
    """When a token expires, as words."""
    return f"the {token.kind} in the CONNECT expires at {utc(token.expires_s)}, by the clock of the capture"


def own_timer(case: Case) -> Iterator[Candidate]:
    """The client ends each of its connections at the same age, whatever the server answers."""
    connection, age_ns, ends = case.connection, _age(case), _of_client(case)
    alike = [end for end in ends if end.by == "client" and not end.explained and _is_same(_age_of(end), age_ns)]
    ages = [_age_of(end) for end in alike]
    if not _is_still(case) or len(alike) < LEAST_ALIKE or not _is_same(max(ages), min(ages)):
        return
    others = case.book.open.get(connection.server, {}).values()
    open_ns = [case.watch.now_ns - story.connection.opened_ns for story in others
               if client_key(story.connection) == client_key(connection)]  # fmt: skip
    if max([*open_ns, *map(_age_of, ends)]) > max(ages) + max(ages) // SAME_AGE:
        return
    age, spread = describe.span(age_ns), describe.span(max(ages) - min(ages))
    waiting = [text.partition("\n")[0] for text in case.story.requests.values()]
    answers = "although no request of it waited for an answer"
    if waiting or case.lacks_bytes:
        answers = f"and did not wait longer for answers ({', '.join(waiting[:1]) or 'if they are not in the gaps'})"
    yield candidate(
        Cause.FIXED_AGE, Certainty.LIKELY,
        f"The client ends its connections itself at a fixed age, without a DISCONNECT: this one after {age}, as"
        f" {len(alike)} of them ({numbers_of(alike)}), with differences of at most {spread}, {answers}. Most probably a"
        " timer of its own does that.",
        [
            Evidence("the connection began", connection.frame, connection.opened_ns, connection.capture),
            *case.last_packet("client"), *case.last_packet("server"), case.closing(),
        ],
        advice=_OF_TIMER, usual=False, weight=84,
    )  # fmt: skip


def patience_ns(case: Case) -> int:
    """Maximum time until further ends at the same age; 0 if this end cannot be one of these."""
    return LEAST_ALIKE * (_age(case) + RETURN_NS) if _is_still(case) or _last_data(case) is not None else 0


def _is_still(case: Case) -> bool:
    """Whether a client closed without DISCONNECT, and nothing came from either side shortly before."""
    age_ns, story = _age(case), case.story
    if case.by != "client" or not case.is_closed or not case.connection.handshake_seen or story.disconnects:
        return False
    client, is_hidden = case.half("client"), case.connection.transport == "tls" and not case.connection.decrypted
    if is_hidden or client is None or client.outstanding_bytes:
        return False  # its DISCONNECT cannot be read, or the path may be lost
    last = [moment.timestamp_ns for moment in map(story.last_of, MEANING) if moment is not None]
    still_ns = case.ended_ns - max(last, default=case.ended_ns)
    is_timed = LEAST_CLIENT_AGE_NS <= age_ns <= MAX_CLIENT_AGE_NS and still_ns >= min(ODD_NS, age_ns // STILL)
    was_served = story.connack is not None and not story.connack.code and story.ping is None
    return is_timed and was_served and not story.clock_set


_OF_TIMER = (
    "Look in the client for a time limit of its connection or of its program, such as a socket time-out or a watchdog.",
    "Send DISCONNECT before the connection is closed: the broker then drops the will.",
)


_OF_SLEEP = frozenset((Cause.KEEP_ALIVE, Cause.TAKEN_OVER, Cause.HALF_OPEN, Cause.DEVICE_RESTART))
_OF_SLEEPER = (
    SLEEP,
    "If it cannot send DISCONNECT, set no will, or in 5.0 a Will Delay Interval that is longer than the sleep.",
)


def asleep(case: Case, end: Candidate) -> Candidate:
    """A cause, with the intervals of a client that most probably sleeps between its connections.

    Proof: four CONNECT packets or more of one host at even intervals; each connection was quiet after less than half of
    an interval, the client did not end them, and only RST of it came on this connection after the end.  A client that
    still answers at TCP is awake.  A device that is reset at even intervals looks alike.
    """
    wakes = _wakes(case) if end.cause in _OF_SLEEP and end.advice != _OF_SLEEPER else []
    if not wakes:
        return end
    interval = describe.span((wakes[-1].timestamp_ns - wakes[0].timestamp_ns) // (len(wakes) - 1))
    wills = sum(wake.connection in case.book.wills for wake in wakes)
    published = f", and its will was published {wills:,} times" if wills > 1 else ""
    headline = (
        f"{end.headline.removesuffix('.')}; this client connects every {interval} and each time is gone without"
        f" DISCONNECT ({first_of(wake.connection for wake in wakes)}), as devices that sleep are{published}."
    )
    return replace(end, headline=headline, advice=_OF_SLEEPER)


def sleep_patience_ns(case: Case, end: Candidate) -> int:
    """Maximum time until the client may have connected often enough; 0 if it has not come back."""
    back, connect = case.came_back(), case.story.connect
    if back is None or connect is None or end.cause not in _OF_SLEEP or not _is_gone(case):
        return 0
    return LEAST_WAKES * (back.timestamp_ns - connect.timestamp_ns)


def _wakes(case: Case) -> list[Arrival]:
    """CONNECT packets of the client at even intervals, if it ended no connection and was quiet early."""
    connection = case.connection
    key = host_of(connection.server), connection.client_identifier or ""
    wakes = case.book.arrivals.get(key, []) if key[1] and _is_gone(case) else []
    gaps = [later.timestamp_ns - earlier.timestamp_ns for earlier, later in pairwise(wakes)]
    if len(wakes) < LEAST_WAKES or (max(gaps) - min(gaps)) * EVEN >= max(gaps):
        return []
    numbers = {wake.connection for wake in wakes}
    ends = [end for end in case.book.of(connection.server).ends if end.connection in numbers]
    active = [end.timestamp_ns - (end.silent_ns or 0) - end.opened_ns for end in ends]
    is_steady = all(end.by != "client" for end in ends) and 2 * max(active, default=0) <= min(gaps)
    return wakes if is_steady and len({host_of(wake.client) for wake in wakes}) == 1 else []


def _is_gone(case: Case) -> bool:
    """Whether nothing but RST of the client came after the end."""
    client, last = case.half("client"), case.story.last_of("client")
    if client is None or last is None or case.story.clock_set or case.connection.client_side.gapped:
        return False
    return all(seen.timestamp_ns <= case.ended_ns for seen in client.recent) and client.finished is None


def _last_data(case: Case) -> Seen | None:
    """The last data of the client, if the connection had survived a longer pause than the one before its end."""
    client, facts = case.half("client"), case.story.facts
    if case.by != "server" or not case.is_closed or not case.connection.handshake_seen or _age(case) < LEAST_AGE_NS:
        return None
    if client is None or facts is None or case.story.clock_set or case.story.disconnects:
        return None
    sent = [seen for seen in client.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    if len(sent) < 2 or case.story.forgotten_ns:
        return None
    quiet_ns, before_ns = case.ended_ns - sent[-1].timestamp_ns, sent[-1].timestamp_ns - sent[-2].timestamp_ns
    if quiet_ns <= AT_ONCE_NS and before_ns >= SECOND and before_ns * 2 >= facts.pause_ns:
        return None  # the end may be the answer to the first data after a long pause
    return sent[-1] if (facts.pause_ns - quiet_ns) * ALIKE > quiet_ns else None


def _age(case: Case) -> int:
    return case.ended_ns - case.connection.opened_ns


def _age_of(end: End) -> int:
    return end.timestamp_ns - end.opened_ns


def _is_same(age_ns: int, other_ns: int) -> bool:
    return abs(age_ns - other_ns) * SAME_AGE <= max(age_ns, other_ns)


def _of_client(case: Case) -> list[End]:
    """Ends of the connections of the client, each with its beginning in the capture."""
    key = client_key(case.connection)
    return [end for end in case.book.of(case.connection.server).ends if end.key == key and end.is_begun]
