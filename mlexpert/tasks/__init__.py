"""What a task is and what an answer to it is worth; knows no model."""
