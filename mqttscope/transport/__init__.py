"""Sockets, TLS, WebSocket and the recording of traffic: shared by proxy, replay and serve.

=========  ==================================================================================================
target     listening addresses and broker URLs
tls        TLS contexts from files, and errors that name the faulty file
websocket  opening handshake and frames of both roles; no I/O, no clock
link       one MQTT connection over TCP, TLS or WebSocket, or the reason it failed
client     connects to brokers
server     listens, and creates a link for each client
sockets    kernel state of a socket: how much of the written data the peer has received
wire       TCP frames of a connection, synthesised from its events; no I/O, no clock
recording  writes frames to a file, and passes events to a listener in a separate thread
=========  ==================================================================================================
"""
