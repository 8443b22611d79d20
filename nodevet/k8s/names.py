"""The names that a host may have in Kubernetes. Pure."""


def names_in_cluster(host: str) -> tuple[str, ...]:
    """The host's own name, and without the domain; nodes have lower-case names.

    >>> names_in_cluster("GPU007.example.com")
    ('gpu007.example.com', 'gpu007')
    """
    name = host.lower()
    return tuple(dict.fromkeys((name, name.partition(".")[0])))
