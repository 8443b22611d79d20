"""After a sweep: send it to OpenTelemetry if nodevet.toml asks for it."""

from nodevet.base.errors import UserError
from nodevet.store import open_store
from nodevet.vet.use.sweep_order import SweepOrder


def act(order: SweepOrder) -> str:
    """Send the last run of the sweep. Returns why this failed, or ""."""
    signals = order.site.settings.otel.send
    if not signals or order.store is None:
        return ""
    from nodevet.otel.use import send_run

    try:
        with open_store(order.store or None, create=False) as store:
            send_run(store, "last", signals, order.name)
    except UserError as error:
        return f"OpenTelemetry: {error}"
    except Exception as error:  # from the exporter; its text may contain a header
        return f"OpenTelemetry: the exporter failed: {type(error).__name__}"
    return ""
