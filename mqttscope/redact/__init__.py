"""Redacted captures, safe to share: frames of unchanged lengths, with other values in the original positions.

The dissector reads the original, so that the redacted copy has the findings of the original.  Nothing here does I/O,
has a clock or draws random numbers: the caller provides the key and the file for waiting frames.

value
    possibly confidential content of a field, header or address (`kinds.Value`)
filler
    letters that replace bytes that were not understood, and that cannot begin a packet
"""
