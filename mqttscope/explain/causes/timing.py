"""Causes that time shows: the Keep Alive, and a PINGRESP that did not come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from mqttscope.explain import describe
from mqttscope.explain.book import End
from mqttscope.explain.causes.case import RETURN_NS, SECOND, Case, candidate, twin, twin_sentence
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.story import ALIKE
from mqttscope.mqtt.constants import PacketType

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
NEAR = 10
"""The same of a timer that may be late, where the times of ends follow the silences."""
APART = 4
"""Ends that differ by this many times more than the silences before them follow those."""
MOMENTS_NS = SECOND // 20
"""Ends within this time may be of one stop, however alike the silences before them are."""
PATIENT_NS = 2 * SECOND
"""A client that closes sooner after its PINGREQ did not do so because of that, unless its Keep Alive is shorter."""


def counted_once(case: Case) -> list[End]:
    """Ends, this one among them, that each came one Keep Alive after the client's last packet.

    Empty if they are few, or if the server bore a longer silence.
    """
    if not _is_once(case.connection.keep_alive or 0, case.story.silent_ns):
        return []
    known, others = case.book.of(case.connection.server), case.book.open.get(case.connection.server, {})
    if known.bears_silence or any(story.is_borne for story in others.values()):
        return []
    ends = [end for end in known.ends if end.by == "server"]
    if any(end.keep_alive and (end.silent_ns or 0) > _above(end.keep_alive * SECOND) for end in ends):
        return []
    found = [end for end in ends if _is_once(end.keep_alive, end.silent_ns)]
    return found if len(found) >= LEAST_ALIKE else []


def _is_once(keep_alive: int, silent_ns: int | None) -> bool:
    limit_ns = keep_alive * SECOND
    return bool(limit_ns and silent_ns is not None and limit_ns - EXACT_NS <= silent_ns <= _above(limit_ns))


def _above(limit_ns: int) -> int:
    return limit_ns + limit_ns // ALIKE


def no_proxy_fits(case: Case, ends: list[End]) -> bool:
    """Whether ends followed the Keep Alive and no fixed time: clients with different ones, or bytes of the server."""
    known = dict(case.book.of(case.connection.server).idle)
    apart = [
        known[end.connection] * ALIKE < (end.silent_ns or 0) * (ALIKE - 1) for end in ends if end.connection in known
    ]
    return len({end.keep_alive for end in ends}) > 1 or any(apart)


def publish_uncounted(case: Case) -> list[End]:
    """Ends, this one among them, that came 1.5 times the Keep Alive after the last packet other than PUBLISH.

    Empty if they are few, or if the server bore a longer time with PUBLISH alone.
    """
    if not _is_uncounted(case.connection.keep_alive or 0, case.story.silent_ns, case.story.quiet_ns):
        return []
    known, others = case.book.of(case.connection.server), case.book.open.get(case.connection.server, {})
    if known.counts_publish or any(story.counts_publish for story in others.values()):
        return []
    found = [
        end for end in known.ends
        if end.by == "server" and _is_uncounted(end.keep_alive, end.silent_ns, end.quiet_ns)
    ]  # fmt: skip
    return found if len(found) >= LEAST_ALIKE else []


def _is_uncounted(keep_alive: int, silent_ns: int | None, quiet_ns: int | None) -> bool:
    limit_ns = keep_alive * SECOND
    if silent_ns is None or quiet_ns is None or silent_ns >= limit_ns - EARLY_NS:
        return False
    return abs(quiet_ns - limit_ns * 3 // 2) <= limit_ns // ALIKE


def numbers_of(ends: list[End]) -> str:
    """The connections of ends, the first eight of them."""
    return _first(end.connection for end in ends)


def is_counted_once(case: Case) -> bool:
    """Each of the ends that came together came one Keep Alive after its client's last packet, as others did."""
    counted = {end.connection for end in counted_once(case)}
    return bool(counted) and counted.issuperset(end.connection for end in case.together)


def keep_alive_sentences(case: Case, ended_ns: int) -> list[Evidence]:
    """The arithmetic of the Keep Alive; empty where there is none."""
    story, keep_alive = case.story, case.connection.keep_alive
    last = story.last_arrived
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
        story.evidence(
            last, f"the client's last packet{'' if last is story.last_of('client') else ' that arrived'}: {last.what}"
        ),
        Evidence(f"the broker ended the connection {after}(limit {limit})", story.ended_frame, ended_ns),
    ]


OF_UNFINISHED = (
    (
        "Send smaller messages, or choose a Keep Alive that is longer than the largest one takes on this link: no"
        " PINGREQ can be sent inside a packet."
    ),
)


