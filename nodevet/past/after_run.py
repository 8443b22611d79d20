"""After a sweep: write the site that nodevet.toml names."""

from nodevet.vet.use.sweep_order import SweepOrder


def act(order: SweepOrder) -> str:
    """Write the site if nodevet.toml names one. Returns why this failed, or ""."""
    folder = order.path(order.site.settings.site)
    if folder is None:
        return ""
    if order.store is None:
        return f"the site {folder} was not written: --store none records nothing"
    from nodevet.base.errors import UserError
    from nodevet.past.use.site.write import write_site

    try:
        write_site(order.store or None, folder)
    except UserError as error:
        return f"the site was not written: {error}; `nodevet site` writes it from the store"
    return ""
