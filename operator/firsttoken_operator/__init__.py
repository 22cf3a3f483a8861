"""The Kubernetes operator: kopf shell, keyed queue, gather, plan, apply."""
