"""PRF101 to PRF111: limits of a broker or cloud service, set with ``--profile``."""

from typing import ClassVar

from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V5, Findings, Report, Rule, RuleContext, Severity, packet_name, properties_lost
from mqttscope.mqtt import Connect, ControlPacket, Direction, Publish, Subscribe
from mqttscope.mqtt.topics import matches, utf8_length

PROFILE = {"profile": "the profile"}
"""Name of the profile; the last setting of each rule."""


class ProfileLimitRule(Rule):
    """A rule about packets that the service of the profile does not accept."""

    severity = Severity.ERROR
    sender = Direction.CLIENT_TO_SERVER

    def refused(self, field: str, sent: str, service: str) -> Report:
        """A finding with the sent value and the reaction of the service."""
        return self.report(field, f"{sent}; {self.set['profile']} {service}")

    def above(self, field: str, sent: str, limit: int) -> Report:
        """A finding about a value above a limit."""
        return self.refused(field, sent, f"accepts at most {limit:,}")


class ProfileQos(ProfileLimitRule):
    """A client publishes with a higher QoS than the service of the profile supports.

    Services without QoS 2 close the connection when they receive such a message, whatever they announce.

    Instead, publish with at most the QoS that the service supports.
    """

    code = "PRF101"
    when = "qos"
    settings = {"maximum_qos": 2, **PROFILE}

    good = examples("""
        the highest supported QoS
            settings maximum_qos=1; opened; > publish a qos=1 id=1; < puback 1
    """)
    bad = examples("""
        QoS 2 with maximum 1
            settings maximum_qos=1; opened; > publish a qos=2 id=1 !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Ignore QoS 3, which other rules report."""
        limit = self.set["maximum_qos"]
        if packet.qos <= limit or packet.qos == 3:
            return None
        return self.above("qos", f"PUBLISH {at.topic!r} has QoS {packet.qos}", limit)


class ProfilePacketSize(ProfileLimitRule):
    """A packet is larger than the service of the profile accepts.

    The service closes the connection, and a device that resends the message fails again.

    Instead, send less data in one message, or split it.
    """

    code = "PRF102"
    settings = {"maximum_packet_bytes": 268_435_460, **PROFILE}

    good = examples("""
        exactly the limit
            settings maximum_packet_bytes=36; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """)
    bad = examples("""
        one byte more
            settings maximum_packet_bytes=36; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Include bytes that the capture lost."""
        length, limit = len(packet.raw) + packet.missing, self.set["maximum_packet_bytes"]
        return self.above("", f"{packet_name(packet)} of {length:,} bytes", limit) if length > limit else None


class ProfilePayloadSize(ProfileLimitRule):
    """A message has a larger payload than the service of the profile accepts.

    The service refuses the message or closes the connection.

    Instead, send less data in one message, or store large data elsewhere and publish its address.
    """

    code = "PRF103"
    settings = {"maximum_payload_bytes": 268_435_455, **PROFILE}

    good = examples("""
        exactly the limit
            settings maximum_payload_bytes=32; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """)
    bad = examples("""
        one byte more
            settings maximum_payload_bytes=32; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Include bytes that the capture lost, unless properties may be among them."""
        length, limit = len(packet.payload) + packet.missing, self.set["maximum_payload_bytes"]
        if length <= limit or properties_lost(packet, at):
            return None
        return self.above("payload", f"PUBLISH {at.topic!r}: payload of {length:,} bytes", limit)


class TopicLimitRule(ProfileLimitRule):
    """A rule about a limit of each Topic Name and Topic Filter."""

    setting: ClassVar[str]
    """Name of the setting with the limit."""
    unit: ClassVar[str]

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Compare each topic with the limit."""
        if isinstance(packet, Publish):
            topics = [("topic_name", packet.topic_name or "")]
        else:
            rows = enumerate(packet.subscriptions or ())
            topics = [(f"subscriptions[{index}].topic_filter", row.topic_filter) for index, row in rows]
        limit = self.set[self.setting]
        return [
            self.above(field, f"{topic!r} has {self.count(topic):,} {self.unit}", limit)
            for field, topic in topics
            if self.count(topic) > limit
        ]

    def count(self, topic: str) -> int:
        raise NotImplementedError


class ProfileTopicLevels(TopicLimitRule):
    """A topic name or topic filter has more levels than the service of the profile accepts.

    The service refuses the message or the subscription, or closes the connection.

    Instead, design topics within the limit of the service.
    """

    code = "PRF104"
    setting, unit = "maximum_topic_levels", "levels"
    settings = {"maximum_topic_levels": 65_536, "uncounted_topic_prefix": "", **PROFILE}

    good = examples("""
        exactly the limit
            settings maximum_topic_levels=3; opened; > publish a/b/c
        a prefix that is not counted
            settings maximum_topic_levels=3 uncounted_topic_prefix=$in/+/; opened; > publish $in/x/a/b/c
    """)
    bad = examples("""
        a topic name above the limit
            settings maximum_topic_levels=3; opened; > publish a/b/c/d !topic_name
        a topic filter above the limit
            settings maximum_topic_levels=3; opened; > subscribe 1 a/#:0 a/b/c/d:0 !subscriptions[1].topic_filter
    """)

    def count(self, topic: str) -> int:
        """Number of levels, without the uncounted prefix."""
        prefix = str(self.set["uncounted_topic_prefix"]).rstrip("/")
        if prefix and matches(f"{prefix}/#", topic):
            return topic.count("/") - prefix.count("/")
        return topic.count("/") + 1


class ProfileTopicLength(TopicLimitRule):
    """A topic name or topic filter is longer than the service of the profile accepts.

    The service refuses the message or the subscription, or closes the connection.

    Instead, design topics within the limit of the service.
    """

    code = "PRF105"
    setting, unit = "maximum_topic_bytes", "bytes"
    settings = {"maximum_topic_bytes": 65_535, **PROFILE}

    good = examples("""
        exactly the limit
            settings maximum_topic_bytes=5; opened; > publish a/b/c
    """)
    bad = examples("""
        a topic name above the limit
            settings maximum_topic_bytes=5; opened; > publish a/b/c/ !topic_name
        a topic filter above the limit
            settings maximum_topic_bytes=5; opened; > subscribe 1 a/#:0 a/b/c/:0 !subscriptions[1].topic_filter
    """)

    def count(self, topic: str) -> int:
        return utf8_length(topic)


class ProfileWillQos(ProfileLimitRule):
    """A will has a higher QoS than the service of the profile supports.

    The service refuses the CONNECT.

    Instead, set a Will QoS that the service supports.
    """

    code = "PRF106"
    when = "will"
    settings = {"maximum_will_qos": 2, **PROFILE}

    good = examples("""
        the highest supported QoS
            settings maximum_will_qos=1; opened will=w will_payload=x will_qos=1
    """)
    bad = examples("""
        QoS 2 with maximum 1
            settings maximum_will_qos=1; > connect will=w will_payload=x will_qos=2 !will.will_qos
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        qos, limit = 0 if packet.will is None else packet.will.will_qos, self.set["maximum_will_qos"]
        return self.above("will.will_qos", f"CONNECT: Will QoS {qos}", limit) if qos > limit else None


class ProfileRetain(ProfileLimitRule):
    """A client publishes a retained message to a service without retained messages.

    The service drops the flag or refuses the message: late subscribers never receive it.

    Instead, use another feature of the service to query the last value.
    """

    code = "PRF107"
    when = "retain"
    settings = {"retain_available": True, **PROFILE}

    good = examples("""
        not retained
            settings retain_available=false; opened; > publish a
        supported by the service
            opened; > publish a retain
    """)
    bad = examples("""
        retained
            settings retain_available=false; opened; > publish a retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report the packet, which is retained (`when`)."""
        if self.set["retain_available"]:
            return None
        return self.refused("retain", f"PUBLISH {at.topic!r} is retained", "does not support retained messages")


class ProfileKeepAlive(ProfileLimitRule):
    """A client requests a Keep Alive outside the range of the service of the profile.

    The service uses a different value, or refuses the CONNECT; a device that ignores this is disconnected.

    Instead, request a Keep Alive within the range.
    """

    code = "PRF108"
    settings = {"minimum_keep_alive": 0, "maximum_keep_alive": 65_535, **PROFILE}

    good = examples("""
        the highest value
            settings maximum_keep_alive=60; opened
        the lowest value
            settings minimum_keep_alive=30; opened keep_alive=30
    """)
    bad = examples("""
        too long
            settings maximum_keep_alive=60; > connect keep_alive=61 !keep_alive
        too short
            settings minimum_keep_alive=30; > connect keep_alive=29 !keep_alive
        disabled, although the service has a maximum
            settings maximum_keep_alive=60; > connect keep_alive=0 !keep_alive
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check the range; 0 disables Keep Alive, which is invalid if there is a maximum."""
        asked, lowest, highest = packet.keep_alive, self.set["minimum_keep_alive"], self.set["maximum_keep_alive"]
        if asked is None or (lowest <= asked <= highest if asked else highest >= 65_535):
            return None
        return self.refused("keep_alive", f"CONNECT: Keep Alive {asked} s", f"accepts {max(lowest, 1)} to {highest} s")


class ProfileClientIdentifierLength(ProfileLimitRule):
    """A Client Identifier is longer than the service of the profile accepts.

    The service refuses the CONNECT.

    Instead, use a shorter Client Identifier.
    """

    code = "PRF109"
    # The second limit also applies to MQTT 3.1 and 3.1.1.
    settings = {
        "maximum_client_identifier_bytes": 65_535,
        "maximum_client_identifier_bytes_3x": 65_535,
        **PROFILE,
    }

    good = examples("""
        exactly the limit
            settings maximum_client_identifier_bytes=8; opened client=meter-17
        the limit of 3.x does not apply to 5.0
            settings maximum_client_identifier_bytes_3x=4; opened client=meter-17
    """)
    bad = examples("""
        one byte more
            settings maximum_client_identifier_bytes=8; > connect client=meter-171 !client_identifier
        too long for 3.1.1
            settings maximum_client_identifier_bytes_3x=4; > connect 3.1.1 client=meter-17 !client_identifier
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare the length in UTF-8."""
        limit = self.set["maximum_client_identifier_bytes"]
        if at.version < V5:
            limit = min(limit, self.set["maximum_client_identifier_bytes_3x"])
        length = utf8_length(packet.client_identifier or "")
        if length <= limit:
            return None
        return self.above("client_identifier", f"CONNECT: Client Identifier of {length:,} bytes", limit)


class ProfileSubscriptionsPerPacket(ProfileLimitRule):
    """A SUBSCRIBE has more topic filters than the service of the profile accepts in one packet.

    The service refuses the packet or closes the connection.

    Instead, spread the topic filters over several SUBSCRIBE packets.
    """

    code = "PRF110"
    settings = {"maximum_subscriptions_per_packet": 268_435_455, **PROFILE}

    good = examples("""
        exactly the limit
            settings maximum_subscriptions_per_packet=2; opened; > subscribe 1 a:0 b:0; < suback 1 0 0
    """)
    bad = examples("""
        one filter more
            settings maximum_subscriptions_per_packet=2; opened; > subscribe 1 a:0 b:0 c:0 !subscriptions
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        count, limit = len(packet.subscriptions or ()), self.set["maximum_subscriptions_per_packet"]
        return self.above("subscriptions", f"SUBSCRIBE with {count:,} topic filters", limit) if count > limit else None


class ProfileVersion(ProfileLimitRule):
    """A client uses a version of MQTT that the service of the profile does not support.

    The service refuses the CONNECT or closes the connection.

    Instead, use a version that the service supports.
    """

    code = "PRF111"
    settings = {"versions": ["3.1", "3.1.1", "5.0"], **PROFILE}

    good = examples("""
        a version of the service
            settings versions=["3.1.1"]; opened 3.1.1
    """)
    bad = examples("""
        another version
            settings versions=["3.1.1"]; > connect !protocol_level
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check the version."""
        spoken, versions = packet.version.text, self.set["versions"]
        if spoken in versions:
            return None
        return self.refused("protocol_level", f"CONNECT: MQTT {spoken}", f"supports {', '.join(versions)}")
