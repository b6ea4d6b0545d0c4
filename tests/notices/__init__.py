"""What people and systems are told."""
