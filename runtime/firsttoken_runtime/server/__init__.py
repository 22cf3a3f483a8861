"""The server process: OpenAI API, text in and out, and the watch over the engine process. No torch here."""
