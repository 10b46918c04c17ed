"""How a program tells its step that what was asked for lies there already."""

THERE = 3  # the exit code
