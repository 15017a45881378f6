"""The interactive browser: an index of rows that grows during use, the views of rows, and the screens.

==========  =================================================================================================
rows        rows of fixed size, in memory and on a spool
index       converts events to rows, and rows back to events
building    fills an index from captures in a thread, and reads captures at an offset
lakes       an index over a lake, which queries a page of rows at a time
originals   the source captures of a lake, for the bytes of its packets
selection   filters and searches, in small steps
following   the other packets of an exchange, and the packets of a message
lines       rows and connections as lines
details     fields with their bytes, payloads, ladders, findings
exporting   packets as JSON Lines, hexadecimal and commands
app         the screens, with ``panes`` and ``dialogs``; only these need textual
==========  =================================================================================================
"""
