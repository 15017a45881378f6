"""Sockets, TLS, WebSocket and the record of what passed: shared by proxy, replay and serve.

=========  ==================================================================================================
address    where to listen and where to connect to, as people write it
tls        contexts from files, and errors that say which file is wrong
sockets    what the kernel knows of a socket
wire       the frames of a connection, made of what happened to it; no I/O, no clock
recording  frames into a file, and events for a listener
=========  ==================================================================================================
"""
