"""Lessons: learned from rollouts, guarded, and part of an agent's context. Pure."""
