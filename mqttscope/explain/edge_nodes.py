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
from dataclasses import dataclass, field, replace
from typing import ClassVar
from zlib import crc32

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.model import Cause, Certainty, Evidence, Explanation, NodeAnswer, NodeQuestion
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import packet_name
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
from mqttscope.mqtt import Connect, ControlPacket, Disconnect, Puback, Publish, Pubrec
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import Connection
from mqttscope.session.matching import FAILURE

MAX_NODES = 1_000
"""Maximum number of edge nodes that are explained; further ones are counted."""
MAX_ANSWERS = 20
"""Maximum number of answers per edge node; further ones are counted."""
MAX_CONNECTIONS = 16
"""Maximum number of connections of an edge node that are remembered, the latest ones."""
MAX_REQUESTS = 100
"""Maximum number of rebirth requests without an answer that are remembered per edge node; further ones are counted."""
MAX_FAULTS = 3
"""Maximum number of faults that are remembered for a rebirth request, and of receivers of an NDEATH, the first ones."""
EARLY_NS = 50_000_000
"""Maximum time from the delivery of a will to the captured end of its connection."""
SAME_NS = 1_000_000_000
"""Maximum time between two copies of a rebirth request on one connection, which has several subscriptions."""
NOT_ENDED = (Cause.STILL_OPEN, Cause.UNREADABLE, Cause.NOT_SHOWN)
"""Causes that do not prove an end, or an end without DISCONNECT."""
ADVICE = {
    "seq": ("Look for messages that were lost on the way, and for an edge node that leaves out numbers.",),
    "metric": ("Put every metric into the birth, or publish a new birth before the first data of a new metric.",),
    "device": ("Publish a DBIRTH before the data of a device, and after each NBIRTH.",),
    "before_birth": ("Publish the NBIRTH first on every connection.",),
    "unseen": ("Look whether the edge node has subscribed to its NCMD topic, and what the broker granted.",),
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
    born: NodeConnection | None
    """The connection with the last NBIRTH that the edge node had published."""
    born_bdseq: int | None
    """The bdSeq of this NBIRTH."""
    seen_on: int
    """Number of the connection that showed it first."""
    evidence: list[Evidence] = field(default_factory=list)
    published_on: int | None = None
    """Number of the connection that published it."""
    returned: Evidence | None = None
    """The next NBIRTH."""


@dataclass(slots=True, eq=False)
class RequestCopy:
    """A rebirth request on one connection: from the host, or to the edge node."""

    connection: Connection
    from_client: bool
    identifier: int | None
    """Its Packet Identifier."""
    end: int
    """Offset of its last byte and one, in what its sender sent; 0 if it is unknown."""
    evidence: Evidence
    client: str
    checksum: int
    """CRC-32 of its payload."""

    def repeats(self, other: RequestCopy | None) -> bool:
        """Whether another copy is of the same request."""
        if other is None or self.checksum != other.checksum:
            return False
        after_ns = (self.evidence.timestamp_ns or 0) - (other.evidence.timestamp_ns or 0)
        return self.connection is not other.connection or after_ns <= SAME_NS

    @property
    def is_lost(self) -> bool:
        """Whether the connection ended before TCP acknowledged it."""
        connection = self.connection
        is_over = connection.closed_how == "reset" or connection.also_closed is not None
        if not is_over or connection.one_sided or not self.end:
            return False  # the acknowledgment may come after the capture
        if self.from_client:
            return self.end > connection.client_side.stream_offset - connection.client_unacknowledged
        return self.end > connection.server_side.stream_offset - connection.server_unacknowledged


@dataclass(slots=True, eq=False)
class RebirthCase:
    """A rebirth request, and what was seen of it."""

    host: str
    key: str
    """One of `REASONS`."""
    certainty: Certainty | None
    evidence: list[Evidence]
    timestamp_ns: int
    connections: tuple[int, ...]
    born_on: int | None = None
    """Number of the edge node's connection at that time."""
    sent: RequestCopy | None = None
    delivered: RequestCopy | None = None
    refused: Evidence | None = None
    """The acknowledgment that refused it."""
    answer: Evidence | None = None
    is_answer_proved: bool = True
    due: Evidence | None = None
    """The NBIRTH of a later connection, which is due without a request."""
    data: int = 0
    """Messages with data that the edge node published between the delivery and the answer."""
    first: RebirthCase | None = None
    """The first request for the same reason, if this is another one."""
    more: int = 0
    """Number of further requests for the same reason."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of these requests without an answer, by `OUTCOMES`."""


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
    "unseen": " again; the capture does not show that the edge node received the request before",
    "refused": " again; its request before was refused",
    "nothing": "; nothing in the capture shows why",
}
"""Messages before a rebirth request, as words."""
OUTCOMES = {
    "refused": ("was refused", "were refused"),
    "not delivered": ("was not delivered", "were not delivered"),
    "no answer": ("has no answer in the capture", "have no answer in the capture"),
}
"""Ends of a rebirth request without an answer, as words about one and about several."""


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
    """Requests without an NBIRTH since, and requests that no connection has delivered."""
    unanswered: list[RebirthCase] = field(default_factory=list)
    """Requests that ended without an answer."""
    unclaimed: list[RequestCopy] = field(default_factory=list)
    """Last requests to clients that have not shown yet whether they are the edge node."""
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

    def settle(self, request: RebirthCase) -> None:
        """End the wait for an answer."""
        self.pending.remove(request)
        self.unanswered.append(request)

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
    looks_at = (Connect, Publish, Puback, Pubrec, Disconnect)
    when: ClassVar[dict[type[ControlPacket], str]] = {Puback: "reason_code", Pubrec: "reason_code"}
    signs: ClassVar[dict[type[ControlPacket], tuple[str, ...]]] = {
        Connect: ("sparkplug",), Publish: ("sparkplug",), Puback: (), Pubrec: (), Disconnect: (),
    }  # fmt: skip
    models = (SparkplugModel,)
    Memory: ClassVar[type | None] = ReceivedFaults

    def __init__(self, watch: NodeWatch) -> None:
        super().__init__()
        self._watch = watch

    def check(self, packet: Connect | Publish | Puback | Pubrec | Disconnect, at: RuleContext) -> None:
        """Take a message, the will of a connection, a refusal, or a DISCONNECT."""
        if isinstance(packet, Puback | Pubrec):
            if (packet.reason_code or 0) >= FAILURE:
                self._watch.refuse(packet, at)
            return
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

    def refuse(self, packet: Puback | Pubrec, at: RuleContext) -> None:
        """Note a refusal, if it is the one of a rebirth request."""
        for request in (request for story in self._stories.values() for request in story.pending):
            # The broker has not refused a request that it delivered.
            copy = request.delivered or request.sent
            if copy is None or copy.connection is not at.connection or request.refused is not None:
                continue
            if copy.identifier == packet.packet_identifier and copy.from_client is not at.from_client:
                who = describe.name(at.client_name) if at.from_client else "the broker"
                code = describe.reason(packet.packet_type, packet.reason_code or 0, at.version)
                text = f"{who} refused the rebirth request: {packet_name(packet)} {code}"
                request.refused = Evidence(text, at.event.frame, at.timestamp_ns, at.event.capture)
                return

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
            for copy in self.story.unclaimed[:] if self.at.from_client else ():
                if copy.connection is self.at.connection:
                    self.story.unclaimed.remove(copy)
                    self._add(self._deliver(copy))
            if kind == "NBIRTH":
                self._birth()
            else:
                self._judge()

    def _birth(self) -> None:
        story, verb = self.story, "published" if self.at.from_client else "received"
        bdseq = "that cannot be read" if self.message.problem else bdseq_text(self.message.bdseq)
        evidence = self.evidence(f"{self.client} {verb} NBIRTH {bdseq}")
        (story.faults if self.at.from_client else self.received).clear()
        for request in list(story.pending):
            self._answer(request, evidence)
        if self.at.from_client:
            connection = story.connection(self.at)
            connection.birth, connection.has_died, story.born_on = evidence, False, connection.number
            connection.bdseq = self.message.bdseq
        for death in story.deaths[-1:]:
            death.returned = death.returned or evidence

    def _answer(self, request: RebirthCase, birth: Evidence) -> None:
        """Take an NBIRTH as the answer of a request, if it is not due without one."""
        story, at, delivered = self.story, self.at, request.delivered
        if not at.from_client:
            # The edge node's own connection shows the answer, if it was captured.
            if story.born_on is None and request.refused is None:
                self._seen_answer(request, birth)
            return
        known = story.connections.get(at.connection.number)
        is_new = known is None or known.birth is None or at.connection.opened_ns > request.timestamp_ns
        is_new &= at.history.connect is not None or at.connection.handshake_seen
        if request.refused is not None:
            story.settle(request)
        elif delivered is not None and delivered.connection is at.connection:
            request.answer = birth
            story.pending.remove(request)
        elif delivered is not None or is_new:
            request.due = request.due or birth
            if delivered is not None:
                story.settle(request)
        elif not at.receiver.packets or at.receiver.gapped:  # otherwise the capture shows when it is delivered
            request.answer, request.is_answer_proved = birth, not at.receiver.packets
            story.pending.remove(request)

    def _seen_answer(self, request: RebirthCase, birth: Evidence) -> None:
        """Take an NBIRTH that a host received: one of the connection before has its bdSeq."""
        node, event = self.node, self.at.event
        is_retained = isinstance(event, PacketEvent) and getattr(event.packet, "retain", False)
        before = node if node is not None and node.birth is not None and node.is_whole and not is_retained else None
        if before is not None and (not before.is_alive or before.bdseq != self.message.bdseq):
            request.due = request.due or birth
            self.story.settle(request)
        else:
            request.answer, request.is_answer_proved = birth, before is not None and before.bdseq is not None
            self.story.pending.remove(request)

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
            born_bdseq = None if born is None else born.bdseq
            death = NodeDeath(bdseq, at.timestamp_ns, known, born, born_bdseq, at.connection.number)
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
                request.data += request.delivered is not None
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
        text = f"the last {birth.message} of its sender does not have it"
        born = Evidence(text, birth.frame, birth.timestamp_ns, self.at.event.capture)
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
        elif before := [request for request in story.pending if request.connections[0] == at.connection.number]:
            last, certainty = before[-1], Certainty.LIKELY
            key = "refused" if last.refused is not None else "unseen" if last.delivered is None else "again"
        elif not at.receiver.packets:
            if story.faults:
                key, certainty, reasons = story.faults[0].key, Certainty.HYPOTHESIS, [story.faults[0].evidence]
        elif node is None or node.birth is None:
            if at.history.connect is not None and not at.server.gapped:
                key, certainty = "unborn", Certainty.HYPOTHESIS
        elif not node.is_alive and node.is_whole and not at.server.gapped:
            key, certainty = "dead", Certainty.LIKELY
        numbers = at.connection.number, *(() if story.born_on is None else (story.born_on,))
        copy = self._copy("published the rebirth request")
        return RebirthCase(
            self.client, key, certainty, [*reasons, copy.evidence], at.timestamp_ns, numbers, story.born_on, copy
        )  # fmt: skip

    def _copy(self, what: str) -> RequestCopy:
        """The rebirth request on the connection at hand."""
        event = self.at.event
        assert isinstance(event, PacketEvent)
        packet, evidence = event.packet, self.evidence(f"{self.client} {what}")
        assert isinstance(packet, Publish)
        end = event.stream_offset + len(packet.raw) if event.stream_offset >= 0 else 0
        from_client, checksum = self.at.from_client, crc32(packet.payload)
        return RequestCopy(
            event.connection, from_client, packet.packet_identifier, end, evidence, self.client, checksum
        )

    def _seen_by_sender(self, key: str) -> Iterator[Evidence]:
        """Whether a gap in the sequence was in the messages that the edge node published."""
        if key == "seq":
            yield from [fault.evidence for fault in self.story.faults if fault.key == key][:1]

    def _delivered_request(self) -> RebirthCase | None:
        """A rebirth request that a client receives, perhaps the edge node."""
        story, copy = self.story, self._copy("received the rebirth request")
        if self.node is not None or self.at.connection.number in story.connections:
            return self._deliver(copy)
        story.unclaimed = [*story.unclaimed[1 - MAX_ANSWERS :], copy]  # perhaps a copy for another subscriber
        return None

    def _deliver(self, copy: RequestCopy) -> RebirthCase | None:
        """Note that the edge node received a request; a new one if no captured host published it."""
        for request in self.story.pending:
            is_sent = request.sent is not None and request.sent.checksum == copy.checksum
            if request.refused is None and request.delivered is None and is_sent:
                request.delivered = copy
                request.evidence.append(copy.evidence)
                return None
        if any(copy.repeats(request.delivered) for request in (*self.story.pending, *self.story.unanswered)):
            return None
        faults = self.story.faults[:1]
        key, certainty = (faults[0].key, Certainty.LIKELY) if faults else ("nothing", None)
        reasons = [*(fault.evidence for fault in faults), copy.evidence]
        when_ns, numbers = copy.evidence.timestamp_ns or 0, (copy.connection.number,)
        return RebirthCase("A host", key, certainty, reasons, when_ns, numbers, delivered=copy)

    def _add(self, request: RebirthCase | None) -> None:
        """Wait for the answer of a request; further ones of one host for one reason are counted with the first."""
        if request is None:
            return
        story, name = self.story, f"{request.host} {request.key}"
        first = story.requests.get(name)
        if len(story.pending) + len(story.unanswered) >= MAX_REQUESTS:
            story.left_out += 1
            return
        if first is not None:
            first.more += 1
            request.first = first
        elif not story.has_room(len(story.requests)):
            return
        else:
            story.requests[name] = request
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
        for request in (*story.unanswered, *story.pending):
            end = "refused" if request.refused else "not delivered" if self._lost(request) else "no answer"
            (request.first or request).outcomes[end] += 1
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
        born = death.born
        is_other = source is not None and born is not None and source is not born
        is_known = death.bdseq is not None and death.birth_bdseq is not None
        question, text = NodeQuestion.OFFLINE, "hosts have to show it as offline"
        if is_known and death.bdseq != death.birth_bdseq:
            if is_other or source is None:
                return  # perhaps the death of an earlier connection, which hosts ignore as they should
            question = NodeQuestion.STALE
            text = f"hosts ignore it, because its bdSeq is {death.bdseq}, and {death.birth_bdseq} in the NBIRTH"
            advice = ("Use one bdSeq for the will, the births and the death of a connection.",)
        elif is_known and is_other and born is not None and born.birth is not None:
            if death.born_bdseq == death.bdseq:
                text += f" although it is connected as #{born.number}: both connections have bdSeq {death.bdseq}"
                advice = ("Add one to bdSeq before every CONNECT.",)
            else:
                text += f" until they receive the NBIRTH of connection #{born.number}"
                evidence += _returned(born.birth)
        elif not is_known:
            certainty = Certainty.HYPOTHESIS
            lacks = "which it lacks" if death.bdseq is None else "which the capture lacks"
            text += f" if its bdSeq is the one of the NBIRTH, {lacks}"
        evidence += _returned(death.returned)
        numbers = tuple(dict.fromkeys(connection.number for connection in (source, born) if connection is not None))
        is_usual = question is NodeQuestion.OFFLINE and death.published_on is not None and not is_other
        numbers = numbers or (death.seen_on,)
        yield self._answer(question, certainty, f"{by_end}; {text}.", evidence, advice, numbers, is_usual=is_usual)

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
        others = [other for other in self._story.connections.values() if other is not connection]
        later = [other.birth for other in others if other.birth is not None]
        if any(born_ns < (birth.timestamp_ns or 0) <= end.ended_ns for birth in later):
            return  # it is back before its will can be published
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

    def _lost(self, request: RebirthCase) -> Evidence | None:
        """The proof that a request did not reach the broker, or the edge node on the connection that it was for."""
        copy = request.delivered or request.sent
        if copy is not None and copy.is_lost:
            connection = copy.connection
            text = f"connection #{connection.number} ended, and TCP had not acknowledged the request"
            return Evidence(text, connection.closed_frame, connection.closed_ns, connection.closed_capture)
        if request.delivered is not None or request.born_on is None:
            return None
        end = self._ends.get(request.born_on)
        if end is None or end.cause in (Cause.STILL_OPEN, Cause.NOT_SHOWN) or end.notes:
            return None
        text = f"connection #{request.born_on} of the edge node ended; the request was not delivered on it"
        return Evidence(text, end.ended_frame, end.ended_ns, end.ended_capture)

    def _request(self, request: RebirthCase) -> NodeAnswer:
        headline, evidence = f"{request.host} requested a rebirth{REASONS[request.key]}.", request.evidence
        lost = None if request.answer or request.refused else self._lost(request)
        if lost is not None and request.delivered is not None and request.delivered.is_lost:
            evidence.remove(request.delivered.evidence)
            text = f"the broker sent the rebirth request to {request.delivered.client}"
            evidence.append(replace(request.delivered.evidence, text=text))
        if request.answer is not None:
            later = describe.span((request.answer.timestamp_ns or 0) - request.timestamp_ns)
            perhaps = "" if request.is_answer_proved else "perhaps "
            text = f"{perhaps}answered {later} after the request: {request.answer.text}"
            evidence.append(replace(request.answer, text=text))
        if request.due is not None:
            text = f"no answer, because it is due on a new connection: {request.due.text}"
            evidence.append(replace(request.due, text=text))
        evidence += [fact for fact in (request.refused, lost) if fact is not None]
        if request.data and (lost is None or request.delivered is None):
            when = "after it" if request.answer is None else "before that"
            evidence.append(Evidence(f"the edge node published {counted(request.data, 'message')} with data {when}"))
        if request.more:
            evidence.append(Evidence(f"{request.more:,} more for the same reason"))
        for name, words in OUTCOMES.items():
            if number := request.outcomes[name]:
                of = f"{number:,} of {request.more + 1:,} requests {words[number > 1]}"
                headline += f" {of if request.more else f'It {words[0]}'}."
        advice = ADVICE.get(request.key, ())
        is_usual, certainty = request.key in ("unborn", "dead", "nothing") and not request.outcomes, request.certainty
        numbers = request.connections
        return self._answer(NodeQuestion.REBIRTH, certainty, headline, evidence, advice, numbers, is_usual=is_usual)

    def _answer(
        self, question: NodeQuestion, certainty: Certainty | None, headline: str, evidence: list[Evidence],
        advice: tuple[str, ...], connections: tuple[int, ...], *, is_usual: bool = False,
    ) -> NodeAnswer:  # fmt: skip
        reasons = sorted(evidence, key=lambda row: 1 << 63 if row.timestamp_ns is None else row.timestamp_ns)
        return NodeAnswer(
            self._story.name, question, certainty, headline, tuple(reasons), advice, connections, is_usual
        )


def cause_text(end: Explanation) -> str:
    """The cause of an end with its certainty: ``keep alive, likely``."""
    return f"{str(end.cause).replace('_', ' ')}, {end.first.certainty}"


def end_of(end: Explanation) -> Evidence:
    return Evidence(end.first.headline.removesuffix("."), end.ended_frame, end.ended_ns, end.ended_capture)


def _returned(birth: Evidence | None) -> list[Evidence]:
    return [] if birth is None else [Evidence(f"back: {birth.text}", birth.frame, birth.timestamp_ns, birth.capture)]
