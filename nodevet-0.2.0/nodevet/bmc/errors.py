"""Why a BMC could not be read."""

from nodevet.base.errors import UserError


class BmcError(UserError):
    """The BMC did not answer as it should; the message says why and never has a secret in it."""


class FatalError(BmcError):
    """nodevet asks the BMC nothing more: it does not answer, or refuses the password."""


class RefusedLoginError(FatalError):
    """The BMC refuses the user or the password. Further tries may lock the account."""


class RefusedRequestError(BmcError):
    """The BMC refuses the request in its present state."""


class SwitchedElsewhereError(BmcError):
    """Another run, a person or a program switched the node since this run did."""


class MissingResourceError(BmcError):
    """The BMC has no such resource."""
