"""SPB220 to SPB223: sessions of edge nodes and Host Applications."""

from typing import ClassVar

from mqttscope.lint.rules import C2S, SPARKPLUG, V3_1_1, V5, Confidence, Findings, Needs, RuleContext
from mqttscope.lint.rules.sparkplug import (
    SparkplugRule,
    certainty,
    commands_filter,
    forwards,
    host_of_will,
    is_online,
    node_of_will,
    sparkplug_examples,
    stated,
)
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connack, Connect, Disconnect, Publish
from mqttscope.payloads.sparkplug_topics import host_of_state, read_topic

_PLACES = "client connect,client publish"


class KeptSessionRule(SparkplugRule):
    """A rule about a client that asks for a session that outlives its connection.

    The will shows the role at CONNECT.  Without such a will, the first birth shows it.
    """

    versions = (V3_1_1, V5)
    version_matters = True
    Memory = ReportedTexts
    of_host: ClassVar[bool] = False
    role: ClassVar[str]

    def check(self, packet: Connect | Publish, at: RuleContext) -> Findings:
        """Judge the CONNECT, at the packet that shows the role of the client."""
        if isinstance(packet, Connect):
            name = host_of_will(packet) if self.of_host else node_of_will(packet)
            return None if name is None else self._kept(packet, at, "")
        connect = at.history.connect
        if connect is None or forwards(connect) or host_of_will(connect) or node_of_will(connect):
            return None
        own = self._own_filter(packet, at)
        return self._kept(connect, at, own) if own and at.memory(self).first("") else None

    def _own_filter(self, packet: Publish, at: RuleContext) -> str:
        """The filter of the client's own commands or STATE, if the packet is its birth; otherwise empty."""
        if self.of_host:
            return at.topic or "" if host_of_state(at.topic) is not None and is_online(packet.payload) else ""
        topic = read_topic(at.topic)
        return commands_filter(topic) if topic is not None and topic.kind == "NBIRTH" else ""

    def _kept(self, connect: Connect, at: RuleContext, own: str) -> Findings:
        """The finding if the CONNECT keeps a session; ``own`` is empty if the will shows the role."""
        block = connect.properties
        expiry = 0 if block is None else block.session_expiry_interval or 0
        if not connect.clean_start:
            field, text = "clean_start", "Clean Start 0" if at.version is V5 else "Clean Session 0"
        elif at.version is V5 and expiry:
            field, text = "properties.session_expiry_interval", f"a Session Expiry Interval of {expiry} s"
        else:
            return None
        return self.report(
            field if not own else "topic_name",
            f"{self.role} {at.client_name!r} connects with {text}",
            statements=self.cited("-50" if at.version is V5 else "-311"),
            confidence=certainty(at, own) if own else None,
        )


class EdgeNodeKeepsSession(KeptSessionRule):
    """An edge node connects with a session that outlives its connection.

    The server queues commands while the edge node is offline and delivers them to the reborn one, which may carry them
    out hours later.

    Instead, connect with Clean Session 1, in MQTT 5.0 with Clean Start 1 and a Session Expiry Interval of 0.
    """

    code = "SPB220"
    role = "edge node"
    statements = {
        SPARKPLUG: {
            "tck-id-principles-persistence-clean-session-311": _PLACES,
            "tck-id-principles-persistence-clean-session-50": _PLACES,
        }
    }

    good = sparkplug_examples("""
        a new session
            NODE
        another client
            opened resume session_expiry_interval=60 will=plant/n will_payload=x; > publish plant/n x
        the CONNECT is not in the capture
            midstream; > publish spBv1.0/g/NDATA/n spb(seq=3 T:Int32=1)
    """)
    bad = sparkplug_examples("""
        Clean Session 0
            > connect 3.1.1 resume will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1 !clean_start; < connack
        Clean Start 0, and an expiry
            > connect resume will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1 !clean_start; < connack
            @1 > connect client=m will=spBv1.0/g/NDEATH/m will_payload=x will_qos=1 session_expiry_interval=60
                !properties.session_expiry_interval
            @1 < connack
        without a will, by its birth
            opened 3.1.1 resume; > publish spBv1.0/g/NBIRTH/n x !topic_name; > publish spBv1.0/g/NBIRTH/n x
    """)


