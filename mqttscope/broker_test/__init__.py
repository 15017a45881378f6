"""Mutated flows sent to live brokers, and what is to be said about how they react.

=================  ===========================================================================================
conversation       what was said on one connection, as segments for the linter and for files; no I/O, no clock
fit                a recorded connection made to fit the broker, and the numbers of its cases; no I/O, no clock
verdict            what a broker did, held against what the specification demands; no I/O, no clock
oracle             the linter's word on the same conversation: without it nobody is accused; no I/O, no clock
probe_client       how the broker is reached, and a client of ours that keeps the protocol: witness, and helper
case_runner        plays one case at its connection
cleanup            what a conversation may have left on the broker, and its removal
health_monitor     whether the broker still serves, between cases and after them
process            the broker as a process: its life and its memory
run                cases one after the other, each judged, each cleaned up after
minimize           a failing case with everything left out that does not matter
reproduce          a case as one line for a shell
synthetic_capture  mutated flows as frames, without any broker; no I/O, no clock
turns              long work in steps, with turns for connections in between
=================  ===========================================================================================
"""
