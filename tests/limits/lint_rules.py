"""Inputs at the limits of the rules of lint: conversations in the words of `mqttscope.lint.conversation_text`."""

from __future__ import annotations

import re
from dataclasses import replace

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.conversation_text import parse_conversations
from mqttscope.lint.examples import segments
from mqttscope.net.segment import Segment
from tests.lint.lint_help import lint
from tests.tables import titled

CONVERSATIONS = r"""
ACK205
    opened; < for 2..{N}: publish a qos=1 id={n}; < publish a qos=1 id=1; < publish a qos=1 id=100
    for 2..{N}: > pubrec {n}
    > puback 100
ALS305
    opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a topic_alias=1; > disconnect; > fin
    @1 opened topic_alias_maximum=5 < topic_alias_maximum=5
    for 1..{N}: @1 > publish - qos=1 id={n} topic_alias=1
    @1 < puback 1
CON108
    opened client="x"*{N}
CON426 silent
    @1 > connect client=-; opened client=- < assigned_client_identifier=x
    {N} @1 < connack assigned_client_identifier=x
CON426 taken over
    @1 > connect client=-; opened client=- < assigned_client_identifier=x; < disconnect code=0x8e; < fin
    {N} @1 < connack assigned_client_identifier=x
DLV203
    opened; > subscribe 1 +:0 subscription_identifier=7; < suback 1 0
    > subscribe 2 #:0 subscription_identifier=8; < suback 2 0; +6 > nothing
    for 2..{N}: < publish a {n} subscription_identifier=7
    < publish a last subscription_identifier=7
    for 2..{N}: < publish a {n} subscription_identifier=8
    +6 > disconnect; > fin
DLV208
    opened 3.1.1; > subscribe 1 a:1; < suback 1 1; > subscribe 2 a:0; < suback 2 0; {N} < publish a qos=1 id=1
DLV411
    @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > nothing
    for 1..{N}: > publish a{n} x qos=1 id={n}; < puback {n}; @1 < publish a{n} x
    +12 @1 > pingreq
DLV412
    @1 opened client=c2; @1 > subscribe 1 #:0; @1 < suback 1 0; opened; +2 > nothing
    for 1..{N}: > publish a{n} 1; > publish a{n} 2; @1 < publish a{n} 2
    @1 < publish a1 1
DLV416 payloads
    @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > fin; opened
    for 1..{N}: > publish a {n} qos=1 id=1 message_expiry_interval=100; < puback 1
    +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
    @2 < publish a 1 qos=1 id=1 message_expiry_interval=100
DLV416 times
    @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > fin; opened
    for 1..{N}: > publish a x qos=1 id=1 message_expiry_interval=100; < puback 1
    +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
    @2 < publish a x qos=1 id=1 message_expiry_interval=100
DLV418
    @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1
    @2 opened client=c3; @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > nothing
    for 1..{N}: > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1 code=0x80
    @2 < publish a 1 qos=1 id=1
ENC109
    > connect; < raw "{\"" "x"*{N} "y\"}" ; < fin
ENC411
    @1 opened client=c2; @1 > subscribe 1 #:0; @1 < suback 1 0; opened; +2 > publish "\ufeffa" x; {N} @1 < publish a x
FLW201
    opened < receive_maximum={N}; > for 1..{N}: publish a qos=1 id={n}; > publish a qos=1 id=100
FLW505
    opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9; +40 < puback 1; {N} > puback 9
KAL503
    opened 3.1 keep_alive=10; @1 opened client=c2 keep_alive=0; {N} @1 > pingreq
OPS215
    opened; > for 1..{N}: publish a qos=1 id={n}; > disconnect; > fin
OPS223 minute
    settings per_minute=2; opened; > publish a qos=2 id=1; < pubrec 1; > pubrel 1
    {N} > publish a qos=2 id=2
OPS223 topics
    settings per_minute=2; opened
    for 1..{N}: > publish a{n} qos=2 id={n}
    > publish a1 qos=2 id=100
OPS230
    settings rounds=1; opened 3.1.1 protocol_level=0x84
    for 1..{N}: > publish a{n} x
    < publish a1 x
OPS426 minute
    settings per_minute=1; opened keep_alive=0; > publish a x retain; {N} > publish a x retain
OPS426 topics
    settings per_minute=1; opened
    for 1..{N}: > publish a{n} x retain
    > publish a1 x retain
OPS427
    @1 opened client=c2; @1 > subscribe 1 #:0 +:0; @1 < suback 1 0 0; opened; +2 > nothing
    for 1..{N}: > publish a{n} x; @1 < publish a{n} x & publish a{n} x
    > publish a1 y; @1 < publish a1 y & publish a1 y
OPS428
    settings messages=2; opened
    for 1..{N}: > publish a{n} x qos=1 id=1; < puback 1 code=0x10
    > publish a1 x qos=1 id=1; < puback 1 code=0x10
OPS429
    settings messages=2
    for 1..{N}: @{n} opened client=s{n}; @{n} > subscribe 1 #:0; @{n} < suback 1 0
    opened; > publish a x & publish a y; @{N} < publish a x & publish a y
PAY101
    opened; > publish a "x"*{N}
PAY103
    opened; > publish a "x"*{N} content_type=application/json
PAY204
    settings messages=2; opened
    for 1..{N}: > publish a{n} x
    > publish a1 x
PAY206 data
    opened; < publish a response_topic=r correlation_data="x"*{N}"1"; > publish r correlation_data="x"*{N}"2"
PAY206 requests
    opened
    for 1..{N}: < publish a response_topic=r correlation_data={n}
    > publish r correlation_data=0
PAY206 topics
    opened
    for 1..{N}: < publish a response_topic=r{n} correlation_data=1
    > publish r1
SEC305 asked
    settings refusals=2
    for 1..{N}: @{n} > connect user_name=u password=p{n}
    @1 < connack code=0x86; @2 < connack code=0x86
SEC305 names
    settings refusals={N}
    for 1..{N}: @{n} opened user_name=u{n} < code=0x86
SEC305 sources
    settings refusals=2
    for 1..{N}: @{n} opened < code=0x86
    @11 opened < code=0x86
SES307
    for 1..{N}: @{n} opened
    +40 @1 > pingreq; @1 < pingresp
SPB429
    opened client=a; > publish spBv1.0/g/NBIRTH/n1 x; @1 opened client=b
    for 1..{N}: @1 > publish spBv1.0/g/NBIRTH/n{n} x
    > publish spBv1.0/g/NDATA/n1 x
SUB218
    opened
    for 1..{N}: > subscribe {n} a{n}:1 b{n}:1; < suback {n} 0 1; < publish a{n} qos=1 id={n}; > puback {n}
TOP104
    opened 3.1; > publish "x"*{N}
TOP108
    settings counter=2; opened
    for 1..{N}: > publish a{n}/5
    > publish a1/6
TOP209 bytes
    settings repeats=9; opened < topic_alias_maximum=1; > for 1..9: publish "x"*{N}; > disconnect; > fin
TOP209 topics
    settings repeats=3; opened < topic_alias_maximum=1
    for 1..{N}: > publish topic{n}
    > publish topic{N} & publish topic{N}; > disconnect; > fin
TOP210
    opened
    for 2..{N}: > subscribe {n} a{n}:0; < suback {n} 0
    > subscribe 100 b/x:0; < suback 100 0; > subscribe 101 +/x:0
TOP211
    opened
    for 1..{N}: > publish a{n}
    > publish A1
TOP213
    opened
    for 1..{N}: > subscribe {n} a{n}:0; < suback {n} 0
    > unsubscribe 100 A{N}
TOP412 clients
    settings topics=1
    for 1..{N}: @{n} opened client=c{n}; @{n} > publish a
    @1 > publish b
TOP412 topics
    settings topics=1
    for 2..{N}: @{n} opened client=c{n}; @{n} > publish a
    @2 > publish b
WIL406 close
    @1 opened client=s; @1 > subscribe 1 dead:0; @1 < suback 1 0
    opened will=dead will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
    +1 @2 > connect resume session_expiry_interval=300; {N} @2 < connack present; @1 < publish dead gone
WIL406 late
    @1 opened client=s; @1 > subscribe 1 dead:0; @1 < suback 1 0
    opened will=dead will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
    +1 @2 opened resume session_expiry_interval=300 < present; {N} @1 < publish dead gone
"""
"""By rule; ``{N}`` stands for the number that is tried, or for the time of a step."""
VIOLATIONS = {
    "HDR101": "raw f0 00", "HDR102": "raw c2 00", "HDR103": "pingresp", "PUB101": 'raw 36 09 0003 "a/b" 000a6869',
    "PUB103": "publish a/#", "PUB104": "publish - x", "SUB101": "subscribe 10", "SUB102": "unsubscribe 11",
    "SUB104": "subscribe 12 a:3",
}  # fmt: skip
"""By rule, packets of a 3.1.1 client that violate it."""


