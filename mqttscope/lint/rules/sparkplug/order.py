"""SPB265 to SPB274, SPB377: the order of messages of edge nodes and devices of Sparkplug B."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqttscope.lint.rules import (
    SPARKPLUG,
    V5,
    Confidence,
    Findings,
    Needs,
    Related,
    Report,
    RuleContext,
    Severity,
    shown,
)
from mqttscope.lint.rules.sparkplug import sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import (
    BY_BIRTH,
    DisconnectRule,
    NodeRule,
    contradiction,
    metric_name,
    type_name,
)
from mqttscope.lint.sparkplug_model import (
    BDSEQ,
    BIRTHS,
    DATA,
    NUMBERED,
    REBIRTH,
    SparkplugMessage,
    SparkplugModel,
    will_message,
)
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connack


class SeqOutOfOrder(NodeRule):
    """A sequence number is not one more than the number before it.

    A host takes this for a lost message: it waits, and then asks the edge node for a rebirth.

    Instead, count all messages of the edge node and its devices together, from 0 to 255 and again from 0.
    """

    code = "SPB265"
    needs = Needs.NOTHING
    statements = stated("""
        payloads-sequence-num-incrementing message-flow-device-birth-publish-dbirth-payload-seq
        payloads-dbirth-seq-inc topics-dbirth-seq payloads-ndata-seq-inc topics-ndata-seq-num
        payloads-ddata-seq-inc topics-ddata-seq-num payloads-ddeath-seq-inc topics-ddeath-seq-num
    """)
    kinds = tuple(kind for kind in NUMBERED if kind != "NBIRTH")

    good = sparkplug_examples("""
        node and device count together
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5); > publish spBv1.0/g/NDATA/e spb(seq=3 T=21)
            > publish spBv1.0/g/DDEATH/e/d spb(seq=4)
        a second edge node on the connection has its own numbers
            midstream; version 3.1.1
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            > publish spBv1.0/g/NBIRTH/f spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            > publish spBv1.0/g/NDATA/e spb(seq=1 T=21); > publish spBv1.0/g/NDATA/f spb(seq=1 T=21)
        a message is missing from the capture
            BORN; lost > publish spBv1.0/g/NDATA/e spb(seq=1 T=21); > publish spBv1.0/g/NDATA/e spb(seq=2 T=22)
    """)
    bad = sparkplug_examples("""
        a number is left out
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21); > publish spBv1.0/g/NDATA/e spb(seq=3 T=22) !payload
            > publish spBv1.0/g/NDATA/e spb(seq=4 T=23)
        the device repeats the number of the node
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=0 S:Double=1.5) !payload
        the capture begins late
            midstream; version 3.1.1; > publish spBv1.0/g/NDATA/e spb(seq=7 T=21)
            > publish spBv1.0/g/NDATA/e spb(seq=9 T=21) !payload
    """)

    def related(self, message: SparkplugMessage, at: RuleContext) -> tuple[Related, ...]:
        """The message before it."""
        node = self.node(message, at)
        return () if node is None or node.last is None else (node.last,)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the number that is due; other rules report missing and invalid numbers."""
        node = self.node(message, at)
        fault = "" if node is None else node.wrong_seq(message)
        if fault:
            yield fault


