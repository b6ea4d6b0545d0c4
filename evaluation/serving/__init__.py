"""Production: releases, the gateway that serves them, deployments, feedback, and the learning loop."""
