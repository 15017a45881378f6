"""Causes that time shows: the Keep Alive, and a PINGRESP that did not come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE
from mqttscope.explain.book import End
from mqttscope.explain.causes.case import MEANING, RETURN_NS, SECOND, Case, candidate, twin, twin_sentence
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import SMALL_BYTES
from mqttscope.explain.story import ALIKE
from mqttscope.mqtt.constants import PacketType

IMPATIENT_NS = SECOND // 10
"""Maximum time from a PINGREQ to the end by a client that did not wait for PINGRESP."""
EARLY_NS = SECOND // 2
"""Maximum time before the limit when a server may close: clocks differ, and packets take time to the capture."""
EXACT_NS = SECOND // 50
"""Maximum time below the limit that still counts as the limit: captures and brokers take times at different moments."""
LATE_NS = 10 * SECOND
"""Maximum delay of servers that check their clients at intervals."""
SHORTEST_IDLE_NS = SECOND // 2
"""Minimum silence before an end by an idle time-out."""
LEAST_IDLE_NS = 5 * SECOND
"""Shorter ones may have another cause that takes its time: then it is a hypothesis."""
LEAST_ALIKE = 3
"""Connections that ended after the same silence."""
NEAR = 10
"""Divisor of the silence within which ends of a late timer are alike."""
APART = 4
"""Ends that differ by this many times more than the silences before them follow those."""
MOMENTS_NS = SECOND // 20
"""Ends within this time may be of one stop, however alike the silences before them are."""
FORGOTTEN_NS = 30 * SECOND
"""Minimum time without a packet that makes a NAT or firewall forget a connection."""
LEAST_HELD = 10
"""Minimum number of segments that a side held back."""
LEAST_UNREAD_NS = SECOND
"""Minimum time of a closed receive window that shows a client that does not read."""
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
    alike = [end for end in ends if _is_once(end.keep_alive, end.silent_ns)]
    return alike if len(alike) >= LEAST_ALIKE else []


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
    alike = [
        end for end in known.ends
        if end.by == "server" and _is_uncounted(end.keep_alive, end.silent_ns, end.quiet_ns)
    ]  # fmt: skip
    return alike if len(alike) >= LEAST_ALIKE else []


def _is_uncounted(keep_alive: int, silent_ns: int | None, quiet_ns: int | None) -> bool:
    limit_ns = keep_alive * SECOND
    if silent_ns is None or quiet_ns is None or silent_ns >= limit_ns - EARLY_NS:
        return False
    return abs(quiet_ns - limit_ns * 3 // 2) <= limit_ns // ALIKE


def numbers_of(ends: list[End]) -> str:
    """The connections of ends, the first eight of them."""
    return first_of(end.connection for end in ends)


def is_counted_once(case: Case) -> bool:
    """Each of the ends that came together came one Keep Alive after its client's last packet, as others did."""
    counted = {end.connection for end in counted_once(case)}
    return bool(counted) and counted.issuperset(end.connection for end in case.together)


