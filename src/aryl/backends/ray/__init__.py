"""Ray: gangs of actors on many machines. The only files that import it, lazily."""
