"""`firsttoken bench`: what the engine does under load, measured from outside over HTTP.

An *experiment* is a set of variants (a flag set each), the load they all get, and the bars that the result
is held against. `rounds` runs the variants interleaved on one server, `summary` makes figures of what the
clients saw, `report` and `plot` write them down. Generating load, percentiles, bars and tables are pure;
`client`, `load`, `server`, `machine` and `vllm` do the I/O.
"""
