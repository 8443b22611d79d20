"""How nodevet ends where no command says it."""

USAGE = 2  # exit code: usage or configuration


class ReaderLeftError(Exception):
    """The reader of standard output has left. Of a BrokenPipeError click would make exit code 1,
    which means that something fails."""
