"""What plays recorded connections over sockets and in real time; everything else of `replay` does no I/O.

======  =====================================================================
client  joins a `ClientPlayer` to its link to a broker
server  joins a `ServerPlayer` to the link of a device
run     a replay: opens all connections of a recording, and a plan of it
serve   a server: takes the connections of devices
======  =====================================================================
"""
