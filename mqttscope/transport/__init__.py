"""Sockets, TLS, WebSocket and the record of what passed: shared by proxy, replay and serve.

=========  ==================================================================================================
address    where to listen and where to connect to, as people write it
target     a broker to connect to, and as whom
tls        contexts from files, and errors that say which file is wrong
errors     why a connection was not made, in words
websocket  opening handshake and frames of both roles; no I/O, no clock
link       one connection that carries MQTT, over TCP, TLS and WebSocket
client     makes links to brokers
server     takes links of clients
listening  sockets that listen, and the clients that come
sockets    what the kernel knows of a socket
delivery   how far what was written has certainly arrived
wire       the frames of a connection, made of what happened to it; no I/O, no clock
recording  frames into a file, and events for a listener
recorder   the record of links
=========  ==================================================================================================
"""
