"""Inputs at the limits of the package report."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.events import Event
from mqttscope.explain import Explanation
from mqttscope.explain.fates import MessageFate, Trace
from mqttscope.lint.catalogue import find
from mqttscope.lint.examples import conversation
from mqttscope.mqtt import Properties, Publish, Suback, Subscribe, Subscription, Unparsed, Unsubscribe, encode
from mqttscope.mutate import Action, FlowStep
from mqttscope.net.frame import CaptureDrops
from mqttscope.payloads.decoders import Decoders, PayloadTable
from mqttscope.replay.drivers.run import make_plan
from mqttscope.report.base import Reporter, View
from mqttscope.report.deferred import DeferredOutput
from mqttscope.report.escape import escape as escape
from mqttscope.report.explanations.base import make_reporter as explanation_reporter
from mqttscope.report.explanations.restarts import EndSummary, RestartEvents
from mqttscope.report.findings.base import RunSummary as RunSummary
from mqttscope.report.findings.shown import make_reporter as finding_reporter
from mqttscope.report.html import packets as packets_page
from mqttscope.report.html.along import TimelineCounts
from mqttscope.report.html.charts import Bar, columns
from mqttscope.report.html.packets import PacketPage
from mqttscope.report.html.pieces import short as short
from mqttscope.report.html.topics import TopicAmount, topic_tree
from mqttscope.report.jsonl import PacketLines
from mqttscope.report.jsonl_decoded import decoded_view
from mqttscope.report.ladder import ExchangeTags, Ladder
from mqttscope.report.page import Page
from mqttscope.report.payload import PayloadView, indented
from mqttscope.report.public import spans_of
from mqttscope.report.replay import summary as replay_summary
from mqttscope.report.replay.text import LimitedFindings
from mqttscope.report.rules_text import RulesText, render, wrap_painted
from mqttscope.report.style import Painter
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from mqttscope.session.connection import CONNECTED, OtherEnd
from tests.dissect.talk import Talk as Wire
from tests.explain.running import capture, explain
from tests.lint.lint_help import steps_of
from tests.replay.recordings import connect, recordings
from tests.replay.talk import asked, delivered
from tests.report.broker_test.test_text import text as broker_test_text
from tests.report.broker_test.tries import run, with_reduction
from tests.report.explanations.samples import Pages
from tests.report.findings.samples import MADE
from tests.report.html.reader import documents
from tests.report.make import MS, START_NS, V3_1_1, V5, Lines, Talk, block_of, publish, shown
from tests.report.replay.test_summary import outcome
from tests.report.replay.test_summary import text as replayed_text
from tests.report.replay.test_text import shown as differences
from tests.report.test_compare import as_text
from tests.report.test_jsonl import closed_line
from tests.report.test_ladder import rungs
from tests.report.test_notices import closed, ended, reported
from tests.report.test_reproduce import shell
from tests.report.test_summary import names

NARROW = View(width=20)
WORD = "x" * 15


def more(text: str) -> list[str]:
    """Notes in a text on what is left out."""
    return re.findall(r"[^\n.;]*\bmore\b[^\n.]*", text)


def first_group(pattern: str, text: str) -> str:
    """The group of a pattern, at its first place in a text."""
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


def notes(page: str) -> list[str]:
    """Notes in a page on what is left out."""
    return more(" ".join(re.findall(r'<p class="(?:doubt|note)">(.*?)</p>', page)))


def line_of(event: Event, kind: type[Reporter] = TextLines, **view: object) -> str:
    """The last line of an event."""
    return shown(kind, [event], **{"width": 0, **view})[-1]


# broker_test


def deviations(count: int) -> tuple[int, list[str]]:
    """Number of cases that are shown, and the notes on the others."""
    text = broker_test_text(run("mqtt://h", *[("publish:qos-3", BrokerVerdict.TOLERATED)] * count))
    return text.count("tolerated: publish:qos-3;"), more(text)


def sent(count: int) -> tuple[int, list[str]]:
    """Bytes that are shown of a reduced case."""
    reduced = with_reduction(run())
    small = reduced.reduced[0].minimized
    small.case = replace(small.case, flow=replace(small.case.flow, steps=[FlowStep(Action.SEND, b"\xc0" * count)]))
    text = " ".join(broker_test_text(reduced).split("bytes:\n")[1].split("\n\n")[0].split())
    return text.count("c0"), re.findall("and .*", text)


# compare


def only_in_a(*messages: str) -> list[str]:
    """Lines on messages that only one of two captures has."""
    text = as_text(asked(*(f"dev > publish {message}" for message in messages)), asked(), view=View(width=200))
    lines = [line.strip() for line in text.splitlines()]
    return [line.removeprefix("- client PUBLISH to ") for line in lines if "only in A" in line or "more diff" in line]


# explanations


@cache
def end_of(name: str) -> Explanation:
    """The first end of a capture."""
    return explain(capture(name))[0]


def explanations(form: str, ends: Iterable[Explanation], width: int = 0) -> str:
    """A report of ends."""
    pages = Pages()
    report = explanation_reporter(form, pages, View(width=width))
    for end in ends:
        report.feed(end)
    report.close(None)
    return pages.text


def ends_of(clients: int, each: int = 1, name: str = "refused-connect") -> list[Explanation]:
    """Ends that have the same cause."""
    end = end_of(name)
    return [replace(end, connection=at, client_identifier=f"c{at % clients}") for at in range(clients * each)]


def again(count: int) -> tuple[int, list[str]]:
    """Lines of ends of the same client after the first."""
    text = explanations("text", ends_of(1, count + 1))
    return text.count(" again"), more(text)


def sentence(words: int) -> tuple[int, str]:
    """Number of lines of a sentence with a word on each, and the last line."""
    end = end_of("refused-connect")
    first = replace(end.first, headline=" ".join([WORD] * words))
    return filled(explanations("text", [replace(end, candidates=(first,))], width=20).splitlines())


def filled(lines: Iterable[str], word: str = WORD) -> tuple[int, str]:
    """Number of lines with the word, and the last of them."""
    filled_lines = [line.strip() for line in lines if word in line]
    return len(filled_lines), filled_lines[-1]


def restart(count: int) -> tuple[int, int]:
    """Clients of a restart that are named, and others."""
    restarts = RestartEvents()
    for at in range(count):
        restarts.absorb(replace(end_of("broker-restarts"), connection=at))
    (event,) = restarts.complete_events()
    return len(event.named), event.more


def first_lines(clients: int) -> dict[str, str]:
    """The lines above the ends of so many clients."""
    overview = EndSummary()
    for end in ends_of(clients, name="broker-restarts"):
        overview.add(end)
    return dict(overview.lines(str))


def why_of_sentences(count: int) -> str:
    """The cause in the first lines, if the last of so many sentences is that of two ends."""
    overview, end = EndSummary(), end_of("link-lost-keep-alive")
    for number in (*range(1, count + 1), count):
        first = replace(end.first, headline=f"It did {number * 'ab'[number > 1]}.")
        overview.add(replace(end, candidates=(first,)))
    return dict(overview.lines(str))["Why"]


def held(count: int) -> int | str:
    """So many bytes of a report, where no file can be made."""
    pages = Pages()
    output = DeferredOutput(pages)
    try:
        with patch("tempfile.tempdir", "/nowhere"):
            output.write(b"x" * count)
    except FileNotFoundError:
        return "no folder for a file"
    output.release(b"")
    return len(pages.text)


def page_of_ends(clients: int, each: int = 1) -> tuple[int, int, list[str]]:
    """Ends that are listed, ends that are drawn, and the notes on others."""
    page = explanations("html", ends_of(clients, each))
    return len(documents(page.encode())), page.count("</title></rect>"), notes(page)


def messages(count: int) -> tuple[int, list[str]]:
    """Messages that are shown."""
    pages = Pages()
    report = explanation_reporter("html", pages, View())
    report.trace(Trace([MessageFate("a", "came", None)] * count, []))
    report.close(None)
    return pages.text.count("<article"), notes(pages.text)


# html


def pieces(count: int) -> tuple[int, int]:
    """Bars of as many milliseconds, and how many nanoseconds each is."""
    along = TimelineCounts("packets")
    along.add(0)
    along.add((count - 1) * MS)
    return len(along.bars()), along.width_ns


def labels(count: int) -> int:
    """Labels below so many columns."""
    return columns([Bar(str(at), (1,)) for at in range(count)], ("packets",), "").count("</text>")


def packet_page(events: Iterable[Event]) -> tuple[str, int, str]:
    """Captures in the heading, rows and the note on what is left out."""
    sink = Lines()
    page = PacketPage(sink, View())
    for event in events:
        page.feed(event)
    page.close()
    return first_group(r'class="where">(.*?)<', sink.data.decode()), page.page.rows, page.cut()


def _page_with(size: int) -> PacketPage:
    """A page whose list has so many bytes already."""
    page = PacketPage(Lines(), View())
    page.page.size = size
    return page


def rows_after(size: int) -> int:
    """Packets that are listed below rows of so many bytes."""
    page = _page_with(size)
    page.feed(Talk().say(publish()))
    return page.page.rows


def ends_after(size: int) -> int:
    """Ends of connections that are listed below rows of so many bytes."""
    page = _page_with(size)
    for number in range(2):
        page.feed(Talk(number=number).closed())
    return page.page.rows


def before_end(count: int) -> tuple[int, int]:
    """Rows of a connection with so many packets and its end, below a full first part, and unlisted packets."""
    page, talk = _page_with(packets_page.FIRST_BYTES), Talk()
    for _ in range(count):
        page.feed(talk.say(publish()))
    page.feed(talk.closed())
    return page.page.rows, page.left_out


def forgotten(count: int) -> int:
    """Rows of the end of the first of so many connections with one packet each."""
    page, talks = _page_with(packets_page.FIRST_BYTES), [Talk(number=number) for number in range(count)]
    for talk in talks:
        page.feed(talk.say(publish()))
    page.feed(talks[0].closed())
    return page.page.rows


def captures(count: int) -> str:
    """How captures are named."""
    return packet_page(CaptureDrops(f"{at}", 0, 1, 1) for at in range(count))[0]


def tree(*topics: str) -> tuple[list[str], int, list[str]]:
    """Names in the tree of topics, levels that are open, and the notes on others."""
    markup = topic_tree([TopicAmount(topic, 1, 1) for topic in topics], 0)
    shown_names = re.findall('class="name">(.*?)<', markup)
    return shown_names, markup.count("<details open"), notes(markup)


def levels(count: int) -> list[str]:
    """Names of two topics with as many levels that differ in the last."""
    return tree(*(f"{'a/' * (count - 1)}{last}" for last in "xy"))[0]


# jsonl


def cache_size(cache_name: str, *packets: Publish) -> int:
    """How much one of the caches keeps after packets, each of a connection of its own."""
    lines = PacketLines(65_536, show_secrets=False)
    for number, packet in enumerate(packets):
        event = Talk(number=number).say(packet)
        lines.line(event)  # type: ignore[arg-type]
    return len(getattr(lines, cache_name if hasattr(lines, cache_name) else f"_{cache_name}"))


def unacknowledged(count: int) -> object:
    """Frames of PINGREQs that the server never acknowledged; the first one is in frame 6."""
    talk = Wire().handshake().tell("> connect; ack server" + "; > pingreq" * count)
    talk.position["client"] -= 2 * count
    talk.reset("server")
    return closed_line(talk.events())[0]


def several(count: int, field: str = "topic") -> list[Publish]:
    """Messages that differ in their topic and in their properties; or in their payload, its length and its form."""
    if field == "payload":
        return [publish("a", b"x" * at) for at in range(count)]
    return [publish(f"t{at}", properties=Properties(content_type=f"{at}")) for at in range(count)]


def long(topic: int, content_type: int) -> tuple[int, int]:
    """Topics and properties that are kept of these lengths."""
    packet = publish("t" * topic, properties=Properties(content_type="c" * content_type))
    return cache_size("topics", packet), cache_size("blocks", packet)


def value(size: int) -> dict[str, Any]:
    """What is shown of a decoded payload that takes as many bytes as JSON."""
    event = Talk().say(publish("a", json.dumps("x" * (size - 2)).encode()))
    decoded = Decoders((PayloadTable("#", "json"),)).decode(event)
    assert decoded is not None
    return decoded_view(decoded, 65_536, show_secrets=False)


# ladder


def tags(count: int) -> list[int | None]:
    """The tags of exchanges that run together."""
    running = ExchangeTags()
    for packet in range(count):
        running.begin(0, packet)
    return [running.number_of(0, packet) for packet in range(count)]


def unanswered(count: int) -> tuple[int, list[str]]:
    """Exchanges that the end of a connection names."""
    last = rungs(*(publish("a", qos=1, packet_identifier=at) for at in range(1, count + 1)))[-1]
    return last.count("PUBLISH id="), re.findall(r", (\d+ more)$", last)


def rung(count: int) -> tuple[int, int]:
    """Columns of a line in an unlimited ladder, and how much of a payload is not in it."""
    line = line_of(Talk().say(publish("a", b"w" * count)), Ladder)
    return len(line), count - line.count("w")


# notices


def bytes_shown(count: int) -> str:
    """What is shown of bytes that are no packet."""
    event = Talk().unparsed(Unparsed("resynchronised", count, b"\1" * count, 0, None))
    return line_of(event, show_secrets=True).rpartition("  ")[2]


def server_name(name: str) -> str:
    """A TLS server name where its connection ends."""
    talk = Talk(identifier=None)
    talk.connection.transport = "tls"
    talk.connection.details = {"version": "TLS 1.3", "server_name": name, "client": {}, "server": {}}
    return line_of(talk.closed()).partition("server name ")[2].partition(" ")[0]


def detail(path: str) -> str:
    """The path of a WebSocket where its connection opens."""
    talk = Talk()
    talk.connection.transport, talk.connection.details = "websocket", {"path": path}
    return line_of(talk.opened(), show_secrets=True).partition("WebSocket, ")[2].rstrip(")")


def second_end(after_ns: int) -> list[str]:
    """Lines on the end of the second side, some time after the first."""
    connection = Talk().connection
    end = ended(connection)
    connection.also_closed = OtherEnd("fin", 10, START_NS + after_ns, "a.pcap")
    return [line.partition("#0 ")[2] for line in reported(end, closed(connection))[1:]]


def ends_said(count: int) -> int:
    """Lines of connections that end together, and are over after that."""
    connections = [Talk(number=at).connection for at in range(count)]
    for connection in connections:
        connection.phase = CONNECTED
    return len(reported(*map(ended, connections), *map(closed, connections)))


# payload


def unpacked(count: int, room: int = 0) -> tuple[int, str]:
    """How much of a compressed payload is shown, in a line of some room or in lines, and the note on it."""
    payload = gzip.compress(b"w" * count, mtime=0)
    if room:
        text = PayloadView().preview(payload, room)
        return text.count("w"), "".join(re.findall("first .* unpacked", text))
    block = PayloadView().show(payload)
    return "".join(block.body).count("w"), block.note


def preview(count: int) -> str:
    """Binary in a line without limit."""
    return PayloadView().preview(bytes(count), 10_000)


def indent_left_out(levels: int) -> int:
    """Columns that lack in front of what is nested so deep."""
    (line,) = (line for line in indented("[" * levels + "1" + "]" * levels) if "1" in line)
    return 2 * levels - (len(line) - 1)


# public


def last_field(size: int) -> str:
    """The last field of a SUBSCRIBE of some size."""
    packet = Subscribe(packet_identifier=1, subscriptions=[Subscription("a" * (size - 9), 1)])
    raw = encode(packet, V3_1_1)
    assert len(raw) == size
    return spans_of(raw, packet, V3_1_1)[-1].field


# replay


def differing(count: int) -> tuple[int, int, list[str]]:
    """Differences and findings that are shown one by one, and the notes on others."""
    published = [f"dev > publish a x qos=1 id={at + 1}" for at in range(count)]
    answered = [f"dev < puback {at + 1}" for at in range(count)]
    lines = differences(asked(*published, *answered), asked(*published), one_by_one=True)
    sink = Lines()
    report = LimitedFindings(finding_reporter("concise", sink, View(), every=True, live=True), sink)
    for _ in range(count):
        report.feed(MADE)
    report.close(RunSummary())
    shown_one_by_one = (sum(line.startswith("missing-answer: ") for line in lines), sum(map(is_finding, sink.lines)))
    return *shown_one_by_one, more("\n".join([*lines, *sink.lines]))


def is_finding(line: str) -> bool:
    """Whether a line is of a finding."""
    return line.startswith(MADE.capture)


def fields(count: int) -> list[str]:
    """Notes on the fields of a message."""
    words = " ".join(f"user_property=k{at}:v" for at in range(count - 5))
    return more("\n".join(differences(delivered(f"publish t/a one {words}"), delivered("publish t/a one"))))


def recorded_value(text: str) -> str:
    """What is shown of a value."""
    lines = "\n".join(differences(delivered(f"publish t/a one content_type={text}"), delivered("publish t/a one")))
    return first_group(r"content_type (\S+)", lines)


def causes(count: int) -> str:
    """Connections that are named for one cause."""
    hello = "".join(f"d{at} > connect\nd{at} < connack\n" for at in range(count))
    lines = differences(hello, hello.replace("connack", "connack code=0x87"), cause="x", width=200)
    return first_group(r"connections?: (.*)", "\n".join(lines))


def rows(count: int) -> tuple[list[int], list[str]]:
    """Rows of each list of a replay, and the notes on others."""
    numbers = [f"{at}" for at in range(count)]
    vain = outcome(never_came=Counter(numbers), not_awaited=Counter((number, "f") for number in numbers))
    page, unplayed = Page(View(width=100)), recordings(*((at, ">", connect(f"c{at}")) for at in range(count)))
    replay_summary.write_served(page, replay_summary.ServedOutcome("asap", unplayed=unplayed, recorded=count))
    text = replayed_text(vain).partition("Never came")[2] + page.encoded().decode()
    listed = [len(re.findall(what, text)) for what in (r"\n +1  \d(?=\n)", "waited for in full", "never connected: ")]
    return listed, more(text)


def plan(count: int) -> tuple[int, list[str]]:
    """Connections that a plan lists."""
    scripts, page = recordings(*((at, ">", connect(f"c{at}")) for at in range(count))), Page(View(width=100))
    replay_summary.write_plan(page, make_plan(scripts), scripts, broker="b", pace="asap", length_ns=0, changes=[])
    text = page.encoded().decode()
    return len(re.findall(r"\nc\d", text)), more(text)


def pause(milliseconds: int) -> str:
    """How long the shell script sleeps for a pause."""
    last = "say | connection | od -An -v -tx1"
    script = shell(asked()).replace(last, f"sleep() {{ echo $1; }}; pause {milliseconds}")
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=True)
    return f"{done.stdout.strip()} s for {milliseconds} ms"


# rules_text


def word(text: str) -> str:
    """A word of an example."""
    (line,) = wrap_painted(text, Painter(View(width=0)))
    return line


def paragraph(words: int) -> tuple[int, str]:
    """Number of lines of a paragraph with a word on each, and the last line."""
    return filled(RulesText(NARROW)._paragraph(" ".join([WORD] * words)))


def example_payload(text: str) -> str:
    """A payload in an example."""
    example = conversation("", *steps_of(f"opened; > publish a {text}"))
    return render(find("CON212"), example, View(width=0))[-1].rpartition("  ")[2]


# summary


def listed(count: int) -> list[str]:
    """Notes on Topic Filters and reason codes."""
    filters = [f"{at}" for at in range(count)]
    talk = Talk()
    events = [
        talk.say(Subscribe(packet_identifier=1, subscriptions=list(map(Subscription, filters)))),
        talk.answer(Suback(packet_identifier=1, reason_codes=[at % 2 for at in range(count)])),
        talk.say(Unsubscribe(packet_identifier=2, topic_filters=filters)),
    ]
    return re.findall(r", \d+ more", "\n".join(shown(TextLines, events, width=0)))


def topics_kept(*topics: str) -> int:
    """Topics that are kept."""
    report, talk = TextLines(Lines(), View()), Talk()
    for topic in topics:
        report.feed(talk.say(publish(topic)))
    return len(report.summary._topics)


def short_topic(level: int) -> str:
    """A topic in little room; all that were seen have the same long level at this place."""
    topic = f"{'a/' * (level - 1)}common/"
    return names(f"{topic}1", f"{topic}2").short(f"{topic}1", 5)


# text


def remembered(count: int) -> tuple[int, int, int]:
    """Connections that were introduced, that had their version shown, and whose names are ready."""
    report = TextLines(Lines(), View())
    for number in range(count):
        talk = Talk(V5, number=number, known=False)
        for event in (talk.opened(), talk.say(publish())):
            report.feed(event)
    return len(report.heads.introduced), len(report.preambles._versions), len(report.heads._columns)


def client(name: str) -> str:
    """A client in a line."""
    return line_of(Talk(identifier=name).say(publish()), width=200).split()[2]


# tree


def field_value(topic: str) -> str:
    """The value of a field."""
    (line,) = (line for line in block_of(publish(topic), width=0) if "topic_name" in line)
    return line.split("topic_name")[1].strip()


def fields_listed(count: int) -> list[str]:
    """Notes on the fields of a packet."""
    packet = Unsubscribe(packet_identifier=1, topic_filters=["a"] * (count - 4))
    return more("\n".join(shown(Tree, [Talk().say(packet)])))


def faults(count: int) -> tuple[int, list[str]]:
    """Faults that are listed of a packet with as many."""
    filters = b"\0\2\xc3\x28" * count
    lines = block_of(bytes((0xA2, 3 + len(filters), 0, 1, 0)) + filters)
    return sum(" at byte " in line for line in lines), more("\n".join(lines[1:]))


def dumped(start: int) -> int:
    """Bytes of a long payload that the dump begins with, where it begins at some place."""
    lines = block_of(publish("t" * (start - 6), b"x" * 1_000), width=0)
    rows: Sequence[str] = [line for line in lines if re.match("  0...  |  *… ", line)]
    return 16 * next(at for at, line in enumerate(rows) if "…" in line) - start


def payload_lines(count: int) -> tuple[int, list[str]]:
    """Lines of a payload that are shown."""
    lines = block_of(publish("t", b"line\n" * count))
    return lines.count("    line"), more("\n".join(lines))
