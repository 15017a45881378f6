"""Inputs at the limits of the package mutate."""

from __future__ import annotations

from mqttscope.mutate import NotApplicableError
from mqttscope.mutate.layout import with_length
from tests.mutate.talk import V5, mutated, spoken
from tests.mutate.test_exchanges import added
from tests.mutate.test_layout import FIELDS, targeted


def overrun(maximum: int) -> int | str:
    """Messages that overrun a Receive Maximum."""
    flow = spoken(V5, f"> connect\n< connack receive_maximum={maximum}\n> disconnect")
    try:
        return len(added(mutated("flow:receive-maximum-overrun", flow=flow)))
    except NotApplicableError as error:
        return str(error)


def announced(length: int) -> int | str:
    """The length that a Topic Name has in a packet, where it is to lie."""
    field = FIELDS["publish.topic_name"]
    try:
        return int.from_bytes(with_length(targeted(field), field, lambda _: length)[2:4], "big")
    except NotApplicableError as error:
        return str(error)
