"""Who is paid for what: one small file per algorithm.

A file here holds pure functions from the results of an episode to `Credit` records, in the algorithm's own words and
with its own constants. To add one (say `grpo.py`): write `credit(results) -> Credit` of the LAST result given all
results so far (`mlexpert.types.CreditRule`), or, for an algorithm that pays whole trajectories, a function from the
finished episodes of a group to one advantage each; test every outcome in a table; let a loop import it by name.
"""
