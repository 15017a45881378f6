"""Meanings of reason codes in practice, and advice for each cause."""

from __future__ import annotations

from mqttscope.explain.model import Cause
from mqttscope.mqtt.constants import ProtocolVersion

OF_CONNACK: dict[int, tuple[Cause, str]] = {
    0x84: (Cause.UNSUPPORTED_VERSION, "the broker does not speak this version of MQTT"),
    0x85: (Cause.CLIENT_IDENTIFIER_REJECTED, "the broker does not allow this Client Identifier"),
    0x86: (Cause.BAD_CREDENTIALS, "the broker does not know this user name, or the password is wrong"),
    0x87: (
        Cause.NOT_AUTHORIZED,
        "the broker does not let this client in (user name, password, certificate or access rule)",
    ),
    0x88: (Cause.SERVER_UNAVAILABLE, "the broker runs and cannot serve: its back end or its cluster is not ready"),
    0x89: (Cause.SERVER_UNAVAILABLE, "the broker is busy"),
    0x8A: (Cause.BANNED, "the broker has banned this client, often because it connected or failed too often"),
    0x8C: (Cause.BAD_CREDENTIALS, "the broker does not offer this Authentication Method"),
    0x90: (Cause.CONNECT_REFUSED, "the will topic is not accepted"),
    0x95: (Cause.PACKET_TOO_LARGE, "the CONNECT is larger than the broker accepts"),
    0x97: (Cause.QUOTA_EXCEEDED, "a quota of the broker is used up: connections, sessions or messages"),
    0x99: (Cause.CONNECT_REFUSED, "the payload of the will does not have the format that it announces"),
    0x9A: (Cause.NOT_SUPPORTED, "the will is to be retained, and the broker retains nothing"),
    0x9B: (Cause.NOT_SUPPORTED, "the broker does not support the QoS of the will"),
    0x9C: (Cause.USE_ANOTHER_SERVER, "the broker sends the client to another one for now"),
    0x9D: (Cause.USE_ANOTHER_SERVER, "the broker has moved"),
    0x9F: (Cause.QUOTA_EXCEEDED, "clients connect faster than the broker allows"),
}
"""Reason codes of CONNACK in 5.0: the cause, and what they mean."""
OF_OLD_CONNACK: dict[int, tuple[Cause, str]] = {
    1: OF_CONNACK[0x84],
    2: OF_CONNACK[0x85],
    3: OF_CONNACK[0x88],
    4: OF_CONNACK[0x86],
    5: OF_CONNACK[0x87],
}
"""Return codes of CONNACK before 5.0."""
OF_DISCONNECT: dict[int, tuple[Cause, str]] = {
    0x81: (Cause.PROTOCOL_VIOLATION, "a packet broke the layout"),
    0x82: (Cause.PROTOCOL_VIOLATION, "a packet broke the protocol"),
    0x87: (Cause.NOT_AUTHORIZED, "something that was sent is not allowed for this client"),
    0x89: (Cause.SERVER_UNAVAILABLE, "the broker is busy and cannot continue"),
    0x8B: (Cause.SERVER_RESTART, "the broker was shutting down"),
    0x8C: (Cause.BAD_CREDENTIALS, "the Authentication Method is not the one that was agreed on"),
    0x8D: (Cause.KEEP_ALIVE, "no packet came for one and a half times the Keep Alive"),
    0x8E: (Cause.TAKEN_OVER, "another connection used the same Client Identifier"),
    0x8F: (Cause.PROTOCOL_VIOLATION, "a Topic Filter is not accepted"),
    0x90: (Cause.PROTOCOL_VIOLATION, "a Topic Name is not accepted"),
    0x93: (Cause.RECEIVE_MAXIMUM, "more messages were unacknowledged than the Receive Maximum allows"),
    0x94: (Cause.TOPIC_ALIAS, "a Topic Alias was 0 or above the announced maximum"),
    0x95: (Cause.PACKET_TOO_LARGE, "a packet was larger than the other side accepts"),
    0x96: (Cause.QUOTA_EXCEEDED, "messages came faster than allowed"),
    0x97: (Cause.QUOTA_EXCEEDED, "a quota was used up"),
    0x98: (Cause.ADMINISTRATIVE_ACTION, "somebody or something disconnected the client on purpose"),
    0x99: (Cause.PROTOCOL_VIOLATION, "a payload did not have the format that it announced"),
    0x9A: (Cause.NOT_SUPPORTED, "a message had RETAIN set, which is not supported"),
    0x9B: (Cause.NOT_SUPPORTED, "a message had a QoS above the announced maximum"),
    0x9C: (Cause.USE_ANOTHER_SERVER, "the broker sends the client to another one for now"),
    0x9D: (Cause.USE_ANOTHER_SERVER, "the broker has moved"),
    0x9E: (Cause.NOT_SUPPORTED, "Shared Subscriptions are not supported"),
    0x9F: (Cause.QUOTA_EXCEEDED, "connections came faster than allowed"),
    0xA0: (Cause.QUOTA_EXCEEDED, "the broker does not let a connection last longer"),
    0xA1: (Cause.NOT_SUPPORTED, "Subscription Identifiers are not supported"),
    0xA2: (Cause.NOT_SUPPORTED, "Wildcard Subscriptions are not supported"),
}
"""Reason codes of DISCONNECT: the cause, and what they mean."""
OF_UNUSED_IDENTIFIER = (
    "Store the QoS 2 state of the client over restarts, or connect with Clean Start when it is lost.",
    "Look in the broker for the Packet Identifiers of its PUBACK packets: each must be the one of the PUBLISH.",
)
"""Advice on an acknowledgement for an identifier that the client had not used: of QoS 2, and PUBACK."""
OF_SUBPROTOCOL = (
    "Let the client offer mqtt in Sec-WebSocket-Protocol: it is the subprotocol of 3.1.1 and 5.0 (mqttv3.1: of 3.1)."
)
OF_CLOSE: dict[int, tuple[Cause, str]] = {
    1000: (Cause.SERVER_CLOSED, "normal closure"),
    1001: (Cause.SERVER_CLOSED, "going away"),
    1002: (Cause.PROTOCOL_VIOLATION, "protocol error"),
    1003: (Cause.PROTOCOL_VIOLATION, "unsupported data"),
    1007: (Cause.PROTOCOL_VIOLATION, "invalid payload data"),
    1008: (Cause.SERVER_DISCONNECT, "policy violation"),
    1009: (Cause.PACKET_TOO_LARGE, "message too big"),
    1010: (Cause.PROTOCOL_VIOLATION, "mandatory extension"),
    1011: (Cause.SERVER_UNAVAILABLE, "internal error"),
    1012: (Cause.SERVER_RESTART, "service restart"),
    1013: (Cause.SERVER_UNAVAILABLE, "try again later"),
    1014: (Cause.SERVER_UNAVAILABLE, "bad gateway"),
    3000: (Cause.NOT_AUTHORIZED, "unauthorized"),
    3003: (Cause.NOT_AUTHORIZED, "forbidden"),
    3008: (Cause.IDLE_TIMEOUT, "timeout"),
}
"""Status codes of a WebSocket Close frame with their registered names: the cause if a server sends them."""
BY_VIOLATION = {
    code: OF_DISCONNECT[code][0] for code in (0x81, 0x82, 0x8D, 0x93, 0x94, 0x95, 0x99, 0x9A, 0x9B, 0x9E, 0xA1, 0xA2)
} | {0x8D: Cause.PROTOCOL_VIOLATION}
"""Which cause a violation is, by the reason code that the specification has for it."""

