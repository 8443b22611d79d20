"""Why a BMC could not be read."""

from nodevet.base.errors import UserError


class BmcError(UserError):
    """The BMC did not answer as it should; the message says why and never has a secret in it."""


class FatalError(BmcError):
    """Nothing more can be read: nobody answers, or the password is refused. To go on trying would
    lock the account."""


class MissingResourceError(BmcError):
    """The BMC has no such resource."""
