"""SPB143 to SPB152, SPB164, SPB165: metrics that births, deaths and commands of Sparkplug B must have."""

from collections.abc import Iterator

from mqttscope.lint.rules import SPARKPLUG, Confidence, RuleContext, Severity, shown
from mqttscope.lint.rules.sparkplug import sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import BY_BIRTH, PayloadRule, WillPayloadRule, metric_name, type_name
from mqttscope.lint.sparkplug_model import BDSEQ, BIRTHS, COMMANDS, DATA, REBIRTH, SparkplugMessage
from mqttscope.payloads.sparkplug_wire import Message


class BdseqMissing(PayloadRule):
    """An NBIRTH has no metric bdSeq.

    A host compares it with the bdSeq of the NDEATH: without it, the late death of an earlier connection makes the node
    look dead.

    Instead, send the bdSeq of the will with every NBIRTH.
    """

    code = "SPB143"
    statements = stated("""
        topics-nbirth-bdseq-included payloads-nbirth-bdseq
        message-flow-edge-node-birth-publish-nbirth-payload-bdSeq
    """)
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        a birth with bdSeq
            BORN
    """)
    bad = sparkplug_examples("""
        a birth without it
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 "Node Control/Rebirth":Boolean=false) !payload
        a metric with another name
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdseq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for a value of bdSeq."""
        if message.bdseq is None:
            yield f"it has no metric {BDSEQ} with a number"


class DeathMetricsWrong(WillPayloadRule):
    """An NDEATH does not have bdSeq as its only metric.

    A host uses an NDEATH for one thing, to find the birth that it ends.

    Instead, put bdSeq into the payload of the will, and nothing else.
    """

    code = "SPB144"
    statements = {
        SPARKPLUG: {
            "tck-id-topics-ndeath-payload": "client",
            "tck-id-payloads-ndeath-bdseq": "client",
            "tck-id-message-flow-edge-node-birth-publish-will-message-payload-bdSeq": "client connect.will",
        },
    }
    kinds = ("NDEATH",)

    good = sparkplug_examples("""
        a will and a death
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); > disconnect
    """)
    bad = sparkplug_examples("""
        a will without bdSeq
            > connect 3.1.1 will=spBv1.0/g/NDEATH/e will_payload=spb() will_qos=1 !will.will_payload
        a death with a second metric
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0 T=1) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare the metrics with the only one that is allowed."""
        if message.bdseq is None:
            yield f"it has no metric {BDSEQ} with a number"
        for metric in message.metrics:
            if metric.get("name") != BDSEQ:
                yield f"it has the metric {metric_name(metric)} besides {BDSEQ}"


class RebirthMetricMissing(PayloadRule):
    """An NBIRTH has no metric Node Control/Rebirth.

    A host cannot ask the edge node for its metrics again.

    Instead, send Node Control/Rebirth as a Boolean with the value false, and answer it when a host writes true.
    """

    code = "SPB145"
    statements = stated("""
        operational-behavior-data-commands-rebirth-name topics-nbirth-rebirth-metric payloads-nbirth-rebirth-req
    """)
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        a birth with the metric
            BORN
    """)
    bad = sparkplug_examples("""
        a birth without it
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 T:Int32=20) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for the name."""
        if message.metric(REBIRTH) is None:
            yield f"it has no metric {REBIRTH}"


class RebirthMetricWrong(PayloadRule):
    """The metric Node Control/Rebirth of an NBIRTH is not a Boolean, or is not false.

    Hosts write it to edge nodes that they have not seen yet, so its name, type and meaning are fixed.

    Instead, send it by name, as a Boolean with the value false.
    """

    code = "SPB146"
    statements = stated("""
        operational-behavior-data-commands-rebirth-datatype operational-behavior-data-commands-rebirth-value
        topics-nbirth-rebirth-metric payloads-nbirth-rebirth-req
    """)
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        a Boolean that is false
            BORN
    """)
    bad = sparkplug_examples("""
        true
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=true) !payload
        a number
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Int32=0) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check data type and value."""
        metric = message.metric(REBIRTH)
        if metric is None:
            return
        datatype = metric.get("datatype", 0)
        if type_name(datatype) != "Boolean" and "datatype" in metric:
            yield f"{REBIRTH} has the data type {type_name(datatype)}, not Boolean"
        elif metric.get("boolean_value") is not False:
            yield f"{REBIRTH} does not have the value false"


class RebirthAlias(PayloadRule):
    """The metric Node Control/Rebirth of an NBIRTH has an alias.

    A host that has lost the births can only use the name. The specification contradicts itself, because it also wants
    an alias for each metric of a birth where aliases are used.

    Instead, send the metric by name alone.
    """

    code = "SPB165"
    confidence = Confidence.LIKELY
    statements = stated("operational-behavior-data-commands-rebirth-name-aliases")
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        the name alone
            BORN
    """)
    bad = sparkplug_examples("""
        with an alias
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth"#5:Boolean=false) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for the alias."""
        metric = message.metric(REBIRTH)
        if metric is not None and "alias" in metric:
            yield f"{REBIRTH} has the alias {metric['alias']}, and must not have one"


class BirthMetricUnnamed(PayloadRule):
    """A metric in a birth has an alias and no name.

    The birth is the only message that can explain what an alias stands for.

    Instead, send name and alias in births, and the alias alone in data.
    """

    code = "SPB147"
    statements = stated("payloads-alias-birth-requirement topics-nbirth-metrics topics-dbirth-metrics")
    kinds = BIRTHS

    good = sparkplug_examples("""
        both
            ALIASED
    """)
    bad = sparkplug_examples("""
        an alias alone
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 #1:Double=1.5) !payload
    """)

    def fault(self, metric: Message) -> str:
        is_alone = "name" not in metric and "alias" in metric
        return f"the metric with the alias {metric['alias']} has no name" if is_alone else ""


class BirthAliasMissing(PayloadRule):
    """Only some metrics of a birth have an alias.

    The specification asks for name and alias in births where aliases are used, and data must then have aliases alone.
    It contradicts itself, because Node Control/Rebirth must not have one; that metric and bdSeq are not judged.

    Instead, give all metrics of an edge node an alias, or no metric.
    """

    code = "SPB148"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = stated("payloads-alias-birth-requirement")
    kinds = BIRTHS

    good = sparkplug_examples("""
        aliases everywhere
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 A#1:Double=1.5 B#2:Double=1.5)
        bdSeq and Rebirth without an alias
            EDGE
            > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T#1:Int32=20)
    """)
    bad = sparkplug_examples("""
        one of two
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 A#1:Double=1.5 B:Double=1.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for metrics without an alias beside metrics with one."""
        if any("alias" in metric for metric in message.metrics):
            for metric in message.metrics:
                if "alias" not in metric and metric.get("name") not in (None, BDSEQ, REBIRTH):
                    yield f"metric {metric_name(metric)} has no alias, and other metrics have one"


class MetricNamesCollide(PayloadRule):
    """Two metrics of a birth have names that differ in upper and lower case alone.

    Hosts and databases that ignore case store both as one metric.

    Instead, choose names that differ in their letters.
    """

    code = "SPB149"
    severity = Severity.WARNING
    statements = stated("case-sensitivity-metric-names")
    kinds = BIRTHS

    good = sparkplug_examples("""
        different folders
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 In/Level:Double=1.5 Out/level:Double=1.5)
    """)
    bad = sparkplug_examples("""
        two spellings
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 Level:Double=1.5 level:Double=1.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare the names in lower case; the same name again is a repeated metric."""
        names: dict[str, str] = {}
        for metric in message.metrics:
            name = metric.get("name", "")
            before = names.setdefault(name.lower(), name)
            if before != name:
                yield f"the metrics {shown(before)} and {shown(name)} differ in upper and lower case alone"


class MetricsNotChronological(PayloadRule):
    """A message has several values of one metric, and a later one in the list is older.

    A host applies the values in their order, and ends with an old one.

    Instead, write the values of a metric in the order of their times, or mark old ones as historical.
    """

    code = "SPB150"
    statements = stated("operational-behavior-data-publish-nbirth-order operational-behavior-data-publish-dbirth-order")
    kinds = (*BIRTHS, *DATA)
    cited_as = BY_BIRTH

    good = sparkplug_examples("""
        in order, and historical
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=1{"timestamp":1} T=2{"timestamp":2})
            > publish spBv1.0/g/NDATA/e spb(seq=2 T=2{"timestamp":4} T=1{"timestamp":3,"is_historical":true})
    """)
    bad = sparkplug_examples("""
        the older value last
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=2{"timestamp":2} T=1{"timestamp":1}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare each value with the one before it of the same metric."""
        times: dict[object, int] = {}
        for metric in message.metrics:
            timestamp = metric.get("timestamp")
            if timestamp is None or metric.get("is_historical"):
                continue
            key = metric.get("name") or metric.get("alias")
            if timestamp < times.get(key, 0):
                yield f"metric {metric_name(metric)} has a value of {times[key]} ms before one of {timestamp} ms"
            times[key] = timestamp


class MetricsMissing(PayloadRule):
    """A command or data has no metrics.

    The receiver cannot do anything with it. Data without metrics reports no change.

    Instead, write the metrics that have to change, or that have changed, into the message.
    """

    code = "SPB151"
    statements = stated("topics-ncmd-payload topics-dcmd-payload")
    also = {SPARKPLUG: ("tck-id-topics-ndata-payload", "tck-id-topics-ddata-payload")}
    kinds = (*COMMANDS, *DATA)

    good = sparkplug_examples("""
        a command with a metric
            ONLINE; > publish spBv1.0/g/DCMD/e/d spb(S=1.5)
    """)
    bad = sparkplug_examples("""
        an empty command
            ONLINE; > publish spBv1.0/g/NCMD/e spb() !payload
        empty data
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Count the metrics."""
        if not message.metrics:
            yield "it has no metrics"

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """The statement about the message type."""
        names = (*self.statements[SPARKPLUG], *self.also[SPARKPLUG])
        return tuple(name for name in names if message.kind.lower() in name)


class RebirthRequestWrong(PayloadRule):
    """A rebirth request has another form than edge nodes expect.

    A rebirth request is an NCMD with the metric Node Control/Rebirth and the value true. A DCMD reaches a device, and
    the value false asks for nothing.

    Instead, send the metric by name with the value true, to the edge node.
    """

    code = "SPB152"
    statements = stated("""
        operational-behavior-data-commands-ncmd-rebirth-value
        operational-behavior-data-commands-ncmd-rebirth-verb
        operational-behavior-data-commands-ncmd-rebirth-name
    """)
    kinds = COMMANDS

    good = sparkplug_examples("""
        a rebirth request
            ONLINE; > publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
    """)
    bad = sparkplug_examples("""
        to a device
            ONLINE; > publish spBv1.0/g/DCMD/e/d spb("Node Control/Rebirth"=true) !payload
        with the value false
            ONLINE; > publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=false) !payload
        with a name in lower case
            ONLINE; > publish spBv1.0/g/NCMD/e spb("node control/rebirth"=true) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check the type of the command, and the value."""
        metric = message.metric(REBIRTH)
        if metric is None:
            for name in (metric.get("name", "") for metric in message.metrics):
                if name.lower().replace(" ", "") == REBIRTH.lower().replace(" ", ""):
                    yield f"the metric {shown(name)} is not spelled {REBIRTH}"
        elif message.kind == "DCMD":
            yield f"{REBIRTH} is sent to a device, not with an NCMD to the edge node"
        elif metric.get("boolean_value") is not True:
            yield f"{REBIRTH} does not have the value true"

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """The statement about the name, the message type or the value."""
        by_value, by_type, by_name = self.statements[SPARKPLUG]
        if message.metric(REBIRTH) is None:
            return (by_name,)
        return (by_type,) if message.kind == "DCMD" else (by_value,)


class NbirthSeqNotZero(PayloadRule):
    """The sequence number of an NBIRTH is not 0.

    Chapter 4 of the specification demands 0, and chapters 5 and 6 allow 0 to 255. Hosts that follow chapter 4 reject
    other numbers.

    Instead, begin each NBIRTH with 0: all readings of the specification allow it.
    """

    code = "SPB164"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    statements = stated("topics-nbirth-seq-num")
    kinds = ("NBIRTH",)

    good = sparkplug_examples("""
        a birth with 0
            BORN
    """)
    bad = sparkplug_examples("""
        a birth with 7
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=7 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare the number with 0; other rules report numbers above 255."""
        if 0 < message.payload.get("seq", 0) <= 255:
            yield f"its sequence number is {message.payload['seq']}; one chapter of the specification demands 0"
