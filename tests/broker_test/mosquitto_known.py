"""What mosquitto 2.0.11 does otherwise than MQTT demands, in the whole catalogue on `tests.broker_test.flows.script`.

Each kind was held against the text of its statement; docs/brokers.md has them with lines for a shell.
"""

from __future__ import annotations

from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt import ProtocolVersion

V3_1, V3_1_1, V5 = ProtocolVersion
REFUSED = {"publish.topic_name:many-levels"}
"""More than 200 levels, in every version."""
TOLERATED_IN_3_1_1 = {"pubrel.packet_identifier:repeated", "pubrel:layout-of-5.0"}
"""Packets that are too long; in 5.0 there may be more after the identifier."""
TOLERATED_SINCE_3_1_1 = {
    *(f"pingreq:reserved-flag-{bit}" for bit in range(4)),
    "flow:wrong-direction-pingresp",
    "flow:wrong-direction-suback",
    "flow:wrong-direction-unsuback",
    "pingreq:extra-byte",
    "pingreq:reserved-flags-inverted",
    "publish:dup-with-qos-0",
    "pubrel:extra-byte",
}
TOLERATED_IN_5_0 = {
    "connect.remaining_length:not-minimal",
    "connect.will.properties.payload_format_indicator:maximum",
    "connect.will.properties.payload_format_indicator:two",
    "connect.will.properties.response_topic:empty",
    "connect:authentication-data-alone",
    "flow:receive-maximum-overrun",
    "pingreq.remaining_length:not-minimal",
    "publish.properties.payload_format_indicator:maximum",
    "publish.properties.payload_format_indicator:two",
    "publish.properties.response_topic:empty",
    "publish.properties.response_topic:wildcard-hash",
    "publish.properties.response_topic:wildcard-plus",
    "publish.properties.subscription_identifier:zero",
    "publish.remaining_length:not-minimal",
    "publish:subscription-identifier-from-client",
    "pubrel.remaining_length:not-minimal",
    "subscribe.remaining_length:not-minimal",
    "subscribe.subscriptions.no_local:on-shared",
    "subscribe.subscriptions.topic_filter:share-filter-empty",
    "subscribe.subscriptions.topic_filter:share-name-empty",
    "subscribe.subscriptions.topic_filter:share-without-filter",
    "unsubscribe.remaining_length:not-minimal",
    # PUBREL with a reason code that is not one of its own: all but 0x00 and 0x92.
    *(f"pubrel.reason_code:unknown-{code}" for code in ("03", "7f", "ff")),
    *(
        f"pubrel.reason_code:of-another-packet-{code:02x}"
        for code in (
            *(0x01, 0x02, 0x04, 0x10, 0x11, 0x18, 0x19),
            *(code for code in range(0x80, 0xA3) if code != 0x92),
        )
    ),
}
DEVIATIONS = {
    V3_1: dict.fromkeys(REFUSED, Verdict.REFUSED_LEGAL),
    V3_1_1: {
        **dict.fromkeys(REFUSED, Verdict.REFUSED_LEGAL),
        **dict.fromkeys(TOLERATED_SINCE_3_1_1 | TOLERATED_IN_3_1_1, Verdict.TOLERATED),
    },
    V5: {
        **dict.fromkeys(REFUSED, Verdict.REFUSED_LEGAL),
        **dict.fromkeys(TOLERATED_SINCE_3_1_1 | TOLERATED_IN_5_0, Verdict.TOLERATED),
    },
}
"""By version: every mutation whose verdict is another one than ``conforming``."""
