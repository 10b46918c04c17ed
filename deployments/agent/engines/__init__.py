"""Engines that serve models on a server: each has a keeper of its own, which outlives agent, console and Redis."""
