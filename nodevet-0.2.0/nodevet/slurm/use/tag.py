"""The tag of a site, from nodevet.toml."""

from nodevet.settings import settings


def reason_tag() -> str:
    """The word before each check of a reason (nodevet.slurm.reason); "" if the site has none.
    Raises SettingsError."""
    return settings().settings.slurm.reason_tag
