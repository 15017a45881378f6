"""Causes that time shows: the Keep Alive, and a PINGRESP that did not come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mqttscope.explain import describe
from mqttscope.explain.causes.case import SECOND, Case, candidate, twin, twin_sentence
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence

EARLY_NS = SECOND // 2
"""So much earlier than the limit a server may close: its clock is not the capture's, nor its place."""
EXACT_NS = SECOND // 50
"""So much below the limit is still the limit: captures take their times a little later or earlier than brokers."""
LATE_NS = 10 * SECOND
"""So much later servers close that look at their clients now and then."""
SHORTEST_IDLE_NS = SECOND // 2
"""Shorter silences before an end are no idle time-out."""
LEAST_IDLE_NS = 5 * SECOND
"""Shorter ones may have another cause that takes its time: then it is a hypothesis."""
LEAST_ALIKE = 3
"""Connections that ended after the same silence."""
ALIKE = 50
"""The same: it differs by less than this part."""
NEAR = 10
"""The same of a timer that may be late, where the times of ends follow the silences."""
APART = 4
"""Ends that differ by this many times more than the silences before them follow those."""
MOMENTS_NS = SECOND // 20
"""Ends within this time may be of one stop, however alike the silences before them are."""
PATIENT_NS = 2 * SECOND
"""A client that closes sooner after its PINGREQ did not do so because of that, unless its Keep Alive is shorter."""


def keep_alive_sentences(case: Case, ended_ns: int) -> list[Evidence]:
    """The arithmetic of the Keep Alive; empty where there is none."""
    story, keep_alive = case.story, case.connection.keep_alive
    last = story.last_of("client")
    if not keep_alive or last is None:
        return []
    if story.server_keep_alive is not None:
        said = f"Server Keep Alive {keep_alive} s in the CONNACK"
        if story.announced_keep_alive is not None:
            said += f" (the CONNECT asked for {story.announced_keep_alive} s)"
        place = story.connack
    else:
        said, place = f"Keep Alive {keep_alive} s in the CONNECT", story.connect
    limit = describe.seconds(keep_alive * 1.5)
    where = (None, None) if place is None else (place.frame, place.timestamp_ns)
    after = f"{describe.span(ended_ns - last.timestamp_ns)} after it " if last.frame >= story.clock_set else ""
    return [
        Evidence(f"{said}: the broker waits 1.5 × {keep_alive} s = {limit} for a packet of the client", *where),
        story.evidence(last, f"the client's last packet: {last.what}"),
        Evidence(f"the broker ended the connection {after}(limit {limit})", story.ended_frame, ended_ns),
    ]


