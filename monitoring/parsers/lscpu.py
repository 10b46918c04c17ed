"""`lscpu`: architecture, cores, clusters, NUMA nodes of the host."""

from monitoring.parsers import _key_values

COMMAND = ("lscpu",)

parse = _key_values.reader("Architecture", "CPU op-mode")
