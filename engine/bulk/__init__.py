"""Bulk import and export through Spark, and the jobs that do it."""
