"""Inputs at the limits of the package lint, without its rules."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent
from mqttscope.lint import finding as shapes
from mqttscope.lint import signs
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.config import ConfigError, parse, short
from mqttscope.lint.context import RuleContext
from mqttscope.lint.conversation_text import ConversationTextError
from mqttscope.lint.dispatch import PacketPlan
from mqttscope.lint.engine import InternalError, Linter, WithheldBytes
from mqttscope.lint.examples import client, conversation, opened, server
from mqttscope.lint.failures import RuleFailures
from mqttscope.lint.finding import Finding, Report, Severity
from mqttscope.lint.gate import FindingSelection
from mqttscope.lint.grouping import Groups, client_of
from mqttscope.lint.live_clients import LiveClients
from mqttscope.lint.message_model import Messages, forwarded_properties
from mqttscope.lint.model import Model
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rule import Rule, WrongReturnError, reports_of
from mqttscope.lint.session_model import SessionModel
from mqttscope.lint.strings import shown
from mqttscope.lint.subscriber_table import SubscriberTable
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connect, Publish, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Pingreq, Pingresp, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.dissect.talk import Talk
from tests.lint import test_engine, test_message_model
from tests.lint.lint_help import linted, steps_of, talked
from tests.lint.test_broker_watch import told as watched
from tests.lint.test_grouping import FOUND, of
from tests.lint.test_quality import quality
from tests.lint.test_rule import Plain
from tests.lint.test_sparkplug_model import NBIRTH
from tests.lint.test_sparkplug_model import model as sparkplug_model
from tests.lint.test_subscriber_table import connected, owners

SUBSCRIBER, SENDS, GETS = test_message_model.READER, test_message_model.SENDS, test_message_model.GETS
RETAINS = "> publish a 21 qos=1 retain id=1; < puback 1"
LASTING = "opened resume session_expiry_interval=100"
WRONG_LENGTHS = test_engine.DAMAGED


def model(kind: type[Model], *lines: str) -> Any:
    """A model at the end of a conversation."""
    follower: Any = type("Follower", (Rule,), {"code": "TST499", "severity": Severity.INFO, "models": (kind,)})
    linter = Linter([follower()], strict=True)
    for event in dissect_segments(talked(*steps_of(*lines)), more=True):
        linter.feed(event)
    return [memories[kind.code] for memories in linter.memories.states.values() if kind.code in memories][-1]


def findings_and_limits(code: str, *lines: str, **settings: int) -> tuple[list[Finding], list[str]]:
    """The findings of one rule in a conversation, and the limits that it met."""
    linter = Linter([all_rules()[code](settings)], strict=True)
    events = dissect_segments(talked(*steps_of(*filter(None, lines))))
    return [finding for event in events for finding in linter.feed(event)], linter.limit_sentences()


def findings(code: str, *lines: str, **settings: int) -> list[Finding]:
    """The findings of one rule in a conversation."""
    return findings_and_limits(code, *lines, **settings)[0]


def wait(nanoseconds: int, *, steps: int = 0, packets: int = 1) -> str:
    """The wait before a step for which a time is over then.

    Each of the other steps takes 0.01 s of the time, and each step with packets one microsecond.
    """
    return f"+{(nanoseconds - steps * 10_000_000 - packets * 1_000) / 1e9:.9f}"


# Servers


def witnessed(count: int) -> bool:
    """Whether the last of some connections shows that the server did not restart, when the others have ended."""
    connections = f"for 1..{count}: @{{n}} opened client=c{{n}}"
    ends = f"for 1..{count - 1}: @{{n}} > fin"
    return watched(connections, ends, f"+11 @{count} > pingreq")[-1].endswith("True")


def live_clients(count: int, name: str = "c{n}") -> LiveClients:
    clients: LiveClients = model(LiveClients, f"for 1..{count}: @{{n}} opened 3.1.1 client={name}")
    return clients


def unnamed(count: int) -> list[str]:
    """The ports of clients without an identifier that are remembered."""
    return [client.client.rpartition(":")[2] for client in live_clients(count, "-").unnamed.values()]


# Retained messages


def overlooked(topics: int = 1, readers: int = 1) -> list[str]:
    """Retained messages that clients asked for in vain, and that are not reported."""
    lines = [
        f"opened; > for 1..{topics}: publish t/{{n}} 21 qos=1 retain id={{n}}; < for 1..{topics}: puback {{n}}",
    ]
    for number in range(1, readers + 1):
        asks = f"@{number} > subscribe 1 t/+:0; @{number} < suback 1 0"
        gets = f"@{number} < for 1..{topics}: publish t/{{n}} 21 retain"
        lines.append(f"@{number} opened client=r{number}; {asks}; {gets}; {asks}")
    missed = {(finding.client_identifier, finding.topic) for finding in findings("RET406", *lines, "+31 @1 > pingreq")}
    asked = [(f"r{reader}", f"t/{topic}") for reader in range(1, readers + 1) for topic in range(1, topics + 1)]
    return [f"{reader} {topic}" for reader, topic in asked if (reader, topic) not in missed]


def first_reader(count: int) -> str:
    """How severe it is that the first of some readers does not get a retained message again."""
    readers = f"for 1..{count}: @{{n}} opened client=r{{n}}; @{{n}} > subscribe 1 a:0; @{{n}} < suback 1 0; "
    again = "@99 opened client=r1; @99 > subscribe 1 a:0; @99 < suback 1 0; +31 @99 > pingreq"
    (finding,) = findings("RET406", f"opened; {RETAINS}", f"{readers}@{{n}} < publish a 21 retain", again)
    return finding.severity


def in_vain(retained: int = 1, waiting: int = 0) -> int:
    """Findings about a client that asks in vain, after retained messages and others that wait for its answer."""
    sent = [f"publish x/{number} 1 retain" for number in range(1, retained)]
    sent += [f"publish x/{number} 1 qos=1 id={number}" for number in range(1, waiting + 1)]
    gets = " & ".join(["publish a 21 retain", *sent])
    asks = "@1 opened client=c2; @1 > subscribe 1 a:0 x/+:1; @1 < suback 1 0 1"
    again = "@1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq"
    return len(findings("RET406", f"opened; {RETAINS}", asks, f"@1 < {gets}", again))


def retained_wills(count: int) -> tuple[int, list[str]]:
    """Findings about a client that asks in vain while others have retained wills, and the limits that were met."""
    wills = f"for 1..{count}: @9{{n}} opened client=w{{n}} will=w/{{n}} will_retain"
    asks = "@1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq"
    results, limits = findings_and_limits("RET406", wills, f"opened; {RETAINS}", asks)
    return len(results), limits


def live(count: int) -> list[str | None]:
    """Topics of messages that subscribers with Retain As Published get without RETAIN."""
    asks = "@1 opened client=c2; @1 > subscribe 1 t/+:0,retain_as_published; @1 < suback 1 0"
    sent = f"opened; > for 1..{count}: publish t/{{n}} 21 retain; @1 < for 1..{count}: publish t/{{n}} 21"
    return [finding.topic for finding in findings("RET409", asks, sent)]


def awaited(nanoseconds: int) -> list[str]:
    """Retained messages that are waited for when a client subscribes to something else."""
    asks = "@1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0"
    again = f"{wait(nanoseconds, steps=1, packets=2)} @1 > subscribe 2 b:0"
    store: RetainedStore = model(RetainedStore, f"opened; {RETAINS}", asks, again)
    return [topic for topics in store.waiting.values() for topic in topics]


def unflagged(before: str = "", asks_after: str = "+0.01", meanwhile: str = "", **settings: int) -> list[str]:
    """Severities of findings about a retained message that comes without RETAIN."""
    asks = f"{asks_after} @1 > subscribe 1 a:0; @1 < suback 1 0"
    lines = (f"opened; {RETAINS}; @1 opened client=c2; +10 > nothing", before, asks, meanwhile, "@1 < publish a 21")
    return [finding.severity for finding in findings("RET411", *lines, **settings)]


def after_will(nanoseconds: int) -> list[str]:
    """The same where a will may have been published in the place of the retained message."""
    gone = "@2 opened client=c3 will=a will_payload=21; @2 > reset"
    return unflagged(gone, wait(nanoseconds, packets=0), grace=0)


def after_damage(nanoseconds: int) -> list[str]:
    """The same after a damaged packet of the server to another client."""
    damaged = "@2 opened client=c3; @2 < raw d0 01 00; @2 > fin"
    return unflagged(damaged, wait(nanoseconds, steps=3, packets=3))


def after_messages(count: int) -> list[str]:
    """The same where another client publishes meanwhile, and leaves."""
    return unflagged(meanwhile=f"@2 opened client=c3; @2 > for 1..{count}: publish b {{n}}; @2 > fin")


# Messages


def undelivered(topics: int = 1, readers: int = 1) -> list[str]:
    """Messages that did not reach subscribers, and that are not reported; one subscriber has got its own."""
    filters, granted = " ".join(f"t/{number}:1" for number in range(1, topics + 1)), " ".join("1" * topics)
    lines = (
        "@999 opened client=r0; @999 > subscribe 1 b:1; @999 < suback 1 1",
        f"for 1..{readers}: @{{n}} opened client=r{{n}}; @{{n}} > subscribe 1 {filters}; @{{n}} < suback 1 {granted}",
        "opened; +2 > publish b x qos=1 id=1; < puback 1; @999 < publish b x qos=1 id=1; @999 > puback 1",
        f"> for 1..{topics}: publish t/{{n}} x qos=1 id={{n}}; < for 1..{topics}: puback {{n}}; +31 > pingreq",
    )
    missed = {(finding.client_identifier, finding.topic) for finding in findings("DLV410", *lines)}
    sent = [(f"r{reader}", f"t/{topic}") for reader in range(1, readers + 1) for topic in range(1, topics + 1)]
    return [f"{reader} {topic}" for reader, topic in sent if (reader, topic) not in missed]


def expected(*lines: str) -> list[tuple[str, int]]:
    """Messages that are expected of a server at the end of a conversation."""
    messages: Messages = model(Messages, *lines)
    return [(sent.sent.topic, sent.sent.length) for waiting in messages.expected.values() for sent in waiting.values()]


def after_subscription(nanoseconds: int) -> int:
    """Messages that are expected of a server, of one that was published some time after its SUBACK."""
    return len(expected(f"opened; {SUBSCRIBER}", f"{wait(nanoseconds)} > publish a x qos=1 id=1; < puback 1"))


def after_overflow(nanoseconds: int) -> int:
    """The same some time after there was more than is waited for."""
    many = "> for 1..65: publish a {n} qos=1 id={n}; < for 1..65: puback {n}"
    late = f"{wait(nanoseconds, steps=1, packets=2)} > publish a late qos=1 id=1; < puback 1"
    return len(expected(SUBSCRIBER, f"opened; +2 {many}", late))


def paired(*lines: str) -> list[str]:
    """The numbers of the messages that deliveries may be of."""
    return test_message_model.run(*lines)[0]


def after_hidden(nanoseconds: int) -> list[str]:
    """The same some time after a message of an unknown topic."""
    later = SENDS.replace("+2", wait(nanoseconds))
    return paired(SUBSCRIBER, "opened; > publish topic_alias=9", later, GETS)


def after_other(nanoseconds: int) -> list[str]:
    """The same when another message comes in between, some time after the first."""
    return paired(SUBSCRIBER, "opened", SENDS, f"{wait(nanoseconds, steps=1, packets=2)} > publish a other", GETS)


def first_paired(packet: str, count: int) -> list[str]:
    """The same of a delivery of the first of many messages."""
    asks = "@1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened"
    gets = f"@1 < publish {packet.replace('{n}', '1')}"
    return paired(asks, f"> for 1..{count}: publish {packet}", gets)


def sent_again(count: int) -> list[str]:
    """The same of a payload that comes again, after a number of payloads in all, when all of them are forgotten."""
    lines = f"> for 1..{count - 1}: publish a {{n}}; +3601 > publish a x; > publish a 1; @1 < publish a 1"
    return paired(f"{SUBSCRIBER}; opened", lines)


def is_crowded(copies: int) -> bool:
    """Whether a message of which a client got some copies is not judged any more."""
    _, messages = test_message_model.run(SUBSCRIBER, "opened", SENDS, f"@1 < for 1..{copies}: publish a 21.5")
    return messages.topics["a"].recent[0].crowded


def last_route(readers: int) -> bool:
    """Whether it is known that the last of some readers gets what the publisher sends."""
    asks = f"for 1..{readers}: @{{n}} opened client=r{{n}}; @{{n}} > subscribe 1 a:0; @{{n}} < suback 1 0"
    messages: Messages = model(Messages, asks, "opened", SENDS, f"for 1..{readers}: @{{n}} < publish a 21.5")
    return ("c1", f"r{readers}") in messages.topics["a"].routes


def last_subscription(count: int) -> list[str]:
    """The messages that both copies may be of, for the last subscription of a client; another one ended between."""
    filters, granted = " ".join(f"x/{number}:1" for number in range(1, count)), " ".join("1" * count)
    asks = f"@1 opened client=c2; @1 > subscribe 1 {filters} a:1; @1 < suback 1 {granted}; opened"
    other = f"@1 > unsubscribe 2 x/1; @1 < unsuback 2 0; {SUBSCRIBER.replace('@1', '@2').replace('c2', 'c3')}"
    return paired(asks, SENDS, other, SENDS, GETS, GETS)


def sessions(count: int) -> tuple[list[str], list[int]]:
    """Whose subscriptions to a topic are known, and the connections that may have others."""
    table = SubscriberTable()
    for number in range(1, count + 1):
        connected(table, f"c{number}", "a", number=number)
    return owners(table, "a"), [number for _, number, _ in table.strangers]


def matching(count: int) -> tuple[int, bool]:
    """Number of the filters that match a topic, and whether they are all."""
    table, levels = SubscriberTable(), range(10)
    bits = ((number >> level & 1 for level in levels) for number in range(1, count + 1))
    connected(table, "c1", *("/".join("+" if bit else "a" for bit in row) for row in bits))
    return len(table.matching("/".join("a" for _ in levels))), table.whole


def looked_up(topics: int) -> int:
    """Number of topics of which the filters that match are remembered."""
    table = SubscriberTable()
    for number in range(topics):
        table.matching(f"a/{number}")
    return len(table.matched)


def left_empty(filters: int) -> int:
    """Number of filters that stay when nobody is subscribed any more."""
    table = SubscriberTable()
    connected(table, "c1", *(f"{number}/+" for number in range(filters)))
    table.end("c1")
    return table.patterns


# Wills


def dropped(count: int, leaving: int = 1, topic: str = "dead/x{n}") -> tuple[int, list[str]]:
    """Findings about the will of the first of some clients that leave with DISCONNECT, and the limits that were met."""
    lines = (
        "opened client=c2; > subscribe 1 dead/#:0; < suback 1 0",
        f"for 1..{count}: @{{n}} opened client=x{{n}} will={topic} will_payload=gone{{n}}",
        f"for 1..{leaving}: @{{n}} > disconnect; @{{n}} > fin",
        "< publish dead/x1 gone1",
    )
    results, limits = findings_and_limits("WIL405", *lines)
    return len(results), limits


def after_unknown(nanoseconds: int) -> int:
    """The same some time after the end of a connection whose CONNECT is not known."""
    return len(
        findings(
            "WIL405",
            "opened client=c2; > subscribe 1 dead/#:0; < suback 1 0; @1 opened client=x1 will=dead/x will_payload=gone",
            "@2 > pingreq; @2 < pingresp; @2 > fin",
            f"{wait(nanoseconds, steps=2)} @1 > disconnect; @1 > fin; < publish dead/x gone",
        )
    )


WILL_READERS = "for 1..{count}: @{n} opened client=r{n}; @{n} > subscribe 1 dead/x:0; @{n} < suback 1 0"
HAS_WILL = "opened will=dead/x will_payload=gone will_qos=1"


def first_will_reader(count: int) -> str:
    """How severe it is that a will does not reach the first of some clients that get messages of its topic."""
    gets = f"for 1..{count}: @{{n}} < publish dead/x here"
    ends = "> reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq"
    readers = WILL_READERS.replace("{count}", str(count))
    (finding,) = findings("WIL404", readers, f"{HAS_WILL}; > publish dead/x here", gets, ends)
    return finding.severity


def twice(count: int) -> int:
    """Findings about the last of some subscribers, which gets a will a second time."""
    readers = WILL_READERS.replace("{count}", str(count))
    gets = f"for 1..{count}: @{{n}} < publish dead/x gone"
    return len(findings("WIL407", readers, f"{HAS_WILL}; > reset", gets, f"@{count} < publish dead/x gone"))


# Sparkplug


def sparkplug_devices(count: int) -> tuple[int, bool]:
    """Devices of an edge node that are followed, the node itself included, and whether they are all."""
    births = (f"> publish spBv1.0/g/DBIRTH/e/{number} spb(seq={number})" for number in range(1, count + 1))
    node = sparkplug_model(NBIRTH, *births).published["g/e"]
    return len(node.devices), node.is_whole


def sparkplug_metrics(count: int) -> tuple[int, bool]:
    """Metrics of an edge node that are followed, and whether they are all."""
    metrics = " ".join(f"m{number}:Int8=1" for number in range(count))
    node = sparkplug_model(f"> publish spBv1.0/g/NBIRTH/e spb({metrics})").published["g/e"]
    return sum(len(device.metrics) for device in node.devices.values()), node.is_whole


def sparkplug_nodes(count: int) -> list[str]:
    """The last edge node of a connection, if it is followed."""
    births = (f"> publish spBv1.0/g/NBIRTH/{number} spb(seq=0)" for number in range(1, count + 1))
    return [name.removeprefix("g/") for name in sparkplug_model(*births).published if name == f"g/{count}"]


def sparkplug_hosts(count: int) -> list[str]:
    """The last host of a connection, if it is followed."""
    states = (f"> publish spBv1.0/STATE/{number} state(online=true)" for number in range(1, count + 1))
    return [name for name in sparkplug_model(*states).own_states if name == str(count)]


# Sessions


def resumed(*lines: str, after: str = "+0.01") -> SessionModel:
    """A session that continues on a second connection."""
    session: SessionModel = model(SessionModel, *lines, "> reset", f"{after} @1 {LASTING} < present")
    return session


def carried(count: int) -> tuple[list[int], bool]:
    """Messages without an answer that a session has, and whether they are all."""
    session = resumed(LASTING, f"> for 1..{count}: publish a {{n}} qos=1 id={{n}}")
    return list(session.client_sent), session.whole


def first_completed(count: int) -> int:
    """The lowest packet identifier of the completed messages that are kept of the connection before."""
    exchange = "> publish a x qos=2 id={n}; < pubrec {n}; > pubrel {n}; < pubcomp {n}"
    lines = [exchange.replace("{n}", str(number)) for number in range(1, count + 1)]
    return min(resumed(LASTING, "; ".join(lines)).completed_by_client)


def filters(count: int) -> tuple[int, bool]:
    """Subscriptions that a session has, and whether they are all."""
    names, granted = " ".join(f"f/{number}:0" for number in range(count)), " ".join("0" * count)
    session = resumed(LASTING, f"> subscribe 1 {names}; < suback 1 {granted}")
    return len(session.filters), session.filters_known


def first_alias(count: int) -> int:
    """The lowest of the Topic Aliases that are remembered of the connection before."""
    uses = f"> for 1..{count}: publish a/{{n}} topic_alias={{n}}"
    return min(resumed(f"{LASTING} < topic_alias_maximum=999", uses).client_aliases)


def after_expiry(seconds: float, nanoseconds: int = 0) -> int:
    """Messages without an answer that are left when a server resumes a session that has expired some time before."""
    after = wait(round((100 + seconds) * 1e9) + nanoseconds, steps=1)
    return len(resumed(LASTING, "> publish a qos=1 id=1", after=after).client_sent)


# Packets and findings


def unanswered(nanoseconds: int) -> list[str]:
    """What a capture lacks that ends some time after a CONNECT."""
    return quality(f"> connect; {wait(nanoseconds)} < ack").sentences()


def is_passed_on(length: int) -> bool:
    """Whether the Content Type of a message is compared with that of its copies."""
    return forwarded_properties(Properties(content_type="x" * length)) is not None


def places(count: int) -> tuple[int, str]:
    """Number of the places of a finding about wrong filters, and the end of its message."""
    rows = [Subscription(f"a/#/{number}") for number in range(count)]
    (finding,) = linted(*opened(), client(Subscribe(1, subscriptions=rows)), codes=("SUB107",))
    return len(finding.places), finding.message.rpartition(", ")[2]


def is_shape_kept(length: int) -> bool:
    """Whether the shape of a topic is remembered."""
    before = shapes._shaped.cache_info()
    shapes.topic_shape("x" * length)
    return shapes._shaped.cache_info() != before


def sign_topics(*topics: str) -> list[str]:
    """The topics whose signs are remembered after a PUBLISH of each."""
    signs._TOPICS.clear()
    linted(*opened(), *(client(Publish(topic_name=topic)) for topic in topics), codes=("PUB101",))
    return list(signs._TOPICS)


def numbered(count: int) -> list[str]:
    return [f"t/{number}" for number in range(1, count + 1)]


def combinations(count: int) -> int:
    """Combinations of signs of which it is remembered what is asked."""
    plan = PacketPlan([], [], [])
    for bits in range(count):
        plan.plan_for(bits)
    return len(plan._by_signs)


def forgotten_sessions(count: int) -> list[str]:
    """What is said of sessions that had to make room in the memories of a rule."""

    def check(rule: Rule, packet: Connack, at: RuleContext) -> None:
        at.memory(rule)

    talks = (conversation("", *opened(client_identifier=f"c{number}")) for number in range(count))
    rule = test_engine.made("TST312", check, looks_at=Connack, Memory=dict)
    return test_engine.run(rule, *talks)[1].limit_sentences()


def cited(count: int) -> int:
    """Kinds of findings of which the statements are remembered."""

    def check(rule: Rule, packet: Pingreq, at: RuleContext) -> list[Report]:
        return [rule.report(f"field{number}", "wrong") for number in range(count)]

    linter = test_engine.run(test_engine.made("TST120", check, looks_at=Pingreq), test_engine.TALK)[1]
    return len(linter._cited)


def pings(count: int) -> Any:
    return conversation("", *opened(), *[client(Pingreq()), server(Pingresp())] * count)


def internal_errors(count: int) -> tuple[int, int]:
    """Failures of a rule that are kept with their text, and that are counted."""
    _, linter = test_engine.run(test_engine.made("TST106", test_engine.fails, looks_at=Pingreq), pings(count))
    return len(linter.internal_errors), linter.failures.total()


def first_violation(count: int) -> str:
    """The first packet of the violations that a rule can look back at."""

    def check(rule: Rule, packet: Pingresp, at: RuleContext) -> Report:
        return rule.report("", f"packet {at.history.reported[0].packet}", severity=Severity.INFO)

    rules = (test_engine.made("TST214", looks_at=Pingreq), test_engine.made("TST215", check, looks_at=Pingresp))
    return test_engine.run(rules, pings(count))[0][-1].message


def greeting(length: int) -> str:
    """Whether all is kept of what a server of another protocol sends before the CONNECT."""
    raw = b"SSH-2.0-" + b"x" * (length - 8)

    def check(rule: Rule, protocol: str, at: RuleContext) -> Report:
        return rule.report("", "complete" if at.history.greeting == raw else "cut")

    rule = test_engine.made("TST216", looks_at=(), check_foreign=check)
    return test_engine.messages(rule, conversation("", server(raw)))[-1]


def damaged(*packets: bytes) -> list[MalformedEvent]:
    """Damaged packets of one connection."""
    talk = Talk().handshake()
    for raw in packets:
        talk.client(raw)
    return [event for event in dissect_segments(talk.tape.segments) if isinstance(event, MalformedEvent)]


def withheld(events: list[MalformedEvent]) -> list[bytes]:
    """What is kept of the secrets of damaged packets, by packet."""
    withheld_bytes = WithheldBytes()
    for event in events:
        withheld_bytes.note(event)
    return [b" ".join(withheld_bytes.bytes_of(event.connection)) for event in events]


def kept_secrets(count: int) -> list[int]:
    """Which of the secrets of damaged packets are kept of one connection."""
    secrets = [b"%05d" % number for number in range(count)]
    raw = withheld(damaged(*(WRONG_LENGTHS.replace(b"Plugh", secret) for secret in secrets)))[-1]
    return [number for number, secret in enumerate(secrets) if secret in raw]


def kept_connections(count: int) -> list[bool]:
    """Of which of some connections secrets are kept."""
    return [bool(raw) for raw in withheld([event for _ in range(count) for event in damaged(WRONG_LENGTHS)])]


def is_kept(length: int) -> bool:
    """Whether all of a long password is kept, and of the six bytes before it."""
    raw = encode(Connect(client_identifier="dev-7", user_name="ford", password=b"~" * length), ProtocolVersion.V3_1_1)
    return withheld(damaged(raw.replace(b"\x00\x04ford", b"\x00\x34ford")))[0].count(b"~") == length


def reports(count: int) -> int | str:
    """How many reports a check may return, or why not so many."""
    try:
        return len(list(reports_of(Plain(), [Report("", "")] * count)))
    except WrongReturnError as error:
        return str(error)


def failure(length: int) -> str:
    """The text of a failure as it is passed on."""
    linter, failures = Linter([]), RuleFailures()
    linter.internal_errors = [InternalError("TST291", "a.pcap", 1, "x" * length, "")]
    failures.take(linter)
    return failures.errors[0].error


def selected(count: int) -> tuple[int, int]:
    """Findings that waited for the client of their connection, and those that were left out."""
    selection, waiting = FindingSelection[str](clients=("*",)), ["x"] * count
    total = 0
    for event in dissect_segments(talked(*opened())):
        total += len(selection.take(event, waiting))
        waiting = []
    return total, selection.left_out


def clients(count: int) -> tuple[str, str]:
    """How many clients a group of findings has, and how it names them."""
    group = of(*(f"c{number}" for number in range(1, count + 1)))
    return group.number_of_clients, group.named()


def ended(*sizes: int) -> list[int]:
    """The groups that have to make room, by the size of their first packet."""
    groups = Groups(client_of)
    for number, size in enumerate(sizes):
        groups.add((number,), replace(FOUND, raw=bytes(size)))
    return [len(group.first.raw) for group in groups.ended()]


# Texts


def shown_text(length: int) -> str:
    return shown("x" * length)


def shown_value(length: int) -> str:
    return short("x" * length)


def refusal(text: str) -> str:
    """Why a configuration is refused; empty if it is not."""
    try:
        parse(tomllib.loads(text))
    except ConfigError as error:
        return str(error)
    return ""


def endpoint(number: int) -> str:
    """The client of a connection of a conversation, or why there is no such connection."""
    try:
        event: Any = next(iter(dissect_segments(talked(*steps_of(f"@{number} > pingreq")))))
    except ConversationTextError as error:
        return error.reason
    client: str = event.connection.client
    return client


def repetitions(count: int) -> int | str:
    """The number of steps that a repetition has, or why there is no such repetition."""
    try:
        return len(steps_of(f"for 1..{count}: > pingreq"))
    except ConversationTextError as error:
        return error.reason


def is_new_after(count: int) -> bool:
    """Whether the first of some texts is new when all have been reported."""
    seen = ReportedTexts()
    for number in range(count):
        seen.first(str(number))
    return seen.first("0")


def swallowed(*, malformed: int = 0, length: int = 80) -> bool:
    """Whether a packet of so many bytes that a short PUBLISH swallows is found, after so many malformed packets."""
    text = (length - 7) * "x"
    lines = [f"for 1..{malformed}: > raw 30 03 0001 00"] if malformed else []
    lines.append(f'> raw 30 {length - 2:02x} 0013 612f 30 {length - 2:02x} 0003 612f62 "{text}"')
    return any(
        "is shorter than it announces" in finding.message
        for finding in linted(*steps_of("opened 3.1.1", *lines, "> fin"))
    )
