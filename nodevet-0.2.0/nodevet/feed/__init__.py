"""Can a node feed its GPUs? `nodevet feed` answers, by nodevet.checking.feeding."""
