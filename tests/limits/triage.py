"""Inputs at the limits of the package triage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from mqttscope.events import ClockStep
from mqttscope.triage.collect import BrokerSummary, FaultKind, Rank, Triage, TriageFault
from mqttscope.triage.screen import commands
from tests.limits.report import filled, first_group
from tests.report.make import START_NS, Talk
from tests.triage.running import END, gathered, refused
from tests.triage.test_screen import CODES, part, shown

WORD = "y" * 70


def fed(*events: object) -> Triage:
    """What is gathered of events."""
    triage = Triage()
    for event in events:
        triage.feed(event)  # type: ignore[arg-type]
    triage.finish()
    return triage


def screen_text(triage: Triage, width: int = 0, **more: object) -> str:
    """The screen in one line."""
    return " ".join(" ".join(shown(triage, width, **more)).split())  # type: ignore[arg-type]


def ended(number: int, *, server: str = "10.0.0.2:1883", tls: str = "") -> Iterable[object]:
    """The events of a connection without packets."""
    talk = Talk(number=number, identifier=None)
    talk.connection.server = server
    if tls:
        talk.connection.transport, talk.connection.details = "tls", {"server_name": tls}
    return talk.opened(), talk.closed()


# collect


def who(count: int) -> list[str]:
    """Of whom faults are: clients that were refused, and connections with gaps."""
    gaps = "@{n} opened client=g{n}; @{n} lost > pingreq; @{n} > pingreq; @{n} > disconnect; @{n} > fin"
    triage = gathered(*(refused(at, f"c{at}") for at in range(count)), f"for 50..{49 + count}: {gaps}")
    return [fault.who for fault in triage.faults if fault.kind in (FaultKind.END, FaultKind.GAP)]


def losses(count: int) -> tuple[int, list[str]]:
    """Rows of losses, one of each client, and the notes on others."""
    triage = gathered(f"for 1..{count}: @{{n}} opened client=c{{n}}; @{{n}} > subscribe 1 x:1; @{{n}} < suback 1 0x80")
    return len(triage.faults), no_room(triage)


def no_room(triage: Triage) -> list[str]:
    """Phrases on what has no room."""
    return [phrase for phrase in triage.limits() if phrase.startswith("no room")]


def product(text: str) -> list[str]:
    """What a broker is that published this as its version."""
    triage = gathered(f"opened; < publish $SYS/broker/version {text} retain", END)
    return [broker.product for broker in triage.brokers.values()]


def brokers(count: int) -> tuple[int, list[str]]:
    """Number of brokers that are distinguished, and the notes on others."""
    triage = fed(*(event for at in range(count) for event in ended(at, server=f"10.0.0.{at}:1883")))
    return len(triage.brokers), no_room(triage)


def server_names(count: int) -> str:
    """The phrase on TLS connections."""
    text = screen_text(fed(*(event for at in range(count) for event in ended(at, tls=f"n{at}"))))
    return first_group(r"TLS (\d+ conn.*?) and not read", text)


def steps(count: int) -> tuple[int, list[str]]:
    """Steps of clocks that are shown, and the notes on others."""
    triage = fed(*(ClockStep("a.pcap", at, START_NS, 5) for at in range(1, count + 1)))
    return len(triage.faults), no_room(triage)


# screen


def fault(kind: FaultKind, text: str = "what happened") -> TriageFault:
    """A fault of a client in a connection."""
    place = (30, START_NS, "a.pcap")
    return TriageFault(kind, Rank.NAMED_END, "certain", "c", text, *place, connection=1, client="c", topic="t")


def typed(*kinds: FaultKind) -> list[str]:
    """Commands that follow from faults, where there is a TLS connection as well."""
    triage = Triage()
    triage.faults = [fault(kind) for kind in kinds]
    return [words[1] for words in commands(triage, ("a.pcap",), (), Counter({"10.0.0.9:443": 1}))]


def what_broke(count: int) -> tuple[int, list[str]]:
    """Rows of faults."""
    rows = part(shown(gathered(*(refused(at, f"c{at}", CODES[at]) for at in range(count)))), "What broke")
    return sum(row.startswith("  frame ") for row in rows), [row.strip() for row in rows if row.startswith("  and ")]


def named(count: int) -> list[str]:
    """Notes on captures, errors, brokers, clients and TLS server names."""
    names = tuple(f"{at}" for at in range(count))
    triage = gathered(*(refused(at, f"c{at}") for at in range(count)))
    triage.brokers = {name: BrokerSummary(1, encrypted=1, names=Counter({name: 1})) for name in names}
    triage.brokers["0"].names = Counter(names)
    texts = screen_text(triage, errors=[(name, "is cut") for name in names]), screen_text(Triage(), captures=names)
    return re.findall(r"and \d+ more", " ".join(texts))


def types(*packets: str) -> tuple[int, list[str]]:
    """Packet types that are counted one by one, and the notes on others."""
    text = screen_text(gathered("opened; > subscribe 1 a:1; < suback 1 1; > publish b x", *packets, END))
    row = text.partition("Packets ")[2].partition(": ")[2].partition(" Nothing")[0]
    return len(re.findall("[0-9] [A-Z]+", row)), re.findall("and .* type", row)


def client(name: str) -> str:
    """How a client is called."""
    return first_group(r"Client (\S+),", screen_text(gathered(refused(0, name))))


def happened(text: str) -> str:
    """A fault on a line that has room for it."""
    triage = Triage()
    triage.faults = [fault(FaultKind.END, text)]
    return first_group("(y{9,}(?:…y+)?)", screen_text(triage, 1_000))


def remark(words: int) -> tuple[int, str]:
    """Number of lines of a remark with a word on each, and the last line."""
    lines = shown(Triage(), remarks=[" ".join([WORD] * words)])
    return filled((line.removeprefix("Not read") for line in lines), WORD)
