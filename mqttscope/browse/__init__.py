"""The interactive browser: an index of rows that grows while one looks, what is shown of them, and the screens.

==========  =================================================================================================
rows        rows of fixed size, in memory and on a spool
index       events to rows, and any row back to its event
building    fills an index from captures in a thread, and reads captures at an offset
lakes       an index over a lake, whose rows are asked for a page at a time
originals   the captures of a lake where they still are, for the bytes of its packets
selection   which rows are looked at: filters and searches, a piece at a time
following   the other packets of an exchange, and those of a message
lines       rows and connections as lines
details     fields with their bytes, payloads, ladders, findings
exporting   packets as JSON Lines, hexadecimal and commands
app         the screens, with ``panes`` and ``dialogs``; these alone need textual
==========  =================================================================================================
"""
