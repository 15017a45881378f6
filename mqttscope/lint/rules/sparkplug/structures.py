"""SPB153 to SPB161, SPB262, SPB263: data sets, templates and property sets of Sparkplug B."""

from collections.abc import Iterator

from mqttscope.lint.rules import RuleContext, shown
from mqttscope.lint.rules.sparkplug import sparkplug_examples, stated
from mqttscope.lint.rules.sparkplug.payload_checks import NodeRule, PayloadRule, metric_name, type_name, value_of
from mqttscope.lint.sparkplug_model import BIRTHS, KINDS, SparkplugMessage, nested, template_definition
from mqttscope.payloads.sparkplug_wire import DATATYPES, SCALARS, Message

_LAST_BASIC = DATATYPES.index("Text")
_PROPERTY_TYPES = (DATATYPES.index("PropertySet"), DATATYPES.index("PropertySetList"))
QUALITIES = (0, 192, 500)
"""Quality codes (6.4.9.1): bad, good and stale."""


class DataSetSizesDiffer(PayloadRule):
    """A data set has different numbers of columns, names and types.

    A host cannot assign the elements of a row to columns.

    Instead, write the number of columns, and as many names and types.
    """

    code = "SPB153"
    statements = stated("payloads-dataset-column-size payloads-dataset-column-num-headers payloads-dataset-types-num")
    kinds = KINDS

    good = sparkplug_examples("""
        two columns
            BORN
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 D:DataSet{"dataset_value":{"num_of_columns":2,"columns":["a","b"],
                "types":[3,12],"rows":[{"elements":[{"int_value":1},{"string_value":"x"}]}]}})
    """)
    bad = sparkplug_examples("""
        one type too few
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                D:DataSet{"dataset_value":{"num_of_columns":2,"columns":["a","b"],"types":[3]}}) !payload
        another number of columns
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                D:DataSet{"dataset_value":{"num_of_columns":3,"columns":["a","b"],"types":[3,3]}}) !payload
    """)

    part = "dataset_value"

    def fault(self, metric: Message) -> str:
        """Compare the three numbers; another rule reports a data set without types."""
        held = metric["dataset_value"]
        columns, types, number = len(held.get("columns", ())), len(held.get("types", ())), held.get("num_of_columns", 0)
        is_equal = number == columns and types in (0, columns)
        counts = f"{number} columns, {columns} names and {types} types"
        return "" if is_equal else f"data set {metric_name(metric)} has {counts}"


