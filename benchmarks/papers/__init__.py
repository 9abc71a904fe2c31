"""The evaluations of four papers, done again with Zedlog beside its peers: `make papers`.

Each part (lubm, dyre, aggregates, elastic) measures sections, which are kept as JSON as soon as they are measured; the
page and its plots are written from what is kept.
"""
