"""Gateways on a server: nginx with keys before a vllm-router, kept by a process of their own that outlives the agent."""
