"""One sentence about the messages that the linter reports as lost, for explanations of ends."""

from __future__ import annotations

from collections import Counter

from mqttscope.explain import describe
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt.wire import counted
from mqttscope.secrets.findings import HidingOptions, conceal

RULES = frozenset(("DLV410", "RET405", "RET406", "SES411"))
"""Rules about messages that did not come, live, retained, or after the return of a client."""
MAX_TOPICS = 1_000
"""Maximum number of topics of lost messages that are distinguished."""


class LostMessages:
    """Counts the findings of `RULES`, which prove that a broker accepted a message and did not send it."""

    def __init__(self) -> None:
        self._topics: Counter[str] = Counter()
        self._rules: dict[str, None] = {}
        self._others = 0
        """Messages of topics beyond `MAX_TOPICS`."""

    def note(self, finding: Finding) -> None:
        """Take a finding of any rule; a note is not a proof."""
        if finding.rule not in RULES or finding.severity is Severity.INFO:
            return
        topic = describe.name(conceal(finding, HidingOptions()).topic) or "(unknown topic)"
        self._rules[finding.rule] = None
        if topic in self._topics or len(self._topics) < MAX_TOPICS:
            self._topics[topic] += 1
        else:
            self._others += 1

    def sentence(self) -> str:
        """How many messages are lost, and their topics; empty without any."""
        total = self._topics.total() + self._others
        if not total:
            return ""
        topics = describe.listed(list(self._topics))
        rules = ", ".join(sorted(self._rules))
        return f"likely: {counted(total, 'message')} did not reach a client ({rules}): {topics}. Add --message TOPIC."
