"""What is secret in what was captured, and its removal: pure functions over bytes and texts, the same for every output.

Secret are passwords, Authentication Data wherever it stands, and the tokens of HTTP requests.  In a packet that keeps
the layout they are found by their fields.  In one that breaks it nobody knows where its fields are: there, all bytes
are hidden from the first place on at which a secret could begin (`redact.packets`).  A broken packet may also end
before its secret does; the bytes after it are in doubt until a packet without a fault shows that framing holds again.

doubt
    how little the next bytes of a direction are trusted (`CLEAR`, `SUSPECT`, `BROKEN`), kept by `session.Connection`
hidden ranges
    offsets of a packet, first and after the last byte, that no output shows
"""
