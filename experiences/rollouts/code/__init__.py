"""Code that an agent wrote: found in its answer, checked by ruff, bandit and a row's tests, in a sandbox."""
