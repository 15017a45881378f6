"""What talks to a broker: connections, processes and clocks, around the parts that know neither.

============  ========================================================================================
probe_client  opens connections to the broker: a client that keeps the protocol, as witness and helper
case_runner   plays one case at its connection
cleanup       removes what a conversation may have left on the broker
health        whether the broker still serves, between cases and after them; its process and memory
run           cases one after the other, each judged, each cleaned up after
minimize      a failing case reduced to what matters
============  ========================================================================================
"""
