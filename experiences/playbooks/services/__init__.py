"""Writes of playbooks, their versions, changes, executions and evolutions."""
