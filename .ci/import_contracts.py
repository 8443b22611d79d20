"""A contract for import-linter that names no feature, so a new feature edits no list."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def is_feature(graph: ImportGraph, package: str) -> bool:
    """Whether a package has `command.py` or a folder `commands`."""
    children = graph.find_children(package)
    commands = f"{package}.commands"
    return f"{package}.command" in children or (
        commands in children and bool(graph.find_children(commands))
    )


class FeaturesContract(Contract):
    """Nothing outside a feature imports it."""

    type_name = "features"
    package = fields.StringField()
    shared = fields.SetField(fields.StringField())  # features that others may import
    importers = fields.SetField(fields.StringField())  # modules that may import every feature

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collects the imports that break the contract."""
        imports = [
            f"{importer} imports {module}"
            for feature in sorted(graph.find_children(self.package) - self.shared)
            if is_feature(graph, feature)
            for module in sorted({feature, *graph.find_descendants(feature)})
            for importer in sorted(graph.find_modules_that_directly_import(module) - self.importers)
            if not f"{importer}.".startswith(f"{feature}.")
        ]
        return ContractCheck(kept=not imports, metadata={"imports": imports})

    def render_broken_contract(self, check: Any) -> None:
        """Prints them."""
        for line in check.metadata["imports"]:
            output.print_error(line)
