"""Finds secrets in captured traffic and removes them, with pure functions over bytes and texts, for every output.

Secrets are passwords, Authentication Data in every packet, and the tokens of HTTP requests.  In a well-formed packet
they are found by field.  In a malformed packet the positions of fields are uncertain, so all bytes are hidden from the
first possible offset of a secret (`secrets.packets`).  A malformed packet may also end before its secret does;
the bytes after it are in doubt until a well-formed packet shows that framing is correct again.

doubt
    level of distrust in the next bytes of a direction (`CLEAR`, `SUSPECT`, `BROKEN`, `LOST`); see `session.Connection`
hidden ranges
    start and end offsets in a packet of bytes that no output shows
"""
