"""The self-audit: digests, comparison of memory and snapshot with what follows, and how it is started and told."""
