"""Plays mutated flows against live brokers, and judges their reactions.

============  ===========================================================================================
conversation  transcript of one connection, as segments for the linter and for files
fit           a recorded connection prepared for the broker, and the numbers of its cases
verdict       judges the reaction of a broker by the specification
oracle        the linter's findings on the conversation, which must confirm each accusation
export        cases as frames of a capture, and as shell commands
drivers       everything with I/O and clocks: playing cases, watching the broker, cleaning up, reducing
============  ===========================================================================================
"""
