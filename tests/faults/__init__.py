"""Real processes, real faults, at random moments. `conftest.py` says how to run it longer, or the same again."""
