"""Backups: one epoch of a database as a zip that can be read without Zedlog; checked, restored, and dumped as text."""
