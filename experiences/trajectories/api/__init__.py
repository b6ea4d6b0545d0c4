"""REST: trajectories and rewards."""
