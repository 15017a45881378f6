"""Wills that were published, and what became of them."""

from __future__ import annotations

from tests.each import each
from tests.explain.test_messages import trace

WATCHER = "@1 opened client=watch; @1 > subscribe 1 st:1; @1 < suback 1 1"
ENDS, COPY = "> reset", "@1 < publish st off qos=1 id=1; @1 > puback 1"
DEVICE = "opened client=dev will=st will_payload=off will_qos=1 will_retain"
DIED = f"{DEVICE}; {WATCHER}; {ENDS}; {COPY}"
ASKS = "@2 opened client=late; @2 > subscribe 1 st:1; @2 < suback 1 1"
WAITS = "+2 @2 > pingreq; @2 < pingresp"


def remarks(text: str) -> list[str]:
    return [remark for remark in trace(text, topic="st").remarks if "Will Retain" in remark]


@each("text", [f"{DIED}; {ASKS}; {WAITS}", f"{DIED}; {ASKS.replace('st:1', '+:1')}; {WAITS}"])
def test_a_will_that_is_not_retained(text: str) -> None:
    (shown_text,) = remarks(text)

    assert shown_text.startswith(
        "dev had announced the will to st with Will Retain 1, and watch got it in frame 14; late"
    )


@each(
    "text",
    [
        f"{DIED}; {ASKS}; @2 < publish st off retain; {WAITS}",
        # It comes without RETAIN, which a rule of the linter is about.
        f"{DIED}; {ASKS}; @2 < publish st off; {WAITS}",
        f"{DIED.replace(' will_retain', '')}; {ASKS}; {WAITS}",
        f"{DIED.replace('will_payload=off ', '').replace('st off', 'st')}; {ASKS}; {WAITS}",
        # It was dropped, and what came is of somebody else.
        f"{DIED.replace(ENDS, '> disconnect')}; {ASKS}; {WAITS}",
        f"{DIED.replace('will_retain', 'will_retain will.will_delay_interval=5')}; {ASKS}; {WAITS}",
        # Something else was retained since, or may have been.
        f"{DIED}; @3 opened client=dev; @3 > publish st on retain; {ASKS}; {WAITS}",
        f"{DIED}; @3 opened client=x will=st will_payload=gone; {ASKS}; {WAITS}",
        f"{DIED}; @1 < publish st on; {ASKS}; {WAITS}",
        # It has expired, is not asked for, refused, or may still come.
        f"{DIED.replace('will_retain', 'will_retain will.message_expiry_interval=1')}; {ASKS}; {WAITS}",
        f"{DIED}; {ASKS.replace('st:1', 'st:1,retain_handling=2')}; {WAITS}",
        f"{DIED}; {ASKS.replace('st:1', '$share/g/st:1')}; {WAITS}",
        f"{DIED}; {ASKS.replace('suback 1 1', 'suback 1 0x87')}; {WAITS}",
        f"{DIED}; {ASKS}; @2 > fin; {WAITS.replace('@2', '@1')}",
        f"{DIED}; {ASKS}; lost @2 < publish st off retain; {WAITS}",
        f"{DIED}; {ASKS}",
    ],
)
def test_a_will_that_need_not_be_retained(text: str) -> None:
    assert remarks(text) == []