class DataSetTypeInvalid(PayloadRule):
    """A data set has no types, or a type that is not basic.

    The elements of a data set are numbers, truth values and texts: a host cannot read anything else.

    Instead, give each column a basic data type, 1 to 14.
    """

    code = "SPB154"
    statements = stated("""
        payloads-dataset-parameter-type-req payloads-dataset-types-def payloads-dataset-types-value
        payloads-dataset-types-type
    """)
    kinds = KINDS

    good = sparkplug_examples("""
        the last basic type
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                D:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"],"types":[14]}})
    """)
    bad = sparkplug_examples("""
        a data set in a data set
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                D:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"],"types":[16]}}) !payload
        no types
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                D:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check the types of all data sets."""
        for metric in nested(message.metrics, "dataset_value"):
            held = metric["dataset_value"]
            if held.get("columns") and "types" not in held:
                yield f"data set {metric_name(metric)} has no types"
            for number in held.get("types", ()):
                if number > _LAST_BASIC:
                    name = metric_name(metric)
                    yield f"data set {name} has a column of the type {type_name(number)}, not a basic one"


class DataSetElementInvalid(PayloadRule):
    """An element of a data set has a value that is not a number, a truth value or a text.

    Only these fit into the columns of a data set.

    Instead, send other values as metrics of their own.
    """

    code = "SPB155"
    statements = stated("payloads-template-dataset-value")
    kinds = KINDS

    good = sparkplug_examples("""
        a text, and an element without a value
            BORN
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 D:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"],
                "types":[12],"rows":[{"elements":[{"string_value":"x"}]},{"elements":[{}]}]}})
    """)
    bad = sparkplug_examples("""
        an extension
            BORN
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 D:DataSet{"dataset_value":{"num_of_columns":1,"columns":["a"],
                "types":[3],"rows":[{"elements":[{"extension_value":""}]}]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Look at the value of each element."""
        for metric in nested(message.metrics, "dataset_value"):
            for row in metric["dataset_value"].get("rows", ()):
                for element in row.get("elements", ()):
                    if value_of(element) not in ("", *SCALARS):
                        yield f"data set {metric_name(metric)} has an element with {value_of(element)}"


class TemplateDefinitionMisplaced(PayloadRule):
    """A template definition is sent in a message other than NBIRTH.

    Devices and later data refer to definitions, so a host needs them first.

    Instead, send all definitions in the NBIRTH.
    """

    code = "SPB156"
    statements = stated("payloads-template-definition-nbirth-only")
    kinds = tuple(kind for kind in KINDS if kind != "NBIRTH")
    cited_as = dict.fromkeys(kinds, "NBIRTH")

    good = sparkplug_examples("""
        a definition in the NBIRTH
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true}})
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}})
    """)
    bad = sparkplug_examples("""
        a definition in a DBIRTH
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 M:Template{"template_value":{"is_definition":true}}) !payload
    """)

    part = "template_value"

    def fault(self, metric: Message) -> str:
        is_definition, name = metric["template_value"].get("is_definition"), metric_name(metric)
        return f"template {name} is a definition, which only an NBIRTH may have" if is_definition else ""


class TemplateReferenceWrong(PayloadRule):
    """A template is neither a definition nor an instance that refers to one.

    An instance without its reference has no known members, and a definition is its own.

    Instead, write is_definition into every template, and template_ref into instances alone.
    """

    code = "SPB157"
    statements = stated("""
        payloads-template-is-definition payloads-template-is-definition-definition
        payloads-template-is-definition-instance payloads-template-definition-is-definition
        payloads-template-instance-is-definition payloads-template-definition-ref
        payloads-template-ref-definition payloads-template-instance-ref payloads-template-ref-instance
    """)
    kinds = KINDS

    good = sparkplug_examples("""
        a definition and an instance
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true}}
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}})
    """)
    bad = sparkplug_examples("""
        a definition with a reference
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"template_ref":"M"}}) !payload
        an instance without one
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                m1:Template{"template_value":{"is_definition":false}}) !payload
        neither
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"version":"1"}}) !payload
    """)

    part = "template_value"

    def fault(self, metric: Message) -> str:
        """Compare is_definition with the reference."""
        template, name = metric["template_value"], f"template {metric_name(metric)}"
        is_definition, reference = template.get("is_definition"), template.get("template_ref")
        if is_definition is None:
            return f"{name} has no is_definition"
        if is_definition:
            return "" if reference is None else f"{name} is a definition, and refers to {shown(reference)}"
        return "" if reference else f"{name} is an instance, and refers to no definition"


class TemplateParameterInvalid(PayloadRule):
    """A parameter of a template has no name, no type or value of a basic type.

    A host cannot show or set the parameter.

    Instead, give each parameter a name, a basic data type, 1 to 14, and a value of it.
    """

    code = "SPB158"
    statements = stated("""
        payloads-template-parameter-name-required payloads-template-parameter-name-type
        payloads-template-parameter-type-req payloads-template-parameter-type-value
        payloads-template-parameter-value-type payloads-template-parameter-value
    """)
    kinds = KINDS

    good = sparkplug_examples("""
        a parameter with name, type and value
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"parameters":[{"name":"p","type":3,"int_value":1}]}})
    """)
    bad = sparkplug_examples("""
        a parameter without a type
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"parameters":[{"name":"p"}]}}) !payload
        a parameter without a name
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"parameters":[{"type":3}]}}) !payload
        a parameter that is a data set, and one with an extension
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"parameters":[{"name":"p","type":16},
                {"name":"q","type":3,"extension_value":""}]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check name, type and value of each parameter."""
        for metric in nested(message.metrics, "template_value"):
            for parameter in metric["template_value"].get("parameters", ()):
                name = f"parameter {shown(parameter.get('name', ''))} of template {metric_name(metric)}"
                if "name" not in parameter:
                    yield f"a parameter of template {metric_name(metric)} has no name"
                if "type" not in parameter:
                    if message.kind in BIRTHS:
                        yield f"{name} has no type"
                elif parameter["type"] > _LAST_BASIC:
                    yield f"{name} has the type {type_name(parameter['type'])}, not a basic one"
                if value_of(parameter) not in ("", *SCALARS):
                    yield f"{name} has {value_of(parameter)}"


class PropertySetSizesDiffer(PayloadRule):
    """A property set has different numbers of keys and values.

    A host cannot assign the values to keys.

    Instead, write one value for each key.
    """

    code = "SPB159"
    statements = stated("payloads-propertyset-keys-array-size payloads-propertyset-values-array-size")
    kinds = KINDS

    good = sparkplug_examples("""
        a key and its value
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["unit"],
                "values":[{"type":12,"string_value":"C"}]}})
    """)
    bad = sparkplug_examples("""
        a key without a value
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["unit"]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare the numbers of all property sets, also inside each other."""
        for metric, held in property_sets(message):
            keys, values = len(held.get("keys", ())), len(held.get("values", ()))
            if keys != values:
                yield f"metric {metric_name(metric)} has a property set with {keys} keys and {values} values"


class PropertyTypeInvalid(PayloadRule):
    """A property in a birth has no type, or a property has a type that does not exist for properties.

    A host cannot interpret the value.

    Instead, give each property a basic data type, 1 to 14, or 20 or 21 for property sets.
    """

    code = "SPB160"
    statements = stated("""
        payloads-metric-propertyvalue-type-req payloads-metric-propertyvalue-type-value
        payloads-metric-propertyvalue-type-type
    """)
    kinds = KINDS

    good = sparkplug_examples("""
        a text, and data without a type
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["unit","low"],
                "values":[{"type":12,"string_value":"C"},{"int_value":1}]}})
    """)
    bad = sparkplug_examples("""
        a birth without a type
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5{"properties":{"keys":["unit"],
                "values":[{"string_value":"C"}]}}) !payload
        a file as a property
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["unit"],
                "values":[{"type":18}]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check the type of each property."""
        for metric, held in property_sets(message):
            for key, element in zip(held.get("keys", ()), held.get("values", ()), strict=False):
                kind = element.get("type")
                if kind is None and message.kind in BIRTHS:
                    yield f"property {shown(key)} of metric {metric_name(metric)} has no type"
                elif kind is not None and kind > _LAST_BASIC and kind not in _PROPERTY_TYPES:
                    yield f"property {shown(key)} of metric {metric_name(metric)} has the type {type_name(kind)}"


class QualityInvalid(PayloadRule):
    """The property Quality of a metric is not an Int32 with a quality code.

    A host cannot find out whether the value is good.

    Instead, send 0 for bad, 192 for good or 500 for stale, as an Int32.
    """

    code = "SPB161"
    statements = stated("payloads-propertyset-quality-value-type payloads-propertyset-quality-value-value")
    kinds = KINDS

    good = sparkplug_examples("""
        a good value
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["Quality"],
                "values":[{"type":3,"int_value":192}]}})
    """)
    bad = sparkplug_examples("""
        an unknown code
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["Quality"],
                "values":[{"type":3,"int_value":100}]}}) !payload
        a text
            BORN; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21{"properties":{"keys":["Quality"],
                "values":[{"type":12,"string_value":"good"}]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Check type and value of each Quality."""
        for metric, held in property_sets(message):
            for key, element in zip(held.get("keys", ()), held.get("values", ()), strict=False):
                if key != "Quality":
                    continue
                name = f"Quality of metric {metric_name(metric)}"
                if element.get("type", 3) != 3:
                    yield f"{name} has the type {type_name(element['type'])}, not Int32"
                elif element.get("int_value") not in QUALITIES:
                    yield f"{name} is {element.get(value_of(element), 'missing')}, not 0, 192 or 500"


def property_sets(message: SparkplugMessage) -> Iterator[tuple[Message, Message]]:
    """All property sets of a message with their metric, also inside each other."""
    for metric in nested(message.metrics, "properties"):
        waiting = [metric["properties"]]
        while waiting:
            held = waiting.pop()
            yield metric, held
            for element in held.get("values", ()):
                if "propertyset_value" in element:
                    waiting.append(element["propertyset_value"])
                waiting += element.get("propertysets_value", {}).get("propertyset", ())


class TemplateUndefined(NodeRule):
    """A template instance refers to a definition that the NBIRTH does not have.

    A host has no list of the members and their types.

    Instead, send the definitions of all templates in the NBIRTH.
    """

    code = "SPB262"
    statements = stated("payloads-template-definition-nbirth topics-nbirth-templates")
    kinds = KINDS
    cited_as = dict.fromkeys(KINDS, "NBIRTH")

    good = sparkplug_examples("""
        a device with an instance
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true}})
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}})
        the capture begins late
            midstream; version 3.1.1; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}})
    """)
    bad = sparkplug_examples("""
        an unknown definition
            BORN; > publish spBv1.0/g/DBIRTH/e/d spb(seq=1
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}}) !payload
        an instance in the NBIRTH itself
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M"}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare the references of instances with the definitions."""
        known = self.templates(message, at)
        for metric in nested(message.metrics, "template_value"):
            reference = metric["template_value"].get("template_ref")
            if known is not None and reference and reference not in known:
                yield f"template {metric_name(metric)} refers to {shown(reference)}, which the NBIRTH does not define"


class TemplateMembersDiffer(NodeRule):
    """A template instance has other members or parameters than its definition.

    A host has no types for members that the definition lacks, and in births it misses the current values of others.

    Instead, send all members of the definition in births, and only members and parameters of it.
    """

    code = "SPB263"
    statements = stated("""
        payloads-template-instance-members payloads-template-definition-members
        payloads-template-definition-parameters payloads-template-instance-members-birth
    """)
    kinds = KINDS

    good = sparkplug_examples("""
        all members in the birth, and one of them in data
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"metrics":[{"name":"a"},{"name":"b"}]}}
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M",
                "metrics":[{"name":"a"},{"name":"b"}]}})
            > publish spBv1.0/g/NDATA/e spb(seq=1
                m1{"template_value":{"is_definition":false,"template_ref":"M","metrics":[{"name":"a"}]}})
    """)
    bad = sparkplug_examples("""
        a member that is not defined
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"metrics":[{"name":"a"}]}}
                m1:Template{"template_value":{"is_definition":false,"template_ref":"M",
                "metrics":[{"name":"a"},{"name":"b"}]}}) !payload
        a birth that lacks a member, and has a parameter of its own
            EDGE; > publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false
                M:Template{"template_value":{"is_definition":true,"metrics":[{"name":"a"}]}})
            > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 m1:Template{"template_value":{"is_definition":false,
                "template_ref":"M","parameters":[{"name":"p","type":3,"int_value":1}]}}) !payload
    """)

    def faults(self, message: SparkplugMessage, at: RuleContext) -> Iterator[str]:
        """Compare instances with their definition."""
        known = self.templates(message, at) or {}
        for metric in nested(message.metrics, "template_value"):
            instance = template_definition(metric["template_value"])
            definition = known.get(metric["template_value"].get("template_ref", ""))
            if definition is None:
                continue
            name = f"template {metric_name(metric)}"
            # Members may have aliases alone, which the definition does not show.
            for member in instance.members:
                if member and member not in definition.members:
                    yield f"{name} has the member {shown(member)}, which its definition does not have"
            for parameter in instance.parameters:
                if parameter and parameter not in definition.parameters:
                    yield f"{name} has the parameter {shown(parameter)}, which its definition does not have"
            if message.kind in BIRTHS and "" not in instance.members:
                for member in definition.members:
                    if member not in instance.members:
                        yield f"{name} lacks the member {shown(member)} of its definition"
