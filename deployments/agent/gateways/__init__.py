"""Gateways on a server: nginx with keys before a vllm-router, kept by a process that outlives the agent."""