def messages(name: str, number: int | str, *, hosts: bool = False) -> list[str]:
    """Messages of a rule's findings; ``hosts``: clients have addresses of their own."""
    lines = "\n  ".join(dict(titled(CONVERSATIONS))[name])
    return messages_of(name[:6], lines.replace("{N}", str(number)), hosts=hosts)


def messages_of(code: str, *lines: str, hosts: bool = False) -> list[str]:
    (conversation,) = parse_conversations("\n  ".join(["title", *lines]))
    captured = segments(conversation)
    if hosts:
        captured = [at_host(segment) for segment in captured]
    return [finding.message for finding in lint([all_rules()[code](conversation.settings)], captured)]


def at_host(segment: Segment) -> Segment:
    """A segment whose client has one of ten addresses, by the last digit of its port."""
    host = max(int.from_bytes(port) for port in (segment.key[8:10], segment.key[10:12])) % 10
    return replace(segment, key=segment.key.replace(bytes((10, 0, 0, 4)), bytes((10, 0, 1, host))))


def findings(name: str, number: int | str, *, hosts: bool = False) -> int:
    return len(messages(name, number, hosts=hosts))


def pause(nanoseconds: int, before: int = 0) -> str:
    """The time of a step after an earlier one; ``before`` of it have passed before the last step, which takes 1 µs."""
    return f"+{(nanoseconds - before - 1_000) / 1e9:.9f}"


