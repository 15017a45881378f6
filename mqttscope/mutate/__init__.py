"""Mutations of recorded connections, without I/O: changed packets and flows that test the receiver.

=========  ==========================================================================================
mutation   one named, seeded change to a packet or a flow
flow       one recorded connection, as a list of packets of both sides
case       one mutation applied to one flow: steps for a player, and the demanded reaction
=========  ==========================================================================================

Mutations come from the declarations of `mqttscope.mqtt` by the data type of a field (``values``, ``lengths``,
``property_blocks``), and from tables by packet (``connects``, ``requests``, ``answers``) and by flow (``connection``,
``exchanges``).  Each row names the statements of the specification that it breaks in each version, or the versions in
which it is legal, and the demanded reaction.
"""

from mqttscope.mutate.cases import MutationCase, apply, case, case_from_json, cases, flow_from_json
from mqttscope.mutate.catalogue import catalogue, mutation, select
from mqttscope.mutate.flow import Action, Change, FlowStep, MutatedFlow, RecordedFlow, RecordedPacket
from mqttscope.mutate.mutation import Chance, Demand, FlowVerdict, Mutation, MutationKind, NotApplicableError, Reaction

__all__ = [
    "Action",
    "Chance",
    "Change",
    "Demand",
    "FlowStep",
    "FlowVerdict",
    "MutatedFlow",
    "Mutation",
    "MutationCase",
    "MutationKind",
    "NotApplicableError",
    "Reaction",
    "RecordedFlow",
    "RecordedPacket",
    "apply",
    "case",
    "case_from_json",
    "cases",
    "catalogue",
    "flow_from_json",
    "mutation",
    "select",
]
