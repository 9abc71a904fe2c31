"""The self-audit: what is held and stored, compared with what follows from the facts and the rules."""
