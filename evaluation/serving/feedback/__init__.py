"""Feedback on answers in production: given by people and programs, or seen by a rule; and the reward made of it."""
