"""A contract for import-linter that names no feature, so a new feature edits no list."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FeaturesContract(Contract):
    """Nothing outside a feature imports it. A feature is a package with `command` or `commands`."""

    type_name = "features"
    package = fields.StringField()
    shared = fields.SetField(fields.StringField())  # features that others may import

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collects the imports that break the contract."""
        imports = [
            f"{importer} imports {module}"
            for feature in sorted(graph.find_children(self.package) - self.shared)
            if graph.find_children(feature) & {f"{feature}.command", f"{feature}.commands"}
            for module in sorted({feature, *graph.find_descendants(feature)})
            for importer in sorted(graph.find_modules_that_directly_import(module))
            if not f"{importer}.".startswith(f"{feature}.")
        ]
        return ContractCheck(kept=not imports, metadata={"imports": imports})

    def render_broken_contract(self, check: Any) -> None:
        """Prints them."""
        for line in check.metadata["imports"]:
            output.print_error(line)
