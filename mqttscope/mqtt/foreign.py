"""Recognises other protocols than MQTT by the first bytes of a stream.

A signature proves something only when no MQTT Control Packet can have the same bytes.  For text that is easy: every
well-formed packet has a byte that is not printable among its first five, since a topic length begins with a zero byte,
and flags, reason codes and short lengths are not printable either.  So `<!DOCTYPE` is not a faulty packet, and
a packet with a wrong first byte does not look like any of these texts.  Binary signatures check lengths as well: a
TLS record of length 0 would be a CONNACK with a wrong first byte.

The two directions differ.  Foreign clients are mostly scanners and browsers, and begin in few ways.  The answer to a
CONNECT can be the greeting or the error message of any server (`ANSWERS`).  A device that sends such text instead of
MQTT has a fault that lint rules describe better.
"""

from __future__ import annotations

import re
from typing import Final

MAX_SIGNATURE: Final = 35
"""Bytes of the longest signature: JSON after white space."""
PROXY: Final = "a PROXY protocol header"
PREFACES: Final = frozenset({PROXY})
"""Protocols that a load balancer puts before the MQTT of a connection."""

_HTTP_METHODS = b"GET|HEAD|POST|PUT|DELETE|OPTIONS|TRACE|PATCH|CONNECT|PRI"
_RECORD = rb"\x03[\x00-\x04](?!\x00\x00)[\x00-\x40]"
"""Version and length of a TLS record, up to 2**14 bytes and what encryption adds."""
_SIGNATURES: Final = (
    (re.compile(rb"\x16" + _RECORD), "TLS"),
    (re.compile(rb"\x15\x03[\x00-\x04]\x00\x02"), "TLS"),  # an alert, which answers what is not TLS
    (re.compile(rb"(?:" + _HTTP_METHODS + rb") [!-~]"), "HTTP"),
    (re.compile(rb"HTTP/\d"), "HTTP"),
    (re.compile(rb"SSH-[12]\."), "SSH"),
    (re.compile(rb"AMQP[\x00-\x03]"), "AMQP"),
    (re.compile(rb"\x03\x00\x00.[\x02-\x40]\xe0", re.DOTALL), "RDP"),
    (re.compile(rb"PROXY (?:TCP[46]|UNKNOWN)"), PROXY),
    (re.compile(rb"\r\n\r\n\x00\r\nQUIT\n"), PROXY),
)
_BLANK = rb"[\t\n\r ]{0,16}"
"""White space, which HTTP/0.9 and scripts send before their text."""
_ELEMENTS = rb"html|head|body|title|h[1-6]|center|pre|p|div"
_TEXT: Final = re.compile(rb"[\t\n\r -~]*")
ANSWERS: Final = (
    (re.compile(_BLANK + rb"<(?:!doctype\s|!--|(?:" + _ELEMENTS + rb")[\s>/])", re.IGNORECASE), "HTML"),
    (re.compile(_BLANK + rb"<\?xml\s", re.IGNORECASE), "XML"),
    (re.compile(_BLANK + rb'(?:\{[\t\n\r ]{0,8}"[ -~]|\[[\t\n\r ]{0,8}(?:"[ -~]|\{[\t\n\r ]{0,8}"))'), "JSON"),
    # Read as a Remaining Length, these bytes exceed any DISCONNECT, so framing is lost after them.
    (re.compile(rb"\xef\xbb\xbf[\t\n\r -~]"), "UTF-8 text"),
    (re.compile(rb"(?:220|421|5\d\d)[ -][ -~]{2}"), "FTP or SMTP"),
    (re.compile(rb"\* (?:OK|BYE|PREAUTH)[\r ]"), "IMAP"),
    (re.compile(rb"\+OK[\r ]|-ERR[\r ]"), "POP3 or Redis"),
    (re.compile(rb"INFO \{"), "NATS"),
    (re.compile(rb"RTSP/\d"), "RTSP"),
    (re.compile(rb"SIP/\d"), "SIP"),
    (re.compile(rb"RFB \d{3}\.\d{3}"), "VNC"),
    # The last byte follows the first option; after two length bytes, MQTT has the zero of a CONNACK or a topic here.
    (re.compile(rb"\xff[\xfb-\xfe][\x00-\x31](?:\xff|[\t\n\r -~]|\Z)"), "Telnet"),
)
"""First bytes of servers of other protocols: a greeting, or an answer to a request that they do not understand."""


def foreign_protocol(head: bytes, *, is_answer: bool = False) -> str:
    """Name of the protocol of a stream by its first bytes; empty if they may be MQTT or are not recognised.

    ``is_answer``: a server sent them.
    """
    for signature, name in (*_SIGNATURES, *ANSWERS) if is_answer else _SIGNATURES:
        if signature.match(head):
            return name
    return ""


def is_text(head: bytes) -> bool:
    """Whether all bytes are text.  No well-formed packet begins with five bytes of text."""
    return _TEXT.fullmatch(head) is not None
