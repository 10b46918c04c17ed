"""The probes of the kind `check`, run on the server as `python -m deployments.kinds.check_probes GROUP`.

One module per group. A module's `PROBES` is the list: to add a probe, write a function that takes a `Host`
and gives back one `Finding` or several, and name it there.
"""
