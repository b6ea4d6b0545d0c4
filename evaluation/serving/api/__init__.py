"""REST of what is in production."""
