"""Deployments: how a release comes into production, step by step, and is taken back."""
