"""Text to checked program: parse, canonical text, safety, schemas.

Read in this order: syntax.py (the tree), grammar.lark and builder.py (text to tree), parser.py (the entry),
diagnosis.py (errors in words), canonical.py (identity of rules), supported.py and check.py (which rules are
accepted), inference.py and unification.py (schemas).
"""
