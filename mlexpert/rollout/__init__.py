"""From weights and tasks to tokens and windows."""
