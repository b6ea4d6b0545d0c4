"""Lessons: learned from rollouts, guarded, and told to an agent. Pure."""
