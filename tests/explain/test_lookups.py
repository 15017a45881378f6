"""Names that clients could not resolve."""

from __future__ import annotations

from collections.abc import Iterable

from mqttscope.explain import Explainer
from mqttscope.explain.lookups import OUTAGE_NS, LookupWatch, unresolved
from mqttscope.net.segment import Segment
from tests.dissect.talk import CONNACK, SECOND, START, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments
from tests.net.dns import AAAA, CLIENT, SERVER, A, answer, failure, query, received

NAME = "broker.example"
NO_NAME, FAILED = 3, 2


def remarks(
    text: str,
    servers: Iterable[str] = (),
    client: str = CLIENT,
    hosts: tuple[str, ...] = (),
    still_open: tuple[str, ...] = (),
) -> list[str]:
    """Sentences about messages: ``? KIND NAME``, ``ok NAME ADDRESS``, ``CODE KIND NAME``, ``syn``, ``+ SECONDS``."""
    watch, now_ns = LookupWatch(), START
    for number, step in enumerate(text.split("; "), 1):
        word, *rest = step.split()
        if word == "+":
            now_ns += int(float(rest[0]) * SECOND)
        elif word == "syn":
            watch.connect(received(b"", client).client, now_ns)
        else:
            kind = AAAA if rest[0] == "AAAA" else A
            data = answer(*rest) if word == "ok" else query(rest[1], kind) if word == "?" else None
            watch.feed(received(data or failure(rest[1], int(word), kind), client, number, now_ns))
    return [row.sentence for row in unresolved(watch, servers, hosts, still_open, now_ns)] + watch.limits


@each(
    "steps, words",
    [
        (f"? A {NAME}; 3 A {NAME}", "DNS answered NXDOMAIN (the name does not exist) in frame 2. Check the name"),
        (f"? A {NAME}; ? AAAA {NAME}; 3 A {NAME}; 3 AAAA {NAME}", "it asked 1 time (first in frame 1), and"),
        (f"? A {NAME}; 2 A {NAME}; + 5; ? A {NAME}; 2 A {NAME}", "it asked 2 times (first in frame 1), and"),
        (f"3 A {NAME}", f"could not resolve {NAME}: DNS answered NXDOMAIN"),
        (f"? A {NAME}; 0 A {NAME}", "DNS answered no address in frame 2. Check the name of the"),
        (f"? A {NAME}; + 1; ? A {NAME}; + 4", "and no answer of a DNS server was captured. Check the DNS server"),
        (f"? A {NAME}; 5 A {NAME}; ? A b.lan; 3 A b.lan", "; 1 other failed lookup. Check"),
    ],
)
def test_a_client_that_makes_no_connection(steps: str, words: str) -> None:
    (sentence,) = remarks(steps)

    assert sentence.startswith(f"likely: {CLIENT} made no connection because it could not resolve {NAME}: ")
    assert words in sentence


@each("name, certainty", [("a.mqtt.example", "likely"), ("www.example.com", "hypothesis")])
def test_other_programs_look_up_names_too(name: str, certainty: str) -> None:
    (sentence,) = remarks(f"? A {name}; 3 A {name}")

    assert sentence.startswith(f"{certainty}: {CLIENT} made no connection")


@each(
    "steps",
    [
        f"? A {NAME}; 3 A {NAME}; syn",  # of another program, or of another name of the broker
        f"? A {NAME}; 2 A {NAME}; ok {NAME} {SERVER}",
        f"? AAAA {NAME}; 0 AAAA {NAME}",  # most names have no address of IPv6
        f"? A {NAME}; ok {NAME} {SERVER}; 3 AAAA {NAME}; ? AAAA {NAME}; + 9",
        f"? A {NAME}; ? A {NAME}; + 4.9",  # the answer may still come
        f"? A {NAME}; + 9",  # clients ask again
        f"? A {NAME}; ok {NAME} {SERVER}",
        f"? A {NAME}.corp.lan; 3 A {NAME}.corp.lan; ? A {NAME}; ok {NAME} {SERVER}",  # domains tried one after another
        "? A wpad.corp.lan; 3 A wpad.corp.lan",
        "? A printer.local; + 1; ? A printer.local; + 9",
        f"syn; + 1; ? A {NAME}; 3 A {NAME}",  # of another program
    ],
)
def test_what_is_no_failed_lookup(steps: str) -> None:
    assert remarks(steps) == []


def test_a_client_of_mqtt_has_other_programs() -> None:
    steps = f"? A {NAME}; 3 A {NAME}"
    assert (len(remarks(steps)), remarks(steps, hosts=(CLIENT,))) == (1, [])


def test_a_client_that_could_not_connect_again() -> None:
    steps, hosts = f"syn; + 1; ? A {NAME}; 3 A {NAME}", (CLIENT,)
    (sentence,) = remarks(steps, [NAME], hosts=hosts)
    assert sentence.startswith(f"certain: {CLIENT} could not resolve {NAME}, the name of a broker: ")

    assert remarks(f"{steps}; + 0.4; syn", [NAME], hosts=hosts) == []  # it had the address
    assert remarks(steps, [NAME], hosts=hosts, still_open=hosts) == []


def test_a_dns_server_that_asks_another_one_is_no_client() -> None:
    assert remarks(f"? A {NAME}; 3 A {NAME}", client="192.0.2.53") == []


@each("waits, is_told", [(OUTAGE_NS / SECOND, True), (OUTAGE_NS / SECOND - 1, False)])
def test_the_name_of_a_broker_that_is_resolved_later(waits: float, is_told: bool) -> None:
    steps = f"? A {NAME}; 2 A {NAME}; syn; + {waits}; ok {NAME} {SERVER}; syn"

    sentences = remarks(steps, [NAME.upper()])
    assert [sentence.partition(":")[2].partition(":")[0] for sentence in sentences] == (
        [f" {CLIENT} could not resolve {NAME}, the name of a broker, for 5.000 s"] if is_told else []
    )
    assert remarks(steps) == []


def test_a_broker_whose_name_another_client_resolves() -> None:
    """The remark comes with the explanations of the run, from the messages among the segments."""
    tape = Tape()
    items: list[object] = [received(answer(NAME, SERVER), CLIENT), received(failure(NAME, FAILED), "192.0.2.9", 2)]
    talk = Talk(tape).handshake()
    talk.client(connect())
    talk.server(CONNACK)
    explainer = Explainer()
    of_segments(mixed([*items, *tape.segments]), explainer)

    (remark,) = explainer.totals.remarks
    assert remark.startswith(f"likely: 192.0.2.9 made no connection because it could not resolve {NAME}: DNS answered")


def mixed(items: list[object]) -> Iterable[Segment]:
    """Segments with other items between them."""
    return items  # type: ignore[return-value]
