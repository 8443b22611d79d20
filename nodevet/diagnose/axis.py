"""The axis of time that all charts of a diagnosis share. Pure."""

from nodevet.diagnose.model import Diagnosis, HostDiagnosis


class Axis(tuple[float, float]):
    """(when the first host began, seconds until the last ended): all charts share it."""

    @classmethod
    def of(cls, incident: Diagnosis) -> "Axis":
        began = [host.began_s for host in incident.hosts if host.began_s is not None]
        axis = cls((min(began, default=0.0), 0.0))
        ends = [
            axis.later(host) + at
            for host in incident.hosts
            for line in host.timelines
            for at, _ in line.points[-1:]
        ]
        return cls((axis[0], max(ends, default=0.0) or incident.seconds or 1.0))

    def later(self, host: HostDiagnosis) -> float:
        """How many seconds after the first host this host began."""
        return max(0.0, (host.began_s or self[0]) - self[0])
