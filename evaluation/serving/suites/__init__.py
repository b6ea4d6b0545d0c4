"""Named suites, versioned and run again: how good an agent or a release is, and how safe."""
