"""Mutations of recorded connections, sans-IO: what to send so that the other side has something to notice.

=========  ==========================================================================================
mutation   one named, seeded change to a packet or a flow
flow       one recorded connection, as a list of packets of both sides
case       one mutation applied to one flow: steps for a player, and what has to happen
=========  ==========================================================================================

Mutations come from the declarations of `mqttscope.mqtt` by the data type of a field (``values``, ``lengths``,
``property_blocks``), and from tables by packet (``connects``, ``requests``, ``answers``) and by flow (``connection``,
``exchanges``).  Each row names the statements of the specification that it breaks in each version, or the versions in
which it is legal, and what the receiver has to do.
"""

from mqttscope.mutate.cases import Case, again, apply, case, cases, steps_of
from mqttscope.mutate.catalogue import catalogue, mutation, select
from mqttscope.mutate.flow import Action, Change, Entry, MutatedFlow, RecordedFlow, Step
from mqttscope.mutate.mutation import Chance, Demand, Mutation, MutationKind, NotApplicableError, Reaction, Verdict

__all__ = [
    "Action",
    "Case",
    "Chance",
    "Change",
    "Demand",
    "Entry",
    "MutatedFlow",
    "Mutation",
    "MutationKind",
    "NotApplicableError",
    "Reaction",
    "RecordedFlow",
    "Step",
    "Verdict",
    "again",
    "apply",
    "case",
    "cases",
    "catalogue",
    "mutation",
    "select",
    "steps_of",
]
