"""Programs of the kinds `serve`, `stop` and `restart`: one for each step, all told by words (`serving/asked.py`).

What an engine is stands in its folder below the state folder, which its keeper reads (`agent/engines/`).
"""