OF_MTU = (
    (
        "Find the largest packet that the path carries (ping with “do not fragment” in several sizes), and set the MTU"
        " or MSS of the VPN, tunnel or router to it."
    ),
    "Let ICMP “fragmentation needed” (IPv6: “packet too big”) pass the firewalls on the path.",
)
ADVICE: dict[Cause, tuple[str, ...]] = {
    Cause.NORMAL: (),
    Cause.CLIENT_DISCONNECT: ("Look in the log of the device for the reason that its DISCONNECT names.",),
    Cause.BAD_CREDENTIALS: (
        ("Compare user name and password (or the Authentication Method) of the device with those of the broker;"
        " mosquitto logs the refused user name."),
        "Let the device wait longer after each refusal instead of trying again at once.",
    ),
    Cause.CLIENT_IDENTIFIER_REJECTED: (
        ("Use a Client Identifier that the broker allows: not empty, not too long, in the form that its settings or"
        " its provider ask for."),
    ),
    Cause.NOT_AUTHORIZED: (
        ("Allow the client what it needs in the access rules of the broker, or stop it from asking for it:"
        " compare the topic letter by letter, upper and lower case and the leading slash too."),
    ),
    Cause.BANNED: (
        ("Find out in the broker why it banned the client (rate of connections, failed log-ins), remove the cause, then"
        " lift the ban."),
    ),
    Cause.UNSUPPORTED_VERSION: (
        ("Set the client to a version of MQTT that the broker speaks (3.1.1 is spoken by nearly all), or switch the"
        " version on in the broker."),
    ),
    Cause.SERVER_UNAVAILABLE: (
        "Look at the load and the back ends of the broker at that time.",
        "Let clients try again after a random time that grows with each failure.",
    ),
    Cause.QUOTA_EXCEEDED: (
        ("Compare the rate and the number of messages and connections with the limits of the broker; raise the limit"
        " or send less often."),
    ),
    Cause.USE_ANOTHER_SERVER: ("Correct the address in the configuration of the device.",),
    Cause.CONNECT_REFUSED: ("Look in the log of the broker for the reason of the refusal.",),
    Cause.NOT_LISTENING: (
        "Check that the broker runs and listens on this address and port, and that the device has the right ones.",
    ),
    Cause.UNREACHABLE: (
        "Check the address and port that the device has, the route to it, and firewalls on the way.",
    ),
    Cause.NO_MQTT: (),
    Cause.NO_CONNECT: (
        ("Look in the client why it did not send CONNECT on this connection: a blocked thread, or a state from before a"
        " reconnect."),
        "If it is a health check, let it close the connection itself.",
    ),
    Cause.TURNED_AWAY: (
        ("Look at what ends connections before MQTT: the maximum number of connections, lists of blocked addresses, and"
        " a proxy without its broker."),
        "Look in the log of the server, or of the proxy before it, at that time.",
    ),
    Cause.WRONG_LISTENER: (
        "Check the port that the device has, and whether that port is for plain MQTT, TLS or WebSockets.",
    ),
    Cause.WRONG_PATH: ("Check the path of the URL (often /mqtt).",),
    Cause.SERVER_HUNG: (
        "Look in the log of the broker, and in the metrics of its machine, for what blocked it at that time.",
    ),
    Cause.NO_CONNACK: (
        ("Look in the log of the broker: it closes without CONNACK where a CONNECT is malformed, where a listener is of"
        " another kind (TLS, WebSocket), or where a plugin refuses."),
    ),
    Cause.KEEP_ALIVE: (
        ("Let the client send PINGREQ when nothing else was sent for almost the Keep Alive, from a timer that no other"
        " work blocks."),
        ("Choose a Keep Alive that is shorter than the idle time-out of NAT and firewalls on the path, and longer than"
        " the longest time in which the device sleeps."),
    ),
    Cause.TAKEN_OVER: (
        ("Give every device a Client Identifier of its own: look for one that was copied with an image or set in the"
        " firmware."),
        "Where it is the same device, let it close the old connection, and reconnect only after it gave that one up.",
    ),
    Cause.PACKET_TOO_LARGE: (
        ("Send smaller packets (split or compress the payload), or raise the broker's limit (mosquitto:"
        " max_packet_size or message_size_limit)."),
        "In 5.0 read Maximum Packet Size of the CONNACK, and do not send what exceeds it.",
    ),
    Cause.RECEIVE_MAXIMUM: (
        ("Count the QoS 1 and 2 messages that are not acknowledged, and hold further ones back at the Receive Maximum"
        " of the other side (65,535 without one)."),
    ),
    Cause.TOPIC_ALIAS: (
        ("Use Topic Aliases from 1 to the Topic Alias Maximum of the other side; without one, use none. They begin"
        " from scratch on each connection."),
    ),
    Cause.NOT_SUPPORTED: (
        ("Read what the CONNACK says is not available (Maximum QoS, Retain Available, kinds of subscriptions), and do"
        " without, or switch it on in the broker."),
    ),
    Cause.PROTOCOL_VIOLATION: (
        "Correct the packet that the rule names; `mqttscope rules CODE` explains it, `mqttscope lint` shows its bytes.",
    ),
    Cause.ADMINISTRATIVE_ACTION: ("Ask who operates the broker, or look in its dashboard and its log.",),
    Cause.SERVER_RESTART: (
        "Look in the log of the broker and of its machine at that time: restart, upgrade, crash, lack of memory.",
        ("Let clients reconnect after a random time, so that they do not all come back at once; sessions survive it"
        " only where the broker stores them."),
    ),
    Cause.PART_REPLACED: (
        ("Look in the logs of the proxy, ingress or load balancer at that time: a reload, a rollout, or its time-out"
        " for old workers (nginx: worker_shutdown_timeout)."),
        "Reload it less often, or give old workers more time; let clients reconnect after a random time.",
    ),
    Cause.SERVER_DISCONNECT: ("Look in the log of the broker at that time.",),
    Cause.TLS_FAILURE: (
        ("Check the certificates: dates, names, the chain that the device trusts, and its clock; then TLS versions and"
        " cipher suites that both sides have."),
    ),
    Cause.IDLE_TIMEOUT: (
        ("Choose a Keep Alive that is shorter than this time-out, or raise the idle time-out of the proxy, load"
        " balancer or firewall before the broker."),
    ),
    Cause.FIXED_AGE: ("Look in the broker, service or proxy for a maximum duration of connections.",),
    Cause.NO_PING_RESPONSE: (
        ("Find out which side lost the other: capture at the broker at the same time. Where the PINGREQ arrives there,"
        " look why the broker does not answer."),
        "Let the client wait for a PINGRESP longer than the longest delay of its network.",
    ),
    Cause.HALF_OPEN: (
        ("Choose a Keep Alive below the idle time-out of every NAT, firewall and mobile network on the path (often 60 s"
        " to 5 min), so that the connection is never forgotten."),
        "Let the device give a connection up when a PINGRESP is missing, and reconnect.",
    ),
    Cause.DEVICE_RESTART: (
        ("Look for resets in the log of the device: watchdog, supply voltage, crash; count them with the time between"
        " them."),
        "Let the device choose a new port and a new initial sequence number after each start.",
    ),
    Cause.MIDDLEBOX_RESET: (
        "Capture on both sides at the same time: the RST is in one capture only, or comes from neither host.",
        ("Look at firewalls, load balancers and intrusion prevention between the two; a shorter Keep Alive helps"
        " against idle time-outs."),
    ),
    Cause.CLIENT_CLOSED: (
        "Send DISCONNECT before closing where the end is meant; the broker publishes the will otherwise.",
        ("Where it is not meant, look in the log of the device why it closes: process end, time-out of a library,"
        " failed assertion."),
    ),
    Cause.CLIENT_RESET: (
        ("Look in the log of the device: a process that was killed, a socket closed with unread data, or a library"
        " that closes with SO_LINGER 0."),
    ),
    Cause.SERVER_CLOSED: (
        "Look in the log of the broker at that time.",
    ),
    Cause.SERVER_RESET: (
        "Look in the log of the broker and of a load balancer before it: a time-out, a crash, or a limit.",
    ),
    Cause.STILL_OPEN: ("Capture for longer.",),
    Cause.NOT_SHOWN: ("Capture both directions of the connection.",),
    Cause.UNREADABLE: ("Decrypt with --keylog FILE, or capture where MQTT is not encrypted.",),
}  # fmt: skip
"""Advice for each cause, the most useful first."""
OF_REFUSED_CONNECT = (
    (
        "Compare user name, password and certificate of the device with those of the broker, and look whether it may"
        " connect with this Client Identifier: mosquitto answers a wrong password in this way in 5.0 too."
    ),
    "Let the device wait longer after each refusal.",
)
"""For a CONNECT that is not authorized."""


def refused(code: int, version: ProtocolVersion) -> tuple[Cause, str]:
    """The cause that the code of a CONNACK is, and what it means in practice."""
    table = OF_CONNACK if version == ProtocolVersion.V5 else OF_OLD_CONNACK
    return table.get(code, (Cause.CONNECT_REFUSED, "the broker gives no closer reason"))
