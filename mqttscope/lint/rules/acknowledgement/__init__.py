"""Packet identifiers and the QoS 1 and QoS 2 exchanges (ACK)."""
