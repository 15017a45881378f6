import json
import re

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt.packets import Publish

MAX_PARSED = 1_048_576
"""Maximum payload length to parse, in bytes."""

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x78\x9c", b"\x78\xda", b"\x78\x01")
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/jpg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "image/bmp": re.compile(rb"BM"),
    "image/tiff": re.compile(rb"II\*\0|MM\0[*+]|II\+\0"),
}
_UNICODE = ("", "utf-8", "utf8", "us-ascii", "ascii")


class ContentTypeMismatch(Rule):
    """A PUBLISH has a Content Type that does not match its payload.

    Receivers choose a parser by the Content Type, and that parser will fail.  Only types with recognizable content are
    checked: JSON, text and common images.

    Instead, send a payload of the announced type, or announce the right type.
    """

    code = "PAY103"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    when = "properties"

    good = examples("""
        JSON, also as a suffix and with a parameter
            opened
            > publish a/b [21.5,22] content_type=application/json & publish a/b [] content_type=application/senml+json &
                publish a/b 21.5 content_type="application/json; charset=utf-8"
        text in another character set, compressed and empty payloads
            opened
            > publish a/b 0x6bfc636865 content_type="text/plain; charset=iso-8859-1" &
                publish a/b 0x1f8b08 content_type=application/json & publish a/b content_type=application/json
        an image, and types that cannot be checked
            opened
            > publish a/b 0x89504e470d0a1a0a0000000d49484452 content_type=image/png &
                publish a/b abc content_type=image/x-mine & publish a/b 0xff content_type=temperature
    """)
    bad = examples("""
        not JSON
            opened; > publish a/b "21.5;22" content_type=application/json !properties.content_type
        not JSON, with a suffix, in capitals
            opened; > publish a/b { content_type=Application/SenML+JSON !properties.content_type
        not text
            opened; > publish a/b 0x6bfc636865 content_type=text/plain !properties.content_type
        another image format
            opened; > publish a/b 0xffd8ffe0 content_type=image/png !properties.content_type
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check the payload against the announced type."""
        block, payload = packet.properties, packet.payload
        announced = None if block is None else block.content_type
        if not announced or not payload or packet.missing or len(payload) > MAX_PARSED:
            return None
        why = _mismatch(announced.lower(), payload)
        if not why:
            return None
        return self.report(
            "properties.content_type",
            f"PUBLISH {shown(at.topic or '')}: content type {shown(announced)} but the payload {why}",
        )


def _mismatch(content_type: str, payload: bytes) -> str:
    """Why the payload does not match the type, or an empty string if it may match."""
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip()
    if payload.startswith(_COMPRESSED):
        return ""
    if kind == "application/json" or kind.endswith("+json"):
        try:
            # JSON allows integers of thousands of digits, Python does not.
            json.loads(payload, parse_int=str)
        except ValueError:
            return "does not parse as JSON"
        except RecursionError:
            return ""
    elif kind.startswith("text/"):
        charset = re.search(r"charset\s*=\s*\"?([\w.:-]*)", parameters)
        if charset is None or charset[1] in _UNICODE:
            try:
                payload.decode()
            except UnicodeDecodeError:
                return "is not UTF-8 text"
    elif kind in _IMAGES and _IMAGES[kind].match(payload) is None:
        return f"does not begin like {kind}"
    return ""
