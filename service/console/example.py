"""The example that an empty database offers: who may enter which building, and why."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = """\
// Who may enter what: people are in groups, groups are in groups, and groups are allowed to enter places.
.decl in_group(member: symbol, group: symbol)
.decl allowed(group: symbol, place: symbol)
.decl inside(place: symbol, building: symbol)
.decl blocked(person: symbol)
.decl person(name: symbol)

belongs(m, g) :- in_group(m, g).
belongs(m, h) :- belongs(m, g), in_group(g, h).
may_enter(p, x) :- person(p), belongs(p, g), allowed(g, x), !blocked(p).
may_enter(p, y) :- may_enter(p, x), inside(y, x).

// A constraint: a change that would make this relation hold anything is refused.
.decl visitor_in_the_vault(p: symbol) constraint
visitor_in_the_vault(p) :- may_enter(p, "vault"), belongs(p, "visitors").

person("ada"). person("ben"). person("cyd"). person("dan").
in_group("ada", "engineers"). in_group("ben", "engineers"). in_group("cyd", "visitors"). in_group("dan", "guards").
in_group("engineers", "staff"). in_group("guards", "staff").
allowed("staff", "house"). allowed("visitors", "lobby"). allowed("guards", "vault").
inside("lobby", "house"). inside("lab", "house").
blocked("ben").
"""
QUERY: Final = 'may_enter(p, "lab")'