def keep_alive(case: Case) -> Iterator[Candidate]:
    """The server closed when the client had been silent for one and a half times the Keep Alive."""
    story, limit_s = case.story, case.connection.keep_alive
    silent = story.silent_ns
    if not limit_s or silent is None:
        return
    limit = limit_s * SECOND * 3 // 2
    slack = LATE_NS + limit_s * SECOND // 4
    reasons: list[Evidence | None] = list(keep_alive_sentences(case, case.ended_ns))
    doubts: list[Evidence | None] = []
    certainty, weight = Certainty.LIKELY, 80
    length, allowed = describe.span(silent), describe.seconds(limit_s * 1.5)
    told = f"The Keep Alive ran out: the client sent nothing for {length}, and {allowed} are allowed"
    if silent < limit - EARLY_NS:
        certainty, weight = Certainty.HYPOTHESIS, 55
        told = "The broker may count the Keep Alive in its own way: the client sent nothing for"
        told += f" {length}, less than the {allowed} allowed"
        doubts.append(Evidence("the broker closed before one and a half times the Keep Alive had passed"))
    elif silent < limit:
        told = f"The Keep Alive may have run out: the silence of {length} is just below the {allowed} allowed;"
        told += " the broker's clock or timer may count differently"
        if silent < limit - EXACT_NS:
            certainty, weight = Certainty.HYPOTHESIS, 62
    elif silent > limit + slack:
        certainty, weight = Certainty.HYPOTHESIS, 60
        late = describe.span(silent - limit)
        doubts.append(Evidence(f"the broker closed {late} later than the limit, which few brokers do"))
    if case.connection.client_side.gapped:
        certainty = Certainty.HYPOTHESIS
        doubts.append(case.unknown("a packet may have been"))
    client, last = case.half("client"), story.last_of("client")
    sent = (
        []
        if client is None or last is None
        else [one for one in client.recent if one.length and last.timestamp_ns < one.timestamp_ns <= case.ended_ns]
    )
    if sent and client is not None and not client.repeats:
        certainty, told = Certainty.HYPOTHESIS, told.replace("sent nothing for", "sent no complete packet for")
        doubts.append(Evidence.at("it sent bytes of a packet that never was complete", sent[-1]))
    other = twin(case)
    if other is not None:
        weight -= 30
        doubts.append(twin_sentence(case, other))
    link, advice = _of_the_link(case)
    headline = told + (f"; {link[0]}." if link else ".")
    reasons += [one for one in link if isinstance(one, Evidence)]
    yield candidate(
        Cause.KEEP_ALIVE, certainty, headline, reasons, doubts,
        [one for one in case.violations("client", silent + SECOND) if one.rule.startswith("KAL")],
        advice=advice, usual=not advice, weight=weight,
    )  # fmt: skip


_PATH = (
    "Choose a Keep Alive that is shorter than the idle time-out of NAT and firewalls on the path, and longer than the"
    " usual gaps of the link."
)


def _of_the_link(case: Case) -> tuple[list[str | Evidence], tuple[str, ...]]:
    """Whether the client was still there while it was silent: a few words for the headline, and the evidence."""
    client, server = case.half("client"), case.half("server")
    story = case.story
    last = story.last_of("client")
    if client is None or server is None or last is None:
        return [], ()
    resets = [one for one in client.resets if one.timestamp_ns >= case.ended_ns]
    answered = [one for one in client.recent if one.timestamp_ns > case.ended_ns]
    if resets and answered and answered[0].timestamp_ns < resets[0].timestamp_ns and not server.outstanding:
        resets = []  # a stack that acknowledged the end knew the connection: its program let go of it later
    if (server.outstanding_bytes and not resets) or server.repeats:
        what, be = (f"{server.outstanding_bytes:,} bytes", "were") if server.outstanding_bytes else ("the FIN", "was")
        said = f"{what} of the broker {be} never acknowledged"
        if server.repeats:
            said += f", and {be} sent again {server.repeats} times"
        where = server.last_repeat
        told = Evidence(said, where.frame, where.timestamp_ns) if where else Evidence(said)
        return (
            ["the client was out of reach", told],
            (
                "Look at the link of the device at that time (signal, power, NAT)"
                + (": it did not even acknowledge at TCP." if not resets else "."),
                _PATH,
            ),
        )
    if resets:
        told = Evidence(
            "the client answered the end of the connection with RST: its stack had lost the connection, as after a"
            " restart, or had given it up", resets[0].frame, resets[0].timestamp_ns,
        )  # fmt: skip
        return ["the device had lost the connection", told], (
            "Look for resets in the log of the device: watchdog, supply voltage, crash.",
        )
    alive = [one for one in client.recent if last.timestamp_ns + SECOND < one.timestamp_ns <= case.ended_ns]
    if alive:
        one = alive[-1]
        told = Evidence("its TCP acknowledged in that time: the device was there, and its MQTT was silent", one.frame,
                        one.timestamp_ns)  # fmt: skip
        return ["its TCP was alive", told], ()
    if answered:
        one = answered[0]
        told = Evidence(
            "its TCP answered the end of the connection: the device was there, and its MQTT was silent", one.frame,
            one.timestamp_ns,
        )  # fmt: skip
        return ["its TCP was alive", told], ()
    if server.outstanding:
        return (
            ["and nothing of the client answered the end", Evidence("the broker's FIN was not acknowledged")],
            ("Look at the link and the power of the device at that time.", _PATH),
        )
    return [], ()


