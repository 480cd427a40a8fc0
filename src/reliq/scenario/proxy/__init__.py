"""
A TCP proxy that hurts connections on request, controlled as Toxiproxy is.

It answers the part of Toxiproxy's HTTP API that is used here, with the same words, units, codes
and bodies, so that its clients work unchanged. What it adds: each toxic counts its `hits`, each
proxy its `connections`, and the dice come from a seed, one for each connection.

Read `toxic` and `behaviours` (how connections are hurt), `link` (one connection), `server` (all of
them), `api` (how they are told).
"""
