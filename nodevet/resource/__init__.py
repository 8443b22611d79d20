"""What a fix can change: one file of this folder is one kind of resource, with all of it."""

from nodevet.resource.core import Action, Resource, RunCommand, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

AnyAction = WriteFile | WriteKernel | SetUnit | RunCommand
Actions = tuple[AnyAction, ...]

__all__ = ["Action", "Actions", "AnyAction", "Resource", "RunCommand", "State"]
