"""Who may do what: tokens, roles, rights to relations, and the checks that every request passes."""
