"""What a run will cost and how long it will take."""
