"""One file per kind of resource that a fix can change; see nodevet.remote.look."""
