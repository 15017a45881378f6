"""What talks to a broker: connections, processes and clocks, around the parts that know neither.

============  ========================================================================================
probe_client  how the broker is reached, and a client of ours that keeps the protocol: witness, and helper
case_runner   plays one case at its connection
cleanup       what a conversation may have left on the broker, and its removal
health        whether the broker still serves, between cases and after them; its process and memory
run           cases one after the other, each judged, each cleaned up after
minimize      a failing case with everything left out that does not matter
============  ========================================================================================
"""
