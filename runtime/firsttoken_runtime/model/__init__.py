"""From files to logits: configuration, tokenizer, weights, and one decoder driven by a table of families."""
