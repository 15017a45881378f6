"""DISCONNECT and the end of a connection (DIS)."""
