"""Pages of jobs, split by noun. A view reads the request, calls one service and chooses a template."""
