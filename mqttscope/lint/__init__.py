"""The linter: reports which normative statement was broken, by which side, where, and with which confidence.

===========  =================================================================================================
rule         one check, in a file of its own or of its family under ``rules/<area>/``; its examples are its tests and
             its documentation
finding      one report of a rule: which side, where in the bytes, which statements, how sure
severity     ``error`` breaks a MUST, ``warning`` a SHOULD (or a MUST with exceptions the wire cannot rule out),
             ``info`` neither
confidence   ``certain`` is proved by the bytes, ``likely`` holds unless something happened off the capture,
             ``heuristic`` is a pattern
scope        how far a rule has to look: packet, connection, session, broker
RuleContext  one event with the state before it: what a rule looks at
===========  =================================================================================================

``rule`` is the base of all rules, ``catalogue`` finds and selects them and knows the statements of the specifications,
``engine`` runs rules over events, ``gate`` decides which findings count, ``examples`` declares conversations and makes
TCP segments of them.

In a program ``mqttscope.lint(...)`` calls this package: that is the function `api.linting.lint` (docs/library.md).
"""