def unfinished(case: Case) -> str:
    """The packet that the client was sending when the server closed, and that had been arriving; empty without one."""
    cut, last, client = case.story.cut.get("client"), case.story.last_arrived, case.half("client")
    if cut is None or last is None or client is None or client.advanced_ns - last.timestamp_ns < SECOND:
        return ""
    kind, length, total = cut
    name = PacketType(kind).name if kind in tuple(PacketType) else "packet"
    return f"{name} of {total:,} bytes, of which {length:,} were sent"


def keep_alive(case: Case) -> Iterator[Candidate]:
    """The server closed when the client had been silent for one and a half times the Keep Alive."""
    story, limit_s = case.story, case.connection.keep_alive
    silent = story.silent_ns
    if not limit_s or silent is None or case.by != "server" or not case.is_closed:
        return
    limit = limit_s * SECOND * 3 // 2
    slack = LATE_NS + limit_s * SECOND // 4
    reasons: list[Evidence | None] = list(keep_alive_sentences(case, case.ended_ns))
    doubts: list[Evidence | None] = []
    certainty, weight = Certainty.LIKELY, 80
    length, allowed = describe.span(silent), describe.seconds(limit_s * 1.5)
    told = f"The Keep Alive ran out: the client sent nothing for {length}, and {allowed} are allowed"
    once = counted_once(case)
    if once:
        is_sure = no_proxy_fits(case, once)
        certainty = Certainty.LIKELY if is_sure else Certainty.HYPOTHESIS
        weight = 84
        told = f"The broker {'counts' if is_sure else 'may count'} the Keep Alive once and not one and a half times: it"
        told += (
            f" ended {len(once)} connections when that had passed, this one after {length}, and {allowed} are allowed"
        )
        if not is_sure:
            doubts.append(Evidence("an idle time-out of the same length ends connections in the same way"))
        reasons.append(
            Evidence(f"each of these ends came one Keep Alive after the client's last packet: {numbers_of(once)}")
        )
    elif silent < limit - EARLY_NS:
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
    is_lost = story.lost_ns is not None
    if is_lost:
        weight -= 30
        told = told.replace("the client sent nothing", "nothing of the client arrived")
    elif case.connection.client_side.gapped:
        certainty = Certainty.HYPOTHESIS
        doubts.append(case.unknown("a packet may have been"))
    client, last = case.half("client"), story.last_of("client")
    sent = (
        []
        if client is None or last is None
        else [one for one in client.recent if one.length and last.timestamp_ns < one.timestamp_ns <= case.ended_ns]
    )
    if sent and client is not None and not client.repeats and not is_lost:
        certainty, told = Certainty.HYPOTHESIS, told.replace("sent nothing for", "sent no complete packet for")
        doubts.append(Evidence.at("it sent bytes of a packet that never was complete", sent[-1]))
    other = twin(case)
    if other is not None:
        weight -= 30
        doubts.append(twin_sentence(case, other))
    link, advice = (["what it had sent was lost"], (_PATH,)) if is_lost else _of_the_link(case)
    packet = unfinished(case)
    if once:
        link, advice = [], _OF_STRICT
    elif packet:
        link, advice = [f"it was sending a {packet}, and brokers count only complete packets"], OF_UNFINISHED
    headline = told + (f"; {link[0]}." if link else ".")
    reasons += [one for one in link if isinstance(one, Evidence)]
    yield candidate(
        Cause.KEEP_ALIVE, certainty, headline, reasons, doubts,
        [one for one in case.violations("client", silent + SECOND) if one.rule.startswith("KAL")],
        advice=advice, usual=not advice, weight=weight,
    )  # fmt: skip


_OF_STRICT = (
    (
        "Let the broker wait for one and a half times the Keep Alive (look for a factor or a back-off of the Keep Alive"
        " in its settings)."
    ),
    "Until then let the client send PINGREQ well before its Keep Alive has passed, such as after half of it.",
)
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
    if idle is None or idle < SHORTEST_IDLE_NS or alike_of_client(case):
        return
    server = case.book.of(case.connection.server)
    alike = {number: other for number, other in server.idle if abs(other - idle) * ALIKE <= idle}
    if len(alike) < LEAST_ALIKE:
        return
    if not _are_apart(alike, [end for end in server.ends if end.connection in alike]):
        return
    same = is_counted_once(case) and (case.connection.transport == "tcp" or no_proxy_fits(case, counted_once(case)))
    kept = f"shorter than the Keep Alive of {keep_alive} s allows" if keep_alive else "and there is no Keep Alive"
    if keep_alive is None:
        kept = "and its Keep Alive is unknown"
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY if idle >= LEAST_IDLE_NS and not same else Certainty.HYPOTHESIS,
        f"An idle time-out of {describe.span(idle)} ended the connection, {kept}: a proxy, load balancer or firewall"
        " between the two most probably has it.",
        [
            Evidence(f"{len(alike)} connections ended {describe.span(idle)} after their last byte ({_first(alike)})"),
            Evidence("no connection to this server stayed open after a longer silence"), case.closing(),
        ],
        [Evidence("each client had been silent for its Keep Alive")] if same else [], weight=63 if same else 83,
    )  # fmt: skip