def keep_alive_sentences(case: Case, ended_ns: int) -> list[Evidence]:
    """The arithmetic of the Keep Alive, or empty."""
    story, keep_alive = case.story, case.connection.keep_alive
    last = story.last_arrived
    if not keep_alive or last is None:
        return []
    if story.server_keep_alive is not None:
        announced = f"Server Keep Alive {keep_alive} s in the CONNACK"
        if story.announced_keep_alive is not None:
            announced += f" (the CONNECT asked for {story.announced_keep_alive} s)"
        place = story.connack
    else:
        announced, place = f"Keep Alive {keep_alive} s in the CONNECT", story.connect
    limit = describe.seconds(keep_alive * 1.5)
    where = (None, None) if place is None else (place.frame, place.timestamp_ns)
    after = f"{describe.span(ended_ns - last.timestamp_ns)} after it " if last.frame >= story.clock_set else ""
    return [
        Evidence(f"{announced}: the broker waits 1.5 × {keep_alive} s = {limit} for a packet of the client", *where),
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
    summary = f"The Keep Alive ran out: the client sent nothing for {length}, and {allowed} are allowed"
    once = counted_once(case)
    unread = closed_window(case)
    if once:
        is_sure = no_proxy_fits(case, once)
        certainty = Certainty.LIKELY if is_sure else Certainty.HYPOTHESIS
        weight = 84
        summary = (
            f"The broker {'counts' if is_sure else 'may count'} the Keep Alive once and not one and a half times: it"
        )
        summary += (
            f" ended {len(once)} connections when that had passed, this one after {length}, and {allowed} are allowed"
        )
        if not is_sure:
            doubts.append(Evidence("an idle time-out of the same length ends connections in the same way"))
        reasons.append(
            Evidence(f"each of these ends came one Keep Alive after the client's last packet: {numbers_of(once)}")
        )
    elif silent < limit - EARLY_NS:
        certainty, weight = Certainty.HYPOTHESIS, 55
        summary = "The broker may count the Keep Alive in its own way: the client sent nothing for"
        summary += f" {length}, less than the {allowed} allowed"
        doubts.append(Evidence("the broker closed before one and a half times the Keep Alive had passed"))
    elif silent < limit:
        summary = f"The Keep Alive may have run out: the silence of {length} is just below the {allowed} allowed;"
        summary += " the broker's clock or timer may count differently"
        if silent < limit - EXACT_NS:
            certainty, weight = Certainty.HYPOTHESIS, 62
    elif silent > limit + slack:
        certainty, weight = Certainty.HYPOTHESIS, 60
        late = describe.span(silent - limit)
        doubts.append(Evidence(f"the broker closed {late} later than the limit, which few brokers do"))
    is_lost = story.lost_ns is not None
    if is_lost:
        weight -= 30
        summary = summary.replace("the client sent nothing", "nothing of the client arrived")
    elif case.connection.client_side.gapped:
        certainty = Certainty.HYPOTHESIS
        doubts.append(case.unknown("a packet may have been"))
    client, last = case.half("client"), story.last_of("client")
    sent = (
        []
        if client is None or last is None
        else [seen for seen in client.recent if seen.length and last.timestamp_ns < seen.timestamp_ns <= case.ended_ns]
    )
    if sent and client is not None and not client.repeats and not is_lost:
        certainty, summary = Certainty.HYPOTHESIS, summary.replace("sent nothing for", "sent no complete packet for")
        doubts.append(Evidence.at("it sent bytes of a packet that never was complete", sent[-1]))
    other = twin(case)
    if other is not None:
        weight -= 30
        doubts.append(twin_sentence(case, other))
    link, advice = of_the_link(case)
    if is_lost:
        link, advice = ["what it had sent was lost"], (_PATH,)
    packet = unfinished(case)
    if unread is not None and certainty is Certainty.LIKELY and not (once or is_lost or packet):
        summary = f"{unread.text[0].upper()}{unread.text[1:]}, so it sent no PINGREQ and its Keep Alive ran out"
        link, advice = [f"{allowed} are allowed", unread], OF_UNREAD
        weight += 1
    if once:
        link, advice = [], _OF_STRICT
    elif packet:
        link, advice = [f"it was sending a {packet}, and brokers count only complete packets"], OF_UNFINISHED
    headline = summary + (f"; {link[0]}." if link else ".")
    reasons += [reason for reason in link if isinstance(reason, Evidence)]
    yield candidate(
        Cause.KEEP_ALIVE, certainty, headline, reasons, doubts,
        [broken for broken in case.violations("client", silent + SECOND) if broken.rule.startswith("KAL")],
        advice=advice, usual=not advice, weight=weight,
    )  # fmt: skip


def closed_window(case: Case) -> Evidence | None:
    """That the client did not read for most of the time since its last packet: its receive window was closed.

    Its TCP has to be heard of in the second half of that time, or after the end: a client that is gone reads nothing.
    """
    client, last = case.half("client"), case.story.last_of("client")
    if client is None or last is None or case.story.clock_set or case.connection.client_side.gapped:
        return None
    silent_ns = case.ended_ns - last.timestamp_ns
    closed_ns = client.closed_ns(last.timestamp_ns, case.ended_ns)
    first = client.first_closure(last.timestamp_ns, case.ended_ns)
    if first is None or closed_ns < LEAST_UNREAD_NS or 2 * closed_ns < silent_ns:
        return None
    heard = [*client.recent, *client.resets]
    if not any(2 * (seen.timestamp_ns - last.timestamp_ns) > silent_ns for seen in heard):
        return None
    size = f"below {SMALL_BYTES} bytes" if first.window else "0"
    text = f"the client did not read what the broker sent (receive window {size} for {describe.span(closed_ns)} of the"
    return Evidence.at(f"{text} {describe.span(silent_ns)} after its {last.what.split(' ')[0]})", first)


def closed_unread(case: Case) -> Iterator[Candidate]:
    """The server closed while the client had not read what it was sent, for another reason than the Keep Alive."""
    unread, client, last = closed_window(case), case.half("client"), case.story.last_of("client")
    if unread is None or client is None or last is None or not case.is_closed:
        return
    if not client.closed_ns(case.ended_ns - 1, case.ended_ns):
        return
    yield candidate(
        Cause.SERVER_CLOSED if case.how == "fin" else Cause.SERVER_RESET, Certainty.HYPOTHESIS,
        f"{unread.text[0].upper()}{unread.text[1:]}, and the broker ended the connection: it may not hold more for it.",
        [case.story.evidence(last, f"the client's last packet: {last.what}"), unread, case.closing()],
        advice=OF_UNREAD, usual=False, weight=UNREAD_WEIGHT,
    )  # fmt: skip


UNREAD_WEIGHT = 15
"""More than the bare fact of an end has."""
OF_UNREAD = (
    "Subscribe to less, or to topics with fewer retained messages: look at what came after the SUBSCRIBE.",
    "Let the client read in time, from a task that no other work blocks, and raise its receive buffer.",
)
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


def of_the_link(case: Case) -> tuple[list[str | Evidence], tuple[str, ...]]:
    """Whether the client was still there while it was silent: a few words for the headline, and the evidence."""
    client, server = case.half("client"), case.half("server")
    story = case.story
    last = story.last_of("client")
    if client is None or server is None or last is None:
        return [], ()
    resets = [seen for seen in client.resets if seen.timestamp_ns >= case.ended_ns]
    answered = [seen for seen in client.recent if seen.timestamp_ns > case.ended_ns]
    if resets and answered and answered[0].timestamp_ns < resets[0].timestamp_ns and not server.outstanding:
        resets = []  # a stack that acknowledged the end had the connection: its program closed it later
    if (server.outstanding_bytes and not resets) or server.repeats:
        what, be = (f"{server.outstanding_bytes:,} bytes", "were") if server.outstanding_bytes else ("the FIN", "was")
        sentence = f"{what} of the broker {be} never acknowledged"
        if server.repeats:
            sentence += f", and {be} sent again {server.repeats} times"
        where = server.last_repeat
        evidence = Evidence(sentence, where.frame, where.timestamp_ns) if where else Evidence(sentence)
        return (
            ["the client was out of reach", evidence],
            (
                "Look at the link of the device at that time (signal, power, NAT)"
                + (": it did not even acknowledge at TCP." if not resets else "."),
                _PATH,
            ),
        )
    if resets:
        evidence = Evidence(
            "the client answered the end of the connection with RST: its stack had lost the connection, as after a"
            " restart, or had given it up", resets[0].frame, resets[0].timestamp_ns,
        )  # fmt: skip
        return ["the device had lost the connection", evidence], (
            "Look for resets in the log of the device: watchdog, supply voltage, crash.",
        )
    alive = [seen for seen in client.recent if last.timestamp_ns + SECOND < seen.timestamp_ns <= case.ended_ns]
    if alive:
        seen = alive[-1]
        text = "its TCP acknowledged in that time: the device was there, and its MQTT was silent"
        evidence = Evidence(text, seen.frame, seen.timestamp_ns)
        return ["its TCP was alive", evidence], ()
    if answered:
        seen = answered[0]
        evidence = Evidence(
            "its TCP answered the end of the connection: the device was there, and its MQTT was silent", seen.frame,
            seen.timestamp_ns,
        )  # fmt: skip
        return ["its TCP was alive", evidence], ()
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
    server, is_reset = case.book.of(case.connection.server), case.by == "client"
    silences = server.idle_resets if is_reset else server.idle
    alike = {number: other for number, other in silences if abs(other - idle) * ALIKE <= idle}
    if is_reset and (case.how != "reset" or idle < LEAST_IDLE_NS or case.connection.number not in alike):
        return
    if len(alike) < LEAST_ALIKE:
        return
    if not _are_apart(alike, [end for end in server.ends if end.connection in alike]):
        return
    same = is_counted_once(case) and (case.connection.transport == "tcp" or no_proxy_fits(case, counted_once(case)))
    allowance = f"shorter than the Keep Alive of {keep_alive} s allows" if keep_alive else "and there is no Keep Alive"
    if keep_alive is None:
        allowance = "and its Keep Alive is unknown"
    place = "a proxy, load balancer or firewall between the two most probably has it"
    if is_reset:
        place = "a gateway or firewall on the client's side most probably has it, or the client itself"
    part = "" if is_reset else _part_of(keep_alive or 0, idle)
    if part:
        place += f", or the broker itself, since that is {part} of the Keep Alive"
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY if idle >= LEAST_IDLE_NS and not same else Certainty.HYPOTHESIS,
        f"An idle time-out of {describe.span(idle)} ended the connection, {allowance}: {place}.",
        [
            Evidence(f"{len(alike)} connections ended {describe.span(idle)} after their last byte ({first_of(alike)})"),
            Evidence("no connection to this server stayed open after a longer silence"), case.closing(),
        ],
        [Evidence("each client had been silent for its Keep Alive")] if same else [],
        advice=(_OF_PART,) if part else (), weight=63 if same else 83,
    )  # fmt: skip


