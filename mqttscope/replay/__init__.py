"""Replays recorded connections against a live broker or device, and compares the result with the recording.

=======  ==================================================================================
script   packets of both sides of a recorded connection, and its end
align    pairs of recorded and live packets, by keys
live     a live connection as the played side sees it: state, answers, kept packets
client   plays the client side of a script: server packets in, actions out
server   plays the server side of a script: packets of a device in, actions out
order    which steps wait for events on other connections
rewrite  changes to scripts before they are played
verify   differences between a recorded and a live connection, by meaning
drivers  all connections of a replay, and all devices of a server, over sockets
=======  ==================================================================================

Only the drivers do I/O and have a clock.
"""
