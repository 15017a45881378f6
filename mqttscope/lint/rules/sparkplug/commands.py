"""SPB275, SPB278, SPB279, SPB576: commands of hosts, and what edge nodes do with them."""

from collections.abc import Iterable, Iterator

from mqttscope.lint.rules import Confidence, Findings, Needs, Related, RuleContext, Severity
from mqttscope.lint.rules.sparkplug import is_bridge, sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import NodeRule, UnansweredRule, contradiction, metric_name
from mqttscope.lint.sparkplug_model import (
    COMMANDS,
    DATA,
    EdgeNode,
    SparkplugMessage,
    SparkplugModel,
    is_rebirth_request,
    read_message,
)
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Publish


class DataAfterRebirthRequest(NodeRule):
    """An edge node still sends data after a rebirth request instead of its births.

    The host that asked cannot use the data. TCP shows that the request had arrived; an edge node may need a moment to
    read it, so data within ``grace`` seconds is not reported.

    Instead, stop sending data at once, and publish the NBIRTH and all DBIRTH messages.
    """

    code = "SPB275"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"grace": 1}
    statements = stated("client publish: operational-behavior-data-commands-rebirth-action-1")
    kinds = DATA
    Memory = ReportedTexts

    good = sparkplug_examples("""
        births after the request
            BORN; < publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
            > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            +5 > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
        a request to another edge node
            BORN; < publish spBv1.0/g/NCMD/f spb("Node Control/Rebirth"=true)
            +5 > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
    """)
    bad = sparkplug_examples("""
        data instead of a birth
            BORN; < publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
            +5 > publish spBv1.0/g/NDATA/e spb(seq=1 T=21) !payload; +5 > publish spBv1.0/g/NDATA/e spb(seq=2 T=21)
    """)

    def related(self, message: SparkplugMessage, at: RuleContext) -> tuple[Related, ...]:
        """The request."""
        node = self.node(message, at)
        return () if node is None or node.rebirth is None else (node.rebirth.request,)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Report the first data after each request."""
        node = self.node(message, at)
        request = None if node is None else node.rebirth
        if request is None or at.acknowledged < request.position:
            return
        late_ns = at.timestamp_ns - request.request.timestamp_ns
        texts: ReportedTexts = at.memory(self)
        if late_ns > self.nanoseconds("grace") and texts.first(f"{message.owner} {request.request.packet}"):
            yield f"data {late_ns / 1e9:.1f} s after a rebirth request without an NBIRTH since"


class RebirthUnanswered(UnansweredRule):
    """An edge node does not answer a rebirth request with its births.

    The host cannot use any data of the edge node until it is born again.

    Instead, publish the NBIRTH and all DBIRTH messages at once when Node Control/Rebirth is written.
    """

    code = "SPB576"
    statements = stated("client: operational-behavior-data-commands-rebirth-action-2")
    kinds = ("NCMD",)

    good = sparkplug_examples("""
        a birth after the request
            BORN; < publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T:Int32=20)
            +60 > pingreq; < pingresp
        the edge node ends the connection
            BORN; < publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true); +1 > fin
    """)
    bad = sparkplug_examples("""
        no birth
            BORN; < publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true); > ack; +31 > pingreq !!; < pingresp
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Begin to wait."""
        message = read_message(packet, at)
        if message is not None and is_rebirth_request(message) and not is_bridge(at):
            node = self.node(message, at)
            if node is not None and node.birth is not None:
                self.wait(at)
        return None

    def unanswered(self, at: RuleContext) -> Iterator[tuple[Related, int, str]]:
        """Requests without an NBIRTH since."""
        for owner, node in at.model(SparkplugModel).published.items():
            if node.rebirth is not None and node.birth is not None and node.is_alive:
                text = f"edge node {owner} has published no NBIRTH within {self.set['timeout']} s of a rebirth request"
                yield node.rebirth.request, node.rebirth.position, text


class CommandRule(NodeRule):
    """A rule about commands of a host that has received the births of the edge node."""

    kinds = COMMANDS

    @staticmethod
    def node(message: SparkplugMessage, at: RuleContext) -> EdgeNode | None:
        """The edge node, as the client has seen it."""
        node = at.model(SparkplugModel).received.get(message.owner)
        return node if node is not None and node.birth is not None and node.is_whole else None


class CommandMetricUnknown(CommandRule):
    """A command writes a metric that the birth of its receiver does not have.

    The edge node cannot do anything with it. mqttscope compares a command with the births that its sender received on
    the same connection.

    Instead, write only metrics of the last birth.
    """

    code = "SPB278"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = stated("""
        operational-behavior-data-commands-ncmd-metric-name operational-behavior-data-commands-dcmd-metric-name
    """)

    good = sparkplug_examples("""
        a metric of the birth
            SEEN
            > publish spBv1.0/g/NCMD/e spb(T=21); > publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
        the host has not received the birth
            ONLINE; > publish spBv1.0/g/NCMD/e spb(T=21)
    """)
    bad = sparkplug_examples("""
        another name
            SEEN
            > publish spBv1.0/g/NCMD/e spb(X=21) !payload
        an unknown alias of a device
            SEEN
            < publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S#1:Double=1.5); > publish spBv1.0/g/DCMD/e/d spb(#2=2.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for each metric in the birth of its receiver."""
        node = self.node(message, at)
        if node is None or message.device not in node.devices:
            return
        for metric in message.metrics:
            if ("name" in metric or "alias" in metric) and node.definition(metric, message.device) is None:
                yield f"metric {metric_name(metric)} is not in the birth that the host received"


class CommandValueIncompatible(CommandRule):
    """A command writes a value that the data type of the metric cannot have.

    The edge node ignores the command, or takes the value for another one.

    Instead, write values of the data type in the birth.
    """

    code = "SPB279"
    confidence = Confidence.LIKELY
    statements = stated("""
        operational-behavior-data-commands-ncmd-metric-value
        operational-behavior-data-commands-dcmd-metric-value
    """)

    good = sparkplug_examples("""
        a number for a number
            SEEN
            > publish spBv1.0/g/NCMD/e spb(T=21)
    """)
    bad = sparkplug_examples("""
        a text for a number
            SEEN
            > publish spBv1.0/g/NCMD/e spb(T=warm) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterable[str]:
        """Compare each value with the data type of the birth."""
        node = self.node(message, at)
        for metric in message.metrics if node is not None else ():
            _, datatype = (node and node.definition(metric, message.device)) or ("", 0)
            yield contradiction(metric, datatype)
