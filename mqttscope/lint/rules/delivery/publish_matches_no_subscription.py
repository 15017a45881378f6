from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish


class PublishMatchesNoSubscription(Rule):
    """A client receives a message on a topic that does not match any of its subscriptions.

    Client libraries pass a message to the subscription that it matches; this one is dropped or ends up in a catch-all
    handler.  Servers may add subscriptions or map topics themselves, which a capture does not show; so this is a
    warning.  Topics that match after a change (DLV209), ``$`` topics under a wildcard (DLV206) and unsubscribed filters
    (DLV207) have their own rules.

    Instead, send only messages that exactly match a filter of the client's session.
    """

    code = "DLV201"
    scope = Scope.SESSION
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.2-3": "", "V5-PUBLISH-unsolicited-qos": "client"},
        V3_1_1: {"MQTT-3.3.2-3": ""},
    }
    signs = ("unmatched",)
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    models = (SessionModel,)

    good = examples("""
        a matching topic
            opened; > subscribe 10 a/+:0; < suback 10 0; < publish a/c
        sent before the SUBACK
            opened 3.1.1; > subscribe 10 a/+:0; < publish a/c & suback 10 0
        during an UNSUBSCRIBE
            opened 3.1.1; > subscribe 10 a/+:0; < suback 10 0; > unsubscribe 11 a/+; < publish a/c
        a Shared Subscription
            opened; > subscribe 10 $share/g/a/+:0; < suback 10 0; < publish a/c
        a server that supports $share in 3.1.1
            opened 3.1.1; > subscribe 10 $share/g/a/+:0; < suback 10 0; < publish a/c
        an older session may have any subscription
            opened resume < present; > subscribe 10 a/+:0; < suback 10 0; < publish b/c
        a response below the Response Information
            opened request_response_information=1 < response_information=r/1; < publish r/1/x
        capture started in mid-connection
            midstream; > subscribe 10 a/+:0; < suback 10 0; < publish b/c
        subscribed on the previous connection, and the session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a/#:1 b:1; < suback 1 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a/b; @1 < publish b
            @1 > subscribe 1 c:1; @1 < suback 1 1
            @1 < publish a/b
        unsubscribed on the previous connection, with messages perhaps still queued
            opened 3.1.1 resume; > subscribe 1 a:1; < suback 1 1; > unsubscribe 2 a; < unsuback 2; > disconnect; > fin
            @1 opened resume < present; @1 < publish a
        unsubscribed on this connection, with messages in flight
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a; @1 < publish a
            @1 < unsuback 2 0; @1 < publish a
        the capture may lack a SUBSCRIBE on the previous connection
            opened resume session_expiry_interval=3600; > subscribe 1 b:1; < suback 1 1; lost > subscribe 2 a:1
            < pingresp; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a
        the session is older than the capture
            opened resume session_expiry_interval=3600 < present; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a
        taken over from a connection that still receives answers
            opened resume session_expiry_interval=3600; > subscribe 1 a:1
            @1 opened resume session_expiry_interval=3600 < present; < suback 1 1; < fin; @1 < publish a
        a client with the same identifier but another user name
            opened resume user_name=alice session_expiry_interval=3600; > subscribe 1 b:1; < suback 1 1; > disconnect
            > fin
            @1 opened resume user_name=bob session_expiry_interval=3600 < present; @1 < publish a
    """)
    bad = examples("""
        another topic
            opened; > subscribe 10 a/+:0; < suback 10 0; < publish b/c !topic_name
        only a refused filter matches, in 3.1.1
            opened 3.1.1; > subscribe 10 b/c:0 a:0; < suback 10 0x80 0; < publish b/c !topic_name
        nothing subscribed in 3.1
            opened 3.1; < publish x !topic_name
        a continued session without a matching subscription
            opened resume session_expiry_interval=3600; > subscribe 1 b:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish b; @1 < publish a !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a matching subscription or another explanation."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        match = session_match(topic, at)
        if match.subscriptions or match.ended or match.extended or match.beside or not match.known or packet.dup:
            return None
        if table.near(topic) is not None:
            return None
        connack = at.history.connack
        if connack is not None and connack.properties is not None:
            information = connack.properties.response_information
            if information and topic.startswith(information):
                return None
        number = len(table.live)
        if at.connection.session_present:
            number = len(table.live.keys() | at.model(SessionModel).filters.keys())
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} does not match any of its {number} subscriptions",
            confidence=Confidence.LIKELY,  # a server may subscribe on behalf of a client, however complete the capture
        )
