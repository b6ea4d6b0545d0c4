"""An OpenAI-compatible endpoint in front of released agents and plain models."""
