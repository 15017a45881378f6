"""Replay of recorded connections against a live broker, or against a live device, and the comparison of what came back.

=======  ==================================================================================
script   what both sides of one recorded connection said, and how it ended
live     a live connection as the side that is played sees it: state, answers, what is kept
client   plays the client side of a script: server packets in, actions out
server   plays the server side of a script: packets of a device in, actions out
order    which steps have to wait for what was seen on other connections
rewrite  changes to scripts before they are played
verify   what differs between a recorded and a live connection, by meaning
drivers  all connections of a replay, and all devices of a server, over sockets
=======  ==================================================================================

Only the drivers do I/O and have a clock.
"""