def _part_of(keep_alive: int, idle: int) -> str:
    """The part of the Keep Alive that a silence is, if brokers that close too early may count it; else empty."""
    for part, name in _PARTS:
        limit = round(keep_alive * SECOND * part)
        if limit and abs(idle - limit) * ALIKE <= limit:
            return name
    return ""


_PARTS = ((0.5, "half"), (0.75, "three quarters"))
_OF_PART = (
    "Try another Keep Alive: if the time changes with it, the broker does not wait for one and a half times the Keep"
    " Alive, as it has to (5.0 and 3.1.1, 3.1.2.10)."
)


def _are_apart(silences: dict[int, int], ends: list[End]) -> bool:
    """Ends have a cause in common where they are nearer to each other than the silences before them are alike."""
    least_ns = APART * (max(silences.values()) - min(silences.values()))
    times = sorted({end.timestamp_ns for end in ends})
    return 1 + sum(later - earlier > least_ns for earlier, later in pairwise(times)) >= LEAST_ALIKE


def patience_ns(case: Case) -> int:
    """Maximum time until further ends that may repeat the silence before this one; 0 if they cannot."""
    idle, silent = case.story.idle_ns, case.story.silent_ns or 0
    is_reset = case.by == "client" and case.how == "reset"
    if not (case.by == "server" or is_reset) or not case.is_closed or idle is None:
        return 0
    longest = max(idle, case.story.forgotten_ns, silent if _owes_none(case.connection.keep_alive, silent) else 0)
    return LEAST_ALIKE * (longest + RETURN_NS) if longest >= SHORTEST_IDLE_NS else 0


