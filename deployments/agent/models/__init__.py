"""Programs of jobs that bring models to this server."""
