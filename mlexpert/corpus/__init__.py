"""Text to learn from before any reward: scripts, scripted teachers, and schema documents."""
