"""Why a BMC could not be read."""

from nodevet.base.errors import UserError


class BmcError(UserError):
    """The BMC did not answer as it should; the message says why and never has a secret in it."""


class FatalError(BmcError):
    """nodevet asks the BMC nothing more: it does not answer, or refuses the password."""


class RefusedLoginError(FatalError):
    """The BMC refuses the user or the password. Each further try brings the lock nearer."""


class RefusedRequestError(BmcError):
    """The BMC refuses to do what it was asked, as its state stands now."""


class SwitchedElsewhereError(BmcError):
    """The power is not as this run left it: somebody else switches the node."""


class MissingResourceError(BmcError):
    """The BMC has no such resource."""
