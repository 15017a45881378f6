"""Rows of tables back to the objects of JSON Lines, by what the columns say alone."""

from __future__ import annotations

import re
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import PROPERTIES, property_name
from mqttscope.mqtt.view import PAYLOAD_LIMIT, binary, printable
from mqttscope.report.base import Clock

Row = dict[str, Any]
VERSIONS = {version.text: version for version in ProtocolVersion}
KINDS = {kind.name.lower(): kind for kind in PacketType}
CLOCK = Clock()


class Texts:
    """The texts of a row; those that are not UTF-8 in the form of JSON Lines."""

    def __init__(self, row: Row) -> None:
        self.raw = {other_row["field"]: other_row["value"] for other_row in row["not_utf8"] or ()}

    def __call__(self, value: str | None, path: str) -> Any:
        if path in self.raw:
            return {"length": len(self.raw[path]), "hex": self.raw[path].hex()}
        return value


def loose(value: bytes, *, binary_value: bool) -> Any:
    if binary_value:
        return binary(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"length": len(value), "hex": value.hex()}


def properties(block: Row | None, path: str, row: Row, texts: Texts) -> Row:
    shown: Row = {}
    for each in PROPERTIES:
        if each.name == "authentication_data":
            length = (block or {}).get("authentication_data_length")
            if length is not None:
                shown[each.name] = {"length": length, "redacted": True}
            continue
        value = (block or {}).get(each.name)
        if value is None:
            continue
        if each.name == "user_property":
            value = [
                {"name": texts(pair["name"], f"{path}.user_property[{index}].name"),
                 "value": texts(pair["value"], f"{path}.user_property[{index}].value")}
                for index, pair in enumerate(value)
            ]  # fmt: skip
        elif isinstance(value, str):
            value = texts(value, f"{path}.{each.name}")
        elif isinstance(value, bytes):
            value = binary(value)
        shown[each.name] = value
    for other in row["other_properties"] or ():
        if other["path"] != path:
            continue
        number = other["identifier"]
        name = property_name(number)
        known = next((each for each in PROPERTIES if each.identifier == number), None)
        if other["value"] is None:
            value = {"length": other["number"], "redacted": True} if number == 0x16 else other["number"]
        elif known is None:
            value = {"length": len(other["value"]), "hex": other["value"].hex()}
        else:
            value = loose(other["value"], binary_value=known.wire.name == "Binary Data")
        if name not in shown:
            shown[name] = value
        elif isinstance(shown[name], list):
            shown[name].append(value)
        else:
            shown[name] = [shown[name], value]
    return shown


def fields(row: Row, kind: str, only: list[str] | None, texts: Texts) -> Row:
    """The object of the packet's type."""
    version = VERSIONS[row["version"]]
    inner = row.get(kind) if kind in ("connect", "connack") else None
    shown: Row = {}
    for declared in PACKETS[KINDS[kind]].declaration:
        name = declared.name
        if (only is not None and name not in only) or (declared.kind == "wire" and not declared.exists_in(version)):
            continue
        source = inner if inner is not None and (name in inner or f"{name}_length" in inner) else row
        if name == "properties":
            shown[name] = properties(row[name], name, row, texts)
        elif name == "payload":
            if row["payload_length"] is None:
                shown[name] = None
            else:
                shown[name] = binary(row["payload"], PAYLOAD_LIMIT, row["missing"] or 0)
                if row["payload_length"] > len(row["payload"]):
                    shown[name] = cut(row)
        elif name == "password":
            length = source["password_length"]
            shown[name] = None if length is None else {"length": length, "redacted": True}
        elif name == "will":
            shown[name] = None if source[name] is None else will(source[name], version, row, texts)
        elif name == "subscriptions":
            shown[name] = [subscription(each, at, version, texts) for at, each in enumerate(source[name])]
        elif name == "topic_filters":
            shown[name] = [texts(each, f"topic_filters[{at}]") for at, each in enumerate(source[name])]
        else:
            value = source[name]
            if value is None and name in ("connect_flags", "acknowledge_flags"):
                continue
            path = f"connect.{name}" if kind == "connect" else name
            shown[name] = texts(value, path) if isinstance(value, str) else value
        if name == "reason_code" and shown[name] is not None:
            shown["reason"] = row["reason"]
        elif name == "reason_codes" and shown[name] is not None:
            shown["reasons"] = [reason_name(KINDS[kind], code, version) for code in shown[name]]
    if row["header_flags"] is not None:
        shown["header_flags"] = row["header_flags"]
    return shown


