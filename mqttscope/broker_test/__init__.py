"""Mutated flows tried on live brokers, and what is to be said about how they react.

============  ==========================================================================================
conversation  what was said on one connection, as segments for the linter and for files; no I/O, no clock
fit           a recorded connection made to fit the broker that it will be played to; no I/O, no clock
verdict       what a broker did, held against what the specification demands; no I/O, no clock
oracle        the linter's word on the same conversation: without it nobody is accused; no I/O, no clock
door          how the broker is reached
rehearsal     a connection without a mutation, against which a broker's reactions are held; no I/O, no clock
acknowledging acknowledgements that fit what was really delivered; no I/O, no clock
inbox         what comes in on a link, and waiting for it
companion     a client of ours that keeps the protocol: witness, helper, and who cleans up
leavings      what a conversation may have left on the broker; no I/O, no clock
owed          which answers a broker owes; no I/O, no clock
numbering     numbers of cases over all connections of a capture; no I/O, no clock
pilot         plays one case at its connection
process       the broker as a process: its life and its memory
run           cases one after the other, each judged, each cleaned up behind
smaller       a failing case with everything left out that does not matter
reproduce     a case as one line for a shell
written       mutated flows as frames, without any broker; no I/O, no clock
============  ==========================================================================================
"""
