"""Replay of recorded connections against a live broker, and the comparison of what came back.

===========  ========================================================================================
script       what both sides of one recorded connection said, and how it ended
player       plays the client side of a script: server packets in, actions out; no I/O, no clock
order        which steps have to wait for what was seen on other connections
rewrite      changes to scripts before they are played
verify       what differs between a recorded and a live connection, by meaning
===========  ========================================================================================
"""
