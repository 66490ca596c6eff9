"""The policy network: a sparse (or dense) causal transformer as pure functions over a dict of arrays. Knows no RL."""
