"""The client of a running service: `from zedlog import Client, AsyncClient` (docs/python.md)."""
