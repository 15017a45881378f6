"""SPB180, SPB181, SPB282, SPB284, SPB286 to SPB289, SPB585: hosts of Sparkplug B, and who waits for them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqttscope.lint.rules import (
    SPARKPLUG,
    Confidence,
    Findings,
    Needs,
    Related,
    Report,
    RuleContext,
    Severity,
    shown,
)
from mqttscope.lint.rules.sparkplug import is_bridge, sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import DisconnectRule, NodeRule, UnansweredRule, WillPayloadRule
from mqttscope.lint.sparkplug_model import (
    BIRTHS,
    COMMANDS,
    DATA,
    KINDS,
    MAX_DEVICES,
    MAX_HOSTS,
    MAX_METRICS,
    MAX_NODES,
    SparkplugMessage,
    SparkplugModel,
    read_message,
    will_message,
)
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connect, PacketType, Publish
from mqttscope.payloads.sparkplug_topics import host_of_state

_HOST = "tck-id-operational-behavior-host-application"
_BIRTH_PAYLOADS = {
    "tck-id-host-topic-phid-birth-payload": "client publish.payload",
    "tck-id-message-flow-phid-sparkplug-state-publish-payload": "client publish.payload",
    f"{_HOST}-connect-birth-payload": "client publish.payload",
    "tck-id-payloads-state-birth-payload": "client publish.payload",
}
"""Statements about the keys of births."""
_DEATH_PAYLOADS = {
    "tck-id-host-topic-phid-death-payload": "client connect.will",
    f"{_HOST}-connect-will-payload": "client connect.will",
    f"{_HOST}-death-payload": "client connect.will",
    "tck-id-payloads-state-will-message-payload": "client connect.will",
}
"""Statements about the keys of deaths."""


class StatePayloadRule(WillPayloadRule):
    """A rule about the payload of a STATE."""

    kinds = ("STATE",)

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """The statements about births or about deaths."""
        is_death = message.field != "payload" or message.payload.get("online") is False
        return tuple(name for name in self.statements[SPARKPLUG] if (name in _DEATH_PAYLOADS) == is_death)


class StatePayloadInvalid(StatePayloadRule):
    """The payload of a STATE is not JSON with the keys online and timestamp.

    Edge nodes cannot find out whether their host is there, and wait for it or send in vain. Before Sparkplug 3.0 the
    payload was the text ONLINE or OFFLINE, which edge nodes of 3.0 do not accept.

    Instead, send an object with online, true or false, and timestamp, in milliseconds since 1970.
    """

    code = "SPB180"
    statements = {SPARKPLUG: {**_BIRTH_PAYLOADS, **_DEATH_PAYLOADS}}

    good = sparkplug_examples("""
        a will and a birth
            ONLINE
    """)
    bad = sparkplug_examples("""
        the text of older versions
            HOST; > publish spBv1.0/STATE/h ONLINE qos=1 retain id=2 !payload; < puback 2
        a will without a timestamp
            > connect 3.1.1 client=h will=spBv1.0/STATE/h will_payload=state(online=false timestamp=-) will_qos=1
                will_retain !will.will_payload
        texts instead of a truth value and a number
            HOST; > publish spBv1.0/STATE/h state(online="true" timestamp="5") qos=1 retain id=2 !payload; < puback 2
    """)

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Judge unreadable payloads too."""
        message = read_message(packet, at)
        if message is None or message.kind not in self.kinds:
            return None
        return self.joined(self.faults(message, at), message, at)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check both keys."""
        state = message.payload
        if message.problem:
            yield f"the payload is not an object with online and timestamp: {message.problem}"
            return
        if not isinstance(state.get("online"), bool):
            yield "online is not true or false"
        timestamp = state.get("timestamp")
        if isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
            yield "timestamp is not a number"


class StateWillOnline(StatePayloadRule):
    """The will of a host has online true.

    When the host fails, the server announces to the edge nodes that it is there.

    Instead, register a will with online false.
    """

    code = "SPB181"
    statements = {SPARKPLUG: _DEATH_PAYLOADS}

    good = sparkplug_examples("""
        a will with online false
            HOST
        a key in another case is another key
            opened 3.1.1 client=h will=spBv1.0/STATE/h will_payload=state(online=false onlinE=true)
                will_qos=1 will_retain
    """)
    bad = sparkplug_examples("""
        a will with online true
            > connect 3.1.1 client=h will=spBv1.0/STATE/h will_payload=state(online=true) will_qos=1 will_retain
                !will.will_payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look at the will."""
        if message.field != "payload" and message.payload.get("online") is True:
            yield "the will has online true"


class StateTimestampDiffers(StatePayloadRule):
    """The timestamp in the birth of a host is not the timestamp in the will of its connection.

    Edge nodes compare both to find out whether a death belongs to an earlier connection of the host.

    Instead, take the time of the CONNECT for the will, and send the same number in the birth.
    """

    code = "SPB282"
    statements = stated("""
        host-topic-phid-birth-payload-timestamp message-flow-phid-sparkplug-state-publish-payload-timestamp
        message-flow-phid-sparkplug-state-publish-payload
        operational-behavior-host-application-connect-birth-payload payloads-state-birth-payload
    """)

    good = sparkplug_examples("""
        equal
            ONLINE
        a death has its own time
            ONLINE; > publish spBv1.0/STATE/h state(online=false timestamp=1700000009000) qos=1 retain id=3; < puback 3
            > disconnect
    """)
    bad = sparkplug_examples("""
        the time of the birth
            HOST; > publish spBv1.0/STATE/h state(online=true timestamp=1700000000500) qos=1 retain id=2 !payload
            < puback 2
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the will."""
        will = will_message(at)
        if message.field != "payload" or will is None or (will.kind, will.owner) != (message.kind, message.owner):
            return
        born, registered = message.payload.get("timestamp"), will.payload.get("timestamp")
        if message.payload.get("online") is True and born is not None and registered is not None and born != registered:
            yield f"timestamp is {born}, and {registered} in the will of the connection"


class HostDisconnectWithoutDeath(DisconnectRule):
    """A host sends DISCONNECT without a STATE with online false before it.

    The server drops the will at a DISCONNECT, so the retained STATE still has online true.

    Instead, publish a STATE with online false before a DISCONNECT.
    """

    code = "SPB284"
    statements = stated("""
        client disconnect: host-topic-phid-death-payload-timestamp-disconnect-clean
        operational-behavior-host-application-termination components-ph-state
    """)
    needs = Needs.WHOLE_SENDER

    good = sparkplug_examples("""
        a death first
            ONLINE; > publish spBv1.0/STATE/h state(online=false) qos=1 retain id=3; < puback 3; > disconnect; > fin
        a death with a fraction in its timestamp
            ONLINE; > publish spBv1.0/STATE/h state(online=false timestamp=1700000009000.5) qos=1 id=3 retain
            < puback 3; > disconnect; > fin
    """)
    bad = sparkplug_examples("""
        a DISCONNECT alone
            ONLINE; > disconnect !; > fin
    """)

    def left(self, at: RuleContext) -> Iterator[Report]:
        """Reports about all hosts of the connection."""
        for host, state in at.model(SparkplugModel).own_states.items():
            if state.online:
                text = f"DISCONNECT of host {shown(host)} after a STATE with online true: the server drops the will"
                yield self.report(
                    "",
                    text,
                    confidence=self.certainty(at, host),
                    related=(state.related,),
                    statements=tuple(self.statements[SPARKPLUG]),
                )


class BirthNotFirst(NodeRule):
    """An edge node or a host publishes something else before its birth.

    The birth announces the client to all others, who can do nothing with earlier messages.

    Instead, publish the NBIRTH or the STATE first on every connection.
    """

    code = "SPB288"
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    confidence = Confidence.LIKELY
    statements = stated("""
        client publish: principles-birth-certificates-order host-topic-phid-birth-message
        operational-behavior-primary-application-state-with-multiple-servers-state
    """)
    kinds = ("NBIRTH", "STATE")

    good = sparkplug_examples("""
        a rebirth
            BORN
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
    """)
    bad = sparkplug_examples("""
        a message of its own before the NBIRTH
            EDGE; > publish plant/log started
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
        a command before the STATE
            HOST; > publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
            > publish spBv1.0/STATE/h state(online=true) qos=1 retain id=2 !payload; < puback 2
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Judge the first birth of the connection; data before an NBIRTH is reported by another rule."""
        model = at.model(SparkplugModel)
        if model.published or model.own_states or (message.kind == "STATE" and not message.payload.get("online")):
            return
        count = at.party.counts[PacketType.PUBLISH]
        if count:
            yield f"the client has published {count:,} other message{'s' if count > 1 else ''} before it"

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """Hosts have statements of their own."""
        names = tuple(self.statements[SPARKPLUG])
        return names if message.kind == "STATE" else names[:1]


class StateNotRepublished(UnansweredRule):
    """A host receives that it is offline, and does not publish that it is online.

    For the edge nodes the host is gone, because of an old will or another client. A host that has published its own
    death is not judged.

    Instead, subscribe to the own STATE, and publish the birth again when it has online false.
    """

    code = "SPB585"
    statements = stated("client: message-flow-hid-sparkplug-state-message-delivered")
    kinds = ("STATE",)

    good = sparkplug_examples("""
        online again
            ONLINE; < publish spBv1.0/STATE/h state(online=false)
            > publish spBv1.0/STATE/h state(online=true) qos=1 retain id=3; < puback 3; +60 > pingreq; < pingresp
        its own death
            ONLINE; > publish spBv1.0/STATE/h state(online=false) qos=1 retain id=3; < puback 3
            < publish spBv1.0/STATE/h state(online=false); +31 > pingreq; < pingresp
    """)
    bad = sparkplug_examples("""
        no answer
            ONLINE; < publish spBv1.0/STATE/h state(online=false); > ack; +31 > pingreq !!; < pingresp
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Begin to wait."""
        message = read_message(packet, at)
        if message is None or message.kind != "STATE" or is_bridge(at) or message.payload.get("online") is not False:
            return None
        if message.owner in at.model(SparkplugModel).own_states:
            self.wait(at)
        return None

    def unanswered(self, at: RuleContext) -> Iterator[tuple[Related, int, str]]:
        """STATE with online false that hosts received after they had published online true."""
        model = at.model(SparkplugModel)
        for host, state in model.states.items():
            own = model.own_states.get(host)
            if own is not None and own.online and not state.online and own.related.packet < state.related.packet:
                text = f"host {shown(host)} received that it is offline, and has not published that it is online"
                yield state.related, state.position, text


class NbirthBeforeHostOnline(NodeRule):
    """An edge node that subscribes to the STATE of a host is born before it has received that the host is online.

    An edge node that waits for a primary host must not publish before. A capture does not show the configuration: an
    edge node may subscribe to a STATE without waiting for the host.

    Instead, wait for a STATE with online true, if a primary host is configured.
    """

    code = "SPB286"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    needs = Needs.OPENING | Needs.BOTH_DIRECTIONS | Needs.WHOLE
    statements = stated("""
        client publish: message-flow-edge-node-birth-publish-phid-wait
        message-flow-edge-node-birth-publish-phid-wait-online message-flow-edge-node-birth-publish-phid-wait-id
        operational-behavior-edge-node-birth-sequence-wait
    """)
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        the host is online
            EDGE; > subscribe 2 spBv1.0/STATE/h:1; < suback 2 1; < publish spBv1.0/STATE/h state(online=true) retain
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
    """)
    bad = sparkplug_examples("""
        nothing is known about the host
            EDGE; > subscribe 2 spBv1.0/STATE/h:1; < suback 2 1
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
        the host is offline
            EDGE; > subscribe 2 spBv1.0/STATE/h:1; < suback 2 1; < publish spBv1.0/STATE/h state(online=false) retain
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Judge edge nodes that subscribe to exactly one host."""
        model = at.model(SparkplugModel)
        hosts = [host for name in at.history.subscriptions.live if (host := host_of_state(name)) is not None]
        if len(hosts) != 1 or set(hosts[0]) & set("+#"):
            return
        state = model.states.get(hosts[0])
        if state is None or not state.online:
            known = "has received no STATE" if state is None else "has received that it is offline"
            yield f"the client subscribes to host {shown(hosts[0])}, and {known}"

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        return tuple(self.statements[SPARKPLUG])


@dataclass(slots=True)
class OfflineReport:
    """Whether the client was reported."""

    is_reported: bool = False


class PrimaryHostOffline(NodeRule):
    """An edge node still sends data after it has received that its host is offline.

    An edge node with a primary host must end the connection, and try another server. A capture does not show the
    configuration: an edge node may subscribe to a STATE without depending on the host. Data within ``grace`` seconds is
    not reported.

    Instead, publish an NDEATH and disconnect when the primary host goes offline.
    """

    code = "SPB287"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"grace": 5}
    statements = stated("""
        client publish: message-flow-edge-node-birth-publish-phid-offline
        operational-behavior-edge-node-termination-host-offline
        operational-behavior-primary-application-state-with-multiple-servers-walk
    """)
    kinds = DATA
    Memory = OfflineReport

    good = sparkplug_examples("""
        an old death
            EDGE; > subscribe 2 spBv1.0/STATE/h:1; < suback 2 1; < publish spBv1.0/STATE/h state(online=true) retain
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            < publish spBv1.0/STATE/h state(online=false timestamp=5); +9 > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
    """)
    bad = sparkplug_examples("""
        data still comes
            EDGE; > subscribe 2 spBv1.0/STATE/h:1; < suback 2 1; < publish spBv1.0/STATE/h state(online=true) retain
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            < publish spBv1.0/STATE/h state(online=false); +9 > publish spBv1.0/g/NDATA/e spb(seq=1 T=21) !payload
            > publish spBv1.0/g/NDATA/e spb(seq=2 T=22)
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Report the client once."""
        memory: OfflineReport = at.memory(self)
        states = at.model(SparkplugModel).states
        if memory.is_reported or len(states) != 1:
            return []
        ((host, state),) = states.items()
        late_ns = at.timestamp_ns - state.related.timestamp_ns
        latest = state.online_timestamp
        if state.online or latest is None or state.timestamp < latest or at.acknowledged < state.position:
            return []
        if late_ns <= self.nanoseconds("grace") or host in at.model(SparkplugModel).own_states:
            return []
        memory.is_reported = True
        return [f"data {late_ns / 1e9:.1f} s after the client received that host {shown(host)} is offline"]

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        return tuple(self.statements[SPARKPLUG])


class SparkplugNotFollowed(NodeRule):
    """A connection has more edge nodes, devices, metrics or hosts than mqttscope follows.

    Memory is limited. Nothing is wrong with the traffic, but rules about the order of messages may miss findings about
    everything after the limit.

    Instead, lint a part of the traffic, for example with a filter on the topic.
    """

    code = "SPB289"
    severity = Severity.INFO
    sender = None
    kinds = (*KINDS, "STATE")
    Memory = ReportedTexts

    good = sparkplug_examples("""
        as many hosts as are followed
            opened 3.1.1; > subscribe 1 spBv1.0/STATE/+:0; < suback 1 0
            for 1..100: < publish spBv1.0/STATE/h{n} state(online=true)
    """)
    bad = sparkplug_examples("""
        one more
            opened 3.1.1; > subscribe 1 spBv1.0/STATE/+:0; < suback 1 0
            for 1..100: < publish spBv1.0/STATE/h{n} state(online=true)
            < publish spBv1.0/STATE/h101 state(online=true) !payload
    """)

    def certainty(self, at: RuleContext, owner: str) -> None:
        """The limit does not depend on the client."""

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Report each limit once."""
        text = self._limit(message, at.model(SparkplugModel), is_own=at.from_client)
        texts: ReportedTexts = at.memory(self)
        return [text] if text and texts.first(text) else []

    @staticmethod
    def _limit(message: SparkplugMessage, model: SparkplugModel, *, is_own: bool) -> str:
        if message.kind == "STATE":
            states = model.own_states if is_own else model.states
            is_beyond = message.owner not in states and len(states) >= MAX_HOSTS
            return f"at most {MAX_HOSTS:,} hosts are followed per connection" if is_beyond else ""
        nodes = model.published if is_own else model.received
        node = nodes.get(message.owner)
        if node is None and len(nodes) >= MAX_NODES and message.kind not in COMMANDS:
            return f"at most {MAX_NODES:,} edge nodes are followed per connection"
        if message.kind not in BIRTHS:
            return ""
        devices = {} if node is None or message.kind == "NBIRTH" else node.devices
        if len(devices) > MAX_DEVICES and message.device not in devices:
            return f"at most {MAX_DEVICES:,} devices are followed per edge node"
        others = sum(len(device.metrics) for name, device in devices.items() if name != message.device)
        if len(message.metrics) + others > MAX_METRICS:
            return f"at most {MAX_METRICS:,} metrics are followed per edge node"
        return ""
