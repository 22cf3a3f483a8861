"""One module for each page of docs/reference: data in, Markdown out, nothing written."""