def silence_repeated(case: Case) -> bool:
    """Each connection ended after the silence of another one, at a time as far from its end as their last bytes."""
    known = dict(case.book.of(case.connection.server).idle)
    ends = {case.connection.number: case.ended_ns, **{end.connection: end.timestamp_ns for end in case.together}}
    if not ends.keys() <= known.keys():
        return False
    alike: list[list[tuple[int, int]]] = []
    for silence, at in sorted((known[number], at) for number, at in ends.items()):
        if not alike or (silence - alike[-1][0][0]) * NEAR > alike[-1][0][0]:
            alike.append([])
        alike[-1].append((silence, at))
    return all(_apart_ns(rows) > max(APART * (rows[-1][0] - rows[0][0]), MOMENTS_NS) for rows in alike)


def _apart_ns(rows: list[tuple[int, int]]) -> int:
    times = [at for _, at in rows]
    return max(times) - min(times)


def idle_timeout(case: Case) -> Iterator[Candidate]:
    """Several connections to a server ended after the same silence: a proxy or firewall counts it."""
    idle, keep_alive = case.story.idle_ns, case.connection.keep_alive
    if idle is None or idle < SHORTEST_IDLE_NS:
        return
    server = case.book.of(case.connection.server)
    alike = {number: other for number, other in server.idle if abs(other - idle) * ALIKE <= idle}
    if len(alike) < LEAST_ALIKE:
        return
    # Ends have a cause in common where they are nearer to each other than the silences before them are alike.
    least_ns = APART * (max(alike.values()) - min(alike.values()))
    times = sorted({end.timestamp_ns for end in server.ends if end.connection in alike})
    if 1 + sum(later - earlier > least_ns for earlier, later in pairwise(times)) < LEAST_ALIKE:
        return
    shown = ", ".join(f"#{number}" for number in list(alike)[:8]) + (", …" if len(alike) > 8 else "")
    kept = f"shorter than the Keep Alive of {keep_alive} s allows" if keep_alive else "and there is no Keep Alive"
    if keep_alive is None:
        kept = "and its Keep Alive is unknown"
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY if idle >= LEAST_IDLE_NS else Certainty.HYPOTHESIS,
        f"An idle time-out of {describe.span(idle)} ended the connection, {kept}: a proxy, load balancer or firewall"
        " between the two most probably has it.",
        [
            Evidence(f"{len(alike)} connections ended {describe.span(idle)} after their last byte ({shown})"),
            Evidence("no connection to this server stayed open after a longer silence"), case.closing(),
        ],
        weight=83,
    )  # fmt: skip


def no_ping_response(case: Case) -> Iterator[Candidate]:
    """The client closed while it waited for a PINGRESP."""
    story, ping = case.story, case.story.ping
    if ping is None:
        return
    waited = case.ended_ns - ping.timestamp_ns
    if waited < min(PATIENT_NS, (case.connection.keep_alive or PATIENT_NS) * SECOND - EXACT_NS):
        return
    client = case.half("client")
    reached = client is not None and client.is_acknowledged and not client.outstanding and not client.repeats
    reasons = [
        story.evidence(ping, "the client sent PINGREQ"),
        Evidence(f"no PINGRESP came in the {describe.span(waited)} until the client closed"),
        Evidence(
            "the broker's TCP acknowledged the PINGREQ: it reached the machine, and the broker did not answer"
            if reached
            else "nothing acknowledged the PINGREQ: it, or its answer, was lost on the way"
        ),
        case.closing(),
    ]
    yield candidate(
        Cause.NO_PING_RESPONSE, Certainty.LIKELY,
        f"The client gave the connection up: its PINGREQ had no answer for {describe.span(waited)}.",
        reasons, broken=case.violations("server"), weight=75 if reached else 65,
    )  # fmt: skip
