"""Change feeds: what each epoch changed in relations or in the answer of a query, for any number of listeners.

In: the retained manifests, one after the other. Out: events for each listener. Always: a feed reads epoch after epoch
from its position, so whatever is killed, nothing is lost and nothing comes twice.

`epochs.py` reads each epoch once for all; `selections.py` and `queries.py` are the sources of changes, shared by those
who listen to the same; `feeds.py` has the listeners; `events.py` is what they are sent.
"""
