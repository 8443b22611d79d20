"""One file per kind of resource that a fix can touch; see nodevet.remote.kinds."""
