"""Playbooks: what an agent is told before each task, in items that grow by small changes and are never rewritten. Pure.

After ACE (arXiv 2510.04618), with what its reference lacks: every kind of change is done, counts are outcomes and not
opinions, limits are enforced, and what was learned from untrusted text waits for a person.
"""
