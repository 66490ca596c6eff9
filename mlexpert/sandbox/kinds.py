"""The kinds of sandbox, and how they compare."""

AUTO = "auto"  # the strongest that works here
# Neither of two equal kinds is ever preferred: which of them works is decided by who runs the program.
STRENGTH = {"plain": 0, "landlock": 1, "user": 2, "namespaces": 2, "docker": 3}
