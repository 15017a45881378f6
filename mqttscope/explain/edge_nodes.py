"""Edge nodes of Sparkplug B: why they are offline or stale, why a rebirth was requested, metrics without a birth.

The linter's model follows edge nodes (`lint.sparkplug_model`).  `NodeObserver` runs in the linter of an explainer and
passes each message with the state before it to a `NodeWatch`, so nothing runs without a topic of Sparkplug.  Whether a
host lost a message is decided by the messages that the host received, not by the messages that the edge node sent.
The screen of a host is not visible: an answer is about the messages to the host, and the reaction that Sparkplug 3.0
demands.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mqttscope.explain import describe
from mqttscope.explain.model import Cause, Certainty, Evidence, Explanation, NodeAnswer, NodeQuestion
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Severity
from mqttscope.lint.rules.sparkplug import SparkplugRule, is_bridge
from mqttscope.lint.rules.sparkplug.payload_checks import metric_name
from mqttscope.lint.sparkplug_model import (
    COMMANDS,
    DATA,
    NUMBERED,
    EdgeNode,
    SparkplugMessage,
    SparkplugModel,
    is_rebirth_request,
    read_message,
)
from mqttscope.mqtt import Connect, ControlPacket, Disconnect, Publish
from mqttscope.mqtt.wire import counted

MAX_NODES = 1_000
"""Maximum number of edge nodes that are explained; further ones are counted."""
MAX_ANSWERS = 20
"""Maximum number of answers per edge node; further ones are counted."""
MAX_CONNECTIONS = 16
"""Maximum number of connections of an edge node that are remembered, the latest ones."""
MAX_FAULTS = 3
"""Maximum number of faults that are remembered for a rebirth request, and of receivers of an NDEATH, the first ones."""


EARLY_NS = 50_000_000
"""Maximum time from the delivery of a will to the captured end of its connection."""
NOT_ENDED = (Cause.STILL_OPEN, Cause.UNREADABLE, Cause.NOT_SHOWN)
"""Causes that do not prove an end, or an end without DISCONNECT."""
ADVICE = {
    "seq": ("Look for messages that were lost on the way, and for an edge node that leaves out numbers.",),
    "metric": ("Put every metric into the birth, or publish a new birth before the first data of a new metric.",),
    "device": ("Publish a DBIRTH before the data of a device, and after each NBIRTH.",),
    "before_birth": ("Publish the NBIRTH first on every connection.",),
    "again": ("Publish the NBIRTH and all DBIRTH messages at once when Node Control/Rebirth is written.",),
}
"""Advice for reasons of rebirth requests."""


@dataclass(slots=True)
class NodeConnection:
    """A connection of an edge node, by its CONNECT or its births."""

    number: int
    client: str
    will: int | None = None
    """The bdSeq in its will."""
    has_will: bool | None = None
    """Whether its will is the NDEATH; ``None`` without a captured CONNECT."""
    birth: Evidence | None = None
    """Its last NBIRTH."""
    bdseq: int | None = None
    """The bdSeq in its last NBIRTH, if it is known."""
    keeps_will: bool = False
    """Whether its DISCONNECT asked for the will."""
    has_died: bool = False
    """Whether it published an NDEATH after its last NBIRTH."""


@dataclass(slots=True)
class Fault:
    """A reason for a rebirth request, found in a message."""

    key: str
    """One of `REASONS`."""
    evidence: Evidence


@dataclass(slots=True)
class NodeDeath:
    """An NDEATH that was published or delivered."""

    bdseq: int | None
    timestamp_ns: int
    birth_bdseq: int | None
    """The bdSeq of the last NBIRTH that the receiver had been sent, or that the edge node had published."""
    born_on: int | None
    """Number of the connection with the last NBIRTH."""
    evidence: list[Evidence] = field(default_factory=list)
    published_on: int | None = None
    """Number of the connection that published it."""
    returned: Evidence | None = None
    """The next NBIRTH."""


@dataclass(slots=True)
class RebirthCase:
    """A rebirth request, and what was seen of it."""

    host: str
    key: str
    """One of `REASONS`."""
    certainty: Certainty | None
    evidence: list[Evidence]
    timestamp_ns: int
    connections: tuple[int, ...]
    is_delivered: bool = False
    """Whether the edge node received it."""
    answer: Evidence | None = None
    data: int = 0
    """Messages with data that the edge node published between the delivery and the answer."""
    first: RebirthCase | None = None
    """The first request for the same reason, if this is another one."""
    more: int = 0
    """Number of further requests for the same reason."""
    unanswered: int = 0
    """Number of these requests without an NBIRTH after them."""


REASONS = {
    "seq": " after sequence numbers that do not follow each other",
    "before_birth": " after data without a birth on its connection",
    "after_death": " after a message of an edge node that was offline by its NDEATH",
    "device": " after data of a device without a birth",
    "metric": " after data with a metric that no birth has",
    "unreadable": " after a message that cannot be read",
    "unborn": "; it had received no NBIRTH of the edge node on its connection",
    "dead": " after the NDEATH of the edge node",
    "again": " again; its request before had no answer",
    "nothing": "; nothing in the capture shows why",
}
"""Messages before a rebirth request, as words."""


@dataclass(slots=True)
class NodeStory:
    """One edge node at one broker, with its connections, deaths and rebirth requests."""

    name: str
    connections: OrderedDict[int, NodeConnection] = field(default_factory=OrderedDict)
    born_on: int | None = None
    """Number of the connection with the last NBIRTH."""
    faults: list[Fault] = field(default_factory=list)
    """First faults in the messages that it published since the last NBIRTH."""
    deaths: list[NodeDeath] = field(default_factory=list)
    requests: dict[str, RebirthCase] = field(default_factory=dict)
    """First requests, by host and reason."""
    pending: list[RebirthCase] = field(default_factory=list)
    """Requests without an NBIRTH since."""
    unborn: dict[str, NodeAnswer] = field(default_factory=dict)
    left_out: int = 0
    """Number of answers beyond `MAX_ANSWERS`."""

    def connection(self, at: RuleContext) -> NodeConnection:
        """The connection of an event, which is one of this edge node."""
        number = at.connection.number
        known = self.connections.get(number)
        if known is None:
            has_will = None if at.history.connect is None else False
            known = self.connections[number] = NodeConnection(number, describe.name(at.client_name), None, has_will)
            if len(self.connections) > MAX_CONNECTIONS:
                self.connections.popitem(last=False)
        return known

    def has_room(self, count: int) -> bool:
        """Whether there is room for one more answer of a kind; otherwise it is counted."""
        self.left_out += count >= MAX_ANSWERS
        return count < MAX_ANSWERS


@dataclass(slots=True)
class ReceivedFaults:
    """Faults of messages as one connection received them, by edge node, since its NBIRTH or the last request."""

    faults: dict[str, list[Fault]] = field(default_factory=dict)


class NodeObserver(SparkplugRule):
    """Passes messages of Sparkplug to a watch, with the state before them; reports nothing."""

    code = "EXPLAIN200"
    severity = Severity.INFO
    sender = None
    looks_at = (Connect, Publish, Disconnect)
    signs: ClassVar[dict[type[ControlPacket], tuple[str, ...]]] = {
        Connect: ("sparkplug",), Publish: ("sparkplug",), Disconnect: (),
    }  # fmt: skip
    models = (SparkplugModel,)
    Memory: ClassVar[type | None] = ReceivedFaults

    def __init__(self, watch: NodeWatch) -> None:
        super().__init__()
        self._watch = watch

    def check(self, packet: Connect | Publish | Disconnect, at: RuleContext) -> None:
        """Take a message, the will of a connection, or its DISCONNECT."""
        if isinstance(packet, Disconnect):
            if packet.reason_code and at.from_client:
                self._watch.keep_will(at.connection.number)
            return
        message = read_message(packet, at)
        if message is None or message.kind == "STATE":
            return
        story = self._watch.story(at.connection.server, message.owner)
        if story is None or (at.from_client and is_bridge(at)):
            return
        if isinstance(packet, Connect):
            if message.kind == "NDEATH":
                connection = story.connection(at)
                connection.will, connection.has_will = message.bdseq, True
        elif packet.retain and not at.from_client and message.kind == "NDEATH":
            pass  # the death of some time before, from the memory of a broker
        elif not packet.dup:
            model, is_command = at.model(SparkplugModel), message.kind in COMMANDS
            # A command is about what its sender has received, or about what its receiver has published.
            node = (model.received if at.from_client is is_command else model.published).get(message.owner)
            received = at.memory(self).faults.setdefault(message.owner, [])
            NodeStep(story, message, at, node, received).take()


class NodeWatch:
    """Collects what a capture shows of edge nodes; `answers` explains it when the capture has ended."""

    def __init__(self) -> None:
        self.observer = NodeObserver(self)
        """Pass it to the linter."""
        self._stories: dict[tuple[str, str], NodeStory] = {}
        self._left_out: dict[tuple[str, str], None] = {}
        self._ends: dict[int, Explanation] = {}

    def story(self, server: str, owner: str) -> NodeStory | None:
        """The story of an edge node; ``None`` beyond `MAX_NODES`."""
        known = self._stories.get((server, owner))
        if known is None and len(self._stories) < MAX_NODES:
            known = self._stories[server, owner] = NodeStory(describe.name(owner))
        elif known is None and len(self._left_out) < MAX_NODES:
            self._left_out[server, owner] = None
        return known

    def keep_will(self, connection: int) -> None:
        """Note a DISCONNECT that makes the broker publish the will."""
        for story in self._stories.values():
            if connection in story.connections:
                story.connections[connection].keeps_will = True

    def note_end(self, explanation: Explanation) -> None:
        """Take the explanation of an end, if the connection is one of an edge node."""
        if any(explanation.connection in story.connections for story in self._stories.values()):
            self._ends[explanation.connection] = explanation

    def answers(self) -> list[NodeAnswer]:
        """All answers, by edge node; call it when the capture has ended."""
        used = Counter(number for story in self._stories.values() for number in story.connections)
        shared = {number for number, count in used.items() if count > 1}
        return [answer for story in self._stories.values() for answer in StoryAnswers(story, self._ends, shared).all()]

    def remarks(self) -> Iterator[str]:
        """Sentences about answers that were left out."""
        left = sum(story.left_out for story in self._stories.values())
        if left:
            yield f"limit: {MAX_ANSWERS} answers of one kind about an edge node; {left:,} more were left out."
        if self._left_out:
            more = " or more" * (len(self._left_out) >= MAX_NODES)
            yield f"limit: {MAX_NODES:,} edge nodes are explained; {len(self._left_out):,}{more} were left out."


class NodeStep:
    """One message of an edge node, or of a host to it."""

    def __init__(
        self, story: NodeStory, message: SparkplugMessage, at: RuleContext, node: EdgeNode | None, received: list[Fault]
    ) -> None:
        self.story, self.message, self.at, self.node, self.received = story, message, at, node, received
        self.client = describe.name(at.client_name)

    def evidence(self, text: str) -> Evidence:
        return Evidence(text, self.at.event.frame, self.at.timestamp_ns, self.at.event.capture)

    @property
    def _is_gapped(self) -> bool:
        """Whether bytes of the sender are missing, perhaps with a message."""
        return self.at.sender.gapped or self.at.connection.gap_bytes > 0

    def take(self) -> None:
        """Add the message to the story."""
        kind = self.message.kind
        if is_rebirth_request(self.message):
            self._add(self._request() if self.at.from_client else self._delivered_request())
        elif kind == "NDEATH":
            self._death()
        elif kind in NUMBERED:
            if kind == "NBIRTH":
                self._birth()
            else:
                self._judge()

    def _birth(self) -> None:
        story, verb = self.story, "published" if self.at.from_client else "received"
        bdseq = "that cannot be read" if self.message.problem else bdseq_text(self.message.bdseq)
        evidence = self.evidence(f"{self.client} {verb} NBIRTH {bdseq}")
        (story.faults if self.at.from_client else self.received).clear()
        if self.at.from_client:
            connection = story.connection(self.at)
            connection.birth, connection.has_died, story.born_on = evidence, False, connection.number
            connection.bdseq = self.message.bdseq
        for request in story.pending:
            # The NBIRTH of a new connection is due anyway.
            if not self.at.from_client or request.connections[-1] == self.at.connection.number:
                request.answer = evidence
        story.pending.clear()
        for death in story.deaths[-1:]:
            death.returned = death.returned or evidence

    def _death(self) -> None:
        story, bdseq, at = self.story, self.message.bdseq, self.at
        if self.message.problem:
            return
        death = story.deaths[-1] if story.deaths else None
        if death is None or death.returned is not None or death.bdseq != bdseq:
            if not story.has_room(len(story.deaths)):
                return
            known = self.node.bdseq if self.node is not None and self.node.is_whole and not self._is_gapped else None
            born = None if story.born_on is None else story.connections.get(story.born_on)
            if known is None and born is not None:
                known = born.bdseq
            death = NodeDeath(bdseq, at.timestamp_ns, known, story.born_on)
            story.deaths.append(death)
        if at.from_client:
            death.published_on = at.connection.number
            if at.connection.number in story.connections:
                story.connections[at.connection.number].has_died = True
        if len(death.evidence) < MAX_FAULTS:
            verb = "published" if at.from_client else "received"
            death.evidence.append(self.evidence(f"{self.client} {verb} NDEATH {bdseq_text(bdseq)}"))

    def _judge(self) -> None:
        """Remember what makes a host request a rebirth."""
        message, from_client = self.message, self.at.from_client
        if message.kind in DATA and from_client:
            for request in self.story.pending:
                request.data += request.is_delivered
        faults = self.story.faults if from_client else self.received
        if len(faults) < MAX_FAULTS:
            faults += [Fault(key, self.evidence(text)) for key, text in self._faults()][:1]
        node = self.node
        for metric in () if node is None or message.kind not in DATA else node.unborn_metrics(message):
            # An alias may have come to another metric since.
            if node is not None and ("name" in metric or metric["alias"] not in node.aliases):
                self._unborn(metric_name(metric))

    def _faults(self) -> Iterator[tuple[str, str]]:
        message, node = self.message, self.node
        who = f"{self.client} {'published' if self.at.from_client else 'received'} {message.kind}"
        if message.problem:
            if not message.is_beyond_limit:
                yield "unreadable", f"{who} that cannot be read: {message.problem}"
        elif node is None or (node.birth is None and node.is_whole):
            if self.at.history.connect is not None and not self._is_gapped:
                yield "before_birth", f"{who} before any NBIRTH on its connection"
        else:
            # Overlapping subscriptions give a message twice.
            is_copy = node.seq is not None and message.payload.get("seq") == node.seq
            if not is_copy and (wrong := node.wrong_seq(message)):
                yield "seq", f"{who}: {wrong}"
            if node.birth is not None and not node.is_alive:
                yield "after_death", f"{who} after the NDEATH, without an NBIRTH since"
            if since := node.missing_dbirth(message):
                yield "device", f"{who} of device {describe.name(message.device)}, without a DBIRTH since {since}"
            for metric in node.unborn_metrics(message) if message.kind in DATA else ():
                yield "metric", f"{who} with the metric {metric_name(metric)}, which is in no birth"

    def _unborn(self, name: str) -> None:
        story, message, from_client = self.story, self.message, self.at.from_client
        place = f"{message.device}/{name}"
        if place in story.unborn or self.node is None or self._is_gapped or not story.has_room(len(story.unborn)):
            return
        birth = self.node.devices[message.device].birth
        of = f" of device {describe.name(message.device)}" if message.device else ""
        born = Evidence(
            f"the last {birth.message} of its sender does not have it", birth.frame, birth.timestamp_ns,
            self.at.event.capture,
        )  # fmt: skip
        verb = "published" if from_client else "received"
        story.unborn[place] = NodeAnswer(
            story.name, NodeQuestion.NO_BIRTH, Certainty.CERTAIN if from_client else Certainty.LIKELY,
            f"The metric {name}{of} is in data, and not in the {birth.message} before it.",
            (born, self.evidence(f"{self.client} {verb} {message.kind} with it")),
            ADVICE["metric"],
            (self.at.connection.number,),
        )  # fmt: skip

    def _request(self) -> RebirthCase:
        """A rebirth request of a host, with its reason in the messages that the host has received."""
        at, node, story = self.at, self.node, self.story
        key, certainty, reasons = "nothing", None, list[Evidence]()
        is_known = any(connection.birth is not None for connection in story.connections.values())
        if self.received:
            key, certainty = self.received[0].key, Certainty.LIKELY
            reasons = [self.received[0].evidence, *self._seen_by_sender(key)]
            if key == "before_birth" and is_known:
                key = "unborn"  # the host subscribed later
            self.received.clear()
        elif any(request.connections[0] == at.connection.number for request in story.pending):
            key, certainty = "again", Certainty.LIKELY
        elif at.connection.one_sided:
            if story.faults:
                key, certainty, reasons = story.faults[0].key, Certainty.HYPOTHESIS, [story.faults[0].evidence]
        elif node is None or node.birth is None:
            if at.history.connect is not None and not at.server.gapped:
                key, certainty = "unborn", Certainty.HYPOTHESIS
        elif not node.is_alive and node.is_whole and not at.server.gapped:
            key, certainty = "dead", Certainty.LIKELY
        numbers = at.connection.number, *(() if story.born_on is None else (story.born_on,))
        asked = self.evidence(f"{self.client} published the rebirth request")
        return RebirthCase(self.client, key, certainty, [*reasons, asked], at.timestamp_ns, numbers)

    def _seen_by_sender(self, key: str) -> Iterator[Evidence]:
        """Whether a gap in the sequence was in the messages that the edge node published."""
        if key == "seq":
            yield from [fault.evidence for fault in self.story.faults if fault.key == key][:1]

    def _delivered_request(self) -> RebirthCase | None:
        """A rebirth request that reaches the edge node; a new one if no captured host published it."""
        if self.node is None and self.at.connection.number not in self.story.connections:
            return None  # a copy for another subscriber
        evidence = self.evidence(f"{self.client} received the rebirth request")
        for request in self.story.pending:
            if not request.is_delivered:
                request.is_delivered = True
                request.evidence.append(evidence)
                return None
        faults = self.story.faults[:1]
        key, certainty = (faults[0].key, Certainty.LIKELY) if faults else ("nothing", None)
        reasons = [*(fault.evidence for fault in faults), evidence]
        number = self.at.connection.number
        return RebirthCase("A host", key, certainty, reasons, self.at.timestamp_ns, (number,), is_delivered=True)

    def _add(self, request: RebirthCase | None) -> None:
        """Wait for the answer of a request; further ones of one host for one reason are counted with the first."""
        if request is None:
            return
        story, name = self.story, f"{request.host} {request.key}"
        first = story.requests.get(name)
        if first is not None:
            first.more += 1
            request.first = first
        elif not story.has_room(len(story.requests)):
            return
        else:
            story.requests[name] = request
        if len(story.pending) < MAX_ANSWERS:
            story.pending.append(request)


def bdseq_text(bdseq: int | None) -> str:
    return "without a bdSeq" if bdseq is None else f"with bdSeq {bdseq}"


class StoryAnswers:
    """Makes the answers about one edge node from its story and the ends of its connections."""

    def __init__(self, story: NodeStory, ends: dict[int, Explanation], shared: Container[int]) -> None:
        """``shared``: connections of several edge nodes, perhaps of a gateway."""
        self._story, self._ends, self._shared = story, ends, shared
        self._explained: set[int] = set()
        """Connections with an end that a death explains."""
        self._foreign: list[NodeDeath] = []
        """Deaths that belong to no captured connection."""

    def all(self) -> Iterator[NodeAnswer]:
        """Deaths, ends without a death, rebirth requests, and metrics without a birth."""
        story = self._story
        for death in story.deaths:
            yield from self._death(death)
        for connection in story.connections.values():
            yield from self._silent_end(connection)
        for request in story.pending:
            (request.first or request).unanswered += 1
        yield from map(self._request, story.requests.values())
        yield from story.unborn.values()

    def _source(self, death: NodeDeath) -> NodeConnection | None:
        """The connection that an NDEATH was published on, or was the will of."""
        connections = self._story.connections
        if death.published_on is not None:
            return connections.get(death.published_on)
        ended = [
            (end.ended_ns, connection)
            for connection in connections.values()
            if connection.has_will and connection.will == death.bdseq
            if (end := self._ends.get(connection.number)) is not None
            if end.ended_ns <= death.timestamp_ns + EARLY_NS and end.cause is not Cause.STILL_OPEN
            # DISCONNECT drops the will, and lost bytes may contain an NDEATH.
            if (end.cause is not Cause.NORMAL or connection.keeps_will) and not end.notes
        ]
        return max(ended, key=lambda row: row[0])[1] if ended else None

    def _death(self, death: NodeDeath) -> Iterator[NodeAnswer]:
        source = self._source(death)
        if source is None and (death.published_on is not None or self._story.connections):
            self._foreign.append(death)
            return  # published by another client, or of a connection before
        evidence, advice, by_end = list(death.evidence), tuple[str, ...](), ""
        certainty = Certainty.LIKELY
        if source is not None:
            self._explained.add(source.number)
        if death.published_on is not None:
            by_end = "It published its NDEATH itself"
        elif source is not None:
            end = self._ends[source.number]
            by_end = f"Connection #{source.number} ended ({cause_text(end)}), and the broker published its will"
            evidence.insert(0, end_of(end))
            advice = end.first.advice[:1]
        else:
            by_end = "Its NDEATH was delivered, and the capture does not show the connection that it belongs to"
        is_other = source is not None and death.born_on is not None and source.number != death.born_on
        is_known = death.bdseq is not None and death.birth_bdseq is not None
        question, text = NodeQuestion.OFFLINE, "hosts have to show it as offline"
        if is_known and death.bdseq != death.birth_bdseq:
            if is_other:
                return  # the death of an earlier connection, which hosts ignore as they should
            question = NodeQuestion.STALE
            text = f"hosts ignore it, because its bdSeq is {death.bdseq}, and {death.birth_bdseq} in the NBIRTH"
            advice = ("Use one bdSeq for the will, the births and the death of a connection.",)
        elif is_known and is_other:
            text += f" although it is connected as #{death.born_on}: both connections have bdSeq {death.bdseq}"
            advice = ("Add one to bdSeq before every CONNECT.",)
        elif not is_known:
            certainty = Certainty.HYPOTHESIS
            text += " if its bdSeq is the one of the NBIRTH, which the capture lacks"
        evidence += _returned(death.returned)
        named = (death.born_on if source is None else source.number, death.born_on)
        numbers = dict.fromkeys(number for number in named if number is not None)
        yield self._answer(question, certainty, f"{by_end}; {text}.", evidence, advice, tuple(numbers))

    def _silent_end(self, connection: NodeConnection) -> Iterator[NodeAnswer]:
        """An end without an NDEATH that was published or delivered."""
        end = self._ends.get(connection.number)
        is_dead = connection.has_died or connection.number in self._explained
        if end is None or connection.birth is None or is_dead or end.cause in NOT_ENDED or end.notes:
            return  # an NDEATH may be in what the capture lacks
        born_ns = connection.birth.timestamp_ns or 0
        if connection.number in self._shared or any(death.timestamp_ns >= born_ns for death in self._foreign):
            return
        evidence = [connection.birth, end_of(end)]
        later = [other.birth for other in self._story.connections.values() if other.birth is not None]
        evidence += _returned(next((birth for birth in later if (birth.timestamp_ns or 0) > end.ended_ns), None))
        ended = f"Connection #{connection.number} ended ({cause_text(end)})"
        numbers, certainty = (connection.number,), Certainty.LIKELY
        if end.cause is Cause.NORMAL and not connection.keeps_will:
            text = (
                f"{ended} without an NDEATH: the broker drops the will, and hosts still have the edge node as online."
            )
            advice = "Publish the NDEATH before DISCONNECT, or send Reason Code 0x04 in MQTT 5.0."
            yield self._answer(NodeQuestion.STALE, certainty, text, evidence, (advice,), numbers)
        elif connection.has_will is False:
            text = f"{ended}, and its CONNECT had no NDEATH as the will: hosts still have the edge node as online."
            advice = "Set the NDEATH as the will of the CONNECT."
            yield self._answer(NodeQuestion.STALE, certainty, text, evidence, (advice,), numbers)
        elif connection.has_will:
            text = f"{ended}; its will is the NDEATH, and the capture has no delivery of it."
            yield self._answer(NodeQuestion.OFFLINE, Certainty.LIKELY, text, evidence, end.first.advice[:1], numbers)

    def _request(self, request: RebirthCase) -> NodeAnswer:
        headline, evidence = f"{request.host} requested a rebirth{REASONS[request.key]}.", request.evidence
        if request.answer is not None:
            later = describe.span((request.answer.timestamp_ns or 0) - request.timestamp_ns)
            answer = request.answer
            text = f"answered {later} after the request: {answer.text}"
            evidence.append(Evidence(text, answer.frame, answer.timestamp_ns, answer.capture))
        if request.data:
            text = f"the edge node published {counted(request.data, 'message')} with data before that"
            if request.answer is None:
                text = f"the edge node published {counted(request.data, 'message')} with data after it"
            evidence.append(Evidence(text))
        if request.more:
            evidence.append(Evidence(f"{request.more:,} more for the same reason"))
        if request.unanswered:
            count = "It has" if not request.more else f"{request.unanswered:,} of {request.more + 1:,} requests have"
            headline += f" {count} no answer in the capture."
        advice = ADVICE.get(request.key, ())
        return self._answer(NodeQuestion.REBIRTH, request.certainty, headline, evidence, advice, request.connections)

    def _answer(
        self, question: NodeQuestion, certainty: Certainty | None, headline: str, evidence: list[Evidence],
        advice: tuple[str, ...], connections: tuple[int, ...],
    ) -> NodeAnswer:  # fmt: skip
        reasons = sorted(evidence, key=lambda row: 1 << 63 if row.timestamp_ns is None else row.timestamp_ns)
        return NodeAnswer(self._story.name, question, certainty, headline, tuple(reasons), advice, connections)


def cause_text(end: Explanation) -> str:
    """The cause of an end with its certainty: ``keep alive, likely``."""
    return f"{str(end.cause).replace('_', ' ')}, {end.first.certainty}"


def end_of(end: Explanation) -> Evidence:
    return Evidence(end.first.headline.removesuffix("."), end.ended_frame, end.ended_ns, end.ended_capture)


def _returned(birth: Evidence | None) -> list[Evidence]:
    return [] if birth is None else [Evidence(f"back: {birth.text}", birth.frame, birth.timestamp_ns, birth.capture)]
