"""What was asked and answered in production, to be looked at."""
