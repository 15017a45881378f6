"""SPB131 to SPB142: payloads of Sparkplug B and their metrics."""

from collections.abc import Iterator
from dataclasses import replace

from mqttscope.lint.rules import SPARKPLUG, Confidence, Findings, RuleContext, Severity
from mqttscope.lint.rules.sparkplug import sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import (
    PayloadRule,
    WillPayloadRule,
    contradiction,
    metric_name,
    value_of,
)
from mqttscope.lint.sparkplug_model import BIRTHS, COMMANDS, DATA, KINDS, NUMBERED, SparkplugMessage, read_message
from mqttscope.mqtt import Connect, Publish
from mqttscope.payloads.sparkplug_wire import DATATYPES, Message


class PayloadUnreadable(WillPayloadRule):
    """The payload of a message of an edge node, a device or a host is not a Sparkplug B payload.

    Nobody can read its metrics, and mqttscope judges nothing else about it. A payload that exceeds a limit of
    mqttscope, or is compressed in an unknown way, is reported as information, because it may be valid.

    Instead, encode payloads with the Protocol Buffers schema of Sparkplug B.
    """

    code = "SPB131"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        SPARKPLUG: {
            "tck-id-message-flow-edge-node-birth-publish-nbirth-payload": "client publish.payload",
            "tck-id-message-flow-device-birth-publish-dbirth-payload": "client publish.payload",
            "tck-id-message-flow-edge-node-birth-publish-will-message-payload": "client connect.will.will_payload",
            "tck-id-payloads-template-version": "client publish.payload",
        }
    }
    kinds = KINDS

    good = sparkplug_examples("""
        the will and the birth of an edge node
            BORN
        a compressed payload
            BORN; > publish spBv1.0/g/NDATA/e spb(compressed=GZIP seq=1 T=21)
        a command without metadata
            ONLINE; > publish spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)
    """)
    bad = sparkplug_examples("""
        JSON instead of Protocol Buffers
            EDGE; > publish spBv1.0/g/NBIRTH/e {}x !payload
        the version of a template in Latin-1
            EDGE; > publish spBv1.0/g/NBIRTH/e 0x12069201030a01fc !payload
        a truncated payload
            EDGE; > publish spBv1.0/g/NBIRTH/e 0x120d0a !payload
        a will with text
            > connect 3.1.1 will=spBv1.0/g/NDEATH/e will_payload=offline will_qos=1 !will.will_payload
    """)

    def broken(self, message: SparkplugMessage, at: RuleContext) -> tuple[str, ...]:
        """Cite the statement about the version of templates for a wrong version alone."""
        is_version = message.problem == "version is not UTF-8"
        return tuple(name for name in super().broken(message, at) if name.endswith("-template-version") == is_version)

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Report the fault, or why the payload cannot be judged."""
        message = read_message(packet, at)
        if message is None or message.kind not in self.kinds:
            return None
        if message.is_beyond_limit:
            report = self.joined([f"the payload is not judged: {message.problem}"], message, at)
            return None if report is None else replace(report, severity=Severity.INFO)
        if message.problem:
            return self.joined([f"the payload is not Sparkplug B: {message.problem}"], message, at)
        return None


class SeqMissing(PayloadRule):
    """A message of an edge node or a device has no sequence number.

    A host cannot notice that a message before it was lost.

    Instead, number all messages of an edge node but NDEATH, from 0 to 255 and again from 0.
    """

    code = "SPB132"
    statements = stated("""
        payloads-sequence-num-always-included payloads-sequence-num-req-nbirth payloads-nbirth-seq
        topics-nbirth-seq-num message-flow-edge-node-birth-publish-nbirth-payload-seq payloads-dbirth-seq
        topics-dbirth-seq message-flow-device-birth-publish-dbirth-payload-seq payloads-ndata-seq
        topics-ndata-seq-num payloads-ddata-seq topics-ddata-seq-num payloads-ddeath-seq
        payloads-ddeath-seq-number topics-ddeath-seq-num
    """)
    kinds = NUMBERED

    good = sparkplug_examples("""
        numbers in a compressed payload
            BORN; > publish spBv1.0/g/NDATA/e spb(compressed=DEFLATE seq=1 T=21)
        a death of the node without a number
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); > disconnect
    """)
    bad = sparkplug_examples("""
        a birth without a number
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false) !payload
        data of a device without a number
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(S=2.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        if "seq" not in message.payload:
            yield "it has no sequence number"


class SeqTooHigh(PayloadRule):
    """A sequence number is higher than 255.

    Sequence numbers have one byte: hosts compute the next number from 255 as 0, and see a lost message here.

    Instead, continue with 0 after 255.
    """

    code = "SPB133"
    statements = stated("""
        payloads-sequence-num-incrementing payloads-sequence-num-req-nbirth payloads-nbirth-seq
        message-flow-edge-node-birth-publish-nbirth-payload-seq
        message-flow-device-birth-publish-dbirth-payload-seq payloads-dbirth-seq-inc payloads-ndata-seq-inc
        payloads-ddata-seq-inc payloads-ddeath-seq-inc
    """)
    kinds = NUMBERED

    good = sparkplug_examples("""
        255 is followed by 0
            midstream; version 3.1.1; > publish spBv1.0/g/NDATA/e spb(seq=254 T=1)
            > publish spBv1.0/g/NDATA/e spb(seq=255 T=2); > publish spBv1.0/g/NDATA/e spb(seq=0 T=3)
    """)
    bad = sparkplug_examples("""
        256 after 255
            midstream; version 3.1.1; > publish spBv1.0/g/NDATA/e spb(seq=255 T=2)
            > publish spBv1.0/g/NDATA/e spb(seq=256 T=3) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare with the highest number."""
        seq = message.payload.get("seq", 0)
        if seq > 255:
            yield f"its sequence number is {seq}, higher than 255"


class SeqNotAllowed(WillPayloadRule):
    """An NDEATH or a command has a sequence number.

    The server publishes an NDEATH for an edge node that is gone, and a host sends commands: neither has the number
    that is due.

    Instead, leave the sequence number out.
    """

    code = "SPB134"
    statements = {
        SPARKPLUG: {
            "tck-id-payloads-ndeath-seq": "client",
            "tck-id-topics-ndeath-seq": "client",
            "tck-id-payloads-ncmd-seq": "client publish.payload",
            "tck-id-payloads-dcmd-seq": "client publish.payload",
        }
    }
    kinds = ("NDEATH", *COMMANDS)

    good = sparkplug_examples("""
        a will, a death and a command without a number
            BORN; > publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0); > disconnect
    """)
    bad = sparkplug_examples("""
        a will with a number
            > connect 3.1.1 will=spBv1.0/g/NDEATH/e will_payload=spb(seq=0 bdSeq:Int64=0) will_qos=1 !will.will_payload
        a command with a number
            ONLINE; > publish spBv1.0/g/NCMD/e spb(seq=0 T=1) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        if "seq" in message.payload:
            yield f"it has the sequence number {message.payload['seq']}, and must not have one"


class TimestampMissing(PayloadRule):
    """A payload has no timestamp of its sending.

    A host cannot sort messages that it gets late, and cannot notice clocks that differ.

    Instead, write the time of sending, in milliseconds since 1970 in UTC, into every payload.
    """

    code = "SPB135"
    statements = {
        SPARKPLUG: {
            f"tck-id-{group}-{kind}-timestamp": "client publish.payload"
            for kind in ("nbirth", "dbirth", "ndata", "ddata", "ncmd", "dcmd", "ddeath")
            for group in (("topics", "payloads") if kind != "ddeath" else ("payloads",))
        }
    }
    kinds = (*NUMBERED, *COMMANDS)

    good = sparkplug_examples("""
        an NDEATH without a timestamp
            opened 3.1.1 will=spBv1.0/g/NDEATH/e will_payload=spb(timestamp=- bdSeq:Int64=0) will_qos=1
        data with a timestamp
            BORN; > publish spBv1.0/g/NDATA/e spb(timestamp=1 seq=1 T=21)
    """)
    bad = sparkplug_examples("""
        data without one
            BORN; > publish spBv1.0/g/NDATA/e spb(timestamp=- seq=1 T=21) !payload
        a command without one
            ONLINE; > publish spBv1.0/g/DCMD/e/d spb(timestamp=- S=1.5) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        if "timestamp" not in message.payload:
            yield "the payload has no timestamp"


class MetricTimestampMissing(PayloadRule):
    """A metric in a birth or in data has no timestamp.

    The time of the measurement is missing: data may have waited for a connection.

    Instead, give each metric the time of its value.
    """

    code = "SPB136"
    statements = stated("payloads-name-birth-data-requirement")
    kinds = (*BIRTHS, *DATA)

    good = sparkplug_examples("""
        data with timestamps
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
        a command without a timestamp
            ONLINE; > publish spBv1.0/g/NCMD/e spb(T=1{"timestamp":null})
    """)
    bad = sparkplug_examples("""
        data without one
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"timestamp":null}) !payload
    """)

    def fault(self, metric: Message) -> str:
        return "" if "timestamp" in metric else f"metric {metric_name(metric)} has no timestamp"


class MetricUnnamed(PayloadRule):
    """A metric has neither a name nor an alias.

    The value belongs to no metric.

    Instead, give each metric its name, or the alias of its birth.
    """

    code = "SPB137"
    statements = stated("payloads-name-requirement")
    kinds = KINDS

    good = sparkplug_examples("""
        a name, and then its alias
            ALIASED; > publish spBv1.0/g/DDATA/e/d spb(seq=2 #1=2.5)
    """)
    bad = sparkplug_examples("""
        a value alone
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 =21) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look for name and alias of each metric."""
        for number, metric in enumerate(message.metrics):
            if "name" not in metric and "alias" not in metric:
                yield f"metric {number} has neither a name nor an alias"


class DatatypeMissing(PayloadRule):
    """A metric in a birth has no data type.

    Values are sent in a few forms: without the data type of the birth, -1 and 4,294,967,295 look alike.

    Instead, write the data type of each metric into the birth.
    """

    code = "SPB138"
    statements = stated("payloads-metric-datatype-req topics-nbirth-metrics topics-dbirth-metrics")
    kinds = BIRTHS

    good = sparkplug_examples("""
        data without a data type
            DEVICE; > publish spBv1.0/g/DDATA/e/d spb(seq=2 S=2.5)
    """)
    bad = sparkplug_examples("""
        a device with an untyped metric
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S=1.5) !payload
    """)

    def fault(self, metric: Message) -> str:
        return "" if "datatype" in metric else f"metric {metric_name(metric)} has no data type"


class DatatypeInvalid(PayloadRule):
    """A metric has a data type that does not exist.

    A host cannot interpret the value.

    Instead, use a data type of the specification, 1 to 34.
    """

    code = "SPB139"
    statements = stated("payloads-metric-datatype-value payloads-metric-datatype-value-type")
    kinds = KINDS

    good = sparkplug_examples("""
        the highest data type
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:DateTimeArray{"bytes_value":null,"is_null":true})
    """)
    bad = sparkplug_examples("""
        one above it
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:35=1) !payload
    """)

    def fault(self, metric: Message) -> str:
        is_known, name = metric.get("datatype", 0) < len(DATATYPES), metric_name(metric)
        return "" if is_known else f"metric {name} has the data type {metric['datatype']}, which does not exist"


class DatatypeInData(PayloadRule):
    """Data or a command repeats the data type of a metric.

    The birth defines the data type, so the repetition is a waste of bandwidth. The specification advises against it,
    but its own examples have it.

    Instead, leave the data type out of data and commands.
    """

    code = "SPB140"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    statements = stated("payloads-metric-datatype-not-req")
    kinds = (*DATA, *COMMANDS)

    good = sparkplug_examples("""
        data without data types
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)
    """)
    bad = sparkplug_examples("""
        data with a data type
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T:Int32=21) !payload
    """)

    def fault(self, metric: Message) -> str:
        return f"metric {metric_name(metric)} has a data type, which its birth defines" if "datatype" in metric else ""


class BirthValueMissing(PayloadRule):
    """A metric in a birth has neither a value nor the flag that it is null, or it has both.

    A host takes the current values from the birth.

    Instead, send the current value, or set is_null and leave the value out.
    """

    code = "SPB141"
    statements = stated("""
        operational-behavior-data-publish-nbirth-values topics-nbirth-metrics
        operational-behavior-data-publish-dbirth-values topics-dbirth-metrics
    """)
    kinds = BIRTHS

    good = sparkplug_examples("""
        a metric that is null
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double{"is_null":true})
    """)
    bad = sparkplug_examples("""
        neither
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double) !payload
        both
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5{"is_null":true}) !payload
    """)

    def fault(self, metric: Message) -> str:
        both = "a value, and is_null is set" if value_of(metric) else "no value, and is_null is not set"
        is_wrong = bool(value_of(metric)) == metric.get("is_null", False)
        return f"metric {metric_name(metric)} has {both}" if is_wrong else ""


class ValueOfAnotherType(PayloadRule):
    """The value of a metric in a birth contradicts its data type.

    A host looks for the value where the data type has it, and finds nothing or a wrong value.

    Instead, send the value in the field of its data type.
    """

    code = "SPB142"
    statements = stated("""
        operational-behavior-data-publish-nbirth-values operational-behavior-data-publish-dbirth-values
    """)
    kinds = BIRTHS

    good = sparkplug_examples("""
        negative numbers, and numbers in the longer field
            BORN
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 A:Int8=-5 B:Int16{"long_value":18446744073709551611} C:UInt8=255)
    """)
    bad = sparkplug_examples("""
        text for a number
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double{"string_value":"1.5"}) !payload
        a number that is too large
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:UInt8=256) !payload
        a large number for a signed byte
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Int8=256) !payload
    """)

    def fault(self, metric: Message) -> str:
        return contradiction(metric, metric.get("datatype", 0))
