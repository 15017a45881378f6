"""Events as text and machine formats.  Reporters write only to the stream that they get.

A reporter receives events one by one (`Reporter.feed`) while the connection is in the state before the packet, and is
closed by `Reporter.close`.
"""
