"""The linter: reports broken normative statements, with the side to blame, the position and the confidence.

===========  =================================================================================================
rule         one check, in a file of its own or of its family under ``rules/<area>/``; its examples are its tests and
             its documentation
finding      one report of a rule: side, bytes, statements and confidence
severity     ``error``: a MUST is broken.  ``warning``: a SHOULD is broken, or a MUST with an exception that the capture
             cannot rule out.  ``info``: neither
confidence   ``certain``: the bytes prove it.  ``likely``: true unless the capture is missing something.
             ``heuristic``: usually a fault, not always
scope        how much a rule has to see: packet, connection, session, broker
RuleContext  one event with the state before it: the input of a rule
===========  =================================================================================================

``rule`` has the base of all rules, ``catalogue`` finds and selects rules and lists the statements of the
specifications, ``engine`` runs rules over events, ``gate`` decides which findings fail the run, ``examples`` declares
conversations and turns them into TCP segments.

In a program, ``mqttscope.lint(...)`` is a function, `api.linting.lint` (docs/library.md).
"""
