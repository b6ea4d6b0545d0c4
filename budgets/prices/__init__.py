"""What model calls cost: arithmetic, and prices from a file."""
