"""The only package that knows asyncpg and SQL; each class here fits a port."""
