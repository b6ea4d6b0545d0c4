"""Survival of lessons: which lessons of a release still help when the agent has another model."""
