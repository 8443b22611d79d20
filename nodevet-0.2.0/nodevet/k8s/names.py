"""The names that a host may have in Kubernetes. Pure."""


def names_in_cluster(host: str) -> tuple[str, ...]:
    """The name of the host, and the name without its domain. Kubernetes uses lower case.

    >>> names_in_cluster("GPU007.example.com")
    ('gpu007.example.com', 'gpu007')
    """
    name = host.lower()
    return tuple(dict.fromkeys((name, name.partition(".")[0])))