def longest_pause_ns(case: Case) -> int:
    """The longest silence that a connection to the server survived, or another one that it ended."""
    known, now_ns = case.book.of(case.connection.server), case.watch.now_ns
    open_ns = now_ns - case.book.witnesses(case.connection.server, case.watch).quiet_since_ns
    return max([known.pause_ns, open_ns, *(other for _, other in known.idle)])


def alike_of_client(case: Case) -> dict[int, int]:
    """Ends like this one: after equal silences of clients that were not yet obliged to send by their Keep Alive.

    Maps connections to these silences.  Empty if there are few such ends, if their last bytes in either direction
    explain them, or if the server accepted a longer silence of a client.
    """
    silent, server = case.story.silent_ns, case.connection.server
    if silent is None or silent < LEAST_IDLE_NS or not _owes_none(case.connection.keep_alive, silent):
        return {}
    if case.by != "server":
        return {}
    known, idle = case.book.of(server), dict(case.book.of(server).idle)
    ends = [
        end for end in known.ends
        if end.connection in idle
        and _owes_none(end.keep_alive or 0, end.silent_ns or 0)
        and abs((end.silent_ns or 0) - silent) * ALIKE <= silent
    ]  # fmt: skip
    alike = {end.connection: end.silent_ns or 0 for end in ends}
    if len(alike) < LEAST_ALIKE or not _are_apart(alike, ends):
        return {}
    pauses = [idle[number] for number in alike]
    if _above(min(pauses)) >= max(pauses) and longest_pause_ns(case) <= _above(max(pauses)):
        return {}  # the bytes of the server may have put the ends off
    longest = max([case.book.longest_of_client(server, case.watch), *(end.silent_ns or 0 for end in known.ends)])
    return alike if longest <= _above(silent) and case.connection.number in alike else {}


