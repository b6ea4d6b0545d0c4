"""REST doors of agents, datasets, trajectories and environments."""
