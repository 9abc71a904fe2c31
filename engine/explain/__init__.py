"""Why a tuple holds, why it does not, and why it changed: proofs over one state of a database, without its engine.

Read source.py first (what a state must answer), then program.py (rules in the form in which they are followed),
matching.py (the bindings of a body), proof.py (why), absence.py and repair.py (why not), change.py (why it changed) and
rendering.py (JSON, text, Mermaid).
"""
