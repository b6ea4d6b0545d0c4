"""Into production and back: releases, the gateway that serves them, deployments, feedback, and the loop that closes."""
