"""Makes tasks out of competitions and data sets: discover, fetch, plan, split, build, verify, leaks, repair."""
