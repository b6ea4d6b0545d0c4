"""Feedback on answers in production: from people, programs and rules; and the reward made of it."""
