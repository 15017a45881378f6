"""Names that other tools have for our fields: what to write instead."""

from __future__ import annotations

_ADDRESSES = ("client.address", "server.address")
_PORTS = ("client.port", "server.port")
_IDENTIFIER = ("client_identifier",)

FOREIGN: dict[str, tuple[str, ...]] = {
    # Libraries, brokers and habit.
    "clientid": _IDENTIFIER,
    "client_id": _IDENTIFIER,
    "client.id": _IDENTIFIER,
    "client_identifer": _IDENTIFIER,
    "username": ("user_name",),
    "keepalive": ("keep_alive",),
    "msgid": ("packet_identifier",),
    "mid": ("packet_identifier",),
    "packetid": ("packet_identifier",),
    "packet_id": ("packet_identifier",),
    "message_id": ("packet_identifier",),
    "messageid": ("packet_identifier",),
    "cleansession": ("clean_start",),
    "clean_session": ("clean_start",),
    "cleanstart": ("clean_start",),
    "msgtype": ("type",),
    "packet_type": ("type",),
    "ip": _ADDRESSES,
    "host": _ADDRESSES,
    "address": _ADDRESSES,
    "src": _ADDRESSES,
    "dst": _ADDRESSES,
    "port": _PORTS,
    "stream": ("connection",),
    # Display filters of Wireshark; what is named as here but for "mqtt." is found without this table.
    "ip.addr": _ADDRESSES,
    "ip.src": _ADDRESSES,
    "ip.dst": _ADDRESSES,
    "ip.host": _ADDRESSES,
    "ipv6.addr": _ADDRESSES,
    "ipv6.src": _ADDRESSES,
    "ipv6.dst": _ADDRESSES,
    "ipv6.host": _ADDRESSES,
    "tcp.port": _PORTS,
    "tcp.srcport": _PORTS,
    "tcp.dstport": _PORTS,
    "tcp.stream": ("connection",),
    "tcp.flags.reset": ("how == reset",),
    "tcp.flags.fin": ("how == fin",),
    "tcp.analysis.lost_segment": ("gap",),
    "frame.number": ("frame",),
    "frame.len": ("length",),
    "frame.time": ("time",),
    "frame.time_utc": ("time",),
    "frame.time_epoch": ("time", "timestamp_ns"),
    "frame.time_relative": ("time < +30s",),
    "mqtt": ("event == packet",),
    "mqtt.conack.flags.sp": ("session_present",),
    "mqtt.conack.val": ("connack and reason_code",),
    "mqtt.conflag.cleansess": ("clean_start",),
    "mqtt.conflag.qos": ("will_qos",),
    "mqtt.conflag.retain": ("will_retain",),
    "mqtt.conflag.willflag": ("exists will",),
    "mqtt.dupflag": ("dup",),
    "mqtt.kalive": ("keep_alive",),
    "mqtt.len": ("remaining_length",),
    "mqtt.msg": ("payload",),
    "mqtt.msgid": ("packet_identifier",),
    "mqtt.passwd": ("exists password",),
    "mqtt.proto_len": ("protocol_name.length",),
    "mqtt.protoname": ("protocol_name",),
    "mqtt.sub.qos": ("subscribe and maximum_qos",),
    "mqtt.suback.qos": ("suback and reason_code",),
    "mqtt.topic_len": ("topic_name.length",),
    "mqtt.ver": ("version", "protocol_level"),
    "mqtt.willmsg": ("will_payload",),
    "mqtt.willtopic": ("will_topic",),
}
"""A name in small letters, and what to write in its place, the likeliest first."""


def instead_of(name: str) -> tuple[str, ...]:
    """What to write for a name that another tool has; empty where none is known to have it."""
    lower = name.lower()
    return FOREIGN.get(lower) or FOREIGN.get(lower.removeprefix("mqtt."), ())
