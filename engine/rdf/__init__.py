"""The formats of RDF: their names, files to terms, and terms to files. The parsers and writers are pyoxigraph's."""