def _owes_none(keep_alive: int | None, silent: int) -> bool:
    """Whether a client need not have sent a packet in a silence: it has no Keep Alive, or a longer one."""
    return keep_alive is not None and (not keep_alive or silent < keep_alive * SECOND - EARLY_NS)


def client_timeout(case: Case) -> Iterator[Candidate]:
    """Several clients were ended after the same silence of theirs, whatever the server sent meanwhile."""
    alike = alike_of_client(case)
    if not alike:
        return
    keep_alive = case.connection.keep_alive
    allowance = f"shorter than its Keep Alive of {keep_alive} s" if keep_alive else "and the client has no Keep Alive"
    spread = max(alike.values()) - min(alike.values())
    length = describe.seconds(round((case.story.silent_ns or 0) / SECOND, 3))
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY if spread <= SECOND else Certainty.HYPOTHESIS,
        f"The connection ended {length} after the client's last packet, whatever the broker sent meanwhile: the broker,"
        f" or a device between the two, most probably has an idle time-out of that length, {allowance}.",
        [
            Evidence(
                f"{len(alike)} connections ended {length} after their client's last packet ({first_of(alike)}); these"
                f" times differ by {describe.span(spread)}"
            ),
            *case.last_packet("client"), *case.last_packet("server"),
            Evidence("no client of this broker was silent for longer and stayed"), case.closing(),
        ],
        advice=("Set a Keep Alive in the client, shorter than this time-out, so that it sends PINGREQ in time.",),
        usual=False, weight=82,
    )  # fmt: skip


def first_of(numbers: Iterable[int]) -> str:
    """The first eight numbers of connections."""
    shown = list(numbers)
    return ", ".join(f"#{number}" for number in shown[:8]) + (", …" if len(shown) > 8 else "")


_OF_SLOW_BROKER = (
    "Look why the broker did not answer then: load, a blocked thread, or a proxy before it that took the bytes.",
    "Let the client wait for a PINGRESP longer than the longest delay of the broker.",
)


def closed_on_own_ping(case: Case) -> Iterator[Candidate]:
    """The client has no Keep Alive, and closed at once after its PINGREQ."""
    last = case.story.last_of("client")
    if case.by != "client" or last is None or last.what != "PINGREQ" or case.connection.keep_alive != 0:
        return
    if case.lacks_bytes or not 0 <= case.ended_ns - last.timestamp_ns <= IMPATIENT_NS:
        return
    client, server = case.half("client"), case.half("server")
    if client is None or server is None:
        return
    is_alone = len([*client.resets, *server.resets]) == 1
    if case.how == "reset" and not (is_alone and all(seen.timestamp_ns <= case.ended_ns for seen in client.recent)):
        return  # a device between the two may have sent it
    ended, cause = _client_end(case)
    yield candidate(
        cause, Certainty.LIKELY,
        f"The client {ended} {case.apart(last.timestamp_ns)}after its PINGREQ, without a DISCONNECT: its"
        " Keep Alive is 0, which its library may take for a time limit of 0 s.",
        [*case.last_packet("client"), *case.last_packet("server"), case.closing()],
        advice=("Set a Keep Alive above 0, or stop the client from sending PINGREQ.",), usual=False, weight=25,
    )  # fmt: skip