def _are_apart(silences: dict[int, int], ends: list[End]) -> bool:
    """Ends have a cause in common where they are nearer to each other than the silences before them are alike."""
    least_ns = APART * (max(silences.values()) - min(silences.values()))
    times = sorted({end.timestamp_ns for end in ends})
    return 1 + sum(later - earlier > least_ns for earlier, later in pairwise(times)) >= LEAST_ALIKE


def patience_ns(case: Case) -> int:
    """How long further ends may come that repeat the silence before this one; 0 where none can."""
    idle, silent = case.story.idle_ns, case.story.silent_ns or 0
    if case.by != "server" or not case.is_closed or idle is None or idle < SHORTEST_IDLE_NS:
        return 0
    return LEAST_ALIKE * (max(idle, 0 if case.connection.keep_alive else silent) + RETURN_NS)


def longest_pause_ns(case: Case) -> int:
    """The longest silence that a connection to the server survived, or another one that it ended."""
    known, now_ns = case.book.of(case.connection.server), case.watch.now_ns
    open_ns = now_ns - case.book.witnesses(case.connection.server, case.watch).quiet_since_ns
    return max([known.pause_ns, open_ns, *(other for _, other in known.idle)])


def alike_of_client(case: Case) -> dict[int, int]:
    """Ends, this one among them, each the same time after the last packet of a client without a Keep Alive.

    By connection, with that time.  Empty if they are few, if their last bytes in either direction explain them, or if
    the server bore a longer silence of a client.
    """
    silent, server = case.story.silent_ns, case.connection.server
    if case.connection.keep_alive != 0 or silent is None or silent < LEAST_IDLE_NS or case.by != "server":
        return {}
    known, idle = case.book.of(server), dict(case.book.of(server).idle)
    ends = [
        end for end in known.ends
        if end.connection in idle and not end.keep_alive and abs((end.silent_ns or 0) - silent) * ALIKE <= silent
    ]  # fmt: skip
    alike = {end.connection: end.silent_ns or 0 for end in ends}
    if len(alike) < LEAST_ALIKE or not _are_apart(alike, ends):
        return {}
    pauses = [idle[number] for number in alike]
    if _above(min(pauses)) >= max(pauses) and longest_pause_ns(case) <= _above(max(pauses)):
        return {}  # the bytes of the server may have put the ends off
    longest = max([case.book.longest_of_client(server, case.watch), *(end.silent_ns or 0 for end in known.ends)])
    return alike if longest <= _above(silent) and case.connection.number in alike else {}


def client_timeout(case: Case) -> Iterator[Candidate]:
    """Several clients without a Keep Alive were ended after the same silence, whatever the server sent meanwhile."""
    alike = alike_of_client(case)
    if not alike:
        return
    spread = max(alike.values()) - min(alike.values())
    length = describe.seconds(round((case.story.silent_ns or 0) / SECOND, 3))
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY if spread <= SECOND else Certainty.HYPOTHESIS,
        f"The connection ended {length} after the client's last packet, whatever the broker sent meanwhile: the broker,"
        " or a device between the two, most probably has an idle time-out for clients without a Keep Alive.",
        [
            Evidence(
                f"{len(alike)} connections without a Keep Alive ended {length} after their client's last packet"
                f" ({_first(alike)}); these times differ by {describe.span(spread)}"
            ),
            *case.last_packet("client"), *case.last_packet("server"),
            Evidence("no client of this broker was silent for longer and stayed"), case.closing(),
        ],
        advice=("Set a Keep Alive in the client, shorter than this time-out, so that it sends PINGREQ in time.",),
        usual=False, weight=82,
    )  # fmt: skip


def _first(numbers: Iterable[int]) -> str:
    shown = list(numbers)
    return ", ".join(f"#{number}" for number in shown[:8]) + (", …" if len(shown) > 8 else "")


_OF_SLOW_BROKER = (
    "Look why the broker did not answer then: load, a blocked thread, or a proxy before it that took the bytes.",
    "Let the client wait for a PINGRESP longer than the longest delay of the broker.",
)


def no_ping_response(case: Case) -> Iterator[Candidate]:
    """The client closed while it waited for a PINGRESP."""
    story, ping = case.story, case.story.ping
    if ping is None:
        return
    waited = case.ended_ns - ping.timestamp_ns
    if waited < min(PATIENT_NS, (case.connection.keep_alive or PATIENT_NS) * SECOND - EXACT_NS):
        return
    client = case.half("client")
    reached = client is not None and client.is_acknowledged and not client.outstanding_bytes and not client.repeats
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
        reasons, broken=case.violations("server"), advice=_OF_SLOW_BROKER if reached else (), usual=not reached,
        weight=75 if reached else 65,
    )  # fmt: skip
