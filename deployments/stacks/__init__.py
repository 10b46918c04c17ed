"""Stacks: which versions go together, what a server has, and the steps from one to the other. Plain code.

`catalogue` reads stacks.json, `installed` reads a server's facts, `plan` makes the steps, `verdict` sums them up.
"""