def _client_end(case: Case) -> tuple[str, Cause]:
    """How the client ended the connection, as a verb and a cause."""
    ended = ("reset the connection", Cause.CLIENT_RESET), ("closed the connection", Cause.CLIENT_CLOSED)
    return ended[case.how != "reset"]


def without_keep_alive(case: Case) -> Iterator[Candidate]:
    """The server ends connections with Keep Alive 0 right after its CONNACK, and others stay.

    A connection with Keep Alive 0 that lasted longer disproves it.
    """
    story, connection = case.story, case.connection
    connack, server = story.connack, connection.server
    if case.by != "server" or connection.keep_alive != 0 or connack is None or story.counts["client"] != 1:
        return
    if not case.is_closed or case.ended_ns - connack.timestamp_ns > SECOND or story.disconnects:
        return
    ends, others = case.book.of(server).ends, case.book.open.get(server, {}).values()
    alike = [end for end in ends if not end.keep_alive and end.is_begun]
    lives = [case.watch.now_ns - other.connection.opened_ns for other in others if other.connection.keep_alive == 0]
    lives += [end.timestamp_ns - end.opened_ns for end in alike]
    stayed = [end.connection for end in ends if end.keep_alive and end.timestamp_ns - end.opened_ns > SECOND]
    stayed += [other.connection.number for other in others if other.connection.keep_alive]
    if len(alike) < LEAST_ALIKE or max(lives) > 2 * SECOND or not stayed:
        return
    yield candidate(
        Cause.NOT_SUPPORTED, Certainty.HYPOTHESIS,
        f"The broker closed {case.apart(connack.timestamp_ns)}after its CONNACK, as on each of {len(alike)} connections"
        f" with Keep Alive 0; connections with a Keep Alive stayed ({first_of(stayed)}): it may take 0 for a time limit"
        " of 0 s.",
        [*case.sent_connect(), *case.last_packet("server"), case.closing()],
        advice=("Set a Keep Alive above 0 in the client: 0 has to switch it off (5.0 and 3.1.1, 3.1.2.10).",),
        usual=False, weight=62,
    )  # fmt: skip


def held_back(case: Case) -> Iterator[str]:
    """Remarks about sides that again and again held back a small segment until the one before was acknowledged.

    Nagle's algorithm sends no second small segment while another one is unacknowledged, and a receiver that has nothing
    to send acknowledges late.  Evidence is a small segment within 2 ms of an acknowledgment without data that came 30
    to 250 ms after the only small segment before it.  A program sees no such acknowledgment, so that it does not wait
    for it; a segment that follows one by chance is rare.
    """
    for side in MEANING:
        half = case.half(side)
        if half is None or half.held < LEAST_HELD or half.first_held is None:
            continue
        name = describe.name(case.connection.client_identifier or case.connection.client)
        who = name if side == "client" else f"the broker of {name}"
        yield (
            f"heuristic: {who} (#{case.connection.number}) held back a small segment {half.held:,} times until TCP had"
            f" acknowledged the one before, at most {describe.span(half.longest_held_ns)} (first in frame"
            f" {half.first_held.frame:,}): Nagle's algorithm meets delayed acknowledgments; TCP_NODELAY at that side"
            " avoids it."
        )


def loops(case: Case) -> Iterator[tuple[str, str]]:
    """A client that publishes what it receives through its own subscription (`echoes`): summary and remark.

    Messages that return to a bridge, or in spite of No Local, come another way (OPS230).
    """
    loop = None if case.story.echoes is None else case.story.echoes.proven
    if loop is None or loop.first is None or case.story.is_bridge:
        return
    name, number = describe.name(case.connection.client_identifier or case.connection.client), case.connection.number
    lasted = describe.span(loop.last_ns - loop.first.timestamp_ns)
    text = (
        f"heuristic: {name} (#{number}) published a message {loop.count:,} times within {lasted}, each time right after"
        f" the broker had delivered it to {name}"
    )
    meaning = "most probably a loop through its own subscription."
    advice = "Give what it receives and what it publishes different topics, or subscribe with No Local (5.0)."
    first = f"(first in frame {loop.first.frame:,}: {loop.first.what})"
    yield f"{text}: {meaning}", f"{text} {first}: {meaning} {advice}"