def cut(row: Row) -> Row:
    """A payload of which only the beginning is there."""
    raw, length = row["payload"], row["payload_length"]
    text = printable(raw)
    if text is None:
        match = re.search(rb"[\xc0-\xff][\x80-\xbf]*$", raw)
        text = printable(raw[: match.start()]) if match else None
    return {"length": length, **({"hex": raw.hex()} if text is None else {"text": text}), "truncated": True}


def will(other_row: Row, version: ProtocolVersion, row: Row, texts: Texts) -> Row:
    shown = {
        "will_topic": texts(other_row["will_topic"], "connect.will.will_topic"),
        "will_payload": binary(other_row["will_payload"]),
        "will_qos": other_row["will_qos"],
        "will_retain": other_row["will_retain"],
    }
    if version == 5:
        shown["properties"] = properties(other_row["properties"], "connect.will.properties", row, texts)
    return shown


def subscription(row: Row, at: int, version: ProtocolVersion, texts: Texts) -> Row:
    shown = dict(row)
    shown["topic_filter"] = texts(row["topic_filter"], f"subscriptions[{at}].topic_filter")
    if version != 5:
        for name in ("no_local", "retain_as_published", "retain_handling"):
            assert shown.pop(name) is None
    if shown["reserved"] is None:
        del shown["reserved"]
    return shown


def envelope(row: Row, texts: Texts) -> Row:
    shown = {name: row[name] for name in ("event", "capture", "frame", "timestamp_ns", "client", "server", "direction")}
    shown |= {"schema": 1, "timestamp": CLOCK.iso(row["timestamp_ns"])}
    shown |= {name: row[name] for name in ("version", "version_known")}
    shown["client_identifier"] = texts(row["client_identifier"], "client_identifier")
    return shown


def packet(row: Row) -> Row:
    """The line of a packet or a malformed one, without the numbers of the run."""
    texts = Texts(row)
    shown = envelope(row, texts) | {"type": row["type"], "length": row["length"]}
    result = row["malformed"]
    if result is None:
        shown["remaining_length"] = row["remaining_length"]
        shown[row["type"]] = fields(row, row["type"], None, texts)
        if row["missing"]:
            shown["missing"] = row["missing"]
    else:
        names = ("reason", "offset", "field", "detail", "reason_code")
        document = {name: result[name] for name in names} | {"raw": result["raw"].hex()}
        if result["redacted"]:
            document["redacted"] = True
        if result["raw_length"] > len(result["raw"]):
            document["truncated"] = True
        document |= {name: result[name] for name in ("missing", "faults") if result[name] is not None}
        shown["malformed"] = document
        if result["fields_read"] is not None and row["type"] in KINDS:
            shown[row["type"]] = fields(row, row["type"], result["fields_read"], texts)
    if row["type"] == "publish" and row["type"] in shown:
        shown["topic"] = texts(row["topic"], "topic")
    return shown


def gap(row: Row) -> Row:
    """The line of a gap or of unparsed bytes."""
    shown = envelope(row, Texts({"not_utf8": None})) | {"length": row["length"], "reason": row["reason"]}
    if row["event"] == "unparsed":
        shown["missing"] = row["missing"]
        if row["packet_type"] is not None:
            shown["packet_type"] = row["packet_type"]
        shown["raw"] = {"length": row["raw_length"]} if row["raw"] is None else binary(row["raw"])
        if row["redacted"]:
            shown["raw"]["redacted"] = True
    return shown


def finding(row: Row) -> Row:
    """The line of a finding."""
    texts = Texts(row)
    names = (
        "rule", "slug", "severity", "confidence", "message", "statements", "version", "capture", "frame",
        "timestamp_ns", "client", "server", "direction", "packet_type", "field", "offset", "length", "reason_code",
        "fingerprint",
    )  # fmt: skip
    shown = {name: row[name] for name in names} | {"schema": 1, "packet": row["packet_in_connection"]}
    shown["client_identifier"] = texts(row["client_identifier"], "client_identifier")
    if row["topic"] is not None:
        shown["topic"] = texts(row["topic"], "topic")
    if row["related"]:
        shown["related"] = [
            {"message": other_row["message"], "packet": other_row["packet_in_connection"], "frame": other_row["frame"],
             "timestamp_ns": other_row["timestamp_ns"]}
            for other_row in row["related"]
        ]  # fmt: skip
    if row["count"] > 1:
        shown |= {"count": row["count"], "places": row["places"]}
    return shown
