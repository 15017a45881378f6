"""Plays recorded connections over sockets in real time; the rest of `replay` does no I/O.

======  =====================================================================
client  connects a `ClientPlayer` to its link to a broker
server  connects a `ServerPlayer` to the link of a device
run     a replay: its plan, and all of its connections
serve   a server: accepts the connections of devices
======  =====================================================================
"""
