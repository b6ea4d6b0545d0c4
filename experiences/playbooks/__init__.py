"""Playbooks of agents: versions, items, changes, executions, evolution, and the context that agents are served."""
