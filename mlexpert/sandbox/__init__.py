"""Runs code that nobody has read; knows no task and no label."""
