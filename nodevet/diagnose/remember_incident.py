"""Incident bundles, recorded in the store where there is one."""

from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.base.files import open_regular
from nodevet.diagnose.model import Diagnosis, HostDiagnosis
from nodevet.vet.use.stores import NoHistoryError, NothingRecordedError, open_history


def remember(found: Diagnosis, path: Path) -> str:
    """Record the bundle in this file with what it came to, in the store that the environment or
    nodevet.toml names, or the user's own. Why it could not be; empty if it was, or if there is no
    store.
    """
    from nodevet.store import StoreError

    try:
        with open_regular(path) as file:
            bundle = file.read()
        with open_history(None) as store:
            told = {host.host: said_of(host) for host in found.hosts}
            store.record_incident(told, bundle, found.started)
    except (NoHistoryError, NothingRecordedError):
        return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    except (StoreError, UserError) as error:
        return str(error)
    return ""


def said_of(host: HostDiagnosis) -> str:
    """`GPU 0: throttled; GPU 1: idle`, or why there is no diagnosis."""
    causes = "; ".join(f"GPU {gpu.index}: {gpu.cause.value}" for gpu in host.gpus)
    return causes or host.why or "no GPU was seen"
