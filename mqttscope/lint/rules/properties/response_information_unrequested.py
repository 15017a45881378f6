from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt import Connack, Direction


class ResponseInformationUnrequested(Rule):
    """A server sends Response Information to a client that did not request it.

    The property is the basis for Response Topics, and only clients that set Request Response Information to 1 may
    receive it; other clients may not support the property at all.

    Instead, send it only if the CONNECT requested it.
    """

    code = "PRP208"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-28": ""}}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    needs = Needs.OPENING

    good = examples("""
        the client requested it
            opened request_response_information=1 < response_information=rsp/c1
        the server may omit it
            opened request_response_information=1
    """)
    bad = examples("""
        not requested, by default
            opened < response_information=rsp/c1 !properties.response_information
        explicitly not requested
            opened request_response_information=0 < response_information=rsp/c1 !properties.response_information
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Check the request in the CONNECT."""
        connect = at.history.connect
        information = None if packet.properties is None else packet.properties.response_information
        if information is None or connect is None:
            return None
        if connect.properties is not None and connect.properties.request_response_information:
            return None
        return self.report(
            "properties.response_information",
            f"CONNACK carries Response Information {shown(information)} although CONNECT did not request it",
        )
