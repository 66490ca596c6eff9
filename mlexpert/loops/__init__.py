"""What a user starts: each loop reads from top to bottom."""
