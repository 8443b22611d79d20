/* A library that is there, and does nothing. */
int nodevet_sim_nothing;
