"""The gate of a release as pure values: the measurements of the release, and the rule of its agent."""
