"""REST of production."""
