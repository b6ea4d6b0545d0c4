"""Deployments: a release comes into production step by step, and can be rolled back."""
