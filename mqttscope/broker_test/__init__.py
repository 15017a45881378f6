"""Mutated flows sent to live brokers, and the verdicts on how these react.

============  ===========================================================================================
conversation  what was sent on one connection, as segments for the linter and for files
fit           a recorded connection prepared for the broker, and the numbers of its cases
verdict       what a broker did, judged by what the specification demands
oracle        the linter's findings on the same conversation: without them no broker is accused
export        cases to take away: as frames of a capture, and as one line for a shell
drivers       all that does I/O and has a clock: playing cases, watching the broker, cleaning up, reducing
============  ===========================================================================================
"""
