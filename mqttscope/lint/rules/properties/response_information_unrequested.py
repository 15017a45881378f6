from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt import Connack, Direction


class ResponseInformationUnrequested(Rule):
    """A server sends Response Information to a client that did not ask for it.

    The property is the basis for Response Topics, and a client gets it only after it has set Request Response
    Information to 1; one that has not need not know the property at all.

    Instead, send it only when the CONNECT asked for it.
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
        the client asked for it
            opened request_response_information=1 < response_information=rsp/c1
        the server need not send it
            opened request_response_information=1
    """)
    bad = examples("""
        the client said nothing
            opened < response_information=rsp/c1 !properties.response_information
        the client said no
            opened request_response_information=0 < response_information=rsp/c1 !properties.response_information
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Look at what CONNECT asked for."""
        connect = at.history.connect
        told = None if packet.properties is None else packet.properties.response_information
        if told is None or connect is None:
            return None
        if connect.properties is not None and connect.properties.request_response_information:
            return None
        return self.report(
            "properties.response_information",
            f"CONNACK carries Response Information {shown(told)} although CONNECT did not ask for it",
        )
