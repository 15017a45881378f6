"""Sockets, TLS, WebSocket and the record of what passed: shared by proxy, replay and serve.

=========  ==================================================================================================
target     where to listen and where to connect to, as people write it
tls        contexts from files, and errors that say which file is wrong
websocket  opening handshake and frames of both roles; no I/O, no clock
link       one connection that carries MQTT, over TCP, TLS and WebSocket, or why there is none
client     makes links to brokers
server     listens, and takes links of clients
sockets    what the kernel knows of a socket, and how far what was written has certainly arrived
wire       the frames of a connection, made of what happened to it; no I/O, no clock
recording  frames into a file, and events for a listener in a thread of its own
=========  ==================================================================================================
"""
