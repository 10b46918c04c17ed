"""The contracts of lint-imports name modules one by one, so a new module must be added to one of them."""

import tomllib

from tests.conftest import ROOT

SHARED, WIRING = "The console's shared modules know no app", "No app imports the console's wiring"


def test_every_module_of_the_console_is_shared_or_wiring():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}
    named = {*contracts[SHARED]["source_modules"], *contracts[WIRING]["forbidden_modules"]}
    modules = {f"console.{path.stem}" for path in (ROOT / "console").glob("*.py")}
    assert modules - named == {"console.__init__", "console.apps"}