def closed_while_repeated(case: Case, side: str) -> Evidence | None:
    """The time that the client waited for a PINGRESP before it closed, while TCP of a side was still repeating.

    ``side``: the side that sent segments again, which TCP does for minutes, after longer and longer pauses.  ``None``
    if another packet of the client came after its PINGREQ.
    """
    last = case.story.last_of("client")
    waited = None if last is None else case.story.until_end(last)
    if case.by != "client" or last is None or waited is None or not last.what.startswith("PINGREQ"):
        return None
    what, latest = "the answer" if side == "server" else "it", " at the latest" if case.how == "reset" else ""
    text = f"the client closed {describe.span(waited)} after its PINGREQ{latest}, while TCP was sending {what} again"
    return Evidence(text)


def path_advice(case: Case, began_ns: int, hasty: Evidence | None) -> tuple[str, ...]:
    """Advice about a path that was lost at a time, which nothing in the capture contradicts.

    A NAT or firewall forgets connections that are idle.  A client that has closed needs no advice to do so.
    """
    before = [moment for moment in case.story.moments() if moment.timestamp_ns < began_ns]
    is_idle = not before or case.story.clock_set or began_ns - before[-1].timestamp_ns >= FORGOTTEN_NS
    advice = [ADVICE[Cause.HALF_OPEN][0] if is_idle else _LINK]
    last = case.story.last_of("client")
    if hasty is not None and last is not None:
        waited_ns = case.ended_ns - last.timestamp_ns
        patience = (
            f"Let the client wait longer for a PINGRESP (it waited at most {describe.span(waited_ns)}): TCP sends lost"
            " segments again, after longer and longer pauses."
        )
        # A connection that a NAT has forgotten does not come back after such a time.
        return (*advice, patience) if is_idle and waited_ns >= FORGOTTEN_NS else (patience, *advice)
    return tuple(advice) if case.by == "client" else (*advice, ADVICE[Cause.HALF_OPEN][1])


_LINK = "Look at the path between the two at that time: signal, route, VPN, power."


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
        reasons, broken=case.violations("server"),
        advice=_OF_SLOW_BROKER[:: 1 if waited >= LATE_NS else -1] if reached else (), usual=not reached,
        weight=75 if reached else 65,
    )  # fmt: skip


def unanswered_request(case: Case) -> Iterator[Candidate]:
    """The client closed while its last packet, a SUBSCRIBE or a message, waited for an answer."""
    story, last, answered = case.story, case.story.last_of("client"), case.story.last_of("server")
    client = case.half("client")
    if case.by != "client" or not case.is_closed or last is None or client is None or story.disconnects:
        return
    kind = last.what.partition(" ")[0]
    is_open = any(f"id={identifier} " in f"{last.what} " for identifier in story.requests)
    if kind not in _ANSWERS or not is_open or (answered is not None and answered.timestamp_ns > last.timestamp_ns):
        return
    waited = case.ended_ns - last.timestamp_ns
    if waited < PATIENT_NS or case.lacks_bytes or case.connection.one_sided or client.outstanding_bytes:
        return
    ended, cause = _client_end(case)
    yield candidate(
        cause, Certainty.LIKELY,
        f"The client {ended} {describe.span(waited)} after its {kind}, which the broker had not answered with"
        f" {_ANSWERS[kind]}.",
        [
            *case.last_packet("server"), story.evidence(last, f"the client sent {last.what}"),
            Evidence("the broker's TCP acknowledged it: it reached the machine, and the broker sent nothing"),
            case.closing(),
        ],
        advice=(_OF_SLOW_BROKER[0], "Let the client wait longer for an answer."), usual=False, weight=26,
    )  # fmt: skip


_ANSWERS = {"SUBSCRIBE": "SUBACK", "PUBLISH": "PUBACK or PUBREC"}
