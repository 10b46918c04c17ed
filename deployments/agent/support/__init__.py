"""What a server gives to a support bundle: each source is a step of the job `support_bundle`, and a zip of its own.

    python -m deployments.agent.support SOURCE

`asked` reads what is wanted, `sources` know where things lie, `files` open them without following a link, `masking`
goes over every line, `part` packs, `rooted` asks the root helper, `send` brings the part to the console. What was
gathered lies in `<state>/support/<attempt>/` and goes when it was sent; what a killed job left goes with the next.
"""

INDEX = "_part.json"  # in each zip: {"entries": […], "missing": […]}
