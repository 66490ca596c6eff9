"""Language-model agents that do machine-learning engineering: tasks, harness, sandbox, rollouts, training."""