class HostKeepsSession(KeptSessionRule):
    """A Host Application connects with a session that outlives its connection.

    The server queues data while the Host Application is offline, and delivers it out of step with the births that it
    asks for afterwards.

    Instead, connect with Clean Session 1, in MQTT 5.0 with Clean Start 1 and a Session Expiry Interval of 0.
    """

    code = "SPB221"
    of_host = True
    role = "Host Application"
    statements = {
        SPARKPLUG: {
            "tck-id-message-flow-phid-sparkplug-clean-session-311": _PLACES,
            "tck-id-message-flow-phid-sparkplug-clean-session-50": _PLACES,
        }
    }

    good = sparkplug_examples("""
        a new session
            APPLICATION
    """)
    bad = sparkplug_examples("""
        Clean Session 0
            > connect 3.1.1 resume will=spBv1.0/STATE/h will_payload=x will_qos=1 will_retain !clean_start; < connack
        an expiry
            > connect session_expiry_interval=60 will=spBv1.0/STATE/h will_payload=x will_qos=1 will_retain
                !properties.session_expiry_interval
            < connack
        without a will, by its birth
            opened 3.1.1 resume
            > publish spBv1.0/STATE/h state(online=true timestamp=5) qos=1 id=1 retain !topic_name; < puback 1
    """)


class BirthBeforeConnack(SparkplugRule):
    """An edge node publishes its birth before the server has accepted the connection.

    If the server refuses the CONNECT, the birth is lost.  Sparkplug wants an MQTT session first.  MQTT itself permits
    packets before the CONNACK, so the finding is ``likely``.

    Instead, wait for the CONNACK before the first birth.
    """

    code = "SPB222"
    confidence = Confidence.LIKELY
    statements = {SPARKPLUG: {"tck-id-message-flow-edge-node-birth-publish-connect": "client"}}
    sender = None
    signs = {Publish: ("sparkplug",)}
    Memory = ReportedTexts

    good = sparkplug_examples("""
        after the CONNACK
            NODE
    """)
    bad = sparkplug_examples("""
        before the CONNACK, reported once
            > connect will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1; > publish spBv1.0/g/NBIRTH/n x
            > publish spBv1.0/g/DBIRTH/n/d x; < connack !!
    """)

    def check(self, packet: Publish | Connack, at: RuleContext) -> Findings:
        """Remember the first birth, and report it with the CONNACK: without one, the server may be out of view."""
        history, births = at.history, at.memory(self)
        if history.connect is None or history.connack is not None:
            return None
        if isinstance(packet, Connack):
            text = next(iter(births.texts), "")
            return self.report("", text, sender=C2S, overdue=True) if text else None
        topic = read_topic(at.topic)
        if at.from_client and topic is not None and topic.kind in ("NBIRTH", "DBIRTH") and not births.texts:
            births.first(f"{topic.kind} of {topic.group}/{topic.node} before the CONNACK")
        return None


class EdgeNodeDisconnectsSilently(SparkplugRule):
    """An edge node with MQTT 5.0 ends its connection with another Reason Code than Disconnect with Will Message.

    The server deletes the will, and if the edge node has published no NDEATH, Host Applications continue to show old
    values.  The specification asks for the Reason Code and, in another place, for an NDEATH of the edge node: the
    finding is ``likely``.

    Instead, send DISCONNECT with the Reason Code 0x04.
    """

    code = "SPB223"
    confidence = Confidence.LIKELY
    versions = (V5,)
    version_matters = True
    signs = ()
    needs = Needs.OPENING
    statements = stated("client disconnect.reason_code: payloads-ndeath-will-message-publisher-disconnect-mqtt50")

    good = sparkplug_examples("""
        with the will
            NODE; > disconnect code=0x04; > fin
        another client
            opened; > disconnect; > fin
    """)
    bad = sparkplug_examples("""
        without the will
            opened will=spBv1.0/g/NDEATH/n will_payload=x will_qos=1; > disconnect !reason_code; > fin
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Look at the Reason Code of a client with an NDEATH as its will."""
        topic = node_of_will(at.history.connect)
        if topic is None or packet.reason_code == 0x04:
            return None
        text = (
            f"DISCONNECT of {topic.group}/{topic.node} has Reason Code 0x{packet.reason_code or 0:02x} instead of 0x04"
        )
        return self.report("reason_code", text)
