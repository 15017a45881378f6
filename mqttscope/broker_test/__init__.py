"""Mutated flows sent to live brokers, and what is to be said about how they react.

============  ===========================================================================================
conversation  what was said on one connection, as segments for the linter and for files
fit           a recorded connection made to fit the broker, and the numbers of its cases
verdict       what a broker did, held against what the specification demands
oracle        the linter's word on the same conversation: without it nobody is accused
export        cases to take away: as frames of a capture, and as one line for a shell
drivers       all that does I/O and has a clock: playing cases, watching the broker, cleaning up, reducing
============  ===========================================================================================
"""
