"""The page of a manual review: what of a task is shown, and how."""
