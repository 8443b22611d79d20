"""Why a BMC could not be read."""

from nodevet.base.errors import UserError


class BmcError(UserError):
    """The BMC did not answer as it should; the message says why and never has a secret in it."""


class FatalError(BmcError):
    """Nothing more can be read: nobody answers, or the password is refused."""


class RefusedLoginError(FatalError):
    """The BMC refuses the user or the password. Each further try brings the lock nearer."""


class MissingResourceError(BmcError):
    """The BMC has no such resource."""
