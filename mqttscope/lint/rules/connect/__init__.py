"""CONNECT, CONNACK and the opening of a connection (CON)."""
