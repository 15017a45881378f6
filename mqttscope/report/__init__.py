"""Events as text and machine formats.  The I/O edge: reporters write to the stream they are given, nothing else.

A reporter takes events one by one (`Reporter.feed`) while the connection is in the state before the packet, and ends
with `Reporter.close`.
"""
