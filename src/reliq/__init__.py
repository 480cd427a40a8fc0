"""A webhook receiver, a Postgres job queue and a worker."""
