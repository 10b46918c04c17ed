"""The sample model for tests: two layers, in a folder of the test's own."""

from deployments.artifacts import sample


def make(folder):
    sample.make(folder)