class BdseqDiffersFromWill(NodeRule):
    """The bdSeq of an NBIRTH or NDEATH is not the bdSeq in the will of its connection.

    A host ignores the NDEATH that the server publishes, and still shows a dead edge node as alive.

    Instead, use one bdSeq for the will of a CONNECT and for all births and deaths on that connection.
    """

    code = "SPB266"
    statements = stated("""
        topics-nbirth-bdseq-matching payloads-nbirth-bdseq-repeat
        message-flow-edge-node-birth-publish-nbirth-payload-bdSeq
        operational-behavior-data-commands-rebirth-action-3 payloads-ndeath-bdseq
    """)
    kinds = ("NBIRTH", "NDEATH")

    good = sparkplug_examples("""
        equal, also in another number field
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:UInt64=0); > disconnect
    """)
    bad = sparkplug_examples("""
        the next number in the birth
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=1 "Node Control/Rebirth":Boolean=false) !payload
        a rebirth with a new number
            BORN; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=1 "Node Control/Rebirth":Boolean=false) !payload
        the next number in the death
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=1) !payload; > disconnect
    """)

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """Name the statement about rebirths only for a second NBIRTH."""
        node, names = self.node(message, at), tuple(self.statements[SPARKPLUG])
        is_rebirth = node is not None and node.birth is not None
        return names[4:] if message.kind == "NDEATH" else names[: 4 if is_rebirth else 3]

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the bdSeq of the will."""
        will = will_message(at)
        if will is None or will.kind != "NDEATH" or will.owner != message.owner or will.bdseq is None:
            return
        if message.bdseq is not None and message.bdseq != will.bdseq:
            yield f"{BDSEQ} is {message.bdseq}, and {will.bdseq} in the will of the connection"


class BeforeNbirth(NodeRule):
    """An edge node publishes data, or a birth or death of a device, before its NBIRTH.

    A host has seen neither the edge node nor its metrics, and asks for a rebirth.

    Instead, publish the NBIRTH first on every connection, and again after an NDEATH.
    """

    code = "SPB267"
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    statements = stated("""
        client publish: principles-birth-certificates-order message-flow-device-birth-publish-nbirth-wait
        message-flow-device-birth-publish-dbirth-match-edge-node-topic payloads-ndata-order payloads-ddata-order
    """)
    kinds = tuple(kind for kind in NUMBERED if kind != "NBIRTH")
    Memory = ReportedTexts

    good = sparkplug_examples("""
        node, device, data
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5)
        the capture begins late
            midstream; version 3.1.1; > publish spBv1.0/g/NDATA/e spb(seq=7 T=21)
    """)
    bad = sparkplug_examples("""
        data first
            EDGE; > publish spBv1.0/g/NDATA/e spb(seq=0 T=21) !payload; > publish spBv1.0/g/NDATA/e spb(seq=1 T=22)
        a device of another edge node
            BORN; > publish spBv1.0/g/DBIRTH/f/d spb(seq=1 S:Double=1.5) !payload
        data after the death
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); > publish spBv1.0/g/NDATA/e spb(seq=1 T=21) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Report each message type of an edge node once."""
        node = self.node(message, at)
        if node is not None and (not node.is_whole or (node.birth is not None and node.is_alive)):
            return []
        texts: ReportedTexts = at.memory(self)
        if not texts.first(f"{message.kind} {message.owner}"):
            return []
        return ["the connection has no NBIRTH of the edge node before it, or no NBIRTH since its NDEATH"]


class BeforeDbirth(NodeRule):
    """A device sends data although it has no DBIRTH since the last NBIRTH or its own DDEATH.

    A host has not seen the metrics of the device, and asks for a rebirth.

    Instead, publish a DBIRTH for each device after an NBIRTH, and when a device comes back.
    """

    code = "SPB268"
    statements = stated("client publish: payloads-ddata-order")
    kinds = ("DDATA",)
    Memory = ReportedTexts

    good = sparkplug_examples("""
        a device that comes back
            DEVICE; > publish spBv1.0/g/DDEATH/e/d spb(seq=2); > publish spBv1.0/g/DBIRTH/e/d spb(seq=3 S:Double=1.5)
            > publish spBv1.0/g/DDATA/e/d spb(seq=4 S=2.5)
        the DBIRTH is missing from the capture
            BORN; lost > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5)
            > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5)
    """)
    bad = sparkplug_examples("""
        no birth
            BORN; > publish spBv1.0/g/DDATA/e/d spb(seq=1 S=2.5) !payload
            > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5)
        data after the death
            DEVICE; > publish spBv1.0/g/DDEATH/e/d spb(seq=2); > publish spBv1.0/g/DDATA/e/d spb(seq=3 S=2.5) !payload
        the node was born again without its device
            DEVICE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false)
            > publish spBv1.0/g/DDATA/e/d spb(seq=1 S=2.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Report each device once per birth of its edge node."""
        node = self.node(message, at)
        if node is None or node.birth is None:
            return []
        since, texts = node.missing_dbirth(message), at.memory(self)
        if not since or not texts.first(f"{node.birth.packet} {message.owner} {message.device} {since}"):
            return []
        return [f"the device has no DBIRTH since {since}"]


class MetricNotInBirth(NodeRule):
    """Data has a metric that the birth of the edge node or device does not have.

    A host has no data type, or for an alias not even the name, and asks for a rebirth.

    Instead, send every metric in the birth, or publish a new birth before the first data of a new metric.
    """

    code = "SPB269"
    statements = stated("""
        client publish: topics-nbirth-metric-reqs operational-behavior-data-publish-nbirth
        topics-dbirth-metric-reqs operational-behavior-data-publish-dbirth
    """)
    kinds = DATA
    cited_as = BY_BIRTH

    good = sparkplug_examples("""
        by name, and by alias
            ALIASED; > publish spBv1.0/g/DDATA/e/d spb(seq=2 #1=2.5)
            > publish spBv1.0/g/NDATA/e spb(seq=3 T=21)
        the capture begins late
            midstream; version 3.1.1; > publish spBv1.0/g/NDATA/e spb(seq=7 X=21)
    """)
    bad = sparkplug_examples("""
        another name
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 X=21) !payload
        an unknown alias
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 #5=2.5) !payload
        a metric of the node in the data of the device
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 T=21) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for each metric in the birth of its sender."""
        node = self.node(message, at)
        for metric in () if node is None else node.unborn_metrics(message):
            yield f"metric {metric_name(metric)} is not in the {'DBIRTH' if message.device else 'NBIRTH'}"


class DatatypeNotOfBirth(NodeRule):
    """Data has another data type than the birth, or a value that contradicts it.

    A host reads the value with the data type of the birth, and gets a wrong value or nothing.

    Instead, send values of the data type of the birth, or publish a new birth first.
    """

    code = "SPB270"
    statements = stated("operational-behavior-data-publish-nbirth operational-behavior-data-publish-dbirth")
    kinds = DATA
    cited_as = BY_BIRTH

    good = sparkplug_examples("""
        the value without its type
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S{"double_value":2.5})
            > publish spBv1.0/g/NDATA/e spb(seq=3 T=-5)
        a metric that is null
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T{"is_null":true})
    """)
    bad = sparkplug_examples("""
        another type
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T:Int64=21) !payload
        a value of another type
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=warm) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the data types of the birth."""
        node = self.node(message, at)
        if node is None or not node.is_whole:
            return
        for metric in message.metrics:
            _, datatype = node.definition(metric, message.device) or ("", 0)
            if not datatype:
                continue
            own = metric.get("datatype", datatype)
            if own != datatype:
                name = metric_name(metric)
                yield f"metric {name} has the data type {type_name(own)}, and {type_name(datatype)} in its birth"
            else:
                yield contradiction(metric, datatype)


class AliasNotUnique(NodeRule):
    """Two metrics of an edge node and its devices have the same alias.

    A host assigns data with the alias to one of them, and shows wrong values.

    Instead, use each alias once in all births of an edge node.
    """

    code = "SPB271"
    statements = stated("payloads-alias-uniqueness")
    kinds = BIRTHS

    good = sparkplug_examples("""
        a device takes the alias of a dead one
            ALIASED; > publish spBv1.0/g/DDEATH/e/d spb(seq=2)
            > publish spBv1.0/g/DBIRTH/e/c spb(seq=3 S#1:Double=1.5)
        a device takes its alias again
            ALIASED; > publish spBv1.0/g/DBIRTH/e/d spb(seq=2 S#1:Double=1.5)
            > publish spBv1.0/g/DBIRTH/e/c spb(seq=3 S#2:Double=1.5)
    """)
    bad = sparkplug_examples("""
        in one birth
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 A#1:Double=1.5 B#1:Double=1.5) !payload
        in the births of two devices
            ALIASED; > publish spBv1.0/g/DBIRTH/e/c spb(seq=2 S#1:Double=1.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the same birth and with the births of the other devices."""
        node = self.node(message, at)
        is_known = node is not None and node.is_whole and message.kind != "NBIRTH"
        others = node.aliases if node is not None and is_known else {}
        names: dict[int, str] = {}
        for metric in message.metrics:
            alias, name = metric.get("alias"), metric.get("name", "")
            if alias is None:
                continue
            owner, other = others.get(alias, (message.device, ""))
            if owner != message.device and node is not None and not node.devices[owner].is_alive:
                continue  # whether the aliases of a dead device are free is not specified
            if owner != message.device:
                holder = f"device {shown(owner)}" if owner else "the edge node"
                yield f"metric {shown(name)} has the alias {alias} of metric {shown(other)} of {holder}"
            elif names.setdefault(alias, name) != name:
                yield f"the metrics {shown(names[alias])} and {shown(name)} have the alias {alias}"


class MetricNamedDespiteAlias(NodeRule):
    """Data names a metric that has an alias.

    With aliases, data must have the alias alone. Names are longer, and some hosts look for the alias only. The
    specification has exceptions that it does not name, such as bdSeq and Node Control/Rebirth, which are not judged.

    Instead, send the alias without the name in data.
    """

    code = "SPB272"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = stated("payloads-alias-data-cmd-requirement")
    kinds = DATA

    good = sparkplug_examples("""
        the alias alone
            ALIASED; > publish spBv1.0/g/DDATA/e/d spb(seq=2 #1=2.5)
    """)
    bad = sparkplug_examples("""
        both
            ALIASED; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S#1=2.5) !payload
        the name alone
            ALIASED; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for names of metrics that have an alias."""
        named = [metric for metric in message.metrics if metric.get("name") not in (None, BDSEQ, REBIRTH)]
        if not named:
            return
        node = self.node(message, at)
        known = set(node.aliases.values()) if node is not None and node.is_whole else set()
        for metric in named:
            if "alias" in metric or (message.device, metric["name"]) in known:
                yield f"metric {metric_name(metric)} is sent by name, although it has an alias"


class DbirthAfterData(NodeRule):
    """The first DBIRTH of a device follows data of its edge node.

    One chapter of the specification wants all DBIRTH messages right after the NBIRTH; another one allows a device to
    appear at any time after it. Hosts accept both.

    Instead, publish the births of the devices that are known before the first data.
    """

    code = "SPB273"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    statements = stated("client publish: payloads-dbirth-order payloads-ndata-order payloads-ddata-order")
    kinds = ("DBIRTH",)

    good = sparkplug_examples("""
        births before data, and a device that comes back
            DEVICE; > publish spBv1.0/g/NDATA/e spb(seq=2 T=21); > publish spBv1.0/g/DDEATH/e/d spb(seq=3)
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=4 S:Double=1.5)
    """)
    bad = sparkplug_examples("""
        data before the birth
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=2 S:Double=1.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for data since the NBIRTH."""
        node = self.node(message, at)
        if node is None or node.birth is None or not node.is_whole or message.device in node.devices:
            return
        if node.has_data:
            yield "it follows data of its edge node; one chapter of the specification wants all births before data"


class DisconnectWithoutNdeath(DisconnectRule):
    """An edge node sends DISCONNECT without an NDEATH before it.

    The server drops the will at a DISCONNECT, so hosts still show the last values as current. One section of the
    specification demands the NDEATH, and another one only recommends it.

    Instead, publish an NDEATH before a DISCONNECT, or in MQTT 5.0 send Reason Code 0x04, which publishes the will.
    """

    code = "SPB274"
    confidence = Confidence.LIKELY
    statements = stated("""
        client disconnect: operational-behavior-edge-node-intentional-disconnect-ndeath
        payloads-ndeath-will-message-publisher payloads-ndeath-will-message-publisher-disconnect-mqtt311
    """)

    good = sparkplug_examples("""
        a death first
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); > disconnect; > fin
        the server publishes the will
            opened 5.0 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1
            > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            > disconnect code=4; > fin
        it ends without DISCONNECT
            BORN; > fin
    """)
    bad = sparkplug_examples("""
        in MQTT 3.1.1
            BORN; > disconnect !; > fin
        after a rebirth
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0)
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            > disconnect !; > fin
        in MQTT 5.0
            opened 5.0 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1
            > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            > disconnect !; > fin
    """)

    def left(self, at: RuleContext) -> Iterator[Report]:
        """Reports about all edge nodes of the connection."""
        names = tuple(self.statements[SPARKPLUG])
        for owner, node in at.model(SparkplugModel).published.items():
            if node.birth is not None and node.is_alive and node.is_whole:
                yield self.report(
                    "",
                    f"DISCONNECT of edge node {shown(owner)} without an NDEATH: the server drops the will",
                    related=(node.birth,),
                    statements=names[:2] if at.version is V5 else names,
                )


@dataclass(slots=True)
class LastWill:
    """The bdSeq of the last connection of a session."""

    bdseq: int | None = None
    connack: Related | None = None


class BdseqNotIncreased(NodeRule):
    """An edge node connects again with the bdSeq of its connection before.

    A host cannot distinguish the deaths of the two connections. Whether bdSeq begins at 0 again
    after a restart is disputed, and connections to other servers count too, so only a repeated number is reported.

    Instead, add one to bdSeq before every CONNECT, from 0 to 255 and again from 0.
    """

    code = "SPB377"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = stated("client connect: topics-nbirth-bdseq-increment")
    looks_at = Connack
    signs = ()
    sender = None
    Memory = LastWill

    good = sparkplug_examples("""
        the next number
            EDGE; > fin
            @1 opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=1) will_qos=1
    """)
    bad = sparkplug_examples("""
        the same number again
            EDGE; > fin
            @1 > connect 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1
            @1 < connack !!
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:  # type: ignore[override]
        """Compare the will of the connection with the will of the one before it."""
        will = will_message(at)
        if at.history.connack is not None or will is None or will.kind != "NDEATH" or will.bdseq is None:
            return None
        memory: LastWill = at.memory(self)
        before, related = memory.bdseq, memory.connack
        memory.bdseq = will.bdseq
        memory.connack = Related("CONNACK of the connection before", at.number, at.event.frame, at.timestamp_ns)
        if before != will.bdseq:
            return None
        return self.report(
            "",
            f"{BDSEQ} in the will of {will.owner} is {before}, as on its connection before",
            sender=at.direction.opposite,
            related=() if related is None else (related,),
            overdue=True,
            statements=tuple(self.statements[SPARKPLUG]),
        )
