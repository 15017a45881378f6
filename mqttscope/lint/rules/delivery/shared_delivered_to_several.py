"""DLV419."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, message, paired, publishes, subscriber
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish
from mqttscope.session.matching import FAILURE

_SHARE = "$share/g/a"
_MEMBERS = (*subscriber(V5, _SHARE), *subscriber(V5, _SHARE, connection=2, identifier="c3"))
_ACKED = client(Puback(1))
_SHOWN = 4
"""Members that a message names."""


class SharedDeliveredToSeveral(Rule):
    """A message of a Shared Subscription goes to more than one of its members.

    The members of a share divide the work, so each message is for one of them: what two of them do is done twice.
    Another copy is allowed where the first member's connection has ended, and for an ordinary subscription that a
    member holds too.  The payload has to tell the message from all others of its topic.

    Instead, choose one member for each message, and another one only when the connection of the first has ended.
    """

    code = "DLV419"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"V5-SHARED-exactly-one": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")

    good = examples(
        lambda: [
            conversation(
                "one member",
                *_MEMBERS,
                *opened(),
                *publishes(message(), message(b"other", packet_identifier=2)),
                *on(1, server(message()), _ACKED),
                *on(2, server(message(b"other")), _ACKED),
            ),
            conversation(
                "the first one is gone",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), closes("client", "reset")),
                *on(2, server(message()), _ACKED),
            ),
            conversation(
                "an ordinary subscription beside it",
                *subscriber(V5, _SHARE, "a"),
                *subscriber(V5, _SHARE, connection=2, identifier="c3"),
                *opened(),
                *publishes(message()),
                *on(1, server(message()), _ACKED),
                *on(2, server(message()), _ACKED),
            ),
            conversation(
                "another share",
                *subscriber(V5, _SHARE),
                *subscriber(V5, "$share/h/a", connection=2, identifier="c3"),
                *opened(),
                *publishes(message()),
                *on(1, server(message()), _ACKED),
                *on(2, server(message()), _ACKED),
            ),
            conversation(
                "the same payload again",
                *_MEMBERS,
                *opened(),
                *publishes(message(), message()),
                *on(1, server(message()), _ACKED),
                *on(2, server(message()), _ACKED),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "two members",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), _ACKED),
                *on(2, server(message()).marked(""), _ACKED),
            ),
            conversation(
                "a wildcard, QoS 0",
                *subscriber(V5, "$share/g/#"),
                *subscriber(V5, "$share/g/#", connection=2, identifier="c3"),
                *opened(),
                *publishes(message(qos=0)),
                *on(1, server(message(qos=0))),
                *on(2, server(message(qos=0)).marked("")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look which members of the share have got the message."""
        found = paired(packet, at)
        if found is None or found.retained or not at.model(Messages).table.shared:
            return None
        sent = found.sole
        if sent is None or found.owner in sent.copies:
            return None
        share = share_of(sent.topic, at)
        if not share:
            return None
        before = []
        for owner, copies in sent.copies.items():
            for one in copies:
                history = at.history_of(one.key)
                if one.share != share or history is None:
                    continue
                identifier = one.packet_identifier
                ended = None if identifier is None else history.server.ended.get(identifier)
                if ended is not None and ended.reason_code >= FAILURE:
                    continue  # DLV418
                before.append((owner, one))
                break
        if not before:
            return None
        names = ", ".join(repr(owner) for owner, _ in before[:_SHOWN])
        first = before[0][1]
        return self.report(
            "",
            f"message on {sent.topic!r} is sent to {found.owner!r} as well as to {names}, all members of the shared "
            f"subscription {share!r}",
            related=(
                Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),
                Related("the message as delivered before", first.packet, first.frame, first.timestamp_ns),
            ),
        )
