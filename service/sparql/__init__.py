"""SPARQL over the relation `triple`: an Oxigraph store in a process of its own, which follows the published epochs.

In: pinned snapshots and the epochs after them. Out: answers of queries, and updates as rows that go and rows that come.
Always: the store is the relation at one epoch, as far as its tuples are RDF triples; each query and each update works
on a copy of it that nothing changes (a fork), so it can be ended at any time, whatever it is doing, and costs the
service nothing but the wait.

`terms.py` says which symbols are RDF terms; `lines.py` turns tuples into N-Triples, `store.py` is the store;
`answers.py` and `updates.py` work on its copies, `syntax.py` takes updates apart; `process.py` is the process,
`remote.py` the service's end of it, and `follower.py` keeps it with the epochs.
"""
