"""Text to checked program: parse, canonical text, safety, schemas.

Read in this order: syntax.py (the tree), grammar.lark and builder.py (text to tree), parser.py (the entry),
diagnosis.py (errors in words), canonical.py (identity of rules), supported.py and check.py (which rules are
accepted), inference.py and unification.py (schemas).
"""

from engine.language.canonical import canonical_text, format_declaration, format_rule, rule_id
from engine.language.check import check_rule
from engine.language.inference import infer_schemas
from engine.language.parser import parse_declarations, parse_goal, parse_program, parse_query, parse_rules
from engine.language.schema import Column, ColumnType, Schema

__all__ = [
    "Column",
    "ColumnType",
    "Schema",
    "canonical_text",
    "check_rule",
    "format_declaration",
    "format_rule",
    "infer_schemas",
    "parse_declarations",
    "parse_goal",
    "parse_program",
    "parse_query",
    "parse_rules",
    "rule_id",
]
