"""Console pages of experiences: the forms of agents, trajectories and their groups."""
