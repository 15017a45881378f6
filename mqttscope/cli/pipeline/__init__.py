"""Commands over whole collections of captures, with Spark."""
