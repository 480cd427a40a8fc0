"""Settings in, running parts out: the one place that knows everything."""
