"""What the kinds `cleanup_look` and `cleanup` run on a server: `python -m deployments.agent.cleanup look | remove …`.

`places` finds what may go, `measure` counts it, `holders` says what is in use, `images` asks container engines,
`removing` takes away. Removing begins with looking again: a target is only what that finds, so that no path is ever
taken from a caller.
"""
