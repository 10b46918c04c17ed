"""Serving models: does a model fit, on how many NPUs, with which flags. Plain code."""
