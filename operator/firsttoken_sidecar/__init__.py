"""The sidecar beside each engine: proxy, timing, readiness, flags and drain. Knows no torch."""