def wills_missed(subscribers: int = 1, *, idle: int = 0, unanswered: int = 0, early_ns: int = -1) -> int:
    """Subscribers without a finding, although none of them gets the will of a client that is gone.

    The idle clients have connected before them.  The first subscriber has not answered so many messages.  The will has
    a delay, and that subscriber gets another message on its topic so long before it is due.
    """
    lines = [f"for 101..{100 + idle}: @{{n}} opened client=i{{n}}"] * bool(idle)
    lines += [f"for 1..{subscribers}: @{{n}} opened client=s{{n}}; @{{n}} > subscribe 1 dead:0; @{{n}} < suback 1 0"]
    lines += [f"@1 < for 1..{unanswered}: publish b qos=1 id={{n}}"] * bool(unanswered)
    delay = "will.will_delay_interval=9 session_expiry_interval=60" if early_ns >= 0 else ""
    lines += [f"+5 opened client=p will=dead will_payload=gone {delay}; +5 > reset"]
    lines += [f"{pause(9_000_000_000 - early_ns, -1_000)} @1 < publish dead other"] * bool(delay)
    lines += ["+45 > nothing", f"for 1..{subscribers}: @{{n}} > pingreq; @{{n}} < pingresp", "+1 @1 > pingreq"]
    return subscribers - len(messages_of("WIL404", *lines))


def tolerated(count: int) -> int:
    """Of so many violations by a client, those whose toleration by the server is not reported."""
    codes = list(VIOLATIONS)[:count]
    packets = " & ".join(VIOLATIONS[code] for code in codes)
    (conversation,) = parse_conversations(f"title\n  opened 3.1.1; > {packets} & pingreq; < pingresp")
    reported = lint([all_rules()[code]() for code in ("ERR501", *codes)], segments(conversation))
    return count - [finding.rule for finding in reported].count("ERR501")


def uncounted(code: str, setting: str, count: int) -> int:
    """Of so many connects of one client within a rule's time, those that its last message does not count."""
    settings = f"settings {setting} seconds={2 * count - 1}"
    last = messages_of(code, settings, f"for 0..{count + 2}: +2 @{{n}} opened")[-1]
    (number,) = re.findall(r"(\d+) (?:CONNECT|times)", last)
    return count - int(number)
