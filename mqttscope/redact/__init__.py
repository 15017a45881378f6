"""Captures that may leave the house: frames of the same lengths, with other values in the same places.

What is read is what the dissector reads, so that what is found afterwards is what was found before.  Nothing here does
I/O, has a clock or draws random numbers: the key comes from the caller, and so does the file for frames that wait.

value
    what a field, a header or an address holds, and that may be nobody else's business (`kinds.Value`)
filler
    letters in the place of bytes that were not understood: no packet begins with them
"""
