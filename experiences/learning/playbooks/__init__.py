"""Playbooks: an agent's context before each task, in items that grow by small changes and are never rewritten. Pure.

After ACE (arXiv 2510.04618), with additions: every kind of change is implemented, counts are outcomes and not opinions,
limits are enforced, and lessons from untrusted text wait for a person.
"""
