"""What all Firsttoken processes agree on: resource types, flags, names, documents, metrics, errors.

Sits below the operator, the sidecar and the runtime, which never import each other.
"""
