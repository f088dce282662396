"""Import hosted samples of a Prime evaluation: the service, and a trial for each sample."""
