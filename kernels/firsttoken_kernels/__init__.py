"""The numeric operations of the runtime, one op a file, each beside its plain PyTorch reference."""
