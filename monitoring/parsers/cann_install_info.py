"""`ascend_*_install.info` of CANN toolkit, NNAE, NNAL or kernels: package, version, architecture, path."""

from monitoring.parsers import _key_values

COMMAND = "/usr/local/Ascend/ascend-toolkit/latest/<arch>-linux/ascend_toolkit_install.info, ascend_nnal_install.info"

parse = _key_values.reader("package_name", separator="=")
