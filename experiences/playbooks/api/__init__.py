"""REST: playbooks and their evolutions."""
