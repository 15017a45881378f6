"""Drivers of broker tests: everything with connections, processes and clocks.

============  ========================================================================================
probe_client  a client that obeys the protocol, as witness and helper
case_runner   plays one case on its connection
cleanup       removes sessions and retained messages that a conversation may have left on the broker
health        monitors the broker between and after cases, with its process and memory
run           plays, judges and cleans up one case after another
minimize      reduces a failing case to the relevant steps, fields and bytes
============  ========================================================================================
"""
